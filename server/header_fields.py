"""The header fields of a request, decoded once: each of the application's layers looks at some of them."""

from __future__ import annotations

from typing import Final

from starlette.types import Scope

_KEY: Final = "openresponses.headers"


class HeaderFields(dict[str, str]):
    """Names in lower case → values, the first one where a name is there several times."""

    def __init__(self, raw: list[tuple[bytes, bytes]]) -> None:
        self._raw = raw
        for name, value in reversed(raw):
            self[name.decode("latin-1")] = value.decode("latin-1")

    def getlist(self, name: str) -> list[str]:
        """All values of a name, in order."""
        if name not in self:
            return []
        if len(self) == len(self._raw):
            return [self[name]]
        wanted = name.encode("latin-1")
        return [value.decode("latin-1") for key, value in self._raw if key == wanted]


def fields_of(scope: Scope) -> HeaderFields:
    """Those of this request or handshake. The application's layers leave them as they came."""
    try:
        fields: HeaderFields = scope[_KEY]
    except KeyError:
        fields = scope[_KEY] = HeaderFields(scope["headers"])
    return fields

"""The header fields of a request, decoded once for all middlewares."""

from __future__ import annotations

from typing import Final

from starlette.types import Scope

_KEY: Final = "openresponses.headers"
# names that most requests have: decoded at import
_COMMON: Final = (
    *("host", "connection", "accept", "accept-encoding", "accept-language", "user-agent", "authorization"),
    *("content-type", "content-length", "transfer-encoding", "x-api-key", "x-request-id", "openai-beta"),
    *("anthropic-version", "anthropic-beta", "x-goog-api-key", "x-goog-api-client"),
)


class _Names(dict[bytes, str]):
    """Names as bytes → as text. The common ones are decoded once."""

    def __missing__(self, name: bytes) -> str:
        return name.decode("latin-1")


class _Lower(dict[bytes, bytes]):
    """Names → in lower case. The common ones, in their two usual spellings, are converted once."""

    def __missing__(self, name: bytes) -> bytes:
        return name.lower()


_NAMES: Final = _Names((name.encode(), name) for name in _COMMON)
LOWER: Final = _Lower((each.encode(), name.encode()) for name in _COMMON for each in (name, name.title()))
"""Names as received → in lower case."""


class HeaderFields(dict[str, str]):
    """Names in lower case → values; the first value of a repeated name."""

    def __init__(self, raw: list[tuple[bytes, bytes]]) -> None:
        self._raw = raw
        for name, value in reversed(raw):
            self[_NAMES[name]] = value.decode("latin-1")
        self.are_single = len(self) == len(raw)
        """True if no name is repeated."""

    def getlist(self, name: str) -> list[str]:
        """All values of a name, in order."""
        if name not in self:
            return []
        if self.are_single:
            return [self[name]]
        raw_name = name.encode("latin-1")
        return [value.decode("latin-1") for key, value in self._raw if key == raw_name]


def fields_of(scope: Scope) -> HeaderFields:
    """The header fields of this request or handshake. Middlewares change them by `replace_headers` alone."""
    try:
        fields: HeaderFields = scope[_KEY]
    except KeyError:
        fields = scope[_KEY] = HeaderFields(scope["headers"])
    return fields


def replace_headers(scope: Scope, headers: list[tuple[bytes, bytes]]) -> None:
    """Give the request these headers in place of its own."""
    scope["headers"] = headers
    scope.pop(_KEY, None)

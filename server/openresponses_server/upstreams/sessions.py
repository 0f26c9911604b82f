"""Headers that name the session of a request, for providers that want one id for each conversation."""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Final

from openresponses_server.settings import SettingsError

PURPOSE: Final = "headers of sessions"
"""The purpose for which the key that makes the ids is derived."""
SESSION: Final = "{session}"
_ID_LENGTH: Final = 32  # characters
_LONGEST: Final = 200  # characters of a template
_NAME: Final = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VALUE: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_OURS: Final = frozenset(
    {
        *("accept", "accept-encoding", "authorization", "connection", "content-encoding", "content-length"),
        *("content-type", "cookie", "expect", "host", "keep-alive", "proxy-authorization", "te", "trailer"),
        *("traceparent", "tracestate", "transfer-encoding", "upgrade", "x-request-id"),
    }
)


class SessionHeaders:
    """The headers of one upstream. `keys` gives this server's own keys for them, and is called with the first
    request."""

    def __init__(
        self, upstream: str, templates: Mapping[str, str], keys: Callable[[], Sequence[bytes]]
    ) -> None:
        self._upstream = upstream
        self._templates = templates
        self._keys = keys

    @cached_property
    def _key(self) -> bytes:
        return self._keys()[0]

    def of(self, session: str) -> dict[str, str]:
        """Return the headers for the session of this name. Without the key nobody can guess them or find the
        name, and two upstreams get different ids."""
        signed = f"{len(self._upstream)}\0{self._upstream}\0{session}".encode()
        shown = hmac.digest(self._key, signed, "sha256").hex()[:_ID_LENGTH]
        return {name: template.replace(SESSION, shown) for name, template in self._templates.items()}


def checked_templates(
    session_headers: Mapping[str, str], whose: str, taken: Mapping[str, str], key_header: str
) -> dict[str, str]:
    """Return these templates by the names of their headers in lower case. `taken` are the upstream's other
    headers. Raises SettingsError for one that can't be sent, or that has no place for the session."""
    others = {key_header.lower(), *(name.lower() for name in taken)}
    templates: dict[str, str] = {}
    for name, template in session_headers.items():
        lower, where = name.lower(), f".session_headers.{name}"
        if not _NAME.fullmatch(lower):
            raise SettingsError(f"{whose}: {name!r} can't be the name of a header", where)
        if lower in _OURS or lower in others or lower in templates:
            raise SettingsError(f"{whose}: the header {lower} has a value already", where)
        if template.count(SESSION) != 1:
            raise SettingsError(f"{whose}: expected {SESSION} once in the header {lower}", where)
        if len(template) > _LONGEST or not _VALUE.fullmatch(template):
            what = f"expected up to {_LONGEST} visible ASCII characters, with spaces between them"
            raise SettingsError(f"{whose}: {what}, in the header {lower}", where)
        templates[lower] = template
    return templates

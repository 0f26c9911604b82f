"""Law S7: who a request is from. Keys are compared by their hashes and never kept, logged or told."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from server.config import hashed
from server.errors import HttpError
from server.middleware import refuse

NOBODY: Final = ""
"""The owner of everything where no keys are asked for."""
_BEARER: Final = "bearer "
_OWNER_LENGTH: Final = 32  # characters of the hash: enough to tell keys apart, too few to be a hash of one
_OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})


def client_key(headers: Mapping[str, str]) -> str | None:
    """The key that a client shows, as OpenAI's or as Anthropic's clients do."""
    authorization = headers.get("authorization", "")
    if authorization.lower().startswith(_BEARER):
        return authorization[len(_BEARER) :].strip() or None
    return headers.get("x-api-key") or None


class Keys:
    """The keys that are asked for, as hashes; none means that every client is taken."""

    def __init__(self, hashes: Iterable[str]) -> None:
        self._hashes = list(hashes)

    def owner(self, headers: Mapping[str, str]) -> str:
        """Who shows these headers. Raises HttpError 401."""
        if not self._hashes:
            return NOBODY
        key = client_key(headers)
        if key is None:
            raise _refused("No API key was given: send `Authorization: Bearer KEY` or `x-api-key: KEY`.")
        shown = hashed(key)
        # every hash is compared, so that the time tells nothing
        known = [hmac.compare_digest(shown, each) for each in self._hashes]
        if key.startswith("sha256:") or not any(known):
            raise _refused("The API key is not known here.")
        return shown.partition(":")[2][:_OWNER_LENGTH]


class Authentication:
    """Puts the owner of each request into its state; refuses those without a known key. A WebSocket is
    refused before its handshake."""

    def __init__(self, app: ASGIApp, keys: Keys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            is_open = scope["path"] in _OPEN_PATHS
            try:
                owner = NOBODY if is_open else self._keys.owner(Headers(scope=scope))
            except HttpError as error:
                await refuse(error, scope, receive, send)
                return
            scope.setdefault("state", {})["owner"] = owner
        await self._app(scope, receive, send)


def _refused(message: str) -> HttpError:
    return HttpError(401, message, headers={"www-authenticate": "Bearer"})

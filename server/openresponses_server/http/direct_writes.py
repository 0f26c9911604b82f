"""An ASGI extension that `server/openresponses_server/http` offers: one plain call writes a chunk of a body,
or a message of a WebSocket.

`send` passes through a coroutine per middleware, which costs more than translating a token that arrives
alone. A middleware that must see each chunk removes the extension from the scope (`withdraw`); one that needs
only the head of an answer, or its duration, need not.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any, Final

Write = Callable[[bytes], bool]
"""Writes a chunk of the body that is not the last, or a whole text message, and returns True. Returns False
without writing if `send` must be used: the answer has not begun or has ended, it has a content-length, the
client has disconnected, or the write would wait."""

_NAME: Final = "openresponses-bridge.write"


def offer(scope: MutableMapping[str, Any], write: Write) -> None:
    """Add it to the scope of a request."""
    scope.setdefault("extensions", {})[_NAME] = {"write": write}


def withdraw(scope: MutableMapping[str, Any]) -> None:
    """Remove it, so that the whole answer passes through `send`."""
    scope.get("extensions", {}).pop(_NAME, None)


def offered(scope: MutableMapping[str, Any]) -> Write:
    """The function that the connection offers, else one that always returns False."""
    try:
        found: Write = scope["extensions"][_NAME]["write"]
    except KeyError:
        return _refused
    return found


def _refused(_body: bytes) -> bool:
    return False

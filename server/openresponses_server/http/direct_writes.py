"""An ASGI extension that `server/openresponses_server/http` offers: a piece of an answer's body, or a
message of a WebSocket, leaves in one plain call.

`send` is passed on from layer to layer, a coroutine for each, which costs more than a token that has come by
itself. A middleware that has to see each piece takes the extension out of its request's scope (`withdraw`);
one that looks at how an answer begins, or how long it takes, need not.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any, Final

Write = Callable[[bytes], bool]
"""Writes a piece of the body that is not its last, or a whole message of text; or writes nothing and says so:
the answer has not begun or is over, it has a length, nobody reads it, or the client has to be waited for.
`send` is for those."""

_NAME: Final = "openresponses-bridge.write"


def offer(scope: MutableMapping[str, Any], write: Write) -> None:
    """Put it into the scope of a request."""
    scope.setdefault("extensions", {})[_NAME] = {"write": write}


def withdraw(scope: MutableMapping[str, Any]) -> None:
    """Have all of this request's answer pass through `send`."""
    scope.get("extensions", {}).pop(_NAME, None)


def offered(scope: MutableMapping[str, Any]) -> Write:
    """What a request's connection offers; one that always refuses when that is nothing."""
    try:
        found: Write = scope["extensions"][_NAME]["write"]
    except KeyError:
        return _refused
    return found


def _refused(_body: bytes) -> bool:
    return False

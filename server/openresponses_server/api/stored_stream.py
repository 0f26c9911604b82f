"""The stream of a stored response, whose pieces may be cut anywhere."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final, cast

import anyio
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Message, Receive, Scope, Send

from openresponses_server.api.forms import KEEP_ALIVE, SSE_TYPE

_BLANK_LINE: Final = b"\n\n"


class StoredStream(EventSourceResponse):
    """Sends the pieces as they come, and comments between two frames while none come: `beat` is such a
    comment, `end` what a frame ends with."""

    def __init__(
        self,
        pieces: AsyncIterator[bytes],
        headers: Mapping[str, str],
        keep_alive: float,
        kind: bytes = SSE_TYPE,
        beat: bytes = KEEP_ALIVE,
        end: bytes = _BLANK_LINE,
    ) -> None:
        self._beat, self._end = beat, end
        super().__init__(
            pieces,
            headers=headers,
            media_type=kind.decode().partition(";")[0],
            ping=keep_alive,
            ping_message_factory=cast(Callable[[], ServerSentEvent], lambda: beat),  # bytes will do
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await super().__call__(scope, receive, _between_frames(send, self._beat, self._end))


def _between_frames(send: Send, beat: bytes, end: bytes) -> Send:
    """The same, one message after the other, without the comments that would come within a frame."""
    turn, between = anyio.Lock(), True

    async def in_turn(message: Message) -> None:
        nonlocal between
        async with turn:  # what waits for a slow client must not be overtaken
            body = message.get("body", b"")
            if body == beat:
                if not between:
                    return
            elif body:
                between = body.endswith(end)
            await send(message)

    return in_turn

"""Sends a stream that is stored, in pieces that may end within a frame."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final, cast

import anyio
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Message, Receive, Scope, Send

from openresponses_bridge.dialects.base import KEEP_ALIVE, SSE_TYPE
from openresponses_bridge.sse import DONE

_BLANK_LINE: Final = b"\n\n"


class StoredStream(EventSourceResponse):
    """Sends the pieces of a stored stream, which may end within a frame, and between two frames keep-alives
    while no pieces come. `keepalive` is what is sent as one, `frame_end` the bytes at the end of a frame."""

    def __init__(
        self,
        pieces: AsyncIterator[bytes],
        headers: Mapping[str, str],
        keep_alive: float,
        content_type: bytes = SSE_TYPE,
        keepalive: bytes = KEEP_ALIVE,
        frame_end: bytes = _BLANK_LINE,
    ) -> None:
        self._keepalive, self._frame_end = keepalive, frame_end
        super().__init__(
            pieces,
            headers=headers,
            media_type=content_type.decode().partition(";")[0],
            ping=keep_alive,
            ping_message_factory=cast(
                Callable[[], ServerSentEvent], lambda: keepalive
            ),  # it sends bytes as well
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await super().__call__(
            scope, receive, _drop_keepalives_within_frames(send, self._keepalive, self._frame_end)
        )

    # the tasks of its group, of which all but one are cancelled at the end

    async def _stream_response(self, send: Send) -> None:
        await _cancelled_without_error(super()._stream_response(send))

    async def _ping(self, send: Send) -> None:
        await _cancelled_without_error(super()._ping(send))

    async def _listen_for_disconnect(self, receive: Receive) -> None:
        await _cancelled_without_error(super()._listen_for_disconnect(receive))

    async def _listen_for_exit_signal_with_grace(self) -> None:
        await _cancelled_without_error(super()._listen_for_exit_signal_with_grace())


async def _cancelled_without_error(work: Awaitable[None]) -> None:
    """Await what a task of a group does. When the group ends it, all that it has in hand would stay in the
    error's traceback until the next garbage collection."""
    with suppress(anyio.get_cancelled_exc_class()):
        await work


def may_be_followed(data: bytes, frame_end: bytes = _BLANK_LINE) -> bool:
    """Return True if a keep-alive may come after these bytes, which end a frame and not the stream."""
    return data.endswith(frame_end) and not data.endswith(DONE)


def _drop_keepalives_within_frames(send: Send, keepalive: bytes, frame_end: bytes) -> Send:
    """`send`, serialized, and without keep-alives that would come within a frame or after `[DONE]`."""
    lock, at_frame_end = anyio.Lock(), True

    async def send_in_order(message: Message) -> None:
        nonlocal at_frame_end
        async with lock:  # what waits for a slow client must not be overtaken
            body = message.get("body", b"")
            if body == keepalive:
                if not at_frame_end:
                    return
            elif body:
                at_frame_end = may_be_followed(body, frame_end)
            await send(message)

    return send_in_order

"""The events of one turn as messages, from its run or, for a client that fell behind, from what is kept."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Final

import anyio
from msgspec.structs import replace

from openresponses_bridge.protocol.codec import decode_event, encode
from openresponses_bridge.protocol.events import TERMINAL_EVENTS, ErrorEvent, Event, ResponseFailed
from openresponses_bridge.sse import Frame, SSEDecoder
from openresponses_server.errors import HttpError
from openresponses_server.http.direct_writes import Write
from openresponses_server.http.envelopes import with_headers
from openresponses_server.runs.client import Batch
from openresponses_server.runs.run import Run

Send = Callable[[bytes], Awaitable[None]]
"""Sends one message, whole. When that is cancelled, nothing of the message has been sent."""

_TERMINAL: Final = frozenset(kind.__struct_config__.tag for kind in TERMINAL_EVENTS)  # type: ignore[attr-defined]
_AT_ONCE: Final = 64  # messages of one piece after which other connections have their turn


class TurnStream:
    """Sends each event of `run` once, by `write` where that waits for nothing. `headers` are what an HTTP
    answer that begins with these events would have of its own. `before_end` is called before the last message
    is sent, `after_end` behind it."""

    def __init__(
        self,
        run: Run,
        send: Send,
        write: Write,
        headers: Mapping[str, str],
        before_end: Callable[[], None],
        after_end: Callable[[], None],
    ) -> None:
        self._run = run
        self._send = send
        self._write = write
        self._headers = headers
        self._before_end = before_end
        self._after_end = after_end
        self._ending = False
        self._loop = asyncio.get_running_loop()
        self.sent_at = self._loop.time()
        """When something was last sent, on the event loop's clock."""

    def deliver_at_once(self, batch: Batch) -> Awaitable[None] | None:
        """Send these, as far as that waits for nothing; what is left of it."""
        if not batch.last and not self._headers and self._written(batch.events):
            return None
        return self.deliver(batch)

    async def deliver(self, batch: Batch) -> None:
        """Send these, but for those that an interruption did not keep from being sent."""
        if batch.last:
            self._end()
        for event in without_error(batch.events) if batch.last else batch.events:
            if event.sequence_number > self._run.client.last_sent:
                await self._pass(event.sequence_number, encode(event))
        if batch.last:
            self._after_end()

    def _written(self, events: Iterable[Event]) -> bool:
        """Write these, in their order, while they wait for nothing; whether that was all of them."""
        for event in events:
            if not self._write(encode(event)):
                return False
            self._run.client.last_sent = event.sequence_number
        self.sent_at = self._loop.time()
        return True

    async def catch_up(self, rest: AsyncGenerator[bytes]) -> None:
        """Send what follows the last event that was sent. Raises HttpError when `rest` ends before the
        response does, and what `rest` raises."""
        decoder = SSEDecoder(sys.maxsize)  # an event may hold the whole response
        failing: Frame | None = None
        async with aclosing(rest) as pieces:
            async for piece in pieces:
                for count, frame in enumerate(decoder.feed(piece), 1):
                    if frame.event == "error":
                        failing = frame
                    elif frame.event in _TERMINAL:
                        await self._send_end([failing, frame] if failing else [frame])
                        return
                    elif frame.event:
                        await self._pass(self._run.client.last_sent + 1, frame.data)
                    if count % _AT_ONCE == 0:
                        await anyio.sleep(0)
        raise _broken_off(self._run)

    async def _send_end(self, frames: list[Frame]) -> None:
        await self._run.settled()
        self._end()
        if len(frames) == 1:
            await self._send_first(frames[0].data)
        else:
            (last,) = without_error([decode_event(frame.data) for frame in frames])
            await self._send_first(encode(last))
        self._after_end()

    async def _pass(self, number: int, message: bytes) -> None:
        await self._send_first(message)
        self._run.client.last_sent = number

    async def _send_first(self, message: bytes) -> None:
        if self._headers:
            message = with_headers(message, self._headers)
        self.sent_at = self._loop.time()
        await self._send(message)
        self._headers = {}

    def _end(self) -> None:
        if not self._ending:
            self._ending = True
            self._before_end()


def without_error(events: list[Event]) -> list[Event]:
    """The last events of a turn, with `response.failed` in the place of the `error` before it."""
    if len(events) < 2 or not isinstance(events[-2], ErrorEvent):
        return events
    failed = events[-1]
    assert isinstance(failed, ResponseFailed)
    return [*events[:-2], replace(failed, sequence_number=events[-2].sequence_number)]


async def send_events(send: Send, events: Iterable[Event]) -> None:
    """Send these, one message for each."""
    for event in events:
        await send(encode(event))


def _broken_off(run: Run) -> HttpError:
    response_id, last = run.translation.response_id, run.client.last_sent
    where = f"/v1/responses/{response_id}?stream=true" + (f"&starting_after={last}" if last >= 0 else "")
    what = f"The rest of the response can't be read now, or it was deleted. Ask for it with GET {where}."
    return HttpError(503, what, code="stream_broken_off")

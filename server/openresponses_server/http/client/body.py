"""The body of an upstream's answer as it arrives: given to a sink immediately, or buffered within a limit."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Final, Protocol

from msgspec import Struct

from openresponses_bridge.errors import HttpError
from openresponses_server.http.client.failures import RemoteProtocolError
from openresponses_server.http.encodings import Compressed, decoding
from openresponses_server.http.flow import Sink

# Data is translated in the callback in which it arrives. If many upstreams send as fast as they can, all that
# arrived since the last poll would be translated in one iteration of the event loop, and each step of a new
# request would wait for that. So each iteration has a time budget; the rest is left to the next iterations,
# small pieces before large ones. While some is left, the budget is a part of what all else took: long
# iterations are few, and in a millisecond of each less would be translated than arrives.

PIECE: Final = 32 * 1024
"""The most bytes that one callback translates: about half a millisecond of work."""

_COLON: Final = b":"
_SMALL: Final = 2 * 1024  # the most bytes of a small piece
_MOST_UNTIMED: Final = 15  # small pieces of an iteration before the clock is read
_ITERATION_SECONDS: Final = 0.001  # the time budget of an iteration, at least
_SHARE: Final = 0.25  # of the time that all else took, if that was long
_LONG: Final = 0.02  # seconds; below it the least budget is enough for all that arrives
_MOST_SECONDS: Final = 0.05  # the time budget, at most: a loop that stood still is not made to stand longer

Callback = Callable[[], None]


class FairScheduler:
    """Shares the time of the running event loop among responses. An iteration ends when a callback that was
    scheduled in it runs."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._small: deque[Callback] = deque()
        self._large: deque[Callback] = deque()
        self.untimed_count = 0
        """The small pieces of this iteration before the clock was read."""
        self._began = 0.0  # when the clock was read
        self.is_timed = False
        """Whether the clock was read in this iteration."""
        self._budget = _ITERATION_SECONDS
        self._left_at: float | None = None  # when an iteration left something to the next

    def must_wait(self, size: int) -> bool:
        """Return True if `size` bytes must wait for a later iteration."""
        if size <= _SMALL and not self.is_timed:
            self.untimed_count += 1
            if self.untimed_count <= _MOST_UNTIMED:
                return False
        elif size > _SMALL and self._large:
            return True  # others have waited longer
        self._read_clock()
        return self._is_time_over()

    def schedule(self, size: int, callback: Callback) -> None:
        """Call `callback` in a later iteration. It handles one piece and schedules itself again for the
        rest."""
        (self._large if size > _SMALL else self._small).append(callback)
        self._read_clock()

    def _read_clock(self) -> None:
        if not self.is_timed:
            self.is_timed = True
            self._began = perf_counter()
            self._loop.call_soon(self._run_scheduled)

    def _is_time_over(self) -> bool:
        """Return True if the time budget of this iteration is spent."""
        return perf_counter() - self._began > self._budget

    def _run_scheduled(self) -> None:
        """Begin the next iteration: small pieces first, then at least one large one."""
        self.is_timed, self.untimed_count = False, 0
        self._budget = _ITERATION_SECONDS
        if not self._small and not self._large:
            return
        self._read_clock()
        if self._left_at is not None and (others := self._began - self._left_at) > _LONG:
            self._budget = min(others * _SHARE, _MOST_SECONDS)
        for _ in range(len(self._small)):
            if self._is_time_over():
                break
            self._small.popleft()()
        for number in range(len(self._large)):
            if number and self._is_time_over():
                break
            self._large.popleft()()
        self._left_at = perf_counter() if self._small or self._large else None


# Buffered bytes at which reading from the socket is paused, and resumed: new requests would wait while the
# data of many upstreams is read and parsed.
_HIGH_WATER: Final = 64 * 1024
_LOW_WATER: Final = 16 * 1024


class ReadFlow(Protocol):
    """The connection on which a body arrives."""

    def pause(self) -> None:
        """Pause reading from the socket."""

    def resume(self) -> None: ...


def _is_comment(data: bytes) -> bool:
    """Return True if a read that begins with a colon is comments of an event stream and nothing else: a
    server that sends no more than these is silent."""
    return all(line[:1] in (b"", _COLON) for line in data.splitlines())


class ResponseBody(Struct, eq=False):
    """The body of one answer: a `Content`.

    Bytes that arrived before a failure are given before the failure. While the sink accepts them, bytes are
    given in the callback in which they arrived, or as scheduled; otherwise they are buffered, and beyond a
    limit the connection is paused.
    """

    flow: ReadFlow
    scheduler: FairScheduler
    has_received: bool = False
    sink: Sink | None = None
    is_accepting: bool = False
    """True if there is a sink and it has not paused the body."""
    is_scheduled: bool = False
    """True if the scheduler will call `_deliver`."""
    pieces: list[bytes] = []  # a deque takes 0.7 KB, and most streams have a piece at a time
    size: int = 0
    """The size of the buffered bytes."""
    is_paused: bool = False
    """True if the connection is paused."""
    ended: bool = False
    error: BaseException | None = None

    def feed(self, data: bytes) -> None:
        """Feed received bytes."""
        if data[:1] != _COLON or not _is_comment(data):
            self.has_received = True
        size = len(data)
        if self.is_accepting and not self.is_scheduled:
            fair = self.scheduler
            if (
                size <= _SMALL
                and fair.untimed_count < _MOST_UNTIMED
                and not fair.is_timed
                and not self.pieces
            ):
                fair.untimed_count += 1  # a token by itself, as nearly always
                self.sink.feed(data)  # type: ignore[union-attr]  # there is one while it accepts
                return
            self._buffer(data)
            if fair.must_wait(size):
                self._schedule()
            else:
                self._deliver()
        else:
            self._buffer(data)

    def end(self, error: BaseException | None = None) -> None:
        """The body has ended, or it broke."""
        if not self.ended:
            self.ended = True
            self.error = error
            if self.is_accepting and not self.is_scheduled:
                self._deliver()

    def _buffer(self, data: bytes) -> None:
        self.pieces.append(data)
        self.size += len(data)
        if self.size > _HIGH_WATER and not self.is_paused and not self.ended:
            self.is_paused = True
            self.flow.pause()

    @property
    def is_complete(self) -> bool:
        """True if everything was received and given."""
        return self.ended and self.error is None and not self.pieces

    @property
    def is_waiting(self) -> bool:
        return self.is_accepting and not self.is_scheduled

    def start(self, sink: Sink) -> None:
        self.sink = sink
        self.is_accepting = False
        self.resume()

    def pause(self) -> None:
        self.is_accepting = False

    def resume(self) -> None:
        if self.is_accepting or self.sink is None:
            return
        self.is_accepting = True
        if self.is_scheduled:
            return
        if self.pieces and self.scheduler.must_wait(self.size):
            self._schedule()
        elif self.pieces or self.ended:
            self._deliver()

    def _schedule(self) -> None:
        self.is_scheduled = True
        self.scheduler.schedule(self.size, self._deliver)

    def _deliver(self) -> None:
        """Give buffered bytes within the time budget of this iteration."""
        self.is_scheduled = False
        while self.is_accepting:
            data = self._read_buffered(PIECE)
            if not data:
                if self.ended:
                    # else it and this object refer to each other until the next garbage collection
                    sink, self.sink = self.sink, None
                    self.is_accepting = False
                    sink.end(self.error)  # type: ignore[union-attr, arg-type]
                return
            self.sink.feed(data)  # type: ignore[union-attr]
            if len(data) == PIECE and self.scheduler.must_wait(PIECE):
                self._schedule()  # gives nothing if the body is paused by then
                return

    def _read_buffered(self, most: int) -> bytes:
        """Remove at most `most` of the buffered bytes; b"" if there are none."""
        pieces = self.pieces
        if not pieces:
            return b""
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        if len(data) > most:
            pieces.append(data[most:])
            data = data[:most]
        self.size -= len(data)
        if self.is_paused and self.size <= _LOW_WATER:
            self.is_paused = False
            if not self.ended:
                self.flow.resume()
        return data


class EncodedBody(ResponseBody, kw_only=True):
    """A body with a `content-encoding` that was not requested. It is decoded piece by piece, so that a few
    bytes never become many at once."""

    coding: Compressed | None
    decoded: Iterator[bytes] = iter(())
    left: bytes = b""

    def feed(self, data: bytes) -> None:
        self.has_received = True
        self._buffer(data)
        if self.is_accepting and not self.is_scheduled:
            if self.scheduler.must_wait(len(data)):
                self._schedule()
            else:
                self._deliver()

    def resume(self) -> None:
        if self.is_accepting or self.sink is None:
            return
        self.is_accepting = True
        if not self.is_scheduled:
            self._deliver()

    @property
    def is_complete(self) -> bool:
        return super().is_complete and self.coding is None

    def _read_buffered(self, most: int) -> bytes:
        try:
            data = self.left or self._decode()
        except HttpError as error:
            self.coding = None
            self.ended, self.error = True, RemoteProtocolError(error.message)
            return b""
        self.left = data[most:]
        return data[:most]

    def _decode(self) -> bytes:
        """The next piece; b"" if nothing is buffered, and at the end of the encoding."""
        while self.coding is not None:
            if data := next(self.decoded, b""):
                return data
            if not (came := super()._read_buffered(_HIGH_WATER)):
                if self.ended:
                    coding, self.coding = self.coding, None
                    if self.error is None:
                        coding.close()
                return b""
            self.decoded = self.coding.feed(came)
        return b""


def body_of(encoding: str, flow: ReadFlow, scheduler: FairScheduler) -> ResponseBody:
    """The body of an answer with this `content-encoding`. Raises RemoteProtocolError for an unknown one."""
    try:
        coding = decoding([encoding])
    except HttpError as error:
        raise RemoteProtocolError("it answered in an encoding that was not asked for") from error
    if coding is None:
        return ResponseBody(flow, scheduler)
    return EncodedBody(flow, scheduler, coding=coding)

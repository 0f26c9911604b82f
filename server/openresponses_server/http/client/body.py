"""The body of an upstream's response as it arrives: buffered, within a limit, or given to a receiver
immediately."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Final, Protocol

from openresponses_bridge.errors import HttpError
from openresponses_server.http.client.failures import InvalidAnswer
from openresponses_server.http.encodings import Compressed, decoding
from openresponses_server.http.flow import Sink

# What an upstream sends is translated in the callback in which it arrives. If many send as fast as they can,
# all that arrived since the last poll would be translated in one iteration of the event loop, and a new
# request would wait for that at each of its steps. So an iteration spends a bounded time on it; the rest is
# left to the next iterations, small pieces before large ones.

PIECE: Final = 32 * 1024
"""Bytes that one callback translates at most: about half a millisecond's work."""

_FEW: Final = 2 * 1024  # bytes up to which a piece is small
_UNTIMED: Final = 15  # small pieces allowed in an iteration before the clock is read
_SHARE: Final = 0.001  # seconds of one iteration

Callback = Callable[[], None]


class FairScheduler:
    """Shares the time of the running event loop among responses. An iteration ends when a callback scheduled
    in it runs."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._few: deque[Callback] = deque()
        self._many: deque[Callback] = deque()
        self.untimed = 0
        """Small pieces allowed in this iteration before the clock was read."""
        self._began = 0.0  # when it was
        self.is_timed = False
        """It was."""

    def must_wait(self, size: int) -> bool:
        """Whether so many bytes have to wait for a later iteration."""
        if size <= _FEW and not self.is_timed:
            self.untimed += 1
            if self.untimed <= _UNTIMED:
                return False
        elif size > _FEW and self._many:
            return True  # others have waited longer
        self._read_clock()
        return self._is_over()

    def schedule(self, size: int, callback: Callback) -> None:
        """Have `callback` called in a later iteration. It handles a piece, and schedules itself for the
        rest."""
        (self._many if size > _FEW else self._few).append(callback)
        self._read_clock()

    def _read_clock(self) -> None:
        if not self.is_timed:
            self.is_timed = True
            self._began = perf_counter()
            self._loop.call_soon(self._next)

    def _is_over(self) -> bool:
        """This iteration has spent its time."""
        return perf_counter() - self._began > _SHARE

    def _next(self) -> None:
        """The next iteration: small pieces first, then at least one large one."""
        self.is_timed, self.untimed = False, 0
        if not self._few and not self._many:
            return
        self._read_clock()
        for _ in range(len(self._few)):
            if self._is_over():
                break
            self._few.popleft()()
        for number in range(len(self._many)):
            if number and self._is_over():
                break
            self._many.popleft()()


# Buffered bytes at which reading from the socket is paused, and resumed: reading and parsing what many
# upstreams send is work for which new requests would wait.
_HIGH: Final = 64 * 1024
_LOW: Final = 16 * 1024


class ReadFlow(Protocol):
    """The connection that a body arrives on."""

    def pause(self) -> None:
        """Pause reading from the socket."""

    def resume(self) -> None: ...


class Body:
    """The body of one answer: a `Content`.

    Bytes that arrived before a failure are given before the failure. While the sink accepts them, bytes are
    given in the callback in which they arrived, or in their turn; else they are buffered, and beyond a limit
    reading from the connection is paused.
    """

    __slots__ = (
        "_delivered",
        "_direct_receiver",
        "_ended",
        "_error",
        "_flow",
        "_flowing",
        "_given_end",
        "_in_line",
        "_paused",
        "_pieces",
        "_scheduler",
        "_sink",
        "_size",
        "heard",
    )

    def __init__(self, flow: ReadFlow, scheduler: FairScheduler) -> None:
        self.heard = False
        self._scheduler = scheduler
        self._flow = flow
        self._sink: Sink | None = None
        self._flowing = False  # there is a sink, and it has not paused the body
        self._in_line = False  # its turn will come
        self._pieces: list[bytes] = []  # a deque takes 0.7 KB, and most streams have a piece at a time
        self._size = 0
        self._paused = False  # the connection is
        self._ended = False
        self._given_end = False
        self._error: BaseException | None = None

    def feed(self, data: bytes) -> None:
        """Bytes were received."""
        self.heard = True
        size = len(data)
        if self._flowing and not self._in_line:
            fair = self._scheduler
            if size <= _FEW and fair.untimed < _UNTIMED and not fair.is_timed and not self._pieces:
                fair.untimed += 1  # a token by itself, as nearly always
                self._sink.feed(data)  # type: ignore[union-attr]  # it flows
                return
            self._buffer(data)
            if fair.must_wait(size):
                self._wait_in_line()
            else:
                self._deliver()
        else:
            self._buffer(data)

    def end(self, error: BaseException | None = None) -> None:
        """The body has ended, or it broke."""
        if not self._ended:
            self._ended = True
            self._error = error
            if self._flowing and not self._in_line:
                self._deliver()

    def _buffer(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        if self._size > _HIGH and not self._paused and not self._ended:
            self._paused = True
            self._flow.pause()

    @property
    def is_complete(self) -> bool:
        """All of it was received and given."""
        return self._ended and self._error is None and not self._pieces

    @property
    def waits(self) -> bool:
        return self._flowing and not self._in_line

    def start(self, sink: Sink) -> None:
        self._sink = sink
        self._flowing = self._given_end = False
        self.resume()

    def pause(self) -> None:
        self._flowing = False

    def resume(self) -> None:
        if self._flowing or self._sink is None:
            return
        self._flowing = True
        if self._in_line:
            return
        if self._pieces and self._scheduler.must_wait(self._size):
            self._wait_in_line()
        elif self._pieces or self._ended:
            self._deliver()

    def _wait_in_line(self) -> None:
        self._in_line = True
        self._scheduler.schedule(self._size, self._deliver)

    def _deliver(self) -> None:
        """Give the buffered bytes, as far as this iteration of the event loop allows it."""
        self._in_line = False
        while self._flowing:
            data = self._next(PIECE)
            if not data:
                if self._ended and not self._given_end:
                    self._given_end = True
                    self._sink.end(self._error)  # type: ignore[union-attr, arg-type]
                return
            self._sink.feed(data)  # type: ignore[union-attr]
            if len(data) == PIECE and self._scheduler.must_wait(PIECE):
                self._wait_in_line()  # gives nothing if the body is paused by then
                return

    def _next(self, most: int) -> bytes:
        """At most `most` of the buffered bytes; b"" if there are none."""
        pieces = self._pieces
        if not pieces:
            return b""
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        if len(data) > most:
            pieces.append(data[most:])
            data = data[:most]
        self._size -= len(data)
        if self._paused and self._size <= _LOW:
            self._paused = False
            if not self._ended:
                self._flow.resume()
        return data


class EncodedBody(Body):
    """A body with a `content-encoding` although none was requested; gives it decoded. It decodes one piece at
    a time, so that a few bytes never become many at once."""

    __slots__ = ("_coding", "_decoded", "_left")

    def __init__(self, coding: Compressed, flow: ReadFlow, scheduler: FairScheduler) -> None:
        super().__init__(flow, scheduler)
        self._coding: Compressed | None = coding
        self._decoded: Iterator[bytes] = iter(())
        self._left = b""

    def feed(self, data: bytes) -> None:
        self.heard = True
        self._buffer(data)
        if self._flowing and not self._in_line:
            if self._scheduler.must_wait(len(data)):
                self._wait_in_line()
            else:
                self._deliver()

    def resume(self) -> None:
        if self._flowing or self._sink is None:
            return
        self._flowing = True
        if not self._in_line:
            self._deliver()

    @property
    def is_complete(self) -> bool:
        return super().is_complete and self._coding is None

    def _next(self, most: int) -> bytes:
        try:
            data = self._left or self._decode()
        except HttpError as error:
            self._coding = None
            self._ended, self._error = True, InvalidAnswer(error.message)
            return b""
        self._left = data[most:]
        return data[:most]

    def _decode(self) -> bytes:
        """The next piece; b"" if nothing is buffered, and at the end of the encoding."""
        while self._coding is not None:
            if data := next(self._decoded, b""):
                return data
            if not (came := super()._next(_HIGH)):
                if self._ended:
                    coding, self._coding = self._coding, None
                    if self._error is None:
                        coding.close()
                return b""
            self._decoded = self._coding.feed(came)
        return b""


def body_of(encoding: str, flow: ReadFlow, scheduler: FairScheduler) -> Body:
    """The body of an answer with this `content-encoding`, "" for none. Raises InvalidAnswer for an unknown
    one."""
    try:
        coding = decoding([encoding]) if encoding else None
    except HttpError as error:
        raise InvalidAnswer("it answered in an encoding that was not asked for") from error
    if coding is None:
        return Body(flow, scheduler)
    return EncodedBody(coding, flow, scheduler)

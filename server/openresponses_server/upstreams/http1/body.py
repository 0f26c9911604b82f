"""The body of an upstream's response as it arrives: buffered, within a bound, or given to a receiver at
once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter
from typing import Final, Protocol

from openresponses_server.errors import HttpError
from openresponses_server.http.encodings import Compressed, decoding
from openresponses_server.upstreams.base import DataReceiver

# What an upstream sends is translated in the callback in which it arrives. If many send as fast as they can,
# all that arrived since the last poll would be translated in one iteration of the event loop, and a new
# request would wait for that at each of its steps. So an iteration spends a bounded time on it; the rest is
# left to the next iterations, small pieces before large ones.

PIECE: Final = 32 * 1024
"""Bytes that one callback translates at most: about half a millisecond's work."""

_FEW: Final = 2 * 1024  # bytes up to which a piece is small
_UNNOTICED: Final = 16  # small pieces that are let through before the clock is read
_SHARE: Final = 0.001  # seconds of one iteration

Callback = Callable[[], None]


class FairScheduler:
    """Shares the time of the running event loop among responses. An iteration ends when a callback runs that
    was scheduled in it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._few: deque[Callback] = deque()
        self._many: deque[Callback] = deque()
        self._unnoticed = 0
        self._began = 0.0  # when this iteration was noticed
        self._noticed = False

    def must_wait(self, size: int) -> bool:
        """Whether so many bytes have to wait for a later iteration."""
        if size <= _FEW and not self._noticed:
            self._unnoticed += 1
            if self._unnoticed < _UNNOTICED:
                return False
        elif size > _FEW and self._many:
            return True  # others have waited longer
        self._notice()
        return self._is_over()

    def schedule(self, size: int, callback: Callback) -> None:
        """Have `callback` called in a later iteration. It handles a piece, and schedules itself for the
        rest."""
        (self._many if size > _FEW else self._few).append(callback)
        self._notice()

    async def wait_for_turn(self) -> None:
        """Wait until a piece may be handled."""
        must_wait = self.must_wait(PIECE)
        while must_wait:
            callback = self._loop.create_future()
            self.schedule(PIECE, partial(_wake_waiter, callback))
            await callback
            # Tasks that are woken in one iteration run in the next, one after the other.
            self._notice()
            must_wait = self._is_over()

    def _notice(self) -> None:
        if not self._noticed:
            self._noticed = True
            self._began = perf_counter()
            self._loop.call_soon(self._next)

    def _is_over(self) -> bool:
        """This iteration has spent its time."""
        return perf_counter() - self._began > _SHARE

    def _next(self) -> None:
        """The next iteration: small pieces first, then at least one large one."""
        self._noticed, self._unnoticed = False, 0
        if not self._few and not self._many:
            return
        self._notice()
        for _ in range(len(self._few)):
            if self._is_over():
                break
            self._few.popleft()()
        for number in range(len(self._many)):
            if number and self._is_over():
                break
            self._many.popleft()()


def _wake_waiter(callback: asyncio.Future[None]) -> None:
    if not callback.done():
        callback.set_result(None)


# Errors of requests to an upstream; all are OSErrors. Clients may read their text, so that it names nothing
# of the operator's.


class ConnectionLost(ConnectionError):
    """The upstream closed the connection before its response had ended."""


class InvalidAnswer(ConnectionError):
    """The response is not HTTP/1.1, or its body is not in the encoding that it names."""


class InvalidRequest(ConnectionError):
    """The address or a header can't be written as HTTP/1.1."""


class NotReached(ConnectionError):
    """No connection could be made. `cause` is for the operator: it names the proxy, the file or the socket.
    `lasting`: a retry would not help."""

    def __init__(self, message: str, cause: str, *, lasting: bool = False) -> None:
        super().__init__(message)
        self.cause = cause
        self.lasting = lasting


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
    """The body of one response. Bytes that arrived before a failure are read before it is raised.

    With `deliver_to` the bytes are given to a receiver in the callback in which they arrived, or in a later
    one: waking a task costs more.
    """

    __slots__ = (
        "_delivered",
        "_direct_receiver",
        "_ended",
        "_error",
        "_flow",
        "_loop",
        "_paused",
        "_pieces",
        "_receiver",
        "_receiver_done",
        "_size",
        "_waiting",
        "has_received",
        "scheduler",
    )

    def __init__(self, flow: ReadFlow, scheduler: FairScheduler, loop: asyncio.AbstractEventLoop) -> None:
        self.scheduler = scheduler
        self.has_received = False
        """Bytes have arrived since this was last unset."""
        self._receiver: DataReceiver | None = None
        self._direct_receiver: DataReceiver | None = (
            None  # the same, while nothing is buffered before new bytes
        )
        self._delivered: asyncio.Future[None] | None = None
        self._receiver_done = False
        self._flow = flow
        self._loop = loop
        self._pieces: list[bytes] = []  # a deque takes 0.7 KB, and most streams have a piece at a time
        self._size = 0
        self._paused = False
        self._ended = False
        self._error: BaseException | None = None
        self._waiting: asyncio.Future[None] | None = None

    # ── the connection's side ──────────────────────────────────────────────────────────────────────────
    def feed(self, data: bytes) -> None:
        """These bytes have come."""
        self.has_received = True
        receive = self._direct_receiver
        if receive is None:
            self._buffer(data)
            return
        self._direct_receiver = None  # what comes meanwhile comes behind this
        size = len(data)
        if self.scheduler.must_wait(size):
            self._buffer(data)
            self.scheduler.schedule(size, self._deliver)
        elif size > PIECE:
            self._buffer(data)
            self._deliver()
        elif more := receive(data, self._resume_delivery):
            if self._pieces or self._ended:
                self._deliver()
            else:
                self._direct_receiver = receive
        elif more is not None:
            self._receiver_done = True
            _wake(self._delivered)

    def _buffer(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        _wake(self._waiting)
        if self._size > _HIGH and not self._paused and not self._ended:
            self._paused = True
            self._flow.pause()

    def _deliver(self) -> None:
        """Give away what is kept, as far as this pass of the event loop allows it."""
        receive = self._receiver
        if receive is None:
            return  # nobody waits any more
        while data := self.read_nowait(PIECE):
            more = receive(data, self._resume_delivery)
            if more is None:
                return
            if not more:
                self._receiver_done = True
                break
            if len(data) == PIECE and self.scheduler.must_wait(PIECE):
                self.scheduler.schedule(PIECE, self._deliver)
                return
        if self._receiver_done or self.is_over:
            _wake(self._delivered)
        else:
            self._direct_receiver = receive

    def _resume_delivery(self, more: bool) -> None:
        """Whether more is wanted, said later."""
        if self._receiver is None:
            return  # nobody waits any more
        if not more:
            self._receiver_done = True
            _wake(self._delivered)
        elif self._pieces and self.scheduler.must_wait(self._size):
            self.scheduler.schedule(self._size, self._deliver)
        else:
            self._deliver()

    def end(self, error: BaseException | None = None) -> None:
        """Nothing more will come: it has ended, or it broke."""
        if self._ended:
            return
        self._ended = True
        self._error = self._error or error
        if self._direct_receiver is not None:
            self._direct_receiver = None
            self._deliver()
        _wake(self._waiting)

    # ── the reader's side ──────────────────────────────────────────────────────────────────────────────
    @property
    def is_complete(self) -> bool:
        """All of it is here, to be read."""
        return self._ended and self._error is None

    @property
    def is_over(self) -> bool:
        """Nothing more can be read, or only a failure."""
        return (self._ended or self._error is not None) and not self._pieces

    @property
    def is_read(self) -> bool:
        """All of it has been read."""
        return self.is_complete and not self._pieces

    def read_nowait(self, most: int) -> bytes:
        """What is here, `most` bytes of it at most; b"" when nothing is."""
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

    async def read(self, most: int) -> bytes:
        """Whatever has arrived, `most` bytes of it at most; b"" at the end. Raises what broke it."""
        while not (data := self.read_nowait(most)):
            if self._error is not None:
                raise self._error
            if self._ended:
                return b""
            self._waiting = self._loop.create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None
        return data

    async def deliver_to(self, receive: DataReceiver) -> bool:
        """Have `receive` called with what comes until it wants no more, and whether that is why this returns;
        else there is an end, or a failure. Nothing may be kept when this begins."""
        if self.is_over:
            return False
        self._receiver = self._direct_receiver = receive
        self._receiver_done = False
        self._delivered = self._loop.create_future()
        try:
            await self._delivered
        finally:
            self._receiver = self._direct_receiver = self._delivered = None
        return self._receiver_done

    async def readany(self) -> bytes:
        """As `read`, without a bound but the body's own."""
        return await self.read(_HIGH)

    def set_exception(self, error: BaseException) -> None:
        """What waits to read gets this error, and who reads later when all that is here has been read."""
        if self._error is None and not self._ended:
            self._error = error
            _wake(self._waiting)
            _wake(self._delivered)

    @property
    def is_awaited(self) -> bool:
        """Nothing is here: who reads waits for the other side."""
        return not self._pieces


class EncodedBody(Body):
    """One that came in a `content-encoding` although none was asked for; what is read is decoded. Pieces are
    made when they are asked for, so that a few bytes never become many at once."""

    __slots__ = ("_coding", "_decoded", "_left")

    def __init__(
        self, coding: Compressed, flow: ReadFlow, scheduler: FairScheduler, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(flow, scheduler, loop)
        self._coding: Compressed | None = coding
        self._decoded: Iterator[bytes] = iter(())
        self._left = b""

    def feed(self, data: bytes) -> None:
        self.has_received = True
        ready, self._direct_receiver = self._direct_receiver, None
        self._buffer(data)
        if ready is not None and self.scheduler.must_wait(len(data)):
            self.scheduler.schedule(len(data), self._deliver)
        elif ready is not None:
            self._deliver()

    @property
    def is_over(self) -> bool:
        return super().is_over and self._coding is None

    @property
    def is_read(self) -> bool:
        return super().is_read and self._coding is None

    def read_nowait(self, most: int) -> bytes:
        try:
            data = self._left or self._next()
        except HttpError as error:
            self._coding = None
            self._error = InvalidAnswer(error.message)
            return b""
        self._left = data[most:]
        return data[:most]

    def _next(self) -> bytes:
        """The next piece; b"" when nothing is here, and when it has ended as its encoding ends."""
        while self._coding is not None:
            if (data := next(self._decoded, b"")) or not (came := super().read_nowait(_HIGH)):
                if not data and super().is_over:
                    coding, self._coding = self._coding, None
                    if self._error is None:
                        coding.close()
                return data
            self._decoded = self._coding.feed(came)
        return b""


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


def body_of(encoding: str, flow: ReadFlow, scheduler: FairScheduler, loop: asyncio.AbstractEventLoop) -> Body:
    """For an answer with this `content-encoding`, "" for none. Raises InvalidAnswer for one that can't be
    undone."""
    try:
        coding = decoding([encoding]) if encoding else None
    except HttpError as error:
        raise InvalidAnswer("it answered in an encoding that was not asked for") from error
    if coding is None:
        return Body(flow, scheduler, loop)
    return EncodedBody(coding, flow, scheduler, loop)

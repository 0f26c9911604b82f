"""The body of an answer as it arrives: kept, within a bound, until it is read, or given away at once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter
from typing import Final, Protocol

from openresponses_server.errors import HttpError
from openresponses_server.http.encodings import Compressed, decoding
from openresponses_server.upstreams.base import Take

# Turns at the event loop, for answers of which much has come at once.
#
# What an upstream has sent is translated where it arrives. When many send as fast as they can, all that has
# arrived between two looks at the sockets would be translated in one go, and a request that begins meanwhile
# would wait for that at each of its steps. So what one pass of the loop spends on it is bounded: what comes
# later has its turn in one of the next passes, a few tokens before many.

PIECE: Final = 32 * 1024
"""Bytes that one turn takes at most: about half a millisecond's work."""

_FEW: Final = 2 * 1024  # bytes up to which they are a few tokens
_UNNOTICED: Final = (
    16  # answers with a few tokens after which a pass is looked at, which costs more than they do
)
_SHARE: Final = 0.001  # seconds of one pass

Turn = Callable[[], None]


class Turns:
    """Those of the event loop in which this is made. A pass is noticed by a callback that belongs to the next
    one."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._few: deque[Turn] = deque()
        self._many: deque[Turn] = deque()
        self._unnoticed = 0
        self._began = 0.0  # when this pass was noticed
        self._noticed = False

    def must_wait(self, size: int) -> bool:
        """Whether so many bytes that have come are for a later pass."""
        if size <= _FEW and not self._noticed:
            self._unnoticed += 1
            if self._unnoticed < _UNNOTICED:
                return False
        elif size > _FEW and self._many:
            return True  # others have waited longer
        self._notice()
        return self._is_over()

    def wait(self, size: int, turn: Turn) -> None:
        """Have `turn` called in a later pass. It takes a piece, and waits again for what is left."""
        (self._many if size > _FEW else self._few).append(turn)
        self._notice()

    async def come(self) -> None:
        """Wait for the turn of a piece, if it must wait."""
        must_wait = self.must_wait(PIECE)
        while must_wait:
            turn = self._loop.create_future()
            self.wait(PIECE, partial(_come, turn))
            await turn
            # Tasks that were woken in one pass run in the next, one after the other.
            self._notice()
            must_wait = self._is_over()

    def _notice(self) -> None:
        if not self._noticed:
            self._noticed = True
            self._began = perf_counter()
            self._loop.call_soon(self._next)

    def _is_over(self) -> bool:
        """This pass has spent its share."""
        return perf_counter() - self._began > _SHARE

    def _next(self) -> None:
        """The next pass: a few tokens of each, then of many tokens one piece at least."""
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


def _come(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


# What asking an upstream raises beside the system's own errors; all are OSErrors, and their text is for
# anybody who asks: it names nothing that is the operator's.


class ConnectionLost(ConnectionError):
    """The upstream closed before its answer had ended."""


class InvalidAnswer(ConnectionError):
    """What came is not an answer in HTTP/1.1, or its body is not in the encoding that it names."""


class InvalidRequest(ConnectionError):
    """The address or a header can't be written as HTTP/1.1."""


class NotReached(ConnectionError):
    """There is no connection. `cause` is for the operator: it names the proxy, the file or the socket.
    `lasting`: waiting does not mend it."""

    def __init__(self, message: str, cause: str, *, lasting: bool = False) -> None:
        super().__init__(message)
        self.cause = cause
        self.lasting = lasting


# Bytes that wait to be read, after which no more are taken from the system: to take and parse what many send
# at once is work too, for which requests that begin would wait.
_HIGH: Final = 64 * 1024
_LOW: Final = 16 * 1024


class Flow(Protocol):
    """The connection that a body comes on."""

    def pause(self) -> None:
        """Take nothing more from the system."""

    def resume(self) -> None: ...


class Body:
    """Of one answer. What had come before a failure is given before the failure is raised.

    What comes while somebody waits for it is given away in the callback in which it arrived, or in its turn:
    a task that is woken for it costs more.
    """

    __slots__ = (
        "_ended",
        "_error",
        "_flow",
        "_given",
        "_loop",
        "_paused",
        "_pieces",
        "_ready",
        "_sated",
        "_size",
        "_take",
        "_waiting",
        "heard",
        "turns",
    )

    def __init__(self, flow: Flow, turns: Turns, loop: asyncio.AbstractEventLoop) -> None:
        self.turns = turns
        self.heard = False
        """Something has come since this was last unset."""
        self._take: Take | None = None  # who is given what comes
        self._ready: Take | None = None  # the same, while it is given at once: nothing is kept before it
        self._given: asyncio.Future[None] | None = None
        self._sated = False
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
        self.heard = True
        take = self._ready
        if take is None:
            self._keep(data)
            return
        self._ready = None  # what comes meanwhile comes behind this
        size = len(data)
        if self.turns.must_wait(size):
            self._keep(data)
            self.turns.wait(size, self._give)
        elif size > PIECE:
            self._keep(data)
            self._give()
        elif more := take(data, self._go_on):
            if self._pieces or self._ended:
                self._give()
            else:
                self._ready = take
        elif more is not None:
            self._sated = True
            _wake(self._given)

    def _keep(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        _wake(self._waiting)
        if self._size > _HIGH and not self._paused and not self._ended:
            self._paused = True
            self._flow.pause()

    def _give(self) -> None:
        """Give away what is kept, as far as this pass of the event loop allows it."""
        take = self._take
        if take is None:
            return  # nobody waits any more
        while data := self.read_nowait(PIECE):
            more = take(data, self._go_on)
            if more is None:
                return
            if not more:
                self._sated = True
                break
            if len(data) == PIECE and self.turns.must_wait(PIECE):
                self.turns.wait(PIECE, self._give)
                return
        if self._sated or self.is_over:
            _wake(self._given)
        else:
            self._ready = take

    def _go_on(self, more: bool) -> None:
        """Whether more is wanted, said later."""
        if self._take is None:
            return  # nobody waits any more
        if not more:
            self._sated = True
            _wake(self._given)
        elif self._pieces and self.turns.must_wait(self._size):
            self.turns.wait(self._size, self._give)
        else:
            self._give()

    def end(self, error: BaseException | None = None) -> None:
        """Nothing more will come: it has ended, or it broke."""
        if self._ended:
            return
        self._ended = True
        self._error = self._error or error
        if self._ready is not None:
            self._ready = None
            self._give()
        _wake(self._waiting)

    # ── the reader's side ──────────────────────────────────────────────────────────────────────────────
    @property
    def has_come(self) -> bool:
        """All of it is here, to be read."""
        return self._ended and self._error is None

    @property
    def is_over(self) -> bool:
        """Nothing more can be read, or only a failure."""
        return (self._ended or self._error is not None) and not self._pieces

    @property
    def is_read(self) -> bool:
        """All of it has been read."""
        return self.has_come and not self._pieces

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

    async def give_to(self, take: Take) -> bool:
        """Have `take` called with what comes until it wants no more, and whether that is why this returns;
        else there is an end, or a failure. Nothing may be kept when this begins."""
        if self.is_over:
            return False
        self._take = self._ready = take
        self._sated = False
        self._given = self._loop.create_future()
        try:
            await self._given
        finally:
            self._take = self._ready = self._given = None
        return self._sated

    async def readany(self) -> bytes:
        """As `read`, without a bound but the body's own."""
        return await self.read(_HIGH)

    def set_exception(self, error: BaseException) -> None:
        """What waits to read gets this error, and who reads later when all that is here has been read."""
        if self._error is None and not self._ended:
            self._error = error
            _wake(self._waiting)
            _wake(self._given)

    @property
    def is_awaited(self) -> bool:
        """Nothing is here: who reads waits for the other side."""
        return not self._pieces


class EncodedBody(Body):
    """One that came in a `content-encoding` although none was asked for; what is read is decoded. Pieces are
    made when they are asked for, so that a few bytes never become many at once."""

    __slots__ = ("_coding", "_decoded", "_left")

    def __init__(self, coding: Compressed, flow: Flow, turns: Turns, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(flow, turns, loop)
        self._coding: Compressed | None = coding
        self._decoded: Iterator[bytes] = iter(())
        self._left = b""

    def feed(self, data: bytes) -> None:
        self.heard = True
        ready, self._ready = self._ready, None
        self._keep(data)
        if ready is not None and self.turns.must_wait(len(data)):
            self.turns.wait(len(data), self._give)
        elif ready is not None:
            self._give()

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


def body_of(encoding: str, flow: Flow, turns: Turns, loop: asyncio.AbstractEventLoop) -> Body:
    """For an answer with this `content-encoding`, "" for none. Raises InvalidAnswer for one that can't be
    undone."""
    try:
        coding = decoding([encoding]) if encoding else None
    except HttpError as error:
        raise InvalidAnswer("it answered in an encoding that was not asked for") from error
    if coding is None:
        return Body(flow, turns, loop)
    return EncodedBody(coding, flow, turns, loop)

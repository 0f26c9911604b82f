"""The body of an answer as it arrives: kept, within a bound, until it is read, or given away at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from server.encodings import Compressed, decoding
from server.errors import HttpError
from server.upstreams.http1.errors import InvalidAnswer
from server.upstreams.turns import Turns

_HIGH: Final = 256 * 1024  # bytes that wait to be read, after which no more are taken from the system
_LOW: Final = 64 * 1024


class Flow(Protocol):
    """The connection that a body comes on."""

    def pause(self) -> None:
        """Take nothing more from the system."""

    def resume(self) -> None: ...


class Body:
    """Of one answer. What had come before a failure is given before the failure is raised."""

    __slots__ = (
        "_ended",
        "_error",
        "_flow",
        "_loop",
        "_paused",
        "_pieces",
        "_size",
        "_waiting",
        "came",
        "turns",
    )

    def __init__(self, flow: Flow, turns: Turns, loop: asyncio.AbstractEventLoop) -> None:
        self.turns = turns
        self.came: Callable[[int], None] | None = None
        """Called with the number of bytes that have come, or 0 when nothing more will."""
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
        self._pieces.append(data)
        self._size += len(data)
        if self.came is not None:
            self.came(len(data))
        elif self._waiting is not None:
            self._wake()
        if self._size > _HIGH and not self._paused and not self._ended:
            self._paused = True
            self._flow.pause()

    def end(self, error: BaseException | None = None) -> None:
        """Nothing more will come: it has ended, or it broke."""
        if self._ended:
            return
        self._ended = True
        self._error = self._error or error
        if self.came is not None:
            self.came(0)
        self._wake()

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

    async def readany(self) -> bytes:
        """As `read`, without a bound but the body's own."""
        return await self.read(_HIGH)

    def set_exception(self, error: BaseException) -> None:
        """What waits to read gets this error, and who reads later when all that is here has been read."""
        if self._error is None and not self._ended:
            self._error = error
            self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class EncodedBody(Body):
    """One that came in a `content-encoding` although none was asked for; what is read is decoded. Pieces are
    made when they are asked for, so that a few bytes never become many at once."""

    __slots__ = ("_coding", "_decoded", "_left")

    def __init__(self, coding: Compressed, flow: Flow, turns: Turns, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(flow, turns, loop)
        self._coding: Compressed | None = coding
        self._decoded: Iterator[bytes] = iter(())
        self._left = b""

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


def body_of(encoding: str, flow: Flow, turns: Turns, loop: asyncio.AbstractEventLoop) -> Body:
    """For an answer with this `content-encoding`, "" for none. Raises InvalidAnswer for one that can't be
    undone."""
    try:
        coding = decoding([encoding]) if encoding else None
    except HttpError as error:
        raise InvalidAnswer("an encoding that was not asked for") from error
    if coding is None:
        return Body(flow, turns, loop)
    return EncodedBody(coding, flow, turns, loop)

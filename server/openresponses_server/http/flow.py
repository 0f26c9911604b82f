"""How an answer flows: a source gives a sink what comes, and the sink pauses and resumes it.

This is asyncio's own way (protocol and transport, `pause_reading` and `resume_reading`): what comes is
handled in the callback in which it arrived, and back-pressure is a call, not a task that waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

_MOST_UNREAD: Final = 64 * 1024  # bytes, after which a source is paused


class Sink(Protocol):
    """What an answer is given to, in the event loop, in its order."""

    def feed(self, data: bytes) -> None:
        """The next bytes, at least one."""
        ...

    def end(self, error: Exception | None) -> None:
        """Nothing follows. `error` is why the answer is not whole; what came before it has been given."""
        ...


class Source(Protocol):
    """An answer. From `pause` until `resume` its sink is given nothing, not even the end."""

    def start(self, sink: Sink) -> None:
        """Give what comes to this sink, beginning with what is here already. Where another sink was given the
        beginning, this one is given what follows, and the end in any case."""
        ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class Content(Source, Protocol):
    """The body of an answer over HTTP. It ends with an OSError where it is cut."""

    heard: bool
    """Something has come since this was last unset."""

    @property
    def waits(self) -> bool:
        """Its sink waits for what the other side sends."""
        ...

    def end(self, error: Exception) -> None:
        """Nothing more is waited for: end with this error."""
        ...


class Discard:
    """A sink that only notes the end."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    def feed(self, data: bytes) -> None:
        return None

    def end(self, error: Exception | None) -> None:
        self.ended.set()


class Reader:
    """A sink for a task that reads piece by piece."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._pieces: list[bytes] = []
        self._size = 0
        self._error: Exception | None = None
        self._waiting: asyncio.Future[None] | None = None
        self.ended = False
        """The end has come."""
        source.start(self)

    def feed(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        if self._size > _MOST_UNREAD:
            self._source.pause()
        self._wake()

    def end(self, error: Exception | None) -> None:
        self.ended, self._error = True, error
        self._wake()

    async def read(self) -> bytes:
        """What has come; b"" at the end. Raises what cut it."""
        while not self._pieces:
            if self._error is not None:
                raise self._error
            if self.ended:
                return b""
            self._waiting = asyncio.get_running_loop().create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        self._source.resume()
        return data

    async def collect(self, limit: int, idle: float | None = None) -> bytes:
        """The beginning: `limit` bytes, or a piece more than that, or all of it; what follows is for another
        sink. Raises what cut it, and TimeoutError when nothing comes for `idle` seconds."""
        pieces: list[bytes] = []
        size = 0
        while size < limit:
            async with asyncio.timeout(None if self._pieces or self.ended else idle):
                piece = await self.read()
            if not piece:
                break
            pieces.append(piece)
            size += len(piece)
        self._source.pause()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class TaskSource:
    """What `read` gives, piece after piece, until it gives b"" or raises: for what is not called back when
    something comes. It reads in a task, one piece ahead of a sink that has paused it."""

    whole = False

    def __init__(self, read: Callable[[], Awaitable[bytes]], losses: str = "") -> None:
        self.losses = losses
        self.heard = False
        self._read = read
        self._ended = False
        self._error: Exception | None = None
        self._sink: Sink | None = None
        self._going = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def waits(self) -> bool:
        return self._going.is_set()

    def start(self, sink: Sink) -> None:
        self._sink = sink
        self._going.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._give())

    def pause(self) -> None:
        self._going.clear()

    def resume(self) -> None:
        self._going.set()

    def end(self, error: Exception) -> None:
        sink = self._sink
        self._ended, self._error = True, error
        self.close()
        if sink is not None:
            sink.end(error)

    def close(self) -> None:
        """Give nothing more."""
        self._sink = None
        if self._task is not None:
            self._task.cancel()

    async def _give(self) -> None:
        try:
            while not self._ended:
                data = await self._read()
                self.heard = True
                await self._going.wait()
                if data and self._sink is not None:
                    self._sink.feed(data)
                self._ended = not data
        except Exception as error:
            self._ended, self._error = True, error
        await self._going.wait()
        if self._sink is not None:
            self._sink.end(self._error)

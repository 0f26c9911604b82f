"""The flow of an answer: a source feeds a sink, and the sink pauses and resumes the source. The last sink
writes to the client's connection.

As with asyncio's protocols and transports, data is handled in the callback in which it arrives, and
back-pressure is a call (`pause`, `resume`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, Protocol

_MOST_UNREAD: Final = 64 * 1024  # buffered bytes beyond which the source is paused


class Sink(Protocol):
    """Receives an answer, in order, in the event loop."""

    def feed(self, data: bytes) -> None:
        """The next bytes, at least one."""
        ...

    def end(self, error: Exception | None) -> None:
        """The answer has ended; with an `error` it is incomplete. Everything before the error was given."""
        ...


class Source(Protocol):
    """An answer. Between `pause` and `resume` its sink is given nothing, not even the end."""

    def start(self, sink: Sink) -> None:
        """Feed this sink, beginning with what is buffered. A second sink gets what the first did not, and the
        end in any case."""
        ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class Content(Source, Protocol):
    """The body of an answer over HTTP. An incomplete body ends with an OSError."""

    has_received: bool
    """Whether data was received since this was last set to False."""

    @property
    def is_waiting(self) -> bool:
        """True while the sink waits for the sender."""
        ...

    def end(self, error: Exception) -> None:
        """End with this error, without waiting for more."""
        ...


class Discard:
    """A sink that discards everything and notes the end."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    def feed(self, data: bytes) -> None:
        return None

    def end(self, error: Exception | None) -> None:
        self.ended.set()


class BodyReader:
    """A sink for a task that reads piece by piece."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._pieces: list[bytes] = []
        self._size = 0
        self._error: Exception | None = None
        self._waiting: asyncio.Future[None] | None = None
        self.ended = False
        """Whether the source has ended."""
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
        """Read everything that is buffered, waiting for something; b"" at the end. Raises the error with
        which the source ended."""
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
        """Read at least `limit` bytes, or to the end; the rest is for another sink. Raises the error with
        which the source ended, and TimeoutError when nothing arrives for `idle` seconds."""
        pieces: list[bytes] = []
        size = 0
        while size < limit:
            if idle is None or self._pieces or self.ended:
                piece = await self.read()
            else:
                async with asyncio.timeout(idle):
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
    """A source that calls `read` in a task, for data that does not arrive in callbacks. It reads one piece
    ahead of a sink that has paused it."""

    whole = False

    def __init__(self, read: Callable[[], Awaitable[bytes]], losses: str = "") -> None:
        """`read` returns the next piece, b"" at the end, or raises."""
        self.losses = losses
        self.has_received = False
        self._read = read
        self._ended = False
        self._error: Exception | None = None
        self._sink: Sink | None = None
        self._going = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_waiting(self) -> bool:
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
        """Stop feeding the sink."""
        self._sink = None
        if self._task is not None:
            self._task.cancel()

    async def _give(self) -> None:
        try:
            while not self._ended:
                data = await self._read()
                self.has_received = True
                await self._going.wait()
                if data and self._sink is not None:
                    self._sink.feed(data)
                self._ended = not data
        except Exception as error:
            self._ended, self._error = True, error
        await self._going.wait()
        if self._sink is not None:
            self._sink.end(self._error)


# An ASGI extension of our connections: one plain call writes a chunk of a body, or a message of a WebSocket.
#
# `send` passes through a coroutine per middleware, which costs more than translating a token that arrives
# alone. A middleware that must see each chunk removes the extension from the scope (`withdraw`); one that
# needs only the head of an answer, or its duration, need not.

Write = Callable[[bytes], bool]
"""Writes a chunk of the body that is not the last, or a whole text message, and returns True. Returns False
without writing if `send` must be used: the answer has not begun or has ended, it has a content-length, the
client has disconnected, or the write would wait."""

_NAME: Final = "openresponses-bridge.write"


Cut = Callable[[], None]
"""Closes the connection in the middle of an answer, so that its client sees that the answer is not whole."""

_CUT: Final = "openresponses-bridge.cut"


def offer(scope: MutableMapping[str, Any], write: Write, cut: Cut | None = None) -> None:
    """Add both to the scope of a request."""
    extensions = scope.setdefault("extensions", {})
    extensions[_NAME] = {"write": write}
    if cut is not None:
        extensions[_CUT] = {"cut": cut}


def cut_of(scope: MutableMapping[str, Any]) -> Cut:
    """The function that the connection offers, else one that does nothing: the server of the application must
    then end an answer that has no end."""
    try:
        cut: Cut = scope["extensions"][_CUT]["cut"]
    except KeyError:
        return _leave
    return cut


def _leave() -> None:
    return None


def withdraw(scope: MutableMapping[str, Any]) -> None:
    """Remove it, so that the whole answer passes through `send`."""
    scope.get("extensions", {}).pop(_NAME, None)


def offered(scope: MutableMapping[str, Any]) -> Write:
    """The function that the connection offers, else one that always returns False."""
    try:
        write: Write = scope["extensions"][_NAME]["write"]
    except KeyError:
        return _refused
    return write


def _refused(_body: bytes) -> bool:
    return False

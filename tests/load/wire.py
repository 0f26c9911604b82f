"""HTTP for the clients of a load: answers are read as they arrive, and connections are kept."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import httptools

TIMEOUT: Final = 60.0
"""Seconds within which something has to arrive."""
_KEPT: Final = 5.0  # seconds for which a connection is kept, as in SDKs


class Broken(Exception):
    """The connection ended before the answer did."""


class Connection(asyncio.Protocol):
    """A connection for one request after another, and the answer to the last one."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended: str | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.kept_at = 0.0
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._has_head = self._complete = self._may_be_kept = False
        self._arrived_at = self._loop.time()
        self.headers: dict[str, str] = {}

    # --- from the transport

    def connection_made(self, transport: Any) -> None:
        """Remember the transport."""
        self._transport: asyncio.Transport = transport

    def data_received(self, data: bytes) -> None:
        """Parse a part of the answer."""
        self._arrived_at = self._loop.time()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(type(error).__name__)
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        """End the answer: nothing more will arrive."""
        self._end("closed" if error is None else type(error).__name__)

    def _end(self, why: str) -> None:
        self._ended = self._ended or why
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- from the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep one field of the head."""
        self.headers[name.decode().lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Note that the head has arrived."""
        self._has_head = True

    def on_body(self, data: bytes) -> None:
        """Keep a piece of the body."""
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        """Note that the answer has arrived."""
        self._complete = True
        self._may_be_kept = self._parser.should_keep_alive()

    # --- to clients

    @property
    def status(self) -> int:
        """The status of the answer."""
        code: int = self._parser.get_status_code()
        return code

    @property
    def can_be_kept(self) -> bool:
        """Whether the connection can carry another request."""
        return self._may_be_kept and self._ended is None

    async def send(self, request: bytes) -> None:
        """Send a request, and read the head of its answer. Raises Broken and TimeoutError."""
        self._begin()
        self._transport.write(request)
        while not self._has_head:
            await self._wait()

    async def pieces(self) -> AsyncIterator[bytes]:
        """The pieces of the body. Raises Broken if it is cut, and TimeoutError."""
        while True:
            taken, self._pieces = self._pieces, []
            for piece in taken:
                yield piece
            if self._complete:
                return
            await self._wait()

    async def body(self) -> bytes:
        """The whole body."""
        return b"".join([piece async for piece in self.pieces()])

    async def json(self) -> Any:
        """The body as a JSON value. Raises Broken for anything else."""
        try:
            return json.loads(await self.body())
        except ValueError as error:
            raise Broken("no JSON") from error

    def close(self) -> None:
        """Close the connection."""
        if self._timer is not None:
            self._timer.cancel()
        self._transport.abort()

    async def _wait(self) -> None:
        """Wait until something arrives, or until the connection is lost."""
        if self._ended is not None:
            raise Broken(self._ended)
        if self._timer is None:
            self._timer = self._loop.call_later(TIMEOUT, self._look)
        self._waiter = self._loop.create_future()
        await self._waiter

    def _look(self) -> None:
        """Check for a timeout, with one timer for a whole answer: setting one for each wait would cost more
        than the wait."""
        self._timer = None
        left = self._arrived_at + TIMEOUT - self._loop.time()
        if self._waiter is None or self._waiter.done():
            return
        if left > 0:
            self._timer = self._loop.call_later(left, self._look)
        else:
            self._waiter.set_exception(TimeoutError())


class Connections:
    """The connections of clients to one port. With `keeps`, a connection is used again after its answer was
    read."""

    def __init__(self, port: int, *, keeps: bool) -> None:
        self.port = port
        self._keeps = keeps
        self._kept: list[Connection] = []

    @asynccontextmanager
    async def asked(
        self, method: str, path: str, body: Any = None, key: str = "load"
    ) -> AsyncIterator[Connection]:
        """The answer to a request, after its head; a client that leaves the context early closes the
        connection. Raises Broken if there is no answer, and TimeoutError."""
        data = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\nauthorization: Bearer {key}\r\n"
            f"content-type: application/json\r\nanthropic-version: 2023-06-01\r\n"
            f"connection: {'keep-alive' if self._keeps else 'close'}\r\ncontent-length: {len(data)}\r\n\r\n"
        )
        connection = await self._connection()
        try:
            await connection.send(head.encode() + data)
            yield connection
        finally:
            if connection.can_be_kept:
                connection.kept_at = time.monotonic()
                self._kept.append(connection)
            else:
                connection.close()

    async def _connection(self) -> Connection:
        while self._kept:
            connection = self._kept.pop()
            if connection.can_be_kept and connection.kept_at + _KEPT > time.monotonic():
                return connection
            connection.close()
        try:
            loop = asyncio.get_running_loop()
            _, protocol = await loop.create_connection(Connection, "127.0.0.1", self.port)
        except OSError as error:
            raise Broken(type(error).__name__) from error
        return protocol


@asynccontextmanager
async def asked(port: int, method: str, path: str, body: Any = None) -> AsyncIterator[Connection]:
    """The answer to one request, as `Connections.asked` yields it."""
    async with Connections(port, keeps=False).asked(method, path, body) as answer:
        yield answer

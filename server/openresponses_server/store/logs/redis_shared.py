"""One connection to Redis, over which commands leave without waiting for each answer.

The commands of one moment, of all runs of this process, leave in one write, and answers are read as they
arrive. With Redis' client a command takes several times the CPU time, and three iterations of the event loop.
After any failure the caller repeats the call with the client, which handles the error; so each of these calls
can be repeated.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

import hiredis
from redis.asyncio.connection import SSLConnection
from redis.credentials import UsernamePasswordCredentialProvider

from openresponses_server.redis_clients import REDIS_FAILURES
from openresponses_server.store.frames import Frames
from openresponses_server.store.logs.base import Failed
from openresponses_server.store.logs.redis_entries import DATA, ENTRY_ID, FIRST

_ANSWERED_WITHIN: Final = 5.0  # seconds, as with the client
_MOST_UNSENT: Final = 16 * 1024 * 1024  # bytes; further commands are left to the client

Command = tuple[Any, ...]
"""A command's name and its arguments: bytes, str or int."""


class SharedConnection:
    """A connection to the Redis of `pool`. Streams keep about `most` entries. `on_lost` is called when the
    connection was lost."""

    def __init__(self, pool: Any, on_lost: Callable[[], None], most: int) -> None:
        self._pool = pool
        self._on_lost = on_lost
        self._most = most
        self._connecting = asyncio.Lock()
        self._closed = False
        self.connection: Connection | None = None
        """The last connection that was made."""

    async def append(self, key: str, frames: Frames) -> bool:
        """Add the frames to the stream that exists at `key`, over a new connection if need be. Returns
        whether they are known to be there."""
        added: bool = await self._over(lambda connection: connection.add(key, frames, _deny))
        return added

    async def run(self, *commands: Command) -> Any:
        """Return the answer to the last of these commands, as from `Connection.ask`, over a new connection if
        need be; False also if none can be made. Raises TimeoutError if Redis does not respond, since the
        client would wait as well."""
        async with asyncio.timeout(_ANSWERED_WITHIN):
            return await self._over(lambda connection: connection.ask(*commands))

    def close(self) -> None:
        """Close the connection. Commands that wait for an answer get none."""
        self._closed = True
        if self.connection is not None:
            self.connection.abort()

    async def _over(self, call: Callable[[Connection], asyncio.Future[Any]]) -> Any:
        """Return the result of the call; False if it failed."""
        for _ in range(2):  # the connection may turn out to be lost
            try:
                connection = await self._connected()
            except REDIS_FAILURES:
                return False
            answer = await call(connection)
            if answer is not False or not connection.is_closing:
                return answer
        return False

    async def _connected(self) -> Connection:
        async with self._connecting:
            if self.connection is None or self.connection.is_closing:
                self.connection = await Connection.connect(self._pool, self._on_lost, self._most)
                if self._closed:  # meanwhile
                    self.connection.abort()
            return self.connection


class Connection(asyncio.Protocol):
    """A connection that sends commands to Redis and gets their answers in the same order."""

    _transport: asyncio.Transport

    def __init__(self, on_lost: Callable[[], None], most: int) -> None:
        self._on_lost = on_lost
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._answers = hiredis.Reader()
        self._asked: deque[tuple[asyncio.Future[Any], Failed, float]] = deque()
        self._nobody: asyncio.Future[Any] = self._loop.create_future()
        """A future that is done, for answers that nobody waits for."""
        self._nobody.set_result(None)
        self._ready: list[bytes] = []
        self._paused = False

    @classmethod
    async def connect(cls, pool: Any, on_lost: Callable[[], None], most: int) -> Connection:
        """Return a new connection, made as the pool would. Raises one of `REDIS_FAILURES`;
        ConnectionRefusedError if Redis refuses it."""
        loop = asyncio.get_running_loop()
        template = pool.make_connection()
        factory = partial(cls, on_lost, most)
        async with asyncio.timeout(template.socket_connect_timeout):
            tls = template.ssl_context.get() if isinstance(template, SSLConnection) else None
            _, connection = await loop.create_connection(factory, template.host, template.port, ssl=tls)
            try:
                first: list[Command] = []
                if template.username or template.password:
                    named: Any = UsernamePasswordCredentialProvider(template.username, template.password)
                    first.append(("AUTH", *named.get_credentials()))
                if template.db:
                    first.append(("SELECT", template.db))
                for command in first:
                    if await connection.ask(command) is False:
                        raise ConnectionRefusedError(command[0])
            except BaseException:
                connection.abort()
                raise
        return connection

    @property
    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def add(self, key: str, frames: Frames, failed: Failed) -> asyncio.Future[bool]:
        """Add the frames to the stream that exists at `key`, as an `Appender`. Fails if the connection
        accepts no more."""
        loop, pending, ready = self._loop, self._asked, self._ready
        answer: asyncio.Future[bool] = loop.create_future()
        now = loop.time()
        if pending and now - pending[0][2] > _ANSWERED_WITHIN:
            self._transport.abort()
        if self._paused or self._transport.is_closing():
            loop.call_soon(failed, answer)
            return answer
        if not ready:
            loop.call_soon(self._send)
        entry = (ENTRY_ID % (frames.last + 1), FIRST, frames.first, DATA, frames.data)
        command: Any = ("XADD", key, "NOMKSTREAM", "MAXLEN", "~", self._most, *entry)
        ready.append(hiredis.pack_command(command))
        pending.append((answer, failed, now))
        return answer

    def ask(self, *commands: Command) -> asyncio.Future[Any]:
        """Send these commands with nothing between them. The result is the answer to the last one: an int, a
        list, or True for a string; False if Redis refuses it or answers nil, or if the answer can't be
        known."""
        loop, pending, ready = self._loop, self._asked, self._ready  # as in `add`; a call would slow it down
        answer: asyncio.Future[Any] = loop.create_future()
        now = loop.time()
        if pending and now - pending[0][2] > _ANSWERED_WITHIN:
            self._transport.abort()
        if self._paused or self._transport.is_closing():
            answer.set_result(False)
            return answer
        if not ready:
            loop.call_soon(self._send)
        for command in commands:
            ready.append(hiredis.pack_command(command))
            pending.append((self._nobody, _deny, now))
        pending[-1] = (answer, _deny, now)
        return answer

    def abort(self) -> None:
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop has classes of its own
        self._transport.set_write_buffer_limits(_MOST_UNSENT)

    def data_received(self, data: bytes) -> None:
        self._answers.feed(data)
        while self._asked:
            try:
                answer = self._answers.gets()
            except hiredis.ProtocolError:
                return self.abort()
            if answer is False:
                return None
            waiting, failed, _ = self._asked.popleft()
            if isinstance(answer, bytes):
                if not waiting.done():  # it may have been cancelled
                    waiting.set_result(True)
            elif answer is None or isinstance(answer, hiredis.ReplyError):  # there is no stream, or an error
                failed(waiting)
            elif not waiting.done():
                waiting.set_result(answer)
        return None

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False

    def connection_lost(self, _error: Exception | None) -> None:
        while self._asked:
            waiting, failed, _ = self._asked.popleft()
            failed(waiting)
        self._on_lost()

    def _send(self) -> None:
        ready, self._ready = self._ready, []
        if not self._transport.is_closing():
            self._transport.write(b"".join(ready))


def _deny(waiting: asyncio.Future[bool]) -> None:
    if not waiting.done():  # it may have been cancelled
        waiting.set_result(False)

"""Appends entries to logs in Redis over one connection, without waiting for each answer.

The entries of one moment, of all runs of this process, leave in one write, and answers are read as they
arrive. A command of Redis' client takes several times the CPU, and a token waits for each. After any failure
the caller repeats the call with the client, which handles the error: an entry that was added twice is
recognised.
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
_MOST_UNSENT: Final = 16 * 1024 * 1024  # bytes; further entries are left to the client


class Appends:
    """To the Redis that connections of `pool` are made to, in streams of about `most` entries. `on_lost` is
    called when the connection was."""

    def __init__(self, pool: Any, on_lost: Callable[[], None], most: int) -> None:
        self._pool = pool
        self._on_lost = on_lost
        self._most = most
        self._connecting = asyncio.Lock()
        self._closed = False
        self.connection: AppendConnection | None = None
        """The last connection that was made."""

    async def append(self, key: str, frames: Frames) -> bool:
        """Add these to the stream there is at `key`, over a new connection if need be; whether they are known
        to be there."""
        for _ in range(2):  # the connection may turn out to be lost
            try:
                connection = await self._connected()
            except REDIS_FAILURES:
                return False
            if await connection.add(key, frames, _deny):
                return True
            if not connection.is_closing:
                return False
        return False

    def close(self) -> None:
        """Close the connection. What waits for an answer gets none."""
        self._closed = True
        if self.connection is not None:
            self.connection.abort()

    async def _connected(self) -> AppendConnection:
        async with self._connecting:
            if self.connection is None or self.connection.is_closing:
                self.connection = await AppendConnection.connect(self._pool, self._on_lost, self._most)
                if self._closed:  # meanwhile
                    self.connection.abort()
            return self.connection


class AppendConnection(asyncio.Protocol):
    """Commands to one Redis, and their answers in the same order."""

    _transport: asyncio.Transport

    def __init__(self, on_lost: Callable[[], None], most: int) -> None:
        self._on_lost = on_lost
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._answers = hiredis.Reader()
        self._asked: deque[tuple[asyncio.Future[bool], Failed, float]] = deque()
        self._ready: list[bytes] = []
        self._paused = False

    @classmethod
    async def connect(cls, pool: Any, on_lost: Callable[[], None], most: int) -> AppendConnection:
        """A new one, as the pool would connect. Raises one of `REDIS_FAILURES`."""
        loop = asyncio.get_running_loop()
        given = pool.make_connection()
        made = partial(cls, on_lost, most)
        async with asyncio.timeout(given.socket_connect_timeout):
            tls = given.ssl_context.get() if isinstance(given, SSLConnection) else None
            _, connection = await loop.create_connection(made, given.host, given.port, ssl=tls)
            try:
                if given.username or given.password:
                    named: Any = UsernamePasswordCredentialProvider(given.username, given.password)
                    await connection._run("AUTH", *named.get_credentials())
                if given.db:
                    await connection._run("SELECT", given.db)
            except BaseException:
                connection.abort()
                raise
        return connection

    @property
    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def add(self, key: str, frames: Frames, failed: Failed) -> asyncio.Future[bool]:
        """Add these to the stream there is at `key`, as an `Appender`; a connection that takes no more
        fails."""
        loop, asked, ready = self._loop, self._asked, self._ready
        answer: asyncio.Future[bool] = loop.create_future()
        now = loop.time()
        if asked and now - asked[0][2] > _ANSWERED_WITHIN:
            self._transport.abort()
        if self._paused or self._transport.is_closing():
            loop.call_soon(failed, answer)
            return answer
        if not ready:
            loop.call_soon(self._send)
        entry = (ENTRY_ID % (frames.last + 1), FIRST, frames.first, DATA, frames.data)
        command: Any = ("XADD", key, "NOMKSTREAM", "MAXLEN", "~", self._most, *entry)
        ready.append(hiredis.pack_command(command))
        asked.append((answer, failed, now))
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
            if not isinstance(answer, bytes):  # an error of Redis, or there is no stream
                failed(waiting)
            elif not waiting.done():  # it may have been cancelled
                waiting.set_result(True)
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

    async def _run(self, *command: Any) -> None:
        """A command before any entry is added. Raises OSError where it is refused."""
        answer: asyncio.Future[bool] = self._loop.create_future()
        self._asked.append((answer, _deny, self._loop.time()))
        self._transport.write(hiredis.pack_command(command))
        if not await answer:
            raise ConnectionRefusedError(command[0])


def _deny(waiting: asyncio.Future[bool]) -> None:
    if not waiting.done():  # it may have been cancelled
        waiting.set_result(False)

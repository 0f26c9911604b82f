"""Entries added to logs in Redis over one connection, which no entry waits for: what is there at one moment,
of all runs of this process, leaves in one write, and answers are read as they come.

A command of Redis' client takes several times the CPU of that, and a token waits for each. The client makes
the connection, as its URL says, and then gives it up. Whatever goes wrong here is for the client to find out
once more and to deal with: an entry that was added twice is recognised.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import hiredis
from redis.asyncio import Redis
from redis.exceptions import RedisError

_ANSWERED_WITHIN: Final = 5.0  # seconds, as with the client

Command = tuple[Any, ...]

Answered = Callable[[bool], None]
"""Called with whether an entry is known to be there."""


class Appends:
    """To the Redis that `client` connects to. `on_lost` is called when the connection was."""

    def __init__(self, client: Redis, on_lost: Callable[[], None]) -> None:
        self._pool = client.connection_pool
        self._on_lost = on_lost
        self._link: _Link | None = None
        self._connecting = asyncio.Lock()
        self._closed = False

    async def add(self, command: Command) -> bool:
        """Run an XADD; whether its entry is there. It may be there when it is not known to be."""
        link = self._link
        if link is None or not link.usable:
            try:
                link = await self._connected()
            except (RedisError, OSError):
                return False
        return await link.run(command)

    def ask(self, command: Command, answered: Answered) -> bool:
        """The same in a plain call, as far as there is a connection; whether there is one."""
        link = self._link
        if link is None or not link.usable:
            return False
        link.ask(command, answered)
        return True

    def close(self) -> None:
        """Close the connection. What waits for an answer gets none."""
        self._closed = True
        if self._link is not None:
            self._link.abort()

    async def _connected(self) -> _Link:
        async with self._connecting:
            if self._link is None or not self._link.usable:
                self._link = await _Link.of(self._pool, self._lose)
                if self._closed:  # meanwhile
                    self._link.abort()
            return self._link

    def _lose(self) -> None:
        if not self._closed:
            self._on_lost()


class _Link(asyncio.Protocol):
    """One connection: commands, and their answers in the same order."""

    def __init__(self, writer: asyncio.StreamWriter, on_lost: Callable[[], None]) -> None:
        self._writer = writer  # which would close it, were it forgotten
        self._transport = writer.transport
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._answers = hiredis.Reader()
        self._asked: deque[tuple[Answered, float]] = deque()
        self._ready: list[bytes] = []

    @classmethod
    async def of(cls, pool: Any, on_lost: Callable[[], None]) -> _Link:
        """A new one. Raises RedisError and OSError."""
        connection = pool.make_connection()
        try:
            await connection.connect()
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        link = cls(connection._writer, on_lost)
        link._transport.set_protocol(link)
        connection._reader = connection._writer = None  # the client has no other way to give it up
        return link

    @property
    def usable(self) -> bool:
        """It is open, and what was asked is being answered."""
        if self._asked and self._loop.time() - self._asked[0][1] > _ANSWERED_WITHIN:
            self.abort()
        return not self._transport.is_closing()

    def ask(self, command: Command, answered: Answered) -> None:
        """Run an XADD."""
        if not self._ready:
            self._loop.call_soon(self._send)
        self._ready.append(hiredis.pack_command(command))
        self._asked.append((answered, self._loop.time()))

    def run(self, command: Command) -> asyncio.Future[bool]:
        """The same, awaited."""
        answer: asyncio.Future[bool] = self._loop.create_future()
        self.ask(command, partial(_answer, answer))
        return answer

    def abort(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._answers.feed(data)
        while self._asked:
            try:
                answer = self._answers.gets()
            except hiredis.ProtocolError:
                return self.abort()
            if answer is False:
                return None
            # anything else is an error of Redis
            self._asked.popleft()[0](isinstance(answer, bytes))
        return None

    def connection_lost(self, _error: Exception | None) -> None:
        while self._asked:
            self._asked.popleft()[0](False)
        self._on_lost()

    def _send(self) -> None:
        ready, self._ready = self._ready, []
        if not self._transport.is_closing():
            self._transport.write(b"".join(ready))


def _answer(waiting: asyncio.Future[bool], there: bool) -> None:
    if not waiting.done():  # it may have been cancelled
        waiting.set_result(there)

"""Event logs as Redis Streams: every worker reads what one worker appends. One stream per run, with the
entries of `redis_entries`. A discarded log leaves a last entry for a while, so that a writer elsewhere that
does not know about it does not open it again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, BusyLoadingError, ResponseError

from openresponses_server.redis_clients import REDIS_FAILURES, redis_client
from openresponses_server.store.frames import Frames
from openresponses_server.store.logs.base import LIFETIME, LINGER, MARKED, Appender, LogError, LogGone
from openresponses_server.store.logs.redis_entries import (
    CLOSED,
    DATA,
    DISCARD_MARK,
    MARK,
    OPEN,
    Calls,
    NotAbove,
    entry_id,
    fields_of,
)
from openresponses_server.store.logs.redis_reading import Pages, Tails
from openresponses_server.store.logs.redis_shared import Command, SharedConnection

_PAGING: Final = 7
"""The number of connections for all readers that have fallen behind."""
_WRITING: Final = 8
"""The number of connections for calls that failed over the shared one. Without a limit each run would open
one when Redis fails, and all of them would be kept."""
_PORT: Final = 6379
_CHECK_SECONDS: Final = 1.0


class RedisLog:
    """Logs in the Redis at `url` (`redis://` or `rediss://`), under keys that begin with `prefix`. A stream
    keeps about its last `max_entries` appends. A call that Redis does not answer is retried for `timeout`
    seconds before it is a LogError. Any number of readers share a few connections."""

    at_hand = False
    shared = True

    def __init__(
        self,
        url: str,
        prefix: str = "openresponses-bridge",
        linger: float = LINGER,
        lifetime: float = LIFETIME,
        max_entries: int = 100_000,
        timeout: float = 10.0,
    ) -> None:
        options: dict[str, Any] = {
            "protocol": 2,
            "socket_connect_timeout": 5.0,
            "socket_timeout": 5.0,
            "health_check_interval": 30,
            "retry": Retry(NoBackoff(), 0),  # `Calls` does the retries
        }
        self._writer: Redis = redis_client(url, connections=_WRITING, wait=timeout, **options)
        self._follower: Redis = redis_client(url, **options)
        self._pager: Redis = redis_client(url, connections=_PAGING, **options)
        self._stem = f"{prefix}:log:"
        parts = urlsplit(url)
        self._address = f"{parts.hostname or '127.0.0.1'}:{parts.port or _PORT}"
        self._linger = _milliseconds(linger)
        self._lifetime = _milliseconds(lifetime)
        self._max_entries = max_entries
        self._expiring: set[str] = set()
        """The logs of this worker's runs that will expire in Redis; empty after an outage, since a restarted
        Redis has lost them."""
        self._persist = Calls(timeout, self._expiring.clear)
        self._shared = SharedConnection(self._writer.connection_pool, self._expiring.clear, max_entries)
        self._pages = Pages(self._pager, self._persist)
        self._tails = Tails(self._follower, self._persist, self._pages)

    async def check(self) -> None:
        try:
            async with asyncio.timeout(_CHECK_SECONDS):
                await self._writer.ping()
        except TimeoutError as error:
            silent = f"{self._address} does not answer within {_CHECK_SECONDS:g} s"
            raise LogError(details=silent) from error
        except BusyLoadingError as error:
            raise LogError(details=f"{self._address} is still loading its data") from error
        except (AuthenticationError, ResponseError) as error:
            raise LogError("The event log refuses access.", self._said(error), permanent=True) from error
        except REDIS_FAILURES as error:
            raise LogError(details=self._said(error)) from error

    def _said(self, error: Exception) -> str:
        """Describe a failure with the address, for the operator."""
        message = str(error)
        return message if self._address in message else f"{self._address}: {message or type(error).__name__}"

    async def open(self, run_id: str) -> None:
        # The whole script, since after a restart of Redis its hash is unknown, and all runs would fall back
        # to the client.
        command = ("EVAL", OPEN, 1, self._key(run_id), self._lifetime)

        async def begin() -> Any:
            return await self._writer.execute_command(*command)  # type: ignore[no-untyped-call]

        if not await self._call([command], begin):
            raise LogGone(run_id)
        self._expiring.add(run_id)

    def appender(self, run_id: str) -> Appender | None:
        connection = self._shared.connection
        return None if connection is None else partial(connection.add, self._key(run_id))

    async def append(self, run_id: str, frames: Frames) -> None:
        key = self._key(run_id)
        if run_id in self._expiring and await self._shared.append(key, frames):
            return
        entry, fields = entry_id(frames.last), fields_of(frames)

        async def add() -> None:
            bounds: dict[str, Any] = {"maxlen": self._max_entries, "approximate": True}
            if run_id in self._expiring:
                if await self._writer.xadd(key, fields, id=entry, nomkstream=True, **bounds) is not None:
                    return
                self._expiring.discard(run_id)  # Redis has lost it
            async with self._writer.pipeline(transaction=True) as pipe:
                pipe.xadd(key, fields, id=entry, **bounds)
                pipe.pexpire(key, self._lifetime, nx=True)
                await pipe.execute()
            self._expiring.add(run_id)

        try:
            await self._persist(add)
        except NotAbove as error:
            # After an outage the last entry may be this one, if only the answer was lost. It is another if
            # another worker has ended the run with an event of this number.
            last: Any = await self._persist(lambda: self._writer.xrange(key, entry, entry))
            if not last or last[0][1].get(DATA) != frames.data:
                raise LogGone(run_id) from error

    async def read(self, run_id: str, after: int = -1, *, wait: bool = True) -> AsyncIterator[Frames]:
        key = self._key(run_id)
        batches = self._tails.read(key, run_id, after) if wait else self._pages.read(key, run_id, after)
        async for frames in batches:
            yield frames

    async def acquire(self, run_id: str) -> None:
        """Do nothing: Redis refuses a second event with the same number, whoever has appended the first."""

    def leave(self, run_id: str) -> None:
        self._expiring.discard(run_id)

    async def close(self, run_id: str) -> None:
        key = self._key(run_id)
        commands = (
            ("XADD", key, "NOMKSTREAM", CLOSED, MARK, b""),
            ("PEXPIRE", key, self._linger),
        )

        async def end() -> None:
            async with self._writer.pipeline(transaction=False) as pipe:
                for command in commands:
                    pipe.execute_command(*command)
                await pipe.execute(raise_on_error=False)

        await self._call(commands, end)
        self.leave(run_id)

    async def discard(self, run_id: str) -> None:
        key = self._key(run_id)
        self.leave(run_id)
        commands = (
            ("DEL", key),
            ("XADD", key, CLOSED, DISCARD_MARK, b""),
            ("PEXPIRE", key, _milliseconds(MARKED)),
        )

        async def bury() -> None:
            async with self._writer.pipeline(transaction=True) as pipe:
                for command in commands:
                    pipe.execute_command(*command)
                try:
                    await pipe.execute()
                except ResponseError:  # a full Redis that refuses to add refuses to delete too
                    await self._writer.delete(key)

        await self._call([("MULTI",), *commands, ("EXEC",)], bury)

    async def shutdown(self) -> None:
        await self._tails.close()
        self._shared.close()
        await self._writer.aclose()
        await self._follower.aclose()
        await self._pager.aclose(close_connection_pool=True)

    async def _call(self, commands: Sequence[Command], again: Callable[[], Awaitable[Any]]) -> Any:
        """Return the answer to the last of these commands; if they fail, the result of `again`, which does
        the same with the client. Raises LogError."""

        async def once() -> Any:
            answer = await self._shared.run(*commands)
            return await again() if answer is False else answer

        return await self._persist(once)

    def _key(self, run_id: str) -> str:
        return f"{self._stem}{run_id}"


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))

"""Clients of Redis, all of which have the same kind of connection."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from hashlib import sha1
from typing import TYPE_CHECKING, Any, Final

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.asyncio.connection import BlockingConnectionPool, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError

if TYPE_CHECKING:
    from redis.asyncio.connection import AbstractConnection as _Connection
else:
    _Connection = object


REDIS_FAILURES: Final = (RedisError, OSError)
"""The exceptions of a call that failed; `TimeoutError` is an OSError."""


class _WithErrors(_Connection):
    """uvloop raises RuntimeError for a transport that was closed since it was last looked at; asyncio ignores
    what is written to it. redis-py sends with `asyncio.wait_for`, which before Python 3.12 loses a
    cancellation that comes when the command has just been sent."""

    async def send_packed_command(
        self, command: bytes | str | Iterable[bytes], check_health: bool = True
    ) -> None:
        task = asyncio.current_task()
        before = 0 if task is None else task.cancelling()
        try:
            await super().send_packed_command(command, check_health)
        except RuntimeError as error:
            if "closed" not in str(error):
                raise
            raise RedisConnectionError("The connection is closed.") from error
        if task is not None and task.cancelling() > before:
            await self.disconnect(nowait=True)  # nobody reads the answer
            raise asyncio.CancelledError


def hasty_client(url: str, connections: int, timeout: float) -> Redis:
    """A client for calls that are not worth waiting for: with so many connections, for one of which a call
    waits `timeout` seconds, as for its answer."""
    return redis_client(
        url,
        connections=connections,
        wait=timeout,
        protocol=2,
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        retry=Retry(NoBackoff(), 1),  # a connection that was closed while nobody used it
    )


def redis_client(
    url: str, *, connections: int | None = None, wait: float | None = None, **options: Any
) -> Redis:
    """A client of the Redis at `url` (`redis://`, `rediss://` or `unix://`). With `connections` it has at
    most so many, and a call waits for one for `wait` seconds (None: however long it takes); its `options` are
    those of `redis.asyncio.Connection`."""
    pool: ConnectionPool
    if connections is None:
        pool = ConnectionPool.from_url(url, **options)
    else:
        pool = BlockingConnectionPool.from_url(url, max_connections=connections, timeout=wait, **options)
    kind = pool.connection_class
    pool.connection_class = type(kind.__name__, (_WithErrors, kind), {})
    return Redis.from_pool(pool)


class Script:
    """A Lua script, which is atomic. Redis may forget it at any time (a restart, `SCRIPT FLUSH`): where it
    does, the script is sent again with its call, in one command."""

    def __init__(self, client: Redis, text: str) -> None:
        self._client, self._text = client, text
        self._digest = sha1(text.encode(), usedforsecurity=False).hexdigest()

    async def __call__(self, keys: Sequence[str], arguments: Sequence[str | int | float | bytes]) -> Any:
        """Run it and return its result."""
        client, count = self._client, len(keys)
        try:
            return await client.evalsha(self._digest, count, *keys, *arguments)
        except NoScriptError:
            return await client.eval(self._text, count, *keys, *arguments)

    def queue(self, pipe: Pipeline, keys: Sequence[str], arguments: Sequence[str | int | float]) -> None:
        """Add a run of it to the commands of a pipeline."""
        pipe.eval(self._text, len(keys), *keys, *arguments)

"""Event logs as Redis Streams: what one worker appends, every worker reads.

One stream per run, its entries as in `redis_entries`. Of a log that was discarded a last entry is left for a
while, so that a writer elsewhere, which does not know that, does not begin it anew.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, TypeVar

from redis.asyncio import Redis
from redis.asyncio.connection import BlockingConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeout

from server.event_logs.base import LIFETIME, LINGER, LogError, LogGap, LogGone
from server.event_logs.redis_entries import (
    CLOSED,
    DISCARD_MARK,
    MARK,
    OPENED,
    Entry,
    entry_id,
    fields_of,
    frames_in,
    is_discard_mark,
)
from server.frames import Frames

T = TypeVar("T")

_ENTRIES_AT_ONCE: Final = 256
_BLOCK: Final = 5.0  # seconds that a reader waits within Redis before it looks whether the log is there
_NOT_ABOVE: Final = "equal or smaller than"
_OUTAGES: Final = (RedisConnectionError, RedisTimeout, BusyLoadingError, OSError)


class _NotAbove(Exception):
    """Redis refused an entry whose id is not above that of the last one."""


class RedisLog:
    """Logs in the Redis at `url` (`redis://` or `rediss://`), under keys that begin with `prefix`.

    A stream keeps about its last `max_entries` appends. Without answer from Redis a call is tried again
    for `patience` seconds before it is a LogError. Each reader that waits holds one of the
    `connections`, and those beyond wait for one.
    """

    at_hand = False

    def __init__(
        self,
        url: str,
        prefix: str = "openresponses-bridge",
        linger: float = LINGER,
        lifetime: float = LIFETIME,
        max_entries: int = 100_000,
        patience: float = 10.0,
        connections: int = 1000,
    ) -> None:
        shared: dict[str, Any] = {
            "protocol": 2,
            "socket_connect_timeout": 5.0,
            "health_check_interval": 30,
            "retry": Retry(NoBackoff(), 0),  # how often and how long is `_persist`'s to say
        }
        self._writer: Redis = Redis.from_url(url, socket_timeout=5.0, **shared)
        self._reader: Redis = Redis.from_pool(
            BlockingConnectionPool.from_url(
                url, max_connections=connections, timeout=30, socket_timeout=_BLOCK + 5.0, **shared
            )
        )
        self._prefix = prefix
        self._linger = _milliseconds(linger)
        self._lifetime = _milliseconds(lifetime)
        self._max_entries = max_entries
        self._patience = patience
        self._expiring: set[str] = set()
        """Open logs of this worker that Redis will drop some day; none after an outage, as a Redis that was
        restarted has forgotten them."""

    async def check(self) -> None:
        try:
            await self._writer.ping()
        except BusyLoadingError as error:
            raise LogError from error
        except (AuthenticationError, ResponseError) as error:
            raise LogError("The event log refuses access.", str(error), lasting=True) from error
        except (RedisError, OSError) as error:
            raise LogError from error

    async def open(self, run_id: str) -> None:
        key = self._key(run_id)

        async def begin(instead: bool = False) -> None:
            async with self._writer.pipeline(transaction=True) as pipe:
                if instead:
                    pipe.delete(key)
                pipe.xadd(key, MARK, id=OPENED)
                pipe.pexpire(key, self._lifetime, nx=True)
                await pipe.execute()
            self._expiring.add(run_id)

        try:
            await self._persist(begin)
        except _NotAbove as error:
            last: Any = await self._persist(lambda: self._writer.xrevrange(key, count=1))
            if last and is_discard_mark(last[0]):
                raise LogGone(run_id) from error
            await self._persist(lambda: begin(instead=True))

    async def append(self, run_id: str, frames: Frames) -> None:
        key, entry = self._key(run_id), entry_id(frames.last)
        fields = fields_of(frames)

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
        except _NotAbove as error:
            # After an outage the last entry may be this very one, of which only the answer was lost.
            if not await self._persist(lambda: self._writer.xrange(key, entry, entry)):
                raise LogGone(run_id) from error

    async def read(self, run_id: str, after: int = -1, *, wait: bool = True) -> AsyncIterator[Frames]:
        key = self._key(run_id)
        place = OPENED if after < 0 else entry_id(after)
        begun = False
        while True:
            entries = await self._next(key, place, wait=begun and wait)
            if not entries:
                if not await self._persist(lambda: self._reader.exists(key)):
                    raise LogGone(run_id)
                if not wait:
                    return
            begun = True
            for frames in frames_in(entries):
                rest = frames.after(after)
                if rest is None:
                    continue
                if rest.first != after + 1:
                    raise LogGap(run_id, after + 1, rest.first)
                after = rest.last
                yield rest
            if entries:
                place = entries[-1][0]
                if is_discard_mark(entries[-1]):
                    raise LogGone(run_id)
                if place == CLOSED:
                    return

    async def close(self, run_id: str) -> None:
        key = self._key(run_id)

        async def end() -> None:
            async with self._writer.pipeline(transaction=False) as pipe:
                pipe.xadd(key, MARK, id=CLOSED, nomkstream=True)
                pipe.pexpire(key, self._linger)
                await pipe.execute(raise_on_error=False)

        await self._persist(end)
        self._expiring.discard(run_id)

    async def discard(self, run_id: str) -> None:
        key = self._key(run_id)
        self._expiring.discard(run_id)

        async def bury() -> None:
            async with self._writer.pipeline(transaction=True) as pipe:
                pipe.delete(key)
                pipe.xadd(key, DISCARD_MARK, id=CLOSED)
                pipe.pexpire(key, self._linger)
                try:
                    await pipe.execute()
                except ResponseError:  # Redis is full, and deletes nothing where it may add nothing
                    await self._writer.delete(key)

        await self._persist(bury)

    async def shutdown(self) -> None:
        await self._writer.aclose()
        await self._reader.aclose(close_connection_pool=True)

    def _key(self, run_id: str) -> str:
        return f"{self._prefix}:log:{run_id}"

    async def _next(self, key: str, place: bytes, wait: bool) -> list[Entry]:
        """The entries after `place`; with `wait`, when there are none, those of the next seconds."""
        block = _milliseconds(_BLOCK) if wait else None

        async def look() -> Any:
            return await self._reader.xread({key: place}, count=_ENTRIES_AT_ONCE, block=block)

        streams = await self._persist(look)
        entries: list[Entry] = streams[0][1] if streams else []
        return entries

    async def _persist(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call, and again while Redis does not answer, for as long as patience lasts. Every call here can
        be made twice."""
        deadline = time.monotonic() + self._patience
        pause = 0.02
        while True:
            try:
                return await call()
            except _OUTAGES as error:
                self._expiring.clear()
                if time.monotonic() + pause > deadline:
                    raise LogError from error
            except RedisError as error:
                if isinstance(error, ResponseError) and _NOT_ABOVE in str(error):
                    raise _NotAbove from error
                raise LogError("The event log failed.") from error
            await asyncio.sleep(pause)
            pause = min(pause * 2, 1.0)


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))

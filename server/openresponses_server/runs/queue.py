"""Responses in the background that wait for a worker: a consumer group of a Redis Stream.

The record in the store says which worker has the run, so an entry only says where to look. A worker that has
taken a run acknowledges its entry; one that stopped before leaves the entry to the others, and one that
stopped after it leaves a lease that runs out. An entry that was lost costs seconds: a worker that finds the
queue empty looks in the store for what waits all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final

import structlog

from openresponses_server.limits.gate import Gate
from openresponses_server.store.base import StoreError
from openresponses_server.store.logs.base import LogError

Take = Callable[[str], Awaitable[None]]
"""Takes the run of the response with this id, unless it is taken already."""

TakeWaiting = Callable[[Collection[str]], Awaitable[bool]]
"""Takes one run that waits although its entry should have come, of any owner but these; whether there was
one."""

_PREFIX: Final = "openresponses-bridge:queue"
_GROUP: Final = "workers"
_FIELD: Final = b"id"
_OWNER: Final = b"owner"
_BLOCK: Final = 2.0  # seconds that one wait for an entry takes
_PAUSE: Final = 0.5  # seconds until a Redis that failed, or a full worker, is asked again
_AT_ONCE: Final = 8
_PATIENCE: Final = 0.5  # seconds that a request waits for the queue
_log = structlog.get_logger(__name__)


class RunQueue:
    """At the Redis at `url`, as `worker`. An entry that nobody has acknowledged for `idle` seconds goes to
    another worker. `store` is the name of the store that the runs are in: workers of another one, who could
    make none of them, have a queue of their own in the same Redis."""

    def __init__(self, url: str, store: str, worker: str, idle: float) -> None:
        from redis.asyncio import Redis  # it takes a while to load

        self._redis: Redis = Redis.from_url(
            url, protocol=2, socket_timeout=_BLOCK + 5.0, socket_connect_timeout=5.0
        )
        self._key = f"{_PREFIX}:{store}"
        self._worker = worker
        self._idle = round(idle * 1000)

    async def put(self, response_id: str, owner: str) -> None:
        """Queue this owner's run. Raises LogError when Redis can't be reached at once; it may get there
        still."""
        from redis.exceptions import RedisError

        try:
            async with asyncio.timeout(_PATIENCE):
                await self._redis.xadd(self._key, {_FIELD: response_id, _OWNER: owner})
        except (RedisError, OSError, TimeoutError) as error:
            raise LogError("The queue of runs can't be reached.") from error

    async def serve(self, take: Take, take_waiting: TakeWaiting, gate: Gate) -> None:
        """Take runs while there is a place for them, for ever. A run whose owner has as many as it may have
        here is left in the store, so that those behind it need not wait; it is found there later."""
        while True:
            if not _is_free(gate):
                await asyncio.sleep(_PAUSE)
            elif not await self._found(self._next(take, gate)):
                while _is_free(gate) and await self._found(take_waiting(gate.runs.at_their_limit())):
                    await asyncio.sleep(0)  # that run takes its place before another is looked for

    async def _found(self, look: Awaitable[bool]) -> bool:
        """Whether there was something; when that can't be known, False after a pause."""
        from redis.exceptions import RedisError, ResponseError

        try:
            return await look
        except ResponseError:
            await self._begin()
        except (RedisError, StoreError, OSError) as error:
            _log.warning("queue.failed", error=type(error).__name__)
            await asyncio.sleep(_PAUSE)
        except Exception:
            _log.exception("queue.internal_error")
            await asyncio.sleep(_PAUSE)
        return False

    async def close(self) -> None:
        """Close connections."""
        await self._redis.aclose()

    async def _begin(self) -> None:
        """Make the group; it is gone when Redis has lost its memory."""
        from redis.exceptions import RedisError, ResponseError

        try:
            await self._redis.xgroup_create(self._key, _GROUP, id="0", mkstream=True)
        except ResponseError:
            await asyncio.sleep(_PAUSE)  # another worker was quicker, or it is something else
        except (RedisError, OSError):
            await asyncio.sleep(_PAUSE)

    async def _next(self, take: Take, gate: Gate) -> bool:
        """Take what is in the queue; whether something came while it was waited for."""
        claimed: Any = await self._redis.xautoclaim(
            self._key, _GROUP, self._worker, min_idle_time=self._idle, count=_AT_ONCE
        )
        entries = claimed[1]
        if not entries:
            read: Any = await self._redis.xreadgroup(
                _GROUP, self._worker, {self._key: ">"}, count=1, block=round(_BLOCK * 1000)
            )
            entries = [entry for _, found in read or () for entry in found]
        for entry_id, fields in entries:
            if fields and gate.leaving:  # it came while this worker was asked to leave
                await self._redis.xadd(self._key, fields)
            elif fields and gate.runs.has_room(fields.get(_OWNER, b"").decode()):
                await take(fields[_FIELD].decode())
            async with self._redis.pipeline(transaction=False) as pipe:
                pipe.xack(self._key, _GROUP, entry_id)
                pipe.xdel(self._key, entry_id)
                await pipe.execute()
        return bool(entries)


def _is_free(gate: Gate) -> bool:
    return not (gate.runs.full or gate.leaving)

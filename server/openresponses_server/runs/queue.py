"""Background responses that wait for a worker: a consumer group of a Redis Stream.

The record in the store says which worker holds the run; an entry of the stream is only a hint to look at it.
A worker acknowledges an entry when it has claimed the run: if it stops before that, another worker claims the
entry, and if it stops later, the lease of the run expires. A lost entry costs seconds: every two, and when it
finds the queue empty, a worker looks in the store for waiting runs.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final

import structlog

from openresponses_server.limits.gate import Gate
from openresponses_server.store.base import StoreError
from openresponses_server.store.logs.base import LogError
from openresponses_server.tasks import jittered

Claim = Callable[[str], Awaitable[None]]
"""Claims the run of the response with this id, unless another worker holds it."""

ClaimWaiting = Callable[[Collection[str]], Awaitable[bool]]
"""Claims one run from the store whose entry should have come, of any owner but these. Returns whether there
was one.
"""

_PREFIX: Final = "openresponses-bridge:queue"
_GROUP: Final = "workers"
_FIELD: Final = b"id"
_OWNER: Final = b"owner"
_BLOCK: Final = 2.0  # seconds that one wait for an entry takes
_PAUSE: Final = 0.5  # seconds until a Redis that failed, or a full worker, is asked again
_AT_ONCE: Final = 8
_TIMEOUT: Final = 0.5  # seconds that a request waits for the queue
_log = structlog.get_logger(__name__)


class RunQueue:
    """The queue in the Redis at `url`, for this `worker`. An entry that is not acknowledged for `idle`
    seconds goes to another worker. Each `store` has a queue of its own, named after it, since workers of
    another store could make none of its runs."""

    def __init__(self, url: str, store: str, worker: str, idle: float) -> None:
        from openresponses_server.redis_clients import redis_client  # it takes a while to load

        self._redis = redis_client(url, protocol=2, socket_timeout=_BLOCK + 5.0, socket_connect_timeout=5.0)
        self._key = f"{_PREFIX}:{store}"
        self._worker = worker
        self._idle = round(idle * 1000)
        self._abandoned_at = -math.inf

    async def put(self, response_id: str, owner: str) -> None:
        """Queue this owner's run. Raises LogError if Redis does not answer in time; the entry may arrive
        anyway."""
        from openresponses_server.redis_clients import REDIS_FAILURES

        try:
            async with asyncio.timeout(_TIMEOUT):
                await self._redis.xadd(self._key, {_FIELD: response_id, _OWNER: owner})
        except REDIS_FAILURES as error:
            raise LogError("The queue of runs can't be reached.") from error

    async def serve(self, claim: Claim, resume_waiting: ClaimWaiting, gate: Gate) -> None:
        """Claim runs while there are free slots, until cancelled. A run whose owner has no slot left here
        stays in the store, so that the runs after it need not wait. It is found there later, like a run whose
        entry was lost: the store is searched when the queue is empty, and as often if it never is."""
        looked_at = -_BLOCK
        while True:
            if not _has_free_slot(gate):
                await asyncio.sleep(jittered(_PAUSE))
                continue
            has_entry = await self._poll(self._claim_next(claim, gate))
            if has_entry and time.monotonic() - looked_at < _BLOCK:
                continue
            while _has_free_slot(gate) and await self._poll(resume_waiting(gate.runs.at_their_limit())):
                await asyncio.sleep(0)  # that run acquires its slot before the next is looked for
            looked_at = time.monotonic()

    async def _poll(self, look: Awaitable[bool]) -> bool:
        """Return True if there was a run; False, after a pause, if that can't be known."""
        from redis.exceptions import ResponseError

        from openresponses_server.redis_clients import REDIS_FAILURES

        try:
            return await look
        except ResponseError:
            await self._create_group()
        except (*REDIS_FAILURES, StoreError) as error:
            _log.warning("queue.failed", error=type(error).__name__)
            await asyncio.sleep(jittered(_PAUSE))
        except Exception:
            _log.exception("queue.internal_error")
            await asyncio.sleep(jittered(_PAUSE))
        return False

    async def close(self) -> None:
        """Close connections."""
        await self._redis.aclose()

    async def _create_group(self) -> None:
        """Create the consumer group, which does not exist if Redis has lost its data."""
        from redis.exceptions import ResponseError

        from openresponses_server.redis_clients import REDIS_FAILURES

        try:
            await self._redis.xgroup_create(self._key, _GROUP, id="0", mkstream=True)
        except ResponseError:
            await asyncio.sleep(jittered(_PAUSE))  # another worker was quicker, or the error is another one
        except REDIS_FAILURES:
            await asyncio.sleep(jittered(_PAUSE))

    async def _abandoned(self) -> list[Any]:
        """Entries that another worker has not acknowledged; looked for every two seconds, and again as long
        as there are some."""
        if time.monotonic() < self._abandoned_at + _BLOCK:
            return []
        claimed: Any = await self._redis.xautoclaim(
            self._key, _GROUP, self._worker, min_idle_time=self._idle, count=_AT_ONCE
        )
        entries: list[Any] = claimed[1]
        if not entries:
            self._abandoned_at = time.monotonic()
        return entries

    async def _claim_next(self, claim: Claim, gate: Gate) -> bool:
        """Claim what is in the queue, waiting a little for an entry. Returns whether there was one. Several
        entries of a long queue are claimed at the same time, since each waits for the store."""
        entries = await self._abandoned()
        if not entries:
            most = min(max(gate.runs.free, 1), _AT_ONCE)
            read: Any = await self._redis.xreadgroup(
                _GROUP, self._worker, {self._key: ">"}, count=most, block=round(_BLOCK * 1000)
            )
            entries = [entry for _, batch in read or () for entry in batch]
        of: Counter[str] = Counter()
        chosen: dict[bytes, str] = {}
        for entry_id, fields in entries:
            if not fields:
                continue
            if gate.leaving:  # this worker was asked to leave meanwhile
                await self._redis.xadd(self._key, fields)
                continue
            owner = fields.get(_OWNER, b"").decode()
            if len(chosen) < gate.runs.free and gate.runs.may_have(owner, of[owner] + 1):
                of[owner] += 1
                chosen[entry_id] = fields[_FIELD].decode()
        ended = await asyncio.gather(*map(claim, chosen.values()), return_exceptions=True)
        failed = {each: end for each, end in zip(chosen, ended, strict=True) if isinstance(end, Exception)}
        if done := [entry_id for entry_id, _ in entries if entry_id not in failed]:
            async with self._redis.pipeline(transaction=False) as pipe:
                pipe.xack(self._key, _GROUP, *done)
                pipe.xdel(self._key, *done)
                await pipe.execute()
        for failure in failed.values():
            raise failure
        return bool(entries)


def _has_free_slot(gate: Gate) -> bool:
    return not (gate.runs.full or gate.leaving)

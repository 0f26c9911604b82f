"""The usage of keys for `GET /v1/usage`, across workers and restarts. Each process counts in memory and adds
its counts to the store in batches; a report is the sum of both.

A killed process loses its counts since the last batch. The counts of a stored response are in its record too.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final

import structlog
from msgspec.structs import asdict

from openresponses_server.errors import Outage
from openresponses_server.store.usage import (
    AgentCounts,
    Counts,
    UsageBook,
    UsageRows,
    UsageStore,
    UsageSums,
    day_of,
)
from openresponses_server.tasks import end_tasks, in_time, jittered
from openresponses_server.upstreams.prices import dollars

# All processes add to the same rows, one after the other. So the time between two batches grows with the time
# that a batch takes, which includes waiting.
_EVERY: Final = 5.0  # seconds between two batches
_EVERY_DURATION: Final = 20  # times the duration of a batch: it takes at most a twentieth of the time
_LONGEST_WAIT: Final = 60.0  # seconds, however long a batch took
_FORGOTTEN_EVERY: Final = 3600.0  # seconds
_LAST_PATIENCE: Final = 5.0  # seconds for the last batch of a process
_log = structlog.get_logger(__name__)


class UsageKeeper:
    """Adds the counts of an application to the store while `going` lasts. `retention` is the number of
    seconds that sums are kept, None for ever."""

    def __init__(self, book: UsageBook, store: UsageStore, retention: float | None) -> None:
        self.book = book
        self._store = store
        self._retention = retention
        self._writer = secrets.token_hex(8)
        self._number = 0
        self._batch = UsageRows()
        self._one_at_a_time = asyncio.Lock()
        self._forgotten_at = -math.inf
        self._outage = False

    @asynccontextmanager
    async def going(self) -> AsyncIterator[None]:
        """Store the counts every few seconds, and once more at the end."""
        keeping = asyncio.create_task(self._keep())
        try:
            yield
        finally:
            await end_tasks([keeping])
            try:
                await in_time(self.store_all(), _LAST_PATIENCE)
            except (Outage, TimeoutError) as error:
                _log.warning("usage.lost", reason=getattr(error, "in_full", "the store did not answer"))

    async def store_all(self) -> None:
        """Store the counts so far. Raises StoreError; the next call then stores them again."""
        async with self._one_at_a_time:
            if self._batch:  # it may be stored already, if only the answer was lost
                await self._send()
            self._batch = self.book.drain()
            self._number += 1
            if self._batch:
                await self._send()

    async def report(self, owner: str, since: str = "") -> dict[str, Any]:
        """Return the report of one owner since a day (`2026-01-31`): sums, rows by day and model, agents.
        Raises StoreError."""
        async with self._one_at_a_time:
            if self._batch:  # it would count twice here, if only the answer was lost
                with suppress(Outage):
                    await self._send()
            stored = await self._store.usage_of(owner, since)
            here = [self._batch, self.book.of(owner, since)]
        sums = UsageSums()
        for spent in (stored, *here):
            sums.add(
                [row for row in spent.days if row.owner == owner and row.day >= since],
                [agent for agent in spent.agents if agent.owner == owner],
            )
        return _report(sums.of(owner))

    async def _send(self) -> None:
        await self._store.add_usage(self._writer, self._number, self._batch)
        self._batch = UsageRows()

    async def _keep(self) -> None:
        duration = 0.0
        while True:
            await asyncio.sleep(jittered(min(max(_EVERY, duration * _EVERY_DURATION), _LONGEST_WAIT)))
            begun_at = time.monotonic()
            try:
                await self.store_all()
                await self._remove()
                self._outage = False
            except Outage as error:
                if not self._outage:
                    _log.warning("usage.not_stored", code=error.code, reason=error.in_full)
                self._outage = True
            except Exception:
                _log.exception("usage.not_stored")
            duration = time.monotonic() - begun_at

    async def _remove(self) -> None:
        now = time.monotonic()
        if self._retention is not None and now - self._forgotten_at > _FORGOTTEN_EVERY:
            await self._store.remove_usage(time.time() - self._retention)
            self._forgotten_at = now


def _report(spent: UsageRows) -> dict[str, Any]:
    total = Counts()
    for row in spent.days:
        total.add(row.counts)
    rows = sorted(spent.days, key=lambda row: (row.day, row.model))
    agents = sorted(spent.agents, key=lambda agent: (agent.used_at, agent.agent))
    return {
        "object": "usage",
        "since": _start_of(rows[0].day if rows else day_of(time.time())),
        **_shown_counts(total),
        "data": [{"day": row.day, "model": row.model, **_shown_counts(row.counts)} for row in rows],
        "agents": [_agent(agent) for agent in agents],
    }


def _start_of(day: str) -> int:
    """Return the beginning of the day in Unix seconds."""
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp())


def _agent(agent: AgentCounts) -> dict[str, Any]:
    return {
        "agent": agent.agent,
        "model": agent.model,
        "last_input_tokens": agent.last_input_tokens,
        "max_input_tokens": agent.max_input_tokens or None,
        **_shown_counts(agent.counts),
    }


def _shown_counts(counts: Counts) -> dict[str, Any]:
    shown = asdict(counts)
    priced, cost = shown.pop("priced"), shown.pop("cost")
    known = dollars(cost) if priced == counts.requests else None
    return {**shown, "estimated": counts.estimated_requests > 0, "cost_usd": known}

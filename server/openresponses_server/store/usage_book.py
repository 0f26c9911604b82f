"""`GET /v1/usage` over all workers and restarts: what this process has counted goes to the store now and
then, and what it has not yet added there is added to what is read.

Between two batches a killed process loses what it counted; the counts of each stored response are in its
record.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

import structlog
from msgspec.structs import asdict

from openresponses_server.errors import Outage
from openresponses_server.store.openresponses_server_usage import UsageBook
from openresponses_server.store.usage import (
    AgentCounts,
    Counts,
    DayCounts,
    Spent,
    UsageStore,
    UsageSums,
    day_of,
)
from openresponses_server.tasks import end_tasks, in_time

_EVERY: Final = 5.0  # seconds between two batches
_FORGOTTEN_EVERY: Final = 3600.0  # seconds
_LAST_PATIENCE: Final = 5.0  # seconds that the last batch of a process may take
_log = structlog.get_logger(__name__)


class UsageKeeper:
    """One per application. It works while `going` lasts. `retention` is how many seconds sums are kept, None
    for ever."""

    def __init__(self, book: UsageBook, store: UsageStore, retention: float | None) -> None:
        self.book = book
        self._store = store
        self._retention = retention
        self._writer = secrets.token_hex(8)
        self._number = 0
        self._leaving = Spent()
        self._one_at_a_time = asyncio.Lock()
        self._forgotten_at = 0.0
        self._outage = False

    @asynccontextmanager
    async def going(self) -> AsyncIterator[None]:
        """Store sums; in the end those that are left."""
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
        """Store what has been counted so far. Raises StoreError, and then it is stored with the next."""
        async with self._one_at_a_time:
            if self._leaving:  # perhaps it is stored, and only the answer was lost
                await self._send()
            self._leaving = self.book.take()
            self._number += 1
            if self._leaving:
                await self._send()

    async def shown(self, owner: str, since: str = "") -> dict[str, Any]:
        """Everything of one owner from a day on (`2026-01-31`): sums, rows by day and model, agents. Raises
        StoreError."""
        async with self._one_at_a_time:
            found = await self._store.usage_of(owner, since)
            here = [self._leaving, self.book.of(owner, since)]
        sums = UsageSums()
        for spent in (found, *here):
            sums.add(
                [row for row in spent.days if row.owner == owner and row.day >= since],
                [agent for agent in spent.agents if agent.owner == owner],
            )
        return _shown(sums.of(owner))

    async def _send(self) -> None:
        await self._store.add_usage(self._writer, self._number, self._leaving)
        self._leaving = Spent()

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(_EVERY)
            try:
                await self.store_all()
                await self._forget()
                self._outage = False
            except Outage as error:
                if not self._outage:
                    _log.warning("usage.not_stored", code=error.code, reason=error.in_full)
                self._outage = True
            except Exception:
                _log.exception("usage.not_stored")

    async def _forget(self) -> None:
        now = time.time()
        if self._retention is not None and now - self._forgotten_at > _FORGOTTEN_EVERY:
            await self._store.forget_usage(now - self._retention)
            self._forgotten_at = now


def _shown(spent: Spent) -> dict[str, Any]:
    total = Counts()
    for row in spent.days:
        total.add(row.counts)
    rows = sorted(spent.days, key=lambda row: (row.day, row.model))
    agents = sorted(spent.agents, key=lambda agent: (agent.used_at, agent.agent))
    return {
        "object": "usage",
        "since": _began(rows[0].day if rows else day_of(time.time())),
        **_counts(total),
        "data": [_day(row) for row in rows],
        "agents": [_agent(agent) for agent in agents],
    }


def _began(day: str) -> int:
    """Unix seconds of its beginning."""
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp())


def _day(row: DayCounts) -> dict[str, Any]:
    return {"day": row.day, "model": row.model, **_counts(row.counts)}


def _agent(agent: AgentCounts) -> dict[str, Any]:
    return {
        "agent": agent.agent,
        "model": agent.model,
        "last_input_tokens": agent.last_input_tokens,
        "max_input_tokens": agent.max_input_tokens or None,
        **_counts(agent.counts),
    }


def _counts(counts: Counts) -> dict[str, Any]:
    return {**asdict(counts), "estimated": counts.estimated_requests > 0}

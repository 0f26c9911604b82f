"""`GET /v1/usage` over all workers and restarts: what this process has counted goes to the store now and
then, and what it has not yet added there is added to what is read.

Between two batches a killed process loses what it counted; the counts of each stored response are in its
record.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

import structlog
from msgspec.structs import asdict

from openresponses_bridge.models.usage import AgentUsage, UsageTracker
from openresponses_bridge.protocol.usage import Usage, numbers_of
from openresponses_server.errors import Outage
from openresponses_server.store.usage import (
    MAX_OWNERS,
    AgentCounts,
    Counts,
    DayCounts,
    Spent,
    UsageStore,
    UsageSums,
    day_of,
)
from openresponses_server.tasks import end_tasks, in_time

# Nothing in a response's path waits for a store: its end is entered here, in memory and bounded, and
# `UsageKeeper` adds it to the store later.

_LONGEST: Final = 200  # characters of a model's or agent's name

OnUsage = Callable[[str, AgentUsage], None]
"""Called with an owner and the new state of one of its agents, to show it."""


class UsageBook:
    """One per application. With `any_key` every key that a client shows is an owner: what one has not spent
    any tokens for is then not handed out to be stored, as anybody can make up keys."""

    def __init__(
        self, clock: Callable[[], float] = time.time, *, max_owners: int = MAX_OWNERS, any_key: bool = False
    ) -> None:
        self._clock = clock
        self._max_owners = max_owners
        self._any_key = any_key
        self._sums = UsageSums(max_owners)
        self._trackers: OrderedDict[str, UsageTracker] = OrderedDict()
        self._callbacks: list[OnUsage] = []

    @property
    def watched(self) -> bool:
        """Whether anybody wants to be notified of starting requests too."""
        return bool(self._callbacks)

    def on_change(self, callback: OnUsage) -> Callable[[], None]:
        """Register a callback for each change; returns the function that unregisters it."""
        self._callbacks.append(callback)

        def remove() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return remove

    def start(self, owner: str, agent: str, model: str, input_tokens: int, max_input_tokens: int) -> None:
        """A request leaves; the numbers are estimates, 0 where they are not known."""
        state = self._tracker(owner).start_request(_name(agent), input_tokens, max_input_tokens, _name(model))
        if self._callbacks:
            self._changed(owner, state)

    def end(self, owner: str, agent: str, model: str, usage: Usage | None, *, failed: bool) -> None:
        """Its response has ended, or there is none: it was refused or left."""
        agent, model, tracker = _name(agent), _name(model), self._tracker(owner)
        if failed:
            state = tracker.fail_request(agent, model, usage)
        else:
            state = tracker.complete_request(agent, usage, model)
        if self._callbacks:
            self._changed(owner, state)
        now, counts = self._clock(), _counts(usage, failed)
        latest = (state.model_id, state.input_tokens, state.max_input_tokens)
        self._sums.add_response(
            DayCounts(owner, day_of(now), model, counts), AgentCounts(owner, agent, *latest, now, counts)
        )

    def of(self, owner: str, since: str = "") -> Spent:
        """One owner's sums that have not been handed out."""
        return self._sums.of(owner, since)

    def drain(self) -> Spent:
        """Remove and return everything to be stored."""
        taken = Spent([], [])
        for owner in self._sums.owners():
            if self._any_key and not any(row.counts.total_tokens for row in self._sums.of(owner).days):
                continue
            found = self._sums.pop(owner)
            taken.days += found.days
            taken.agents += found.agents
        return taken

    def _tracker(self, owner: str) -> UsageTracker:
        tracker = self._trackers.get(owner)
        if tracker is None:
            tracker = self._trackers[owner] = UsageTracker()
            while len(self._trackers) > self._max_owners:
                self._trackers.popitem(last=False)
        self._trackers.move_to_end(owner)
        return tracker

    def _changed(self, owner: str, agent: AgentUsage) -> None:
        for callback in list(self._callbacks):
            callback(owner, agent)


def _name(given: str) -> str:
    """As every store takes it."""
    if not given:
        return given
    if len(given) <= _LONGEST and given.isascii() and "\0" not in given:
        return given
    return given[:_LONGEST].replace("\0", "\ufffd").encode(errors="replace").decode()


def _counts(usage: Usage | None, failed: bool) -> Counts:
    """Of one response."""
    if usage is None:
        return Counts(1, int(failed))
    return Counts(1, int(failed), int(usage.estimated is True), **numbers_of(usage))


_EVERY: Final = 5.0  # seconds between two batches
_FORGOTTEN_EVERY: Final = 3600.0  # seconds
_LAST_PATIENCE: Final = 5.0  # seconds for the last batch of a process
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
        """Store the counts so far. Raises StoreError; then they are stored with the next ones."""
        async with self._one_at_a_time:
            if self._leaving:  # it may be stored, and only the answer lost
                await self._send()
            self._leaving = self.book.drain()
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
        **_shown_counts(total),
        "data": [_day(row) for row in rows],
        "agents": [_agent(agent) for agent in agents],
    }


def _began(day: str) -> int:
    """Unix seconds of its beginning."""
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp())


def _day(row: DayCounts) -> dict[str, Any]:
    return {"day": row.day, "model": row.model, **_shown_counts(row.counts)}


def _agent(agent: AgentCounts) -> dict[str, Any]:
    return {
        "agent": agent.agent,
        "model": agent.model,
        "last_input_tokens": agent.last_input_tokens,
        "max_input_tokens": agent.max_input_tokens or None,
        **_shown_counts(agent.counts),
    }


def _shown_counts(counts: Counts) -> dict[str, Any]:
    return {**asdict(counts), "estimated": counts.estimated_requests > 0}

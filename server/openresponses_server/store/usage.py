"""The usage of keys as sums by day and model and by agent, what a process has counted, the interface of the
stores of sums, and the store in memory.

No response waits for the store: `UsageBook` counts in bounded memory, and each process adds batches of its
own sums later; adding a batch again has no effect.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, Protocol

from msgspec import Struct, field

from openresponses_bridge.protocol.usage import Usage, numbers_of

MAX_OWNERS: Final = 1000
"""The most keys whose sums are held in memory: those used last."""
MAX_ROWS: Final = 5000
"""The most rows of one owner, one for each day and model; the oldest days are deleted first."""
MAX_MODELS: Final = 200
"""The most models of one owner and day: clients may send any name."""
MAX_AGENTS: Final = 100
"""The most agents of one owner: those used last."""
OTHERS: Final = "(others)"
"""The name under which a day's models beyond `MAX_MODELS` are summed."""
_DAY: Final = 86_400  # seconds
MOST: Final = 2**53 - 1
"""The greatest sum: all clients can represent numbers up to it exactly."""
MOST_COST: Final = 2**62
"""The greatest sum of costs: some four million dollars, within the 64 bits of a column."""


class Counts(Struct):
    """`requests` that have ended; `failed` is the number of failed ones, `estimated_requests` of those whose
    tokens were not all counted by the upstream, `priced` of those whose cost is known, and `cost` the sum of
    that in 10⁻¹² US dollars. The other numbers are tokens, as in `Usage`."""

    requests: int = 0
    failed: int = 0
    estimated_requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    total_tokens: int = 0
    cache_write_tokens: int = 0
    priced: int = 0
    cost: int = 0

    def add(self, other: Counts) -> None:
        """Add other counts to these."""
        self.requests += other.requests
        self.failed += other.failed
        self.estimated_requests += other.estimated_requests
        self.input_tokens += other.input_tokens
        self.output_tokens += other.output_tokens
        self.cached_tokens += other.cached_tokens
        self.reasoning_tokens += other.reasoning_tokens
        self.total_tokens += other.total_tokens
        self.cache_write_tokens += other.cache_write_tokens
        self.priced += other.priced
        self.cost = min(self.cost + other.cost, MOST_COST)
        tokens = self.input_tokens + self.output_tokens + self.total_tokens + self.cached_tokens
        tokens += self.reasoning_tokens + self.cache_write_tokens
        # only then can a sum exceed it
        if self.requests + self.failed + self.estimated_requests + tokens > MOST:
            for name in NAMES:
                setattr(self, name, min(getattr(self, name), most_of(name)))


NAMES: Final = Counts.__struct_fields__


def most_of(name: str) -> int:
    """Return the greatest sum of the count with this name."""
    return MOST_COST if name == "cost" else MOST


class DayUsage(Struct):
    """The usage of an owner on a day (UTC, as `2026-01-31`) with a model."""

    owner: str
    day: str
    model: str
    counts: Counts = field(default_factory=Counts)


class AgentCounts(Struct):
    """The usage of an owner's agent. `model` and `last_input_tokens` are those of its latest request, which
    ended at `used_at` (Unix seconds); `max_input_tokens` is 0 if it is not known."""

    owner: str
    agent: str
    model: str = ""
    last_input_tokens: int = 0
    max_input_tokens: int = 0
    used_at: float = 0.0
    counts: Counts = field(default_factory=Counts)


class UsageRows(Struct):
    """Rows of one owner or of several."""

    days: list[DayUsage] = []
    agents: list[AgentCounts] = []

    def __bool__(self) -> bool:
        return bool(self.days or self.agents)


class UsageStore(Protocol):
    """Stores sums. Every method raises StoreError if the store can't be reached or is full, and may then be
    called again."""

    async def add_usage(self, writer: str, number: int, batch: UsageRows) -> None:
        """Add a batch to the sums, unless it was added before. `writer` is the process that counted; `number`
        increases with each of its batches."""
        ...

    async def usage_of(self, owner: str, since: str = "") -> UsageRows:
        """Return the sums of this owner since a day (inclusive), and those of its agents."""
        ...

    async def remove_usage(self, before: float) -> None:
        """Delete the days before that time (Unix seconds), and agents not used since."""
        ...


def day_of(at: float) -> str:
    """Return the day (UTC) of a time in Unix seconds."""
    return _day(int(at // _DAY))


@lru_cache(maxsize=16)
def _day(number: int) -> str:
    return datetime.fromtimestamp(number * _DAY, UTC).strftime("%Y-%m-%d")


class UsageSums:
    """A bounded number of sums in memory."""

    def __init__(self, max_owners: int = MAX_OWNERS) -> None:
        self._max_owners = max_owners
        self._owners: OrderedDict[str, _Account] = OrderedDict()

    def add(self, rows: Iterable[DayUsage], agents: Iterable[AgentCounts]) -> None:
        """Add copies of these rows."""
        for row in rows:
            self._account(row.owner).add_day(row)
        for agent in agents:
            self._account(agent.owner).add_agent(agent)

    def add_response(self, row: DayUsage, agent: AgentCounts) -> None:
        """Add the usage of one response; both rows have the same owner."""
        account = self._account(row.owner)
        account.add_day(row)
        account.add_agent(agent)

    def of(self, owner: str, since: str = "") -> UsageRows:
        """Return the sums as `UsageStore.usage_of` does."""
        account = self._owners.get(owner)
        if account is None:
            return UsageRows()
        return UsageRows(
            [row for row in account.days.values() if row.day >= since], list(account.agents.values())
        )

    def owners(self) -> list[str]:
        """Return the owners of these sums."""
        return list(self._owners)

    def pop(self, owner: str) -> UsageRows:
        """Remove and return all sums of one owner."""
        sums = self.of(owner)
        self._owners.pop(owner, None)
        return sums

    def remove(self, before: float) -> None:
        """Remove sums as `UsageStore.remove_usage` does."""
        day = day_of(before)
        for owner, account in list(self._owners.items()):
            account.days = {key: row for key, row in account.days.items() if row.day >= day}
            for agent in [each for each in account.agents.values() if each.used_at < before]:
                del account.agents[agent.agent]
            if not account.days and not account.agents:
                del self._owners[owner]

    def _account(self, owner: str) -> _Account:
        account = self._owners.get(owner)
        if account is None:
            account = self._owners[owner] = _Account()
            while len(self._owners) > self._max_owners:
                self._owners.popitem(last=False)
        self._owners.move_to_end(owner)
        return account


class _Account:
    """The sums of one owner."""

    def __init__(self) -> None:
        self.days: dict[tuple[str, str], DayUsage] = {}
        self.agents: OrderedDict[str, AgentCounts] = OrderedDict()

    def add_day(self, row: DayUsage) -> None:
        there = self.days.get((row.day, row.model))
        if there is None:
            model = row.model
            if sum(day == row.day for day, _ in self.days) >= MAX_MODELS:
                model = OTHERS
            there = self.days.setdefault((row.day, model), DayUsage(row.owner, row.day, model))
            while len(self.days) > MAX_ROWS:
                oldest = min(day for day, _ in self.days)
                self.days = {key: entry for key, entry in self.days.items() if entry.day != oldest}
        there.counts.add(row.counts)

    def add_agent(self, row: AgentCounts) -> None:
        there = self.agents.get(row.agent)
        if there is None:
            there = self.agents[row.agent] = AgentCounts(row.owner, row.agent)
        if row.used_at >= there.used_at:
            there.model, there.used_at = row.model, row.used_at
            there.last_input_tokens, there.max_input_tokens = row.last_input_tokens, row.max_input_tokens
        there.counts.add(row.counts)
        self.agents.move_to_end(row.agent)
        while len(self.agents) > MAX_AGENTS:
            self.agents.popitem(last=False)


_LONGEST: Final = 200  # characters of a model's or agent's name


class UsageBook:
    """Counts the usage of all keys of an application. With `any_key` every key that a client sends is an
    owner: anybody can make up keys, so that owners without any tokens or costs are not stored."""

    def __init__(
        self, clock: Callable[[], float] = time.time, *, max_owners: int = MAX_OWNERS, any_key: bool = False
    ) -> None:
        self._clock = clock
        self._any_key = any_key
        self._sums = UsageSums(max_owners)

    def add(
        self,
        owner: str,
        agent: str,
        model: str,
        usage: Usage | None,
        *,
        room: int = 0,
        failed: bool,
        cost: int | None = None,
    ) -> None:
        """Count a request that has ended: with its response, or without one if it was refused or cancelled.
        `room` is the number of input tokens that the model accepts, 0 if it is not known; `cost` is in 10⁻¹²
        US dollars, None if it is not known."""
        agent, model, now = _name(agent), _name(model), self._clock()
        last = 0 if usage is None else usage.input_tokens
        estimated, numbers = (0, {}) if usage is None else (int(usage.estimated is True), numbers_of(usage))
        priced, paid = (0, 0) if cost is None else (1, max(cost, 0))
        counts = Counts(1, int(failed), estimated, **numbers, priced=priced, cost=paid)
        self._sums.add_response(
            DayUsage(owner, day_of(now), model, counts),
            AgentCounts(owner, agent, model, last, room, now, counts),
        )

    def of(self, owner: str, since: str = "") -> UsageRows:
        """Return one owner's sums since the last `drain`."""
        return self._sums.of(owner, since)

    def drain(self) -> UsageRows:
        """Remove and return the sums that are to be stored."""
        drained = UsageRows([], [])
        for owner in self._sums.owners():
            rows = self._sums.of(owner).days
            if self._any_key and not any(row.counts.total_tokens or row.counts.cost for row in rows):
                continue
            sums = self._sums.pop(owner)
            drained.days += sums.days
            drained.agents += sums.agents
        return drained


@lru_cache(maxsize=256)
def _name(name: str) -> str:
    """Return the name in a form that every store accepts."""
    if not name:
        return name
    if len(name) <= _LONGEST and name.isascii() and "\0" not in name:
        return name
    return name[:_LONGEST].replace("\0", "\ufffd").encode(errors="replace").decode()


class MemoryUsage:
    """A `UsageStore` in this process, whose sums are lost with it."""

    def __init__(self) -> None:
        self._sums = UsageSums()
        self._added: dict[str, int] = {}

    async def add_usage(self, writer: str, number: int, batch: UsageRows) -> None:
        if self._added.get(writer, -1) < number:
            self._added[writer] = number
            self._sums.add(batch.days, batch.agents)

    async def usage_of(self, owner: str, since: str = "") -> UsageRows:
        return self._sums.of(owner, since)

    async def remove_usage(self, before: float) -> None:
        self._sums.remove(before)

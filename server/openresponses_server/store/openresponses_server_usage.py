"""What each key's responses spend, as this process counts it before it goes to the store.

Nothing of a response's path waits for a store: its end is entered here, in memory and bounded, and
`openresponses_server.store.usage_book` adds all of it to the store now and then.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Final

from openresponses_bridge.models.usage import AgentUsage, UsageTracker
from openresponses_bridge.protocol.usage import Usage, numbers_of
from openresponses_server.store.usage import (
    MAX_OWNERS,
    AgentCounts,
    Counts,
    DayCounts,
    Spent,
    UsageSums,
    day_of,
)

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
        """Somebody wants to know of requests when they leave, too."""
        return bool(self._callbacks)

    def on_change(self, callback: OnUsage) -> Callable[[], None]:
        """Have it called with each change; returns what ends that."""
        self._callbacks.append(callback)

        def remove() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return remove

    def start(self, owner: str, agent: str, model: str, input_tokens: int, max_input_tokens: int) -> None:
        """A request leaves; the numbers are estimates, 0 where they are not known."""
        self._tracker(owner).start_request(_name(agent), input_tokens, max_input_tokens, _name(model))

    def end(self, owner: str, agent: str, model: str, usage: Usage | None, *, failed: bool) -> None:
        """Its response has ended, or there is none: it was refused or left."""
        agent, model, tracker = _name(agent), _name(model), self._tracker(owner)
        if failed:
            state = tracker.fail_request(agent, model, usage)
        else:
            state = tracker.complete_request(agent, usage, model)
        now, counts = self._clock(), _counts(usage, failed)
        latest = (state.model_id, state.input_tokens, state.max_input_tokens)
        self._sums.add_response(
            DayCounts(owner, day_of(now), model, counts), AgentCounts(owner, agent, *latest, now, counts)
        )

    def of(self, owner: str, since: str = "") -> Spent:
        """What has not been handed out of one owner."""
        return self._sums.of(owner, since)

    def take(self) -> Spent:
        """Everything that is to be stored, which is from then on not here."""
        taken = Spent([], [])
        for owner in self._sums.owners():
            if self._any_key and not any(row.counts.total_tokens for row in self._sums.of(owner).days):
                continue
            found = self._sums.take(owner)
            taken.days += found.days
            taken.agents += found.agents
        return taken

    def _tracker(self, owner: str) -> UsageTracker:
        tracker = self._trackers.get(owner)
        if tracker is None:
            tracker = self._trackers[owner] = UsageTracker(partial(self._changed, owner))
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

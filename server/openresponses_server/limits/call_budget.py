"""How many calls of hosted tools each key makes in a day."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from openresponses_server.limits.day_counts import DayCounts
from openresponses_server.limits.owners import OwnerLimits


class AllWorkers(Protocol):
    """The calls of all workers together."""

    async def spend_call(self, owner: str, most: int, uncounted: int) -> bool | None:
        """Count `uncounted` calls that were made before, and one more if there are fewer than `most` then;
        whether it was counted. None if nobody knows."""
        ...


class CallBudget:
    """The calls of each key today, in UTC: at most `most`, None for any number, unless the owner has a limit
    of its own. Workers that have `others` count together; while those do not answer, each counts by itself,
    and makes up for it afterwards."""

    def __init__(
        self,
        most: int | None,
        others: AllWorkers | None = None,
        clock: Callable[[], float] = time.time,
        owners: OwnerLimits | None = None,
    ) -> None:
        self._most = most
        self._owners = OwnerLimits() if owners is None else owners
        self._others = others
        self._clock = clock
        self._used = DayCounts()
        self._uncounted = DayCounts()  # those of `_used` that the others do not know

    async def spend(self, owner: str) -> bool:
        """Count one more call; False if there is none left."""
        own = self._owners.of(owner).calls_per_day
        most = self._most if own is None else own
        if most is None:
            return True
        now = self._clock()
        used, uncounted = self._used.at(now), self._uncounted.at(now)  # however long the others take
        count = used.get(owner, 0)
        if count >= most or self._used.has_no_room(owner):
            return False
        used[owner] = count + 1
        if self._others is None:
            return True
        before = uncounted.pop(owner, 0)
        found = await self._others.spend_call(owner, most, before)
        if found is None:
            uncounted[owner] = uncounted.get(owner, 0) + before + 1
        elif not found:
            used[owner] -= 1
        return found is not False

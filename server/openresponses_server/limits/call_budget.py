"""How many calls of hosted tools each key makes in a day."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from openresponses_server.limits.counters import DayCounts, Workers
from openresponses_server.limits.owners import OwnerLimits


class CallBudget:
    """The calls of each key today, in UTC: at most `most`, None for any number, unless the owner has a limit
    of its own. With `others`, the workers count together; while those do not answer, each counts by itself
    and reports its count afterwards."""

    def __init__(
        self,
        most: int | None,
        others: Workers | None = None,
        clock: Callable[[], float] = time.time,
        owners: OwnerLimits | None = None,
    ) -> None:
        self._most = most
        self._owners = OwnerLimits() if owners is None else owners
        self._others = others
        self._clock = clock
        self._used = DayCounts()
        self._asking: Counter[str] = Counter()  # those of `_used` that may be refused yet

    async def spend(self, owner: str) -> bool:
        """Count one more call. Returns False if none is left today."""
        own = self._owners.of(owner).calls_per_day
        most = self._most if own is None else own
        if most is None:
            return True
        used = self._used.at(self._clock())  # however long the others take
        day, count = self._used.day, used.get(owner, 0)
        if count >= most or self._used.has_no_room(owner):
            return False
        used[owner] = count + 1
        if self._others is None:
            return True
        sure = max(count - self._asking[owner], 0)
        self._asking[owner] += 1
        answer: bool | None = False
        try:
            answer = await self._others.spend_call(owner, most, day, sure, count + 1)
        finally:
            self._asking[owner] -= 1
            if not self._asking[owner]:
                del self._asking[owner]
            if answer is False:  # or cancelled: the call is not made
                used[owner] -= 1
        return answer is not False

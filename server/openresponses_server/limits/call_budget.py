"""How many calls of hosted tools each key makes in a day."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_MOST_KEYS: Final = 100_000
_DAY: Final = 86_400


class CallBudget:
    """The calls of each key today, in UTC: at most `most`, None for any number."""

    def __init__(self, most: int | None, clock: Callable[[], float] = time.time) -> None:
        self._most = most
        self._clock = clock
        self._day = -1
        self._used: dict[str, int] = {}

    def spend(self, owner: str) -> bool:
        """Count one more call; False if there is none left."""
        if self._most is None:
            return True
        day = int(self._clock() // _DAY)
        if day != self._day:
            self._day = day
            self._used.clear()
        used = self._used.get(owner, 0)
        if used >= self._most or (owner not in self._used and len(self._used) >= _MOST_KEYS):
            return False
        self._used[owner] = used + 1
        return True

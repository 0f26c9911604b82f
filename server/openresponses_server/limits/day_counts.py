"""A number of each key that begins anew with each day."""

from __future__ import annotations

from typing import Final

_MOST_KEYS: Final = 100_000
DAY: Final = 86_400
"""The seconds of a day."""


class DayCounts:
    """The numbers of keys on one day, in UTC, of so many keys at most."""

    def __init__(self) -> None:
        self.day = -1
        """Days since 1970."""
        self._numbers: dict[str, int] = {}

    def at(self, now: float) -> dict[str, int]:
        """The numbers of the day of this time, in Unix seconds, by key; another dictionary for each day."""
        day = int(now // DAY)
        if day != self.day:
            self.day, self._numbers = day, {}
        return self._numbers

    def has_no_room(self, owner: str) -> bool:
        """Whether this key has no number yet, and can't get one."""
        return owner not in self._numbers and len(self._numbers) >= _MOST_KEYS

"""Counts per key: of a day in this process, and of all workers through one protocol."""

from __future__ import annotations

from typing import Final, Protocol

_MOST_KEYS: Final = 100_000
DAY: Final = 86_400
"""The seconds of a day."""


class Workers(Protocol):
    """The counts of all workers together, by owner: what is in progress at once, by kind, and the calls and
    costs of a day, numbered in UTC since 1970. Each worker reports its own counts."""

    async def agree(self, kind: str, owner: str) -> bool:
        """Return True if this owner may have the number of a kind that it has here, together with those at
        the other workers."""
        ...

    def changed(self, kind: str, owner: str) -> None:
        """Report that this owner now has fewer of a kind here."""
        ...

    async def spend_call(self, owner: str, most: int, day: int, sure: int, count: int) -> bool | None:
        """Report the calls of this process on this day: `sure` were made, and `count` would be made with one
        more. That one is counted if all workers together then have at most `most`. Returns True if it was
        counted, None if that is unknown. A call that is reported several times is counted once."""
        ...

    async def spent(self, owner: str, day: int) -> int | None:
        """Return what this owner has spent on this day; None if that is unknown."""
        ...

    def pay(self, owner: str, day: int, cost: int) -> None:
        """Count a cost of this day."""
        ...


class DayCounts:
    """A number for each key on one day, in UTC, of a limited number of keys."""

    def __init__(self) -> None:
        self.day = -1
        """Days since 1970."""
        self._numbers: dict[str, int] = {}

    def at(self, now: float) -> dict[str, int]:
        """The numbers of the day of this time, in Unix seconds, by key; each day has a dictionary of its own.
        When the clock is set back over midnight, the later day continues and its numbers are kept; when it is
        set back further, it was wrong before, and the numbers begin again."""
        day = int(now // DAY)
        if day > self.day or day < self.day - 1:
            self.day, self._numbers = day, {}
        return self._numbers

    def has_no_room(self, owner: str) -> bool:
        """Return True if this key has no number and can't get one."""
        return owner not in self._numbers and len(self._numbers) >= _MOST_KEYS

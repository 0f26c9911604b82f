"""What is counted of each key: here by day, and over all workers through one port."""

from __future__ import annotations

from typing import Final, Protocol

_MOST_KEYS: Final = 100_000
DAY: Final = 86_400
"""The seconds of a day."""


class Workers(Protocol):
    """The counts of all workers together, by owner: of what there is at once, by kind, of calls and of costs
    on a day in UTC since 1970. Each worker says its own."""

    async def agree(self, kind: str, owner: str) -> bool:
        """Return True if this owner may have what it has here of a kind, together with what it has there."""
        ...

    def changed(self, kind: str, owner: str) -> None:
        """Report that this owner has fewer of a kind here now."""
        ...

    async def spend_call(self, owner: str, most: int, day: int, sure: int, wanted: int) -> bool | None:
        """Count the calls that this process has made on this day, `sure` of them surely, and with one more
        `wanted`, if all together are at most `most` then; return True if that one was counted, None if nobody
        knows. However often a call is said, it is counted once."""
        ...

    async def spent(self, owner: str, day: int) -> int | None:
        """Return what this owner has spent on this day; None if nobody knows."""
        ...

    def pay(self, owner: str, day: int, cost: int) -> None:
        """Count a cost of this day."""
        ...


class DayCounts:
    """The numbers of keys on one day, in UTC, of so many keys at most."""

    def __init__(self) -> None:
        self.day = -1
        """Days since 1970."""
        self._numbers: dict[str, int] = {}

    def at(self, now: float) -> dict[str, int]:
        """The numbers of the day of this time, in Unix seconds, by key; another dictionary for each day. A
        clock that is set back over midnight is still in the later day, whose numbers are not cleared; one
        that is set back further was wrong before, and begins anew."""
        day = int(now // DAY)
        if day > self.day or day < self.day - 1:
            self.day, self._numbers = day, {}
        return self._numbers

    def has_no_room(self, owner: str) -> bool:
        """Return True if this key has no number yet, and can't get one."""
        return owner not in self._numbers and len(self._numbers) >= _MOST_KEYS

"""Law S8: what all keys and each one may have at once, and how the server stops taking requests.

Four things are counted: responses being made (runs), background runs that wait for their turn, readers of
stored responses, and open WebSockets. Each has a limit in sum and one per key. Without keys every client is
the same owner, so only the limit in sum applies.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from server.errors import HttpError, shutting_down
from server.settings import Limits

_WITHOUT_KEY: Final = ""  # the owner of everything where no keys are asked for


class Share:
    """How many of one kind there are at once: of all keys at most `total`, of each at most `per_key`. `what`
    names the kind in errors, `code` is their code."""

    def __init__(self, what: str, code: str, total: int, per_key: int) -> None:
        self._what = what
        self._code = code
        self._total = total
        self._per_key = per_key
        self._held: dict[str, int] = {}
        self.count = 0
        """How many there are of all keys."""

    def owners(self) -> list[str]:
        """Who has any."""
        return list(self._held)

    def of(self, owner: str) -> int:
        """How many this owner has."""
        return self._held.get(owner, 0)

    @property
    def full(self) -> bool:
        """There are as many as there may be of all keys."""
        return self.count >= self._total

    def has_room(self, owner: str) -> bool:
        """Whether this owner may have one more."""
        return not self.full and (owner == _WITHOUT_KEY or self.of(owner) < self._per_key)

    def check(self, owner: str, more: int = 1, *, elsewhere: tuple[int, int] = (0, 0)) -> None:
        """Raises HttpError 429 that names the limit when this owner may not have so many more. `elsewhere` is
        how many there are beyond this process: of all keys, and of this one."""
        of_all, of_key = elsewhere
        if self.count + of_all + more > self._total:
            raise self._refusal(f"The server has {self._total} {self._what} at once and no more; try again.")
        if owner != _WITHOUT_KEY and self.of(owner) + of_key + more > self._per_key:
            raise self._refusal(
                f"One API key has at most {self._per_key} {self._what} at once; try again when one has ended."
            )

    @contextmanager
    def held(self, owner: str) -> Iterator[None]:
        """One more of this owner's. Raises HttpError 429."""
        self.check(owner)
        self.take(owner)
        try:
            yield
        finally:
            self.give_back(owner)

    def take(self, owner: str) -> None:
        """One more, whatever the limits say: what was accepted before is not refused now."""
        self.count += 1
        self._held[owner] = self.of(owner) + 1

    def give_back(self, owner: str) -> None:
        """One less."""
        self.count -= 1
        left = self._held.pop(owner) - 1
        if left:
            self._held[owner] = left

    def _refusal(self, message: str) -> HttpError:
        return HttpError(429, message, code=self._code, headers={"retry-after": "1"})


class Gate:
    """Counts what there is at once, lets background runs wait for their turn, and closes when the server
    stops."""

    def __init__(self, limits: Limits) -> None:
        self.runs = Share(
            "responses being made",
            "too_many_concurrent_requests",
            limits.concurrent,
            limits.concurrent_per_key,
        )
        self.waiting = Share(
            "background responses waiting",
            "too_many_background_requests",
            limits.background,
            limits.background_per_key,
        )
        self.readers = Share(
            "readers of stored responses", "too_many_readers", limits.readers, limits.readers_per_key
        )
        self.sockets = Share("open WebSockets", "too_many_websockets", limits.sockets, limits.sockets_per_key)
        self._deadlines: set[asyncio.Timeout] = set()
        self._line: dict[str, dict[asyncio.Future[None], None]] = {}
        self.closing = False
        """Stop taking requests."""
        self.cut = False
        """What still ran at the end of the grace was cut off."""

    def at_their_limit(self) -> list[str]:
        """The owners that may not have one more response being made, though there is a place."""
        return [owner for owner in self.runs.owners() if not self.runs.has_room(owner)]

    @property
    def running(self) -> int:
        """How many responses are being made."""
        return self.runs.count

    @asynccontextmanager
    async def place(self, owner: str, *, waits: bool, held: bool = False) -> AsyncIterator[None]:
        """The right to make one more response of this owner. One that `waits` gets it when there is a place
        and its turn has come, and none once the server stops. Raises HttpError 429 to one that does not
        wait. With `held` it is one of `places`."""
        if held:
            yield
            return
        if waits:
            await self._turn(owner)
        else:
            self.runs.check(owner)
            self.runs.take(owner)
        try:
            yield
        finally:
            self._leave(owner)

    @contextmanager
    def places(self, owner: str, count: int) -> Iterator[None]:
        """The right to make so many responses of this owner at once. Raises HttpError 429 when there is not
        room for all of them."""
        self.runs.check(owner, count)
        for _ in range(count):
            self.runs.take(owner)
        try:
            yield
        finally:
            for _ in range(count):
                self._leave(owner)

    @contextmanager
    def ended_by(self, deadline: asyncio.Timeout) -> Iterator[None]:
        """Something runs that ends at once when this deadline is moved, which `cut_off` does."""
        self._deadlines.add(deadline)
        try:
            yield
        finally:
            self._deadlines.discard(deadline)

    def close(self) -> None:
        """No more requests."""
        self.closing = True

    def cut_off(self) -> None:
        """End what still runs."""
        self.cut = True
        now = asyncio.get_running_loop().time()
        for deadline in self._deadlines:
            deadline.reschedule(now)

    def check_open(self) -> None:
        """Raises HttpError 503 when the server stops."""
        if self.closing:
            raise shutting_down()

    async def _turn(self, owner: str) -> None:
        """Take a place, behind those of the same owner who wait already."""
        if self.runs.has_room(owner) and not self.closing:
            self.runs.take(owner)
            return
        called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.setdefault(owner, {})[called] = None
        try:
            await called
        except asyncio.CancelledError:
            if called.done() and not called.cancelled():  # its turn came in the same moment
                self._leave(owner)
            else:
                self._drop(owner, called)
            raise

    def _leave(self, owner: str) -> None:
        self.runs.give_back(owner)
        self._call()

    def _call(self) -> None:
        """Give free places to the waiting runs: to one owner after the other, so that a long line of one
        owner does not hold up the others."""
        while not self.closing and not self.runs.full:
            owner = next(filter(self.runs.has_room, self._line), None)
            if owner is None:
                return
            called = next(iter(self._line[owner]))
            self._drop(owner, called)
            self.runs.take(owner)
            called.set_result(None)

    def _drop(self, owner: str, called: asyncio.Future[None]) -> None:
        """Out of the line; the owner's others stand behind all other owners."""
        waiting = self._line.pop(owner)
        del waiting[called]
        if waiting:
            self._line[owner] = waiting

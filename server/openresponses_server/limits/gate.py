"""Law S8: what there may be at once, whose turn it is, and how the server stops taking requests.

Four things are counted: responses being made (runs), background runs that wait for their turn, readers of
stored responses, and open WebSockets.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from typing import Final, Protocol

from openresponses_server.errors import HttpError, shutting_down
from openresponses_server.settings import Limits
from openresponses_server.tasks import close_threads, leave_threads

# Law S8: what all keys and each one may have at once of one kind.
#
# Each kind has a limit in sum, which is one worker's, and one per key, which several workers count together
# over Redis (`openresponses_server.limits`). Without keys every client is the same owner, so only the limit
# in
# sum applies.

_WITHOUT_KEY: Final = ""  # the owner of everything where no keys are asked for


class Others(Protocol):
    """The other workers, and what they have of one kind."""

    async def agree(self, owner: str) -> bool:
        """Whether this owner may have, with theirs, what it has here."""
        ...

    def changed(self, owner: str) -> None:
        """This owner has fewer here now."""
        ...


class Share:
    """How many of one kind there are at once: of all keys at most `total`, of each at most `per_key`. `what`
    names the kind in errors, `code` is their code."""

    def __init__(self, what: str, code: str, total: int, per_key: int) -> None:
        self._what = what
        self._code = code
        self._total = total
        self.per_key = per_key
        self._held: dict[str, int] = {}
        self._put_off: set[str] = set()
        self.count = 0
        """How many there are of all keys."""
        self.others: Others | None = None
        """Who else counts against the limit per key."""

    def held_by(self) -> list[str]:
        """Who has any."""
        return list(self._held)

    def at_their_limit(self) -> list[str]:
        """The owners that may not have one more, though there is a place."""
        return [owner for owner in {*self._held, *self._put_off} if not self.has_room(owner)]

    def of(self, owner: str) -> int:
        """How many this owner has."""
        return self._held.get(owner, 0)

    @property
    def full(self) -> bool:
        """There are as many as there may be of all keys."""
        return self.count >= self._total

    def has_room(self, owner: str) -> bool:
        """Whether this owner may have one more."""
        mine = owner == _WITHOUT_KEY or self.of(owner) < self.per_key
        return mine and not self.full and owner not in self._put_off

    def check(self, owner: str, more: int = 1, *, elsewhere: tuple[int, int] = (0, 0)) -> None:
        """Raises HttpError 429 that names the limit when this owner may not have so many more. `elsewhere` is
        how many there are beyond this process: of all keys, and of this one."""
        of_all, of_key = elsewhere
        if self.count + of_all + more > self._total:
            raise self._refusal(f"The server has {self._total} {self._what} at once and no more; try again.")
        if owner != _WITHOUT_KEY and self.of(owner) + of_key + more > self.per_key:
            raise self.too_many()

    async def agreed(self, owner: str) -> bool:
        """Whether the other workers leave this owner room for what it has taken here."""
        return owner == _WITHOUT_KEY or self.others is None or await self.others.agree(owner)

    def shared(
        self, owner: str, count: int = 1, after: Callable[[], None] | None = None
    ) -> AbstractAsyncContextManager[None]:
        """So many more of this owner's, over all workers; `after` is called when they are given back. Raises
        HttpError 429."""
        return _Shared(self, owner, count, after)

    @contextmanager
    def held(self, owner: str) -> Iterator[None]:
        """One more of this owner's here. Raises HttpError 429."""
        self.check(owner)
        self.take(owner)
        try:
            yield
        finally:
            self.give_back(owner)

    def take(self, owner: str) -> None:
        """One more, whatever the limits say: what was accepted before is not refused now."""
        self.count += 1
        self._held[owner] = self._held.get(owner, 0) + 1

    def give_back(self, owner: str) -> None:
        """One less."""
        self.count -= 1
        left = self._held.pop(owner) - 1
        if left:
            self._held[owner] = left
        if self.others is not None and owner != _WITHOUT_KEY:
            self.others.changed(owner)

    def put_off(self, owner: str) -> None:
        """The other workers have all that this owner may have: there is no room here, until `resume`."""
        self._put_off.add(owner)

    def resume(self, owner: str) -> None:
        """They may be asked again."""
        self._put_off.discard(owner)

    def too_many(self) -> HttpError:
        """The refusal to an owner that has as many as one may have."""
        what = f"One API key has at most {self.per_key} {self._what} at once; try again when one has ended."
        return self._refusal(what)

    def _refusal(self, message: str) -> HttpError:
        return HttpError(429, message, code=self._code, headers={"retry-after": "1"})


class _Shared:
    """What is taken of a share while this context lasts. A class, since every request enters one and a
    generator costs several calls more."""

    __slots__ = ("_after", "_count", "_owner", "_share")

    def __init__(self, share: Share, owner: str, count: int, after: Callable[[], None] | None) -> None:
        self._share, self._owner, self._count, self._after = share, owner, count, after

    async def __aenter__(self) -> None:
        self._share.check(self._owner, self._count)
        for _ in range(self._count):
            self._share.take(self._owner)
        try:
            if not await self._share.agreed(self._owner):
                raise self._share.too_many()
        except BaseException:
            self._give_back()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._give_back()

    def _give_back(self) -> None:
        for _ in range(self._count):
            self._share.give_back(self._owner)
        if self._after is not None:
            self._after()


_PUT_OFF: Final = 0.5  # seconds until a waiting run asks the other workers again


def _nothing(_seconds: float) -> None:
    return None


_PLACED: Final = nullcontext()


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
        self.shares = {"runs": self.runs, "readers": self.readers, "sockets": self.sockets}
        """Those whose limit per key counts over all workers; waiting runs are counted in the store."""
        self.waited: Callable[[float], None] = _nothing
        """Called with how many seconds a background run has waited for its place."""
        self._deadlines: set[asyncio.Timeout] = set()
        self._line: dict[str, dict[asyncio.Future[None], None]] = {}
        self._leavers: set[Callable[[], None]] = set()
        self.leaving = False
        """The server is to leave: what has begun is finished, and nothing is taken up."""
        self.closing = False
        """Requests are refused."""
        self.cut = asyncio.Event()
        """What still ran at the end of the time for that is cut off."""

    @property
    def running(self) -> int:
        """How many responses are being made."""
        return self.runs.count

    def place(self, owner: str, *, waits: bool, held: bool = False) -> AbstractAsyncContextManager[None]:
        """The right to make one more response of this owner. One that `waits` gets it when there is a place
        and its turn has come, and none once the rest is cut off. Raises HttpError 429 to one that does not
        wait. With `held` it is one of `places`."""
        if held:
            return _PLACED
        return self._turned(owner) if waits else self.runs.shared(owner, 1, self._call)

    def places(self, owner: str, count: int) -> AbstractAsyncContextManager[None]:
        """The right to make so many responses of this owner at once. Raises HttpError 429 when there is not
        room for all of them."""
        return self.runs.shared(owner, count, self._call)

    @asynccontextmanager
    async def _turned(self, owner: str) -> AsyncIterator[None]:
        await self._turn_of_all(owner)
        try:
            yield
        finally:
            self._leave(owner)

    def ends(self, deadline: asyncio.Timeout) -> None:
        """Something runs that ends at once when this deadline is moved, which `cut_off` does."""
        self._deadlines.add(deadline)

    def ends_no_more(self, deadline: asyncio.Timeout) -> None:
        """It has ended."""
        self._deadlines.discard(deadline)

    @contextmanager
    def on_leaving(self, call: Callable[[], None]) -> Iterator[None]:
        """While this lasts, `call` is called when the server is to leave, and at once when it is already."""
        self._leavers.add(call)
        try:
            if self.leaving:
                call()
            yield
        finally:
            self._leavers.discard(call)

    def leave(self) -> None:
        """The server is to leave. Requests on connections that are there are answered still."""
        self.leaving = True
        for call in list(self._leavers):
            call()

    def close(self) -> None:
        """The same, and requests are refused, those too that wait for a thread."""
        self.closing = True
        close_threads()
        self.leave()

    def cut_off(self) -> None:
        """End what still runs, and refuse what a thread works on that has not begun to run."""
        self.cut.set()
        leave_threads()
        now = asyncio.get_running_loop().time()
        for deadline in self._deadlines:
            deadline.reschedule(now)

    def check_open(self) -> None:
        """Raises HttpError 503 when the server stops."""
        if self.closing:
            raise shutting_down()

    async def _turn_of_all(self, owner: str) -> None:
        """Take a place when there is one here and the other workers agree; while they have all that this
        owner may have, its runs wait and are not asked for one by one."""
        since = time.monotonic()
        await self._turn(owner)
        while True:
            try:
                agreed = await self.runs.agreed(owner)
            except BaseException:
                self._leave(owner)
                raise
            if agreed:
                self.waited(time.monotonic() - since)
                return
            self.runs.put_off(owner)
            asyncio.get_running_loop().call_later(_PUT_OFF, self._resume, owner)
            self._leave(owner)
            await self._turn(owner, first=True)

    async def _turn(self, owner: str, *, first: bool = False) -> None:
        """Take a place, behind those of the same owner who wait already, or as the `first` of them."""
        if self.runs.has_room(owner) and not self.cut.is_set():
            self.runs.take(owner)
            return
        called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if first:
            self._line[owner] = {called: None, **self._line.get(owner, {})}
        else:
            self._line.setdefault(owner, {})[called] = None
        try:
            await called
        except asyncio.CancelledError:
            if called.done() and not called.cancelled():  # its turn came in the same moment
                self._leave(owner)
            else:
                self._drop(owner, called)
            raise

    def _resume(self, owner: str) -> None:
        self.runs.resume(owner)
        self._call()

    def _leave(self, owner: str) -> None:
        self.runs.give_back(owner)
        self._call()

    def _call(self) -> None:
        """Give free places to the waiting runs: to one owner after the other, so that a long line of one
        owner does not hold up the others."""
        while self._line and not self.cut.is_set() and not self.runs.full:
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

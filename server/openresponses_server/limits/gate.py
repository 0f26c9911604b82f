"""Law S8: limits of what is in progress at once, the queue of background runs, and refusing new requests.

Four kinds are counted: responses being made (runs), background runs that wait for a slot, readers of stored
responses, and open WebSockets.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from typing import Final

from msgspec import Struct

from openresponses_server.errors import HttpError, shutting_down
from openresponses_server.limits.counters import Workers
from openresponses_server.limits.owners import WITHOUT_KEY, OwnerLimits
from openresponses_server.settings import Limits
from openresponses_server.tasks import close_threads, expire, leave_threads

# Each kind has a limit for all keys, which is one worker's, and one per key, which workers count together
# over Redis (`redis_counts`). Without keys every client is the same owner, and only the limit for all
# applies.


class ConcurrencyLimit:
    """The limit of one kind: at most `total` at once, of each key at most `per_key`. Errors call the kind
    `what` and have this `code`."""

    def __init__(
        self,
        what: str,
        code: str,
        total: int,
        per_key: int,
        own: Callable[[str], int | None] | None = None,
    ) -> None:
        """`own`: the limit of an owner that has one of its own, instead of `per_key`."""
        self._what = what
        self._own = own
        self._code = code
        self._total = total
        self.per_key = per_key
        self._held: dict[str, int] = {}
        self._suspended: set[str] = set()
        self.count = 0
        """How many slots all owners have."""
        self.others: Workers | None = None
        """The other workers, whose counts apply to the limit per key."""
        self._kind = ""

    def most_of(self, owner: str) -> int:
        """Return how many slots this owner may have in all workers."""
        own = None if self._own is None else self._own(owner)
        return self.per_key if own is None else own

    def held_by(self) -> list[str]:
        """The owners that have slots."""
        return list(self._held)

    def at_their_limit(self) -> list[str]:
        """The owners that may not have another slot, although not all slots are in use."""
        return [owner for owner in {*self._held, *self._suspended} if not self.may_have(owner)]

    def of(self, owner: str) -> int:
        """Return how many slots this owner has."""
        return self._held.get(owner, 0)

    @property
    def free(self) -> int:
        """The number of slots that are not in use."""
        return max(self._total - self.count, 0)

    @property
    def full(self) -> bool:
        """True if all slots are in use."""
        return self.count >= self._total

    def may_have(self, owner: str, more: int = 1) -> bool:
        """Return True if this owner may have this many more slots."""
        mine = owner == WITHOUT_KEY or self.of(owner) + more <= self.most_of(owner)
        return mine and self.count + more <= self._total and owner not in self._suspended

    def check(self, owner: str, more: int = 1, *, elsewhere: tuple[int, int] = (0, 0)) -> None:
        """Raises HttpError 429 that names the limit if this owner may not have this many more slots.
        `elsewhere` is how many are in use outside of this process: by all keys, and by this one."""
        of_all, of_key = elsewhere
        if self.count + of_all + more > self._total:
            raise self._refusal(f"The server has at most {self._total} {self._what} at once; try again.")
        if owner != WITHOUT_KEY and self.of(owner) + of_key + more > self.most_of(owner):
            raise self.too_many(owner)

    def count_with(self, others: Workers, kind: str) -> None:
        """Count the limit per key together with the other workers, to which this limit has this kind."""
        self.others, self._kind = others, kind

    async def agreed(self, owner: str) -> bool:
        """Return True if the limit per key, counted over all workers, allows what this owner has here."""
        return owner == WITHOUT_KEY or self.others is None or await self.others.agree(self._kind, owner)

    def shared(
        self, owner: str, count: int = 1, after: Callable[[], None] | None = None
    ) -> AbstractAsyncContextManager[None]:
        """Acquire this many slots for this owner, counted over all workers, while the context lasts; `after`
        is called when they are released. Raises HttpError 429."""
        return _Shared(self, owner, count, after)

    @contextmanager
    def held(self, owner: str) -> Iterator[None]:
        """Acquire one slot for this owner, counted in this process, while the context lasts. Raises HttpError
        429."""
        self.check(owner)
        self.acquire(owner)
        try:
            yield
        finally:
            self.release(owner)

    def acquire(self, owner: str) -> None:
        """Acquire a slot, whatever the limits say: what was accepted before is not refused now."""
        self.count += 1
        self._held[owner] = self._held.get(owner, 0) + 1

    def release(self, owner: str) -> None:
        """Release a slot."""
        self.count -= 1
        left = self._held.pop(owner) - 1
        if left:
            self._held[owner] = left
        if self.others is not None and owner != WITHOUT_KEY:
            self.others.changed(self._kind, owner)

    def suspend(self, owner: str) -> None:
        """Give this owner no slots until `resume`: the other workers use all that it may have."""
        self._suspended.add(owner)

    def resume(self, owner: str) -> None:
        """Ask the other workers for this owner again."""
        self._suspended.discard(owner)

    def too_many(self, owner: str) -> HttpError:
        """The error for an owner that has as many slots as it may have."""
        most = f"at most {self.most_of(owner)} {self._what} at once"
        return self._refusal(f"One API key may have {most}; try again when one has ended.")

    def _refusal(self, message: str) -> HttpError:
        return HttpError(429, message, code=self._code, headers={"retry-after": "1"})


class _Shared(Struct, frozen=True):
    """Slots that are acquired while this context lasts. A class, because every request enters one and a
    generator costs several calls more."""

    limit: ConcurrencyLimit
    owner: str
    count: int
    after: Callable[[], None] | None

    async def __aenter__(self) -> None:
        self.limit.check(self.owner, self.count)
        for _ in range(self.count):
            self.limit.acquire(self.owner)
        try:
            if self.limit.others is not None and not await self.limit.agreed(self.owner):
                raise self.limit.too_many(self.owner)
        except BaseException:
            await self.__aexit__()
            raise

    async def __aexit__(self, *_error: object) -> None:
        for _ in range(self.count):
            self.limit.release(self.owner)
        if self.after is not None:
            self.after()


_RETRY_DELAY: Final = 0.5  # seconds until a waiting run asks the other workers again


def _nothing(_seconds: float) -> None:
    return None


_ALREADY_RESERVED: Final = nullcontext()


class Gate:
    """The concurrency limits of this process, the queue of background runs, and the switch that closes the
    server for new requests."""

    def __init__(self, limits: Limits, owners: OwnerLimits | None = None) -> None:
        own = OwnerLimits() if owners is None else owners
        self.runs = ConcurrencyLimit(
            "responses being made",
            "too_many_concurrent_requests",
            limits.concurrent,
            limits.concurrent_per_key,
            lambda owner: own.of(owner).concurrent,
        )
        self.waiting = ConcurrencyLimit(
            "background responses waiting",
            "too_many_background_requests",
            limits.background,
            limits.background_per_key,
        )
        self.readers = ConcurrencyLimit(
            "readers of stored responses", "too_many_readers", limits.readers, limits.readers_per_key
        )
        self.sockets = ConcurrencyLimit(
            "open WebSockets", "too_many_websockets", limits.sockets, limits.sockets_per_key
        )
        self.shared_limits = {"runs": self.runs, "readers": self.readers, "sockets": self.sockets}
        """The limits per key that are counted over all workers; waiting runs are counted in the store."""
        self.waited: Callable[[float], None] = _nothing
        """Called with the seconds that a background run has waited for its slot."""
        self.deadlines: set[asyncio.Timeout] = set()
        """What `cut_off` moves to now."""
        self._queue: dict[str, dict[asyncio.Future[None], None]] = {}
        self._on_leaving: set[Callable[[], None]] = set()
        self.leaving = False
        """True if the server is to stop: it finishes what has begun, and claims nothing more."""
        self.closing = False
        """Requests are refused."""
        self.cut = asyncio.Event()
        """Set when the time for finishing has expired, and what still runs is aborted."""

    @property
    def running(self) -> int:
        """The number of responses that are being made."""
        return self.runs.count

    def slot(self, owner: str, *, waits: bool, held: bool = False) -> AbstractAsyncContextManager[None]:
        """A slot for one response of this owner. If it `waits`, it is queued for the slot, and gets none
        after `cut_off`; else HttpError 429 is raised. `held`: it has one of `slots` already."""
        if held:
            return _ALREADY_RESERVED
        return self._queued_slot(owner) if waits else _Shared(self.runs, owner, 1, self._wake_next)

    def slots(self, owner: str, count: int) -> AbstractAsyncContextManager[None]:
        """Slots for this many responses of this owner at once. Raises HttpError 429 if not enough are
        free."""
        return self.runs.shared(owner, count, self._wake_next)

    @asynccontextmanager
    async def _queued_slot(self, owner: str) -> AsyncIterator[None]:
        await self._acquire_over_workers(owner)
        try:
            yield
        finally:
            self._release(owner)

    @contextmanager
    def on_leaving(self, call: Callable[[], None]) -> Iterator[None]:
        """Call `call` when the server is to stop while the context lasts, or now if it is already to stop."""
        self._on_leaving.add(call)
        try:
            if self.leaving:
                call()
            yield
        finally:
            self._on_leaving.discard(call)

    def leave(self) -> None:
        """Record that the server is to stop. Requests on open connections are still answered."""
        self.leaving = True
        for call in list(self._on_leaving):
            call()

    def close(self) -> None:
        """Leave, and refuse requests, also those that wait for a thread."""
        self.closing = True
        close_threads(shutting_down)
        self.leave()

    def cut_off(self) -> None:
        """Abort what still runs, and refuse work for a thread whose run has not begun."""
        self.cut.set()
        leave_threads(shutting_down)
        for deadline in self.deadlines:
            expire(deadline)

    def check_open(self) -> None:
        """Raises HttpError 503 if the server is stopping."""
        if self.closing:
            raise shutting_down()

    async def _acquire_over_workers(self, owner: str) -> None:
        """Acquire a slot when one is free here and the counts of the other workers allow it. While they use
        all that this owner may have, none of its runs asks them."""
        started = time.monotonic()
        await self._acquire(owner)
        while True:
            try:
                agreed = await self.runs.agreed(owner)
            except BaseException:
                self._release(owner)
                raise
            if agreed:
                self.waited(time.monotonic() - started)
                return
            self.runs.suspend(owner)
            asyncio.get_running_loop().call_later(_RETRY_DELAY, self._resume, owner)
            self._release(owner)
            await self._acquire(owner, first=True)

    async def _acquire(self, owner: str, *, first: bool = False) -> None:
        """Acquire a slot, after the owner's other waiters, or as the `first` of them."""
        if self.runs.may_have(owner) and not self.cut.is_set():
            self.runs.acquire(owner)
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if first:
            self._queue[owner] = {waiter: None, **self._queue.get(owner, {})}
        else:
            self._queue.setdefault(owner, {})[waiter] = None
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                self._remove_waiter(owner, waiter)
            else:  # it was given a slot just before the cancellation
                self._release(owner)
            raise

    def _resume(self, owner: str) -> None:
        self.runs.resume(owner)
        self._wake_next()

    def _release(self, owner: str) -> None:
        self.runs.release(owner)
        self._wake_next()

    def _wake_next(self) -> None:
        """Give free slots to the waiting runs, one owner after the other, so that a long queue of one owner
        does not delay the others."""
        while self._queue and not self.cut.is_set() and not self.runs.full:
            entry = self._next_waiter()
            if entry is None:
                return
            owner, waiter = entry
            self._remove_waiter(owner, waiter)
            self.runs.acquire(owner)
            waiter.set_result(None)

    def _next_waiter(self) -> tuple[str, asyncio.Future[None]] | None:
        """The owner whose turn is next, and its first waiter. One that is done has just been cancelled, and
        removes itself."""
        for owner in filter(self.runs.may_have, self._queue):
            for waiter in self._queue[owner]:
                if not waiter.done():
                    return owner, waiter
        return None

    def _remove_waiter(self, owner: str, waiter: asyncio.Future[None]) -> None:
        """Remove a waiter; the owner's other waiters are moved behind all other owners."""
        waiting = self._queue.pop(owner)
        del waiting[waiter]
        if waiting:
            self._queue[owner] = waiting

"""Ending tasks, timeouts, and threads for work that would block the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar, copy_context
from typing import Any, Final, TypeVar

from anyio.lowlevel import RunVar

T = TypeVar("T")

_CANCELLED_AGAIN: Final = 0.5  # seconds


async def end_tasks(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancel them until all have ended. Raises what one of them raised."""
    await _cancel(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()


async def in_time(work: Coroutine[Any, Any, T], seconds: float) -> T:
    """The result of `work`. Raises TimeoutError soon after so many seconds, even if the work ignores its
    first cancellation."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait([task], timeout=seconds)
    finally:
        await _cancel([task])
    if task.cancelled():
        raise TimeoutError
    return task.result()


async def _cancel(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Once is not enough: a library may take a cancellation that comes at the moment of its own timeout for
    that, and go on; psycopg waits for up to ten seconds until the server has confirmed the first."""
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_CANCELLED_AGAIN)


# Work that takes long is done on a thread, so that the event loop goes on serving others.
#
# Threads take turns every few milliseconds, but a single call into C code keeps the interpreter to itself:
# what such a call is given has to be bounded too (see `limits.requests`). Work without such a bound is done
# in pieces: between two of them others have their turn, and whoever asked for it may have left.
#
# Nobody has to wait until a thread is done: who is cancelled, or refused because the server stops, leaves the
# thread to finish alone, and its place is free when it has.

LARGE: Final = 64 * 1024  # bytes of JSON; the start of a thread costs as much as decoding a tenth of them
OWNER: Final[ContextVar[str]] = ContextVar("owner", default="")
"""Whose request is served: its work has one place at a time. "" where no keys are asked for."""
_THREADS: Final = 2  # each that computes takes its turn before the loop does; more would not be faster


Refusal = Callable[[], Exception]
"""The error that is raised in the place of a refused piece of work."""


class FairLimiter:
    """So many pieces of work at once, of one owner no more than one, and the owners in turn: what one of them
    has waiting holds up no other. Without keys (owner "") all places are everybody's."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._refusal: Refusal | None = None  # once it is closed
        self._busy: set[str] = set()
        self._waiters: dict[str, dict[asyncio.Future[None], bool]] = {}
        """Who waits, by owner, and whether for a run that has begun; the owner whose turn is next comes
        first. A turn that is done was cancelled or refused a moment ago."""

    async def acquire(self, owner: str, *, begun: bool = False) -> None:
        """Wait for a place. Once it is closed, this is refused unless it is for a run that has `begun`."""
        if self._refusal is not None and not begun:
            raise self._refusal()
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(owner, {})[waiter] = begun
        self._wake_next()
        try:
            await waiter
        except BaseException:
            if waiter.cancelled() or waiter.exception() is not None:
                self._remove_waiter(owner, waiter)
            else:  # its turn came in the same moment
                self.release(owner)
            raise

    def release(self, owner: str) -> None:
        """The place is free for the next one."""
        self._free += 1
        self._busy.discard(owner)
        self._wake_next()

    def close(self, refusal: Refusal) -> None:
        """Only runs that have begun get places from now on; whatever else waits, or comes, is refused."""
        self._refusal = refusal
        for waiters in self._waiters.values():
            for waiter, begun in waiters.items():
                if not (begun or waiter.done()):
                    waiter.set_exception(refusal())

    def _wake_next(self) -> None:
        """Give a free place to who is next."""
        for owner, waiters in self._waiters.items():
            waiter = next((each for each in waiters if not each.done()), None)
            if self._free and waiter is not None and owner not in self._busy:
                break
        else:
            return
        self._remove_waiter(owner, waiter)
        if owner in self._waiters:
            self._waiters[owner] = self._waiters.pop(owner)  # behind all others
        self._free -= 1
        if owner:
            self._busy.add(owner)
        waiter.set_result(None)

    def _remove_waiter(self, owner: str, waiter: asyncio.Future[None]) -> None:
        waiters = self._waiters[owner]
        del waiters[waiter]
        if not waiters:
            del self._waiters[owner]


class _Threads:
    """Those of one event loop."""

    def __init__(self) -> None:
        self.limiter = FairLimiter(_THREADS)
        self._pool = ThreadPoolExecutor(_THREADS, "off_loop")
        self._awaited: set[asyncio.Future[Any]] = set()
        """What requests wait for whose runs have not begun."""

    async def run(self, work: Callable[[], T], owner: str, *, begun: bool) -> T:
        await self.limiter.acquire(owner, begun=begun)
        done = self._begin(work, owner)
        if not begun:
            self._awaited.add(done)
        try:
            return await done
        finally:
            self._awaited.discard(done)
            del done  # an error that it has refers to this frame

    def _begin(self, work: Callable[[], T], owner: str) -> asyncio.Future[T]:
        """Has the outcome of the work; whatever becomes of this, the thread gives the place back."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def finish(worked: Future[T]) -> None:
            self.limiter.release(owner)
            if done.done():
                return
            if (error := worked.exception()) is not None:
                done.set_exception(error)
            else:
                done.set_result(worked.result())

        def report(worked: Future[T]) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(finish, worked)

        try:
            worked = self._pool.submit(copy_context().run, work)
        except BaseException:  # the system has no more threads
            self.limiter.release(owner)
            raise
        worked.add_done_callback(report)
        return done

    def cut_off(self, refusal: Refusal) -> None:
        self.limiter.close(refusal)
        for done in self._awaited:
            if not done.done():
                done.set_exception(refusal())


_threads: RunVar[_Threads] = RunVar("off_loop")


def _threads_here() -> _Threads:
    found = _threads.get(None)
    if found is None:
        found = _Threads()
        _threads.set(found)
    return found


async def off_loop(size: int, work: Callable[[], T]) -> T:
    """What `work` returns or raises; on a thread when the `size` of what it works on, in bytes of JSON, is
    large. It is refused as `on_thread` is."""
    return await on_thread(work) if size > LARGE else work()


async def on_thread(work: Callable[[], T], *, begun: bool = False) -> T:
    """What `work` returns or raises, on a thread, when it is the turn of who is served. Once threads are
    closed, it is refused unless a run that has `begun` needs it."""
    return await _threads_here().run(work, OWNER.get(), begun=begun)


def close_threads(refusal: Refusal) -> None:
    """The server stops: what waits for a thread of this event loop is refused, and what comes. What is on one
    is finished, and so is what a run needs that has begun."""
    _threads_here().limiter.close(refusal)


def leave_threads(refusal: Refusal) -> None:
    """The same, and only runs that have begun wait any more for what is on a thread."""
    _threads_here().cut_off(refusal)

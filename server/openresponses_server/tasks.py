"""Ending tasks, timeouts, and threads for work that would block the event loop."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from threading import Thread
from typing import Any, Final, TypeVar

from anyio.lowlevel import RunVar

T = TypeVar("T")

_CANCELLED_AGAIN: Final = 0.5  # seconds


async def end_tasks(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait until all have ended. Raises the exception of the first that failed."""
    await _cancel(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()


def retrieve_exception(future: asyncio.Future[Any]) -> None:
    """Retrieve the exception of a future that is done, and that perhaps nobody waits for any more: asyncio
    would log it."""
    if not future.cancelled():
        future.exception()


async def in_time(work: Coroutine[Any, Any, T], seconds: float) -> T:
    """Await `work` and return its result. Raises TimeoutError soon after this many seconds, even if the work
    ignores its first cancellation."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait([task], timeout=seconds)
    finally:
        await _cancel([task])
        retrieve_exception(task)  # whoever cancels this call gets no other one
    if task.cancelled():
        raise TimeoutError
    return task.result()


def expire(deadline: asyncio.Timeout) -> None:
    """Have this timeout, which was entered, expire now, unless it already does."""
    if not deadline.expired():
        deadline.reschedule(asyncio.get_running_loop().time())


# its own, so that what others draw does not depend on it
_random: Final = random.Random()


def jittered(seconds: float, uniform: Callable[[float, float], float] = _random.uniform) -> float:
    """Return so many seconds, up to a quarter more or less at random (`uniform`): processes that pause for
    the same time after the same event do not come back all at once, nor stay in step."""
    return seconds * uniform(0.75, 1.25)


def cancel_until_done(task: asyncio.Task[Any]) -> None:
    """Cancel a task that nobody waits for, repeatedly as below."""
    if not task.done():
        task.cancel()
        asyncio.get_running_loop().call_later(_CANCELLED_AGAIN, cancel_until_done, task)


async def _cancel(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel tasks repeatedly until they are done. Once is not enough: a library may mistake a cancellation
    for its own timeout and continue; psycopg waits for up to ten seconds until the server has confirmed the
    first."""
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_CANCELLED_AGAIN)


# Code of others runs in this process: an operator's functions, an application's iterators. What it raises is
# its own failure, also where asyncio would take it for the end of the process or for a cancellation of ours.


class ForeignExitError(Exception):
    """Code of others raised what would end more than itself: `SystemExit`, `KeyboardInterrupt`, a
    cancellation that nobody asked for, a group of such."""

    def __init__(self, raised: BaseException) -> None:
        super().__init__(f"it raised {type(raised).__name__}")


@contextmanager
def contained() -> Iterator[None]:
    """Code of others, as a context manager. Raises what it raises, and ForeignExitError for what would end
    more than that."""
    try:
        yield
    except (Exception, GeneratorExit):
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise ForeignExitError(error) from error
    except BaseException as error:
        raise ForeignExitError(error) from error


async def run_contained(work: Coroutine[Any, Any, T]) -> T:
    """Await the code of others and return its result. Raises what it raises, and ForeignExitError. If the
    caller is cancelled, so is the work, which is not waited for: it may ignore that."""

    async def run() -> T:
        with contained():
            return await work

    task = asyncio.create_task(run())
    task.add_done_callback(retrieve_exception)
    try:
        await asyncio.wait((task,))
    except BaseException:
        cancel_until_done(task)
        raise
    error = asyncio.CancelledError() if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, Exception):
        raise ForeignExitError(error)
    return task.result()


# Long work runs on threads, so that the event loop can serve other requests meanwhile.
#
# The interpreter switches between threads every few milliseconds, but not during a single call into C code.
# So the input of such a call must be bounded too (see `limits.requests`). Unbounded work is split into
# pieces: between two of them other work can run, and the client may have disconnected.
#
# A caller that is cancelled, or refused because the server stops, does not wait for its thread. The thread
# finishes its work, and its slot is released then.

LARGE: Final = 64 * 1024  # bytes of JSON; handing them to a thread costs a tenth of the time to decode them
OWNER: Final[ContextVar[str]] = ContextVar("owner", default="")
"""The owner of the current request, whose work has one slot at a time; "" if the server asks for no keys."""
_THREADS: Final = 2  # computing threads compete with the event loop; more would not be faster


Refusal = Callable[[], Exception]
"""Creates the error that is raised for refused work."""


class FairLimiter:
    """Limits concurrent work to this many slots, `each` for each owner, which get them in turn: an owner with
    much waiting work delays no other. Without keys (owner "") all slots may be used."""

    def __init__(self, slots: int, each: int = 1) -> None:
        self._free = slots
        self._each = each
        self._refusal: Refusal | None = None  # set when it is closed
        self._busy: Counter[str] = Counter()
        self._waiters: dict[str, dict[asyncio.Future[None], bool]] = {}
        """Owner → its waiters, and whether each is for a run that has begun; the owner whose turn is next is
        the first. A waiter that is done has just been cancelled or refused."""

    async def acquire(self, owner: str, *, begun: bool = False) -> None:
        """Wait for a slot. After `close` this is refused unless it is for a run that has `begun`."""
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
            else:  # it got a slot at the same moment
                self.release(owner)
            raise

    def release(self, owner: str) -> None:
        """Release a slot."""
        self._free += 1
        self._busy[owner] -= 1
        if not self._busy[owner]:
            del self._busy[owner]
        self._wake_next()

    def close(self, refusal: Refusal) -> None:
        """Close it: from now on only runs that have begun get slots; other work that waits or comes is
        refused."""
        self._refusal = refusal
        for waiters in self._waiters.values():
            for waiter, begun in waiters.items():
                if not (begun or waiter.done()):
                    waiter.set_exception(refusal())

    def _wake_next(self) -> None:
        """Give a free slot to the next waiter."""
        for owner, waiters in self._waiters.items():
            waiter = next((each for each in waiters if not each.done()), None)
            has_share = not owner or self._busy[owner] < self._each
            if self._free and waiter is not None and has_share:
                break
        else:
            return
        self._remove_waiter(owner, waiter)
        if owner in self._waiters:
            self._waiters[owner] = self._waiters.pop(owner)  # behind all others
        self._free -= 1
        self._busy[owner] += 1
        waiter.set_result(None)

    def _remove_waiter(self, owner: str, waiter: asyncio.Future[None]) -> None:
        waiters = self._waiters[owner]
        del waiters[waiter]
        if not waiters:
            del self._waiters[owner]


def _pass_on(worked: Future[T], done: asyncio.Future[T]) -> None:
    """Set `done` to the result of a thread's work, unless nobody waits for it any more."""
    if done.done():
        return
    if (error := worked.exception()) is not None:
        # a future takes no StopIteration, and what is not an Exception would end the event loop
        is_plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
        done.set_exception(error if is_plain else ForeignExitError(error))
    else:
        done.set_result(worked.result())


class _Threads:
    """The threads of one event loop."""

    def __init__(self) -> None:
        self.limiter = FairLimiter(_THREADS)
        self._pool = ThreadPoolExecutor(_THREADS, "off_loop")
        self._awaited: set[asyncio.Future[Any]] = set()
        """Running work for requests whose runs have not begun."""

    async def run(self, work: Callable[[], T], owner: str, *, begun: bool) -> T:
        await self.limiter.acquire(owner, begun=begun)
        done = self._begin(work, owner)
        if not begun:
            self._awaited.add(done)
        try:
            return await done
        finally:
            self._awaited.discard(done)
            del done  # the traceback of its exception would refer to this frame

    def _begin(self, work: Callable[[], T], owner: str) -> asyncio.Future[T]:
        """Start the work; returns a future with its result. The slot is released when the work ends, even if
        the future is cancelled."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def finish(worked: Future[T]) -> None:
            self.limiter.release(owner)
            _pass_on(worked, done)

        def report(worked: Future[T]) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(finish, worked)

        try:
            worked = self._pool.submit(copy_context().run, work)
        except BaseException:  # the system can't start another thread
            self.limiter.release(owner)
            raise
        worked.add_done_callback(report)
        return done

    def abandon(self, refusal: Refusal) -> None:
        self.limiter.close(refusal)
        for done in self._awaited:
            if not done.done():
                done.set_exception(refusal())


_threads: RunVar[_Threads] = RunVar("off_loop")


def _threads_here() -> _Threads:
    threads = _threads.get(None)
    if threads is None:
        threads = _Threads()
        _threads.set(threads)
    return threads


async def off_loop(size: int, work: Callable[[], T], *, begun: bool = False) -> T:
    """Run `work`, on a thread if the `size` of its input, in bytes of JSON, is large. It is refused as by
    `on_thread`."""
    return await on_thread(work, begun=begun) if size > LARGE else work()


async def on_thread(work: Callable[[], T], *, begun: bool = False) -> T:
    """Run `work` on a thread when it is the turn of the current owner. After `close_threads` it is refused
    unless a run that has `begun` needs it."""
    return await _threads_here().run(work, OWNER.get(), begun=begun)


def close_threads(refusal: Refusal) -> None:
    """Refuse all work that waits for a thread of this event loop, or comes later, because the server stops.
    Running work and work for runs that have begun is finished."""
    _threads_here().limiter.close(refusal)


def leave_threads(refusal: Refusal) -> None:
    """Close the threads as `close_threads` does, and no longer wait for work that runs, but for that of runs
    that have begun."""
    _threads_here().abandon(refusal)


# What a stranger makes a thread wait for may take long, as a look-up of a name whose server does not answer,
# or a function that sleeps: nothing else waits behind it.


class WaitingThreads:
    """Threads for work that waits for others: `most` at once, `each` of one owner. A thread that is given up
    keeps its place until its work ends. The process does not wait for them when it ends."""

    def __init__(self, most: int, each: int, name: str) -> None:
        self._limiter = FairLimiter(most, each)
        self._name = name

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` on a thread of its own when it is the turn of the current owner. Raises ForeignExitError
        for what would end more than the work."""
        owner = OWNER.get()
        await self._limiter.acquire(owner, begun=True)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        worked: Future[T] = Future()
        context = copy_context()

        def finish() -> None:
            self._limiter.release(owner)
            _pass_on(worked, done)

        def run() -> None:
            try:
                worked.set_result(context.run(work))
            except BaseException as error:
                worked.set_exception(error)
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(finish)

        try:
            Thread(target=run, name=self._name, daemon=True).start()
        except BaseException:  # the system can't start another thread
            self._limiter.release(owner)
            raise
        return await done


_WAITING: Final = 16
_waiting: RunVar[WaitingThreads] = RunVar("waiting")


async def wait_on_thread(work: Callable[[], T]) -> T:
    """Run `work`, which waits for others, on a thread of its own when it is the turn of the current owner: 16
    at once, one of each owner."""
    threads = _waiting.get(None)
    if threads is None:
        threads = WaitingThreads(_WAITING, 1, "waiting")
        _waiting.set(threads)
    return await threads.run(work)

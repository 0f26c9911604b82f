"""Ending tasks, what takes too long, and threads for work that would hold up the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Coroutine
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from anyio import CapacityLimiter, to_thread
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
    """What this returns or raises. Raises TimeoutError soon after that many seconds, also when the work does
    not end at its first cancellation."""
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

LARGE: Final = 64 * 1024  # bytes of JSON; the start of a thread costs as much as decoding a tenth of them
OWNER: Final[ContextVar[str]] = ContextVar("owner", default="")
"""Whose request is served: its work has one place at a time. "" where no keys are asked for."""
_THREADS: Final = 2  # each that computes takes its turn before the loop does; more would not be faster


class Places:
    """So many pieces of work at once, of one owner no more than one, and the owners in turn: what one of them
    has waiting holds up no other. Without keys (owner "") all places are everybody's."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._busy: set[str] = set()
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}
        """Who waits, by owner; the owner whose turn is next comes first."""

    async def take(self, owner: str) -> None:
        """Wait for a place."""
        if self._free and owner not in self._busy and owner not in self._lines:
            self._hold(owner)
            return
        turn = asyncio.get_running_loop().create_future()
        line = self._lines.setdefault(owner, deque())
        line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                line.remove(turn)
                if not line:
                    self._lines.pop(owner, None)
            else:
                self.give_back(owner)
            raise

    def give_back(self, owner: str) -> None:
        """The place is free for the next one."""
        self._free += 1
        self._busy.discard(owner)
        following = next((each for each in self._lines if each not in self._busy), None)
        if following is not None:
            line = self._lines.pop(following)
            turn = line.popleft()
            if line:
                self._lines[following] = line  # behind all others
            self._hold(following)
            turn.set_result(None)

    def _hold(self, owner: str) -> None:
        self._free -= 1
        if owner:
            self._busy.add(owner)


_places: RunVar[tuple[Places, CapacityLimiter]] = RunVar("off_loop")


async def off_loop(size: int, work: Callable[[], T]) -> T:
    """What `work` returns or raises; on a thread when the `size` of what it works on, in bytes of JSON, is
    large."""
    return await on_thread(work) if size > LARGE else work()


async def on_thread(work: Callable[[], T]) -> T:
    """What `work` returns or raises, on a thread, when it is the turn of who is served."""
    found = _places.get(None)
    if found is None:
        found = Places(_THREADS), CapacityLimiter(_THREADS)
        _places.set(found)
    places, threads = found
    owner = OWNER.get()
    await places.take(owner)
    try:
        return await to_thread.run_sync(work, limiter=threads)
    finally:
        places.give_back(owner)

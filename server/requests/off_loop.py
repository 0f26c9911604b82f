"""Work that takes long is done on a thread, so that the event loop goes on serving others.

Threads take turns every few milliseconds, but a single call into C code keeps the interpreter to itself:
what such a call is given has to be bounded too (see `json_bounds`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

T = TypeVar("T")
LARGE: Final = 64 * 1024  # bytes of JSON; the start of a thread costs as much as decoding a tenth of them
_THREADS: Final = 2  # each that computes takes its turn before the loop does; more would not be faster
_limiter: RunVar[CapacityLimiter] = RunVar("off_loop")


async def off_loop(size: int, work: Callable[[], T]) -> T:
    """What `work` returns or raises; on a thread when the `size` of what it works on, in bytes of JSON, is
    large."""
    return await on_thread(work) if size > LARGE else work()


async def on_thread(work: Callable[[], T]) -> T:
    """What `work` returns or raises, on a thread."""
    limiter = _limiter.get(None)
    if limiter is None:
        limiter = CapacityLimiter(_THREADS)
        _limiter.set(limiter)
    return await to_thread.run_sync(work, limiter=limiter)

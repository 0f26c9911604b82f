"""Compares costs in processor time in such a way that a busy machine does not decide.

Load slows down all work, but not equally, because caches are shared. So the two costs are measured
alternately and the lowest value of each counts, until the comparison holds or all rounds are over. Work that
grows with the square of its input never passes: at eight times the size it takes eight times its share in
every round.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from time import thread_time
from typing import Final

ROUNDS: Final = 20
_TOO_LITTLE: Final = 0.0005  # seconds; the clock is too coarse for less
_ROOM: Final = 3.0


def seconds(work: Callable[[], object]) -> float:
    """Return the processor time of this thread for one call, without garbage collection."""
    was_enabled = gc.isenabled()
    gc.disable()  # it would examine objects that other tests left
    try:
        begun = thread_time()
        work()
        return thread_time() - begun
    finally:
        if was_enabled:
            gc.enable()


def assert_at_most(times: float, cost: Callable[[], float], of: Callable[[], float]) -> None:
    """Assert that one cost is at most so many times the other. Both functions measure anew at each call and
    return seconds."""
    least = least_of = float("inf")
    for _ in range(ROUNDS):
        least_of, least = min(least_of, of()), min(least, cost())
        if least <= times * max(least_of, _TOO_LITTLE):
            return
    raise AssertionError(f"{least:.4f} s is more than {times:g} times {least_of:.4f} s")


def assert_proportional(cost: Callable[[int], float], few: int, many: int, *, room: float = _ROOM) -> None:
    """Assert that the cost of `many` is at most its share of the cost of `few`, times `room`. `cost` returns
    seconds."""
    assert_at_most(room * many / few, lambda: cost(many), lambda: cost(few))


FEW = 300 if sys.gettrace() is None else 100


TIMES = 8

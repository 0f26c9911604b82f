"""Timing in one process: the best of several rounds, each beside the floor of the same round.

Ratios are comparable between machines, nanoseconds are not, so each result has both.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import NamedTuple

Work = Callable[[int], None]


class Case(NamedTuple):
    """A measured operation: `work(n)` performs it n times, and `per` names the unit."""

    name: str
    work: Work
    per: str = "event"


class Measured(NamedTuple):
    """Nanoseconds of CPU for one unit, and the ratio to the floor."""

    name: str
    per: str
    nanoseconds: float
    ratio: float


def once(work: Work, n: int) -> float:
    """CPU nanoseconds of one unit, measured over n of them."""
    gc.collect()
    begin = time.process_time_ns()
    work(n)
    return (time.process_time_ns() - begin) / n


def measure(floor: Case, cases: list[Case], n: int = 20_000, rounds: int = 7) -> list[Measured]:
    """The best of `rounds` for the floor and each case. They take turns, so that noise affects all of them
    equally."""
    best = {case.name: float("inf") for case in (floor, *cases)}
    for _ in range(rounds):
        for case in (floor, *cases):
            best[case.name] = min(best[case.name], once(case.work, n))
    base = best[floor.name]
    return [
        Measured(case.name, case.per, best[case.name], best[case.name] / base) for case in (floor, *cases)
    ]


def table(title: str, rows: list[Measured]) -> str:
    """The rows as text, aligned."""
    width = max(len(row.name) for row in rows)
    lines = [title, "-" * len(title)]
    lines += [
        f"{row.name:<{width}}  {row.nanoseconds:>10.0f} ns/{row.per:<6} {row.ratio:>7.2f} × floor"
        for row in rows
    ]
    return "\n".join(lines)

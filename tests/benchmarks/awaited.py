"""Times coroutines, and reports each time beside that of the plain run in the same rounds.

Wall time includes waiting for disks and servers; CPU time is that of this process alone, with its threads.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

_CELL: Final = 18  # characters
_UNITS: Final = ((" s", 1e9), ("ms", 1e6), ("µs", 1e3))
Work = Callable[[], Awaitable[object]]


class Spent(NamedTuple):
    """Times in nanoseconds."""

    wall: float
    cpu: float

    def per(self, n: int, beyond: tuple[float, float] = (0.0, 0.0)) -> Spent:
        """The time of one of n, after `beyond`, (wall, CPU) for other work, is subtracted."""
        return Spent((self.wall - beyond[0]) / n, (self.cpu - beyond[1]) / n)


async def _nothing() -> None:
    return None


async def best(
    works: Mapping[str, Work], rounds: int, times: int = 1, tidy: Work = _nothing
) -> dict[str, Spent]:
    """The best round of each, as the time of one call. The works take turns, so that noise affects all of
    them equally. `tidy` runs after each round and is not timed."""
    costs = dict.fromkeys(works, Spent(float("inf"), float("inf")))
    for _ in range(rounds):
        for name, work in works.items():
            gc.collect()
            wall, cpu = time.perf_counter_ns(), time.process_time_ns()
            for _ in range(times):
                await work()
            cpu, wall = time.process_time_ns() - cpu, time.perf_counter_ns() - wall
            costs[name] = Spent(min(costs[name].wall, wall / times), min(costs[name].cpu, cpu / times))
            await tidy()
    return costs


def wall(rows: Mapping[str, Spent]) -> dict[str, float]:
    return {name: spent.wall for name, spent in rows.items()}


def cpu(rows: Mapping[str, Spent]) -> dict[str, float]:
    return {name: spent.cpu for name, spent in rows.items()}


def table(title: str, columns: Mapping[str, Mapping[str, float]]) -> str:
    """A table with a line per row: for each column its time, and the ratio of that to the time of the first
    row. Columns have nanoseconds by the names of the rows."""
    rows = list(next(iter(columns.values())))
    width = max(map(len, rows))
    lines = [title, "-" * len(title), " " * width + "".join(f"{head:>{_CELL}}" for head in columns)]
    for row in rows:
        cells = [_cell(column[row], column[row] / column[rows[0]]) for column in columns.values()]
        lines.append(f"{row:<{width}}" + "".join(cells))
    return "\n".join(lines)


def _cell(nanoseconds: float, ratio: float) -> str:
    unit, size = next((unit for unit in _UNITS if nanoseconds >= unit[1]), _UNITS[-1])
    return f"{_three_digits(nanoseconds / size)} {unit} {_three_digits(ratio):>5} ×".rjust(_CELL)


def _three_digits(value: float) -> str:
    return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2}f}"

"""What processes take, as the system counts it."""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

_EVERY: Final = 2.0  # seconds
_TICKS: Final = os.sysconf("SC_CLK_TCK")  # of a second of CPU


class Sample(NamedTuple):
    """Of all processes together, at `seconds` after the begin: megabytes, descriptors, threads, processes."""

    seconds: float
    memory: float
    files: int
    threads: int
    processes: int


def children(pid: int) -> list[int]:
    """The processes right below one."""
    found: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    return found


def tree(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for each in found:
        found += children(each)
    return found


def sample(pid: int, begun: float) -> Sample:
    """One look at a process and all below it."""
    memory, files, threads, count = 0.0, 0, 0, 0
    for each in tree(pid):
        with suppress(OSError, StopIteration, ValueError):
            lines = dict(
                line.split(":", 1)
                for line in Path(f"/proc/{each}/status").read_text().splitlines()
                if ":" in line
            )
            files += len(list(Path(f"/proc/{each}/fd").iterdir()))
            memory += int(lines.get("VmRSS", "0 kB").split()[0]) / 1024
            threads += int(lines["Threads"])
            count += 1
    return Sample(time.monotonic() - begun, memory, files, threads, count)


def cpu_seconds(pid: int) -> float:
    """CPU that a process and all below it have taken, with that of those below which have ended."""
    ticks = 0
    for each in tree(pid):
        with suppress(OSError, ValueError):
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(") ")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / _TICKS


class Watched(NamedTuple):
    """`samples` of one process and all below it; `cpu` in seconds, by the names of several."""

    samples: list[Sample]
    cpu: dict[str, float]


@asynccontextmanager
async def watching(
    pid: int, others: Mapping[str, Callable[[], int | None]], begun: float
) -> AsyncIterator[Watched]:
    """What is seen of `pid`, and of the CPU of `others` (their processes now, None for one that does not
    run), while the context lasts. `begun` is the time that samples count from."""
    found = Watched([], defaultdict(float))
    before: dict[int, float] = {}

    def look() -> None:
        found.samples.append(sample(pid, begun))
        for name, pid_of in others.items():
            if (each := pid_of()) is None:
                continue
            now, last = cpu_seconds(each), before.get(each)
            if last is None:
                last = 0.0 if name in found.cpu else now  # it was started again
            found.cpu[name] += max(now - last, 0.0)  # less: one below has ended, and counts when it is reaped
            before[each] = max(now, last)

    async def look_again() -> None:
        while True:
            look()
            await asyncio.sleep(_EVERY)

    task = asyncio.create_task(look_again())
    try:
        yield found
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        look()

"""The resources that processes use, as the system counts them."""

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
_TICKS: Final = os.sysconf("SC_CLK_TCK")  # per second of CPU time


class Sample(NamedTuple):
    """The sums over all processes, `seconds` after the beginning: megabytes, descriptors, threads,
    processes."""

    seconds: float
    memory: float
    files: int
    threads: int
    processes: int


def children(pid: int) -> list[int]:
    """The child processes of a process."""
    pids: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            pids += map(int, (thread / "children").read_text().split())
    return pids


def tree(pid: int) -> list[int]:
    """A process and all its descendants."""
    pids = [pid]
    for each in pids:
        pids += children(each)
    return pids


def sample(pid: int, begun: float) -> Sample:
    """A sample of a process and all its descendants."""
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
    """CPU seconds of a process and all its descendants, including those descendants that have ended."""
    ticks = 0
    for each in tree(pid):
        with suppress(OSError, ValueError):
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(") ")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / _TICKS


class Watched(NamedTuple):
    """`samples` of one process and all its descendants; `cpu` in seconds, by the names of several
    processes."""

    samples: list[Sample]
    cpu: dict[str, float]


@asynccontextmanager
async def watching(
    pid: int, others: Mapping[str, Callable[[], int | None]], begun: float
) -> AsyncIterator[Watched]:
    """Watch `pid`, and the CPU of `others` (functions that return the present processes, None for one that
    does not run), within the context. The samples' times count from `begun`."""
    watched = Watched([], defaultdict(float))
    before: dict[int, float] = {}

    def look() -> None:
        watched.samples.append(sample(pid, begun))
        for name, pid_of in others.items():
            if (each := pid_of()) is None:
                continue
            now, last = cpu_seconds(each), before.get(each)
            if last is None:
                last = 0.0 if name in watched.cpu else now  # the process was started again
            watched.cpu[name] += max(
                now - last, 0.0
            )  # lower: a child has ended, and counts once it is reaped
            before[each] = max(now, last)

    async def look_again() -> None:
        while True:
            look()
            await asyncio.sleep(_EVERY)

    task = asyncio.create_task(look_again())
    try:
        yield watched
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        look()

"""What a server's processes take, as the system counts it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

_EVERY: Final = 2.0  # seconds


class Sample(NamedTuple):
    """Of all processes together, at `seconds` after the begin: megabytes, descriptors, threads, processes."""

    seconds: float
    memory: float
    files: int
    threads: int
    processes: int


def tree(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for each in found:
        with suppress(OSError):
            children = Path(f"/proc/{each}/task/{each}/children").read_text()
            found += map(int, children.split())
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


@asynccontextmanager
async def watching(pid: int) -> AsyncIterator[list[Sample]]:
    """Samples, taken while the context lasts."""
    found: list[Sample] = []
    begun = time.monotonic()

    async def look() -> None:
        while True:
            found.append(sample(pid, begun))
            await asyncio.sleep(_EVERY)

    task = asyncio.create_task(look())
    try:
        yield found
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        found.append(sample(pid, begun))

"""What a choice of routes costs a good request: `python -m tests.server.failover_cost [ROUNDS]`.

One process has the client, the server and its upstream, so the CPU time is that of all three; only the number
of upstreams that name the model differs. The rounds alternate, and the best of each counts.
"""

import asyncio
import sys
import time
from typing import Final

import structlog

from openresponses_bridge.sse import DONE
from tests.support.one_loop import Bench, serving
from tests.support.upstream import chunk

_ROUNDS: Final = 40
_REQUESTS: Final = 100  # in each round


async def cpu_of(bench: Bench) -> float:
    """CPU microseconds of one request."""
    started = time.process_time()
    for _ in range(_REQUESTS):
        await bench.ask(store=False)
    return (time.process_time() - started) / _REQUESTS * 1e6


async def main(rounds: int) -> None:
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    async with serving(store="memory://") as one, serving(3, store="memory://") as three:
        benches = {"one upstream": one, "three upstreams": three}
        for bench in benches.values():
            bench.upstream.whole = b"".join([chunk(content="Hello."), chunk("stop"), DONE])
            await cpu_of(bench)
        timings: dict[str, list[float]] = {name: [] for name in benches}
        for _ in range(rounds):
            for name, bench in benches.items():
                timings[name].append(await cpu_of(bench))
    for name, times in timings.items():
        times.sort()
        print(f"{name}: best {times[0]:.0f} µs, median {times[len(times) // 2]:.0f} µs")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else _ROUNDS))

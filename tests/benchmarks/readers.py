"""Measures the costs of many readers of one live response: memory of the server, connections to Redis.

    python -m tests.benchmarks.readers [--readers 100 500] [--stalled]

Each row is a separate server: one stream of 2.5 MB over some seconds, which so many clients follow from its
beginning. With `--stalled`, half of them stop reading after the first bytes, until the stream has ended.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import DEVNULL
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import redis

from tests.support.processes import base_of, started
from tests.support.services import own_redis, postgres_database
from tests.support.serving import call
from tests.support.upstream import DONE, Script, ScriptedUpstream, Step, chunk, text

_READS: Final = 250
_PER_READ: Final = 18  # deltas
_PAUSE: Final = 0.02  # seconds between two reads
_AT_ONCE: Final = 50  # readers that ask at the same time
_TIMEOUT: Final = 120.0  # seconds
_AFTER: Final = 3.0  # seconds after the last reader has left
_MB: Final = 1024 * 1024


class Kind(NamedTuple):
    """The place where responses are stored."""

    name: str
    store: str
    log: str


class Found(NamedTuple):
    """Resident bytes of the server, connections to Redis, the bytes that one reader got, and the seconds from
    the first reader's request to the last reader's end."""

    before: int
    peak: int
    after: int
    most_connections: int
    connections_after: int
    sent: int
    seconds: float


def long_stream(reads: int = _READS, pause: float = _PAUSE) -> Script:
    """A script that sends several deltas with each read, each of about 250 bytes as a frame."""
    delta = chunk(content=" some words of a model" * 3)
    steps: list[Step] = [chunk(role="assistant", content="")]
    for _ in range(reads):
        steps += [delta * _PER_READ, pause]
    return Script([*steps, *text("", finish_reason="stop")[-3:-1], DONE])


def resident(process: int, name: str = "VmRSS") -> int:
    """Resident bytes of a process, as the kernel counts them."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024


class Server(NamedTuple):
    """A `serve` process, and the Redis that it uses."""

    base: str
    process: int
    redis: str | None

    def connections(self) -> int:
        """The number of the server's connections to Redis."""
        if self.redis is None:
            return 0
        with redis.Redis.from_url(self.redis) as admin:
            return int(admin.info("clients")["connected_clients"]) - 1


@contextmanager
def serving(kind: Kind, upstream: str, folder: Path) -> Iterator[Server]:
    """A separate server that stores as `kind` says, with limits that are high enough. It has loaded only the
    modules that it needs."""
    config = folder / "readers.toml"
    config.write_text(
        f'[[upstreams]]\nurl = "{upstream}"\n[limits]\nreaders = 2000\nreaders_per_key = 2000\n'
    )
    flags = ("--config", str(config), "--store", kind.store, "--event-log", kind.log)
    with started(*flags, folder=folder, errors=DEVNULL, forked=False) as process:
        base = base_of(process)
        call(base, "POST", "/v1/responses", {"model": "short", "input": "x"})
        yield Server(base, process.pid, kind.log if kind.log.startswith("redis") else None)


async def measured(server: Server, readers: int, stalled: bool) -> Found:
    """Measure one stream with so many readers."""
    before, idle = resident(server.process), server.connections()
    Path(f"/proc/{server.process}/clear_refs").write_text("5")  # reset the peak
    most = idle

    async def look() -> None:
        nonlocal most
        while True:
            most = max(most, await asyncio.to_thread(server.connections))
            await asyncio.sleep(0.2)

    begun = time.perf_counter()
    body = {"model": "long", "input": "x", "background": True}
    response = await asyncio.to_thread(call, server.base, "POST", "/v1/responses", body)
    path = f"/v1/responses/{response.json['id']}?stream=true"
    go_on, asking = asyncio.Event(), asyncio.Semaphore(_AT_ONCE)
    waits = [go_on if stalled and number % 2 else None for number in range(readers)]
    tasks = [asyncio.create_task(_read(server.base, path, wait, asking)) for wait in waits]
    looking = asyncio.create_task(look())
    async with asyncio.timeout(_TIMEOUT):
        await asyncio.wait([task for task, wait in zip(tasks, waits, strict=True) if wait is None])
        go_on.set()
        sizes = set(await asyncio.gather(*tasks))
    seconds = time.perf_counter() - begun
    looking.cancel()
    if len(sizes) != 1:
        raise RuntimeError(f"readers were not sent the same: {sizes} bytes")
    await asyncio.sleep(_AFTER)
    peak, after = resident(server.process, "VmHWM"), resident(server.process)
    return Found(before, peak, after, most - idle, server.connections() - idle, sizes.pop(), seconds)


async def _read(base: str, path: str, stop: asyncio.Event | None, asking: asyncio.Semaphore) -> int:
    """Return the number of bytes of events that arrived; with `stop`, stop reading after the first ones until
    the event is set."""
    address = urlsplit(base)
    head = f"GET {path} HTTP/1.1\r\nhost: {address.netloc}\r\nconnection: close\r\n\r\n"
    async with asking:
        reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=64 * 1024)
        writer.write(head.encode())
        if not (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200"):
            raise RuntimeError("a reader was refused")
    size = 0
    try:
        while length := int(await reader.readline(), 16):
            left = length + 2
            tail = b""
            while left:
                data = await reader.read(min(left, 64 * 1024))
                left -= len(data)
                tail = (tail + data)[-16:]
            if not tail.startswith(b": "):
                size += length
            if stop is not None and size > 64 * 1024:
                await stop.wait()
                stop = None
        return size
    finally:
        writer.close()


@contextmanager
def kinds(folder: Path) -> Iterator[list[Kind]]:
    """The kinds to measure."""
    with ExitStack() as stack:
        postgres = stack.enter_context(postgres_database())
        log = stack.enter_context(own_redis())
        sqlite = f"sqlite:///{folder}/bench.db"
        yield [
            Kind("SQLite, log in memory", sqlite, "memory://"),
            Kind("SQLite, log in files", sqlite, "file:"),
            Kind("PostgreSQL, log in Redis", postgres, log.url),
        ]


def run(counts: list[int], stalled: bool = False) -> str:
    """The table as text."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    title = "one live stream and its readers: MB resident, connections to Redis"
    head = (
        f"{'':<26}{'readers':>8}{'before':>8}{'peak':>8}{'after':>8}{'at once':>9}{'after':>7}{'seconds':>9}"
    )
    lines = [title, "-" * len(title), head]
    scripts: dict[str, Script | list[Script]] = {"long": long_stream(), "short": Script(text("ok"))}
    with ScriptedUpstream(scripts) as upstream, tempfile.TemporaryDirectory(prefix="orb-bench-") as name:
        folder = Path(name)
        with kinds(folder) as all_kinds:
            for kind in all_kinds:
                for count in counts:
                    with serving(kind, upstream.url, folder) as server:
                        got = asyncio.run(measured(server, count, stalled))
                    memory = "".join(f"{size / _MB:>8.0f}" for size in (got.before, got.peak, got.after))
                    connections = f"{got.most_connections:>9}{got.connections_after:>7}"
                    lines.append(f"{kind.name:<26}{count:>8}{memory}{connections}{got.seconds:>9.1f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.readers")
    parser.add_argument("--readers", type=int, nargs="+", default=[100, 500])
    parser.add_argument(
        "--stalled", action="store_true", help="let half of the readers stop reading for a while"
    )
    options = parser.parse_args()
    print(run(options.readers, options.stalled))


if __name__ == "__main__":
    main()

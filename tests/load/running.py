"""A load: the server's processes, the clients, the faults between them, and what came of all."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from tests.load import clients
from tests.load.faults import NONE, FaultProxy, Kind, Schedule
from tests.load.model import Said
from tests.load.watch import Sample, tree, watching
from tests.load.wire import Broken, asked
from tests.support.processes import base_of, started
from tests.support.services import (
    OwnPostgres,
    OwnRedis,
    own_postgres,
    own_redis,
    postgres_database,
    redis_server,
)
from tests.support.serving import output_text

_RAMP: Final = 20.0  # seconds in which the open streams begin
_IDLE: Final = 20  # requests of each kind to an idle server
_SETTLES: Final = 90.0  # seconds: leases, connections that are kept, the memory of an idle process
_HELD: Final = 10.0  # seconds of a fault that lasts
_LOOKED_AT: Final = 2_000  # stored responses that are looked at after all
_SHOWN: Final = 20  # of what went wrong
_ANYTIME: Final = "no fault"
_ENDS: Final = {"cancel": {"cancelled", "incomplete", "completed"}, "leave": {"left", "completed"}}
_LIMITS: Final = """
[limits]
concurrent = 10000
concurrent_per_key = 10000
background = 10000
background_per_key = 10000
connections = 20000
readers = 10000
readers_per_key = 10000
sockets = 10000
sockets_per_key = 10000
"""


class Asked(NamedTuple):
    """What a run is to do. `every` is seconds between faults, None: there are no faults."""

    seconds: float
    open: int
    rate: float
    workers: int
    every: float | None
    seed: int


class Report:
    """What came of it. `ends` counts outcomes by fault and kind; `wrong` is what must never be."""

    def __init__(self, given: Asked) -> None:
        self.given = given
        self.ends: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        self.firsts: defaultdict[str, list[float]] = defaultdict(list)
        self.idle: dict[str, float] = {}
        self.samples: list[Sample] = []
        self.wrong: Counter[str] = Counter()
        self.happened: Counter[str] = Counter()
        self.skipped = 0
        self.log: Counter[str] = Counter()

    def add(self, fault: str, kind: str, found: clients.Result, *, corrupted: bool) -> None:
        """One more request has ended."""
        outcome, wrong = found.outcome, found.wrong
        if wrong and corrupted:
            outcome, wrong = "corrupted", ""
        self.ends[fault, kind][outcome] += 1
        if fault == _ANYTIME and outcome not in _ENDS.get(kind, {"completed"}):
            wrong = wrong or f"{outcome} without a fault"
        if wrong:
            self.wrong[f"{kind} during {fault}: {wrong}"] += 1
        if found.first and fault == _ANYTIME:
            self.firsts[kind].append(found.first)

    def table(self) -> str:
        """All as text."""
        lines = [f"{'fault':<22}{'kind':<12}outcomes"]
        for (fault, kind), ends in sorted(self.ends.items()):
            lines.append(f"{fault:<22}{kind:<12}{', '.join(f'{n:,} {end}' for end, n in ends.most_common())}")
        lines += ["", f"{'first event, ms':<22}{'idle':>8}{'median':>8}{'99 of 100':>11}"]
        for kind, found in sorted(self.firsts.items()):
            ordered = sorted(found)
            most = ordered[int(len(ordered) * 0.99)]
            lines.append(
                f"{kind:<22}{self.idle[kind] * 1e3:>8,.0f}{median(ordered) * 1e3:>8,.0f}{most * 1e3:>11,.0f}"
            )
        lines += ["", f"{'':<22}{'MB':>8}{'files':>8}{'threads':>9}{'processes':>11}"]
        for name, each in zip(("at the start", "at most", "at the end"), self._three(), strict=True):
            lines.append(
                f"{name:<22}{each.memory:>8,.0f}{each.files:>8}{each.threads:>9}{each.processes:>11}"
            )
        lines.append(f"requests left out because too many were waiting: {self.skipped}")
        lines += [f"fault: {name}: {count}" for name, count in self.happened.most_common()]
        lines += [f"log: {name}: {count}" for name, count in self.log.most_common(_SHOWN)]
        lines += [f"WRONG: {each} ({count})" for each, count in self.wrong.most_common(_SHOWN)]
        return "\n".join(lines)

    def _three(self) -> list[Sample]:
        most = Sample(*map(max, zip(*self.samples, strict=True)))
        return [self.samples[0], most, self.samples[-1]]

    def figures(self) -> dict[str, Any]:
        """All as JSON."""
        return {
            "asked": self.given._asdict(),
            "ends": [[*key, dict(ends)] for key, ends in sorted(self.ends.items())],
            "first": {
                kind: {
                    "idle": self.idle[kind],
                    "median": median(found),
                    "p99": sorted(found)[int(len(found) * 0.99)],
                }
                for kind, found in sorted(self.firsts.items())
            },
            "samples": [list(each) for each in self.samples],
            "happened": dict(self.happened),
            "wrong": dict(self.wrong),
        }


class Scene:
    """What stands around the server: the services, the links to them, and the server's process."""

    def __init__(
        self,
        process: subprocess.Popen[str],
        links: dict[str, FaultProxy],
        postgres: OwnPostgres | None,
        redis: OwnRedis | None,
    ) -> None:
        self.process = process
        self.links = links
        self.postgres = postgres
        self.redis = redis

    def workers(self) -> list[int]:
        """The processes that serve."""
        found = tree(self.process.pid)[1:]
        return found or [self.process.pid]


Fault = Callable[[Scene, random.Random], Awaitable[None]]


def _on(link: str, *kinds: Kind) -> Fault:
    async def fault(scene: Scene, chance: random.Random) -> None:
        proxy = scene.links[link]
        before = proxy.count.copy()
        proxy.schedule = Schedule(chance.randrange(1 << 30), kinds, 0.7)
        if link in ("postgresql", "redis"):
            proxy.reset_all()  # connections are kept: those that come now have the faults
        await asyncio.sleep(_HELD)
        proxy.schedule = NONE
        proxy.reset_all()
        assert link != "upstream" or proxy.count - before, "no fault happened"

    return fault


async def _restart(server: OwnRedis | OwnPostgres | None) -> None:
    assert server is not None
    await asyncio.to_thread(server.stop)
    await asyncio.sleep(2)
    await asyncio.to_thread(server.start)


async def _redis_restarts(scene: Scene, _chance: random.Random) -> None:
    await _restart(scene.redis)


async def _redis_freezes(scene: Scene, _chance: random.Random) -> None:
    assert scene.redis is not None
    scene.redis.freeze()
    await asyncio.sleep(_HELD)
    scene.redis.thaw()


async def _postgres_restarts(scene: Scene, _chance: random.Random) -> None:
    await _restart(scene.postgres)


async def _worker_killed(scene: Scene, chance: random.Random) -> None:
    with suppress(ProcessLookupError):
        os.kill(chance.choice(scene.workers()), signal.SIGKILL)
    await asyncio.sleep(_HELD)


async def _worker_frozen(scene: Scene, chance: random.Random) -> None:
    worker = chance.choice(scene.workers())
    os.kill(worker, signal.SIGSTOP)
    try:
        await asyncio.sleep(_HELD)
    finally:
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGCONT)


async def _workers_replaced(scene: Scene, _chance: random.Random) -> None:
    scene.process.send_signal(signal.SIGHUP)
    await asyncio.sleep(_HELD)


_BYTES: Final = (Kind.DELAY, Kind.SPLIT, Kind.BANDWIDTH, Kind.STALL)
_BREAKS: Final = (Kind.CUT, Kind.RESET, Kind.HALF_CLOSE)
FAULTS: Final[dict[str, Fault]] = {
    "slow upstream": _on("upstream", *_BYTES),
    "upstream breaks": _on("upstream", *_BREAKS),
    "upstream corrupts": _on("upstream", Kind.CORRUPT),
    "slow clients": _on("clients", *_BYTES),
    "clients break": _on("clients", *_BREAKS),
    "slow PostgreSQL": _on("postgresql", *_BYTES),
    "PostgreSQL breaks": _on("postgresql", *_BREAKS),
    "slow Redis": _on("redis", *_BYTES),
    "Redis breaks": _on("redis", *_BREAKS),
    "Redis restarts": _redis_restarts,
    "Redis freezes": _redis_freezes,
    "PostgreSQL restarts": _postgres_restarts,
    "a worker is killed": _worker_killed,
    "a worker is frozen": _worker_frozen,
    "workers are replaced": _workers_replaced,
}


async def run(given: Asked) -> Report:
    """Start all, lean on it, and look at what is left."""
    report = Report(given)
    with ExitStack() as kept, tempfile.TemporaryDirectory(prefix="orb-load-") as name:
        async with AsyncExitStack() as held:
            folder = Path(name)
            scene = await _scene(given, kept, held, folder)
            port = scene.links["clients"].port if given.every else _port(await _address(scene.process))
            load = _Load(given, report, port)
            await load.when_idle()
            found = await held.enter_async_context(watching(scene.process.pid))
            async with _faults(given, scene, load, report):
                await load.run()
            await load.look_again()
            await asyncio.sleep(min(_SETTLES, given.seconds))
            report.samples = found
        report.log = _logged(folder / "log")
    return report


async def _address(process: subprocess.Popen[str]) -> str:
    return await asyncio.to_thread(base_of, process)


def _port(address: str) -> int:
    port = urlsplit(address).port
    assert port is not None
    return port


async def _scene(given: Asked, kept: ExitStack, held: AsyncExitStack, folder: Path) -> Scene:
    model = kept.enter_context(
        subprocess.Popen([sys.executable, "-m", "tests.load.model"], stdout=subprocess.PIPE, text=True)
    )
    kept.callback(model.kill)
    assert model.stdout is not None
    model_port = int(model.stdout.readline())
    links: dict[str, FaultProxy] = {}

    async def through(link: str, port: int) -> int:
        if given.every is None:
            return port
        links[link] = await held.enter_async_context(FaultProxy(port).listening())
        return links[link].port

    postgres = kept.enter_context(own_postgres()) if given.every else None
    redis = kept.enter_context(own_redis()) if given.every else None
    if postgres is None or redis is None:
        store, log = kept.enter_context(postgres_database()), kept.enter_context(redis_server())
    else:
        port = await through("postgresql", _port(postgres.url))
        store = f"postgresql+psycopg://postgres@127.0.0.1:{port}/test"
        log = f"redis://127.0.0.1:{await through('redis', _port(redis.url))}/0"
    config = folder / "config.toml"
    upstream = await through("upstream", model_port)
    config.write_text(f'[[upstreams]]\nurl = "http://127.0.0.1:{upstream}/v1"\n{_LIMITS}')
    flags = ("--config", str(config), "--store", store, "--event-log", log, "--workers", str(given.workers))
    output = kept.enter_context((folder / "log").open("w"))
    process = kept.enter_context(started(*flags, folder=folder, errors=output.fileno()))
    if given.every:
        links["clients"] = await held.enter_async_context(
            FaultProxy(_port(await _address(process))).listening()
        )
    return Scene(process, links, postgres, redis)


@asynccontextmanager
async def _faults(given: Asked, scene: Scene, load: _Load, report: Report) -> AsyncIterator[None]:
    """One fault after the other while the context lasts. `load.fault` names the one that is on, and stays
    until what began with it has had the time to end."""
    every = given.every
    if every is None:
        yield
        return
    chance = random.Random(given.seed)

    async def in_turns() -> None:
        names = list(FAULTS)
        while True:
            for name in names:
                await asyncio.sleep(every / 2)
                load.fault = name
                report.happened[name] += 1
                await FAULTS[name](scene, chance)
                await asyncio.sleep(every / 2)
                load.fault = _ANYTIME

    task = asyncio.create_task(in_turns())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


class _Load:
    """The clients. A request counts for the fault that was on at any time of it."""

    def __init__(self, given: Asked, report: Report, port: int) -> None:
        self._given = given
        self._report = report
        self._port = port
        self._chance = random.Random(f"load {given.seed}")
        self._number = 0
        self._stored: dict[str, Said] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.fault = _ANYTIME
        self._until = 0.0

    async def when_idle(self) -> None:
        """How long the first event of each kind takes when nothing else is asked."""
        for kind in clients.KINDS:
            firsts = []
            for _ in range(_IDLE):
                found = await clients.run(kind, self._place(), self._said(5, 10))
                if found.wrong:
                    self._report.wrong[f"{kind}, idle: {found.wrong}"] += 1
                firsts.append(found.first)
            self._report.idle[kind] = median(firsts)

    async def run(self) -> None:
        """All of the load."""
        self._until = time.monotonic() + self._given.seconds
        waiting = [asyncio.create_task(self._stay(number)) for number in range(self._given.open)]
        waiting.append(asyncio.create_task(self._arrive()))
        await asyncio.gather(*waiting)
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _stay(self, number: int) -> None:
        """One stream after the other, each of half a minute."""
        await asyncio.sleep(_RAMP * number / self._given.open)
        while time.monotonic() < self._until:
            kind = ("stream", "unstored")[number % 2]
            await self._ask(kind, self._said(self._chance.randrange(20, 40), 1_000))

    async def _arrive(self) -> None:
        """Requests of every kind, one after the other by the clock and not by what ends."""
        kinds = list(clients.KINDS)
        begun = time.monotonic()
        count = 0
        while time.monotonic() < self._until:
            count += 1
            await asyncio.sleep(begun + count / self._given.rate - time.monotonic())
            if len(self._tasks) > self._given.rate * 60:
                self._report.skipped += 1
                continue
            said = self._said(self._chance.randrange(1, 30), self._chance.choice((0, 0, 5, 50)))
            task = asyncio.create_task(self._ask(self._chance.choice(kinds), said))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _ask(self, kind: str, said: Said) -> None:
        fault = self.fault
        found = await clients.run(kind, self._place(), said)
        fault = fault if fault != _ANYTIME else self.fault
        self._report.add(fault, kind, found, corrupted=fault == "upstream corrupts")
        if (
            found.response_id
            and found.outcome == "completed"
            and kind not in ("unstored", "websocket", "leave")
        ):
            self._stored[found.response_id] = said
        if found.outcome == "broken" or found.outcome.startswith("refused"):
            await asyncio.sleep(0.5)

    async def look_again(self) -> None:
        """Everything that a client was sent the end of is there afterwards, as it was."""
        self.fault = _ANYTIME
        ids = self._chance.sample(list(self._stored), min(_LOOKED_AT, len(self._stored)))
        lost = 0
        for response_id in ids:
            lost += await self._stored_text(response_id) != self._stored[response_id].text
        if lost:
            self._report.wrong[f"acknowledged and not there: {lost} of {len(ids)}"] += 1
        self._report.happened[f"(stored responses looked at again: {len(ids)})"] += 1

    async def _stored_text(self, response_id: str) -> str | None:
        """The text of a stored response; None if there is none, or nobody says so."""
        for _ in range(20):
            with suppress(Broken):
                async with asked(self._port, "GET", f"/v1/responses/{response_id}") as answer:
                    body = await answer.json()
                    if answer.status in (200, 404):
                        return output_text(body) if answer.status == 200 else None
            await asyncio.sleep(1)
        return None

    def _said(self, count: int, pause: int) -> Said:
        self._number += 1
        return Said(self._number, count, pause)

    def _place(self) -> clients.Place:
        return clients.Place(self._port, random.Random(self._chance.random()))


def _logged(log: Path) -> Counter[str]:
    """Lines of the server's log above `info`, by level and event."""
    found: Counter[str] = Counter()
    with log.open() as lines:
        for line in lines:
            if '"level":"info"' in line or '"level": "info"' in line:
                continue
            found[_line(line)] += 1
    return found


def _line(line: str) -> str:
    try:
        read = json.loads(line)
    except ValueError:
        return line.strip()[:100]
    return f"{read.get('level')} {read.get('event')} {str(read.get('error', ''))[:60]}".strip()

"""Runs a load: the clients, the faults in the meantime, and the checks of all results."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any, BinaryIO, Final, NamedTuple

import msgspec
import psycopg
import redis
from msgspec import Struct

from tests.load import clients
from tests.load.model import Said
from tests.load.report import ANYTIME, Asked, Report
from tests.load.results import Recording, Result
from tests.load.returning import FLAT, Standing, differences, growth, held, stored, stored_in_file
from tests.load.scene import CORRUPTS, FAULTS, Scene, standing
from tests.load.watch import watching
from tests.load.wire import Broken, Connections
from tests.support.serving import output_text

_RAMP: Final = 30.0  # seconds over which the open streams begin
_IDLE: Final = 20  # requests of each kind to a server that is otherwise idle
_SETTLES: Final = 180.0  # seconds for leases, kept connections and the memory of an idle process to go
_QUIET: Final = 35.0  # seconds without a request after which a worker has freed its memory
_LOOKED_AT: Final = 5_000  # stored responses that are checked at the end


async def run(given: Asked) -> Report:
    """Start everything, run the load, and check what is left."""
    report = Report(given)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="orb-load-")))
        async with standing(
            given.workers, folder, faults=given.every is not None, default_store=given.default_store
        ) as scene:
            connections = Connections(scene.port, keeps=given.every is None)
            recordings = stack.enter_context((folder / "recordings").open("w+b"))
            load = _Load(given, report, connections, Recordings(recordings))
            await load.when_idle()
            report.start = await _until_returned(scene, {})
            begun, spent = time.monotonic(), time.process_time()
            others: dict[str, Callable[[], int | None]] = {
                "the server": lambda: scene.process.pid,
                "the model": lambda: scene.model_pid,
            }
            if scene.services is not None:
                others |= {"PostgreSQL": lambda: scene.postgres.pid, "Redis": lambda: scene.redis.pid}
            async with watching(scene.process.pid, others, begun) as watched:
                async with _faults(given, scene, load, report, begun):
                    await load.run()
                report.seconds = time.monotonic() - begun
                report.cpu = {**watched.cpu, "the clients and proxies": time.process_time() - spent}
                await asyncio.to_thread(load.judge)
                await load.look_again()
                report.end = await _until_returned(scene, report.start, given.open)
            report.samples = watched.samples
            for each in differences(report.start, report.end, given.open):
                report.wrong[f"not as at the start: {each}"] += 1
            if given.every is None and (more := growth(watched.samples, _RAMP, given.seconds)) > FLAT:
                report.wrong[f"memory grew by {more:.1f} MB a minute"] += 1
        report.log = _logged(folder / "log")
    return report


async def _until_returned(scene: Scene, start: Standing, streams: int = 0) -> Standing:
    """Wait until the amounts are as at the `start`, and return them, or the last ones if they never are.
    Without a start: wait until no response is being made."""
    begun = time.monotonic()
    now: Standing = {}
    pause = _QUIET if start else 2.0
    while time.monotonic() < begun + _SETTLES:
        await asyncio.sleep(pause)
        with suppress(Broken, psycopg.Error, redis.RedisError, sqlite3.Error):
            now = await _standing(scene)
            if not differences(start or {**now, "leased responses": 0, "running": 0}, now, streams):
                break
    assert now, "nothing answers"
    return now


async def _standing(scene: Scene) -> Standing:
    processes = await held(scene.process.pid, scene.direct_port)
    if scene.services is None:
        return processes | await asyncio.to_thread(stored_in_file, scene.store)
    return processes | await asyncio.to_thread(stored, f"{scene.postgres.url}/test", scene.redis.url)


@asynccontextmanager
async def _faults(
    given: Asked, scene: Scene, load: _Load, report: Report, begun: float
) -> AsyncIterator[None]:
    """Make one fault after another within the context. `load.fault` names the current one; it stays set until
    the requests that began with it have had time to end."""
    every = given.every
    if every is None:
        yield
        return
    chance = random.Random(given.seed)
    names = []
    for name in given.only or FAULTS:
        missing = FAULTS[name].missing()
        if scene.services is None and FAULTS[name].of_services:
            missing = "neither PostgreSQL nor Redis is there"
        if missing:
            report.left_out[name] = missing
        else:
            names.append(name)

    breaking = asyncio.Lock()  # repaired before the end

    async def in_turns() -> None:
        elapsed = 0.0
        while names:
            for name in names:
                await asyncio.sleep(max(every / 2 - elapsed, every / 4))
                load.fault = name
                report.happened[name] += 1
                at = time.monotonic()
                report.marks.append((at - begun, name))
                async with breaking:
                    try:
                        await FAULTS[name].happen(scene, chance)
                    except Exception as error:  # the other faults still happen
                        report.wrong[f"{name}: {type(error).__name__}"] += 1
                elapsed = time.monotonic() - at
                await asyncio.sleep(every / 2)
                load.fault = ANYTIME

    task = asyncio.create_task(in_turns())
    try:
        yield
    finally:
        async with breaking:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await task


class _Acknowledged(NamedTuple):
    """The end of a stored response as a client saw it: its status and its text."""

    outcome: str
    text: str


class _Recorded(Struct, frozen=True):
    """The events of a request of this kind, and the fault at that time."""

    fault: str
    kind: str
    recording: Recording


class Recordings:
    """Recordings of requests until they are checked, in a file, because there are too many for the memory."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def add(self, recorded: _Recorded) -> None:
        """Add a recording."""
        data = msgspec.msgpack.encode(recorded)
        self._file.write(len(data).to_bytes(4, "big") + data)

    def __iter__(self) -> Iterator[_Recorded]:
        """Iterate over all recordings."""
        self._file.seek(0)
        while size := self._file.read(4):
            yield msgspec.msgpack.decode(self._file.read(int.from_bytes(size, "big")), type=_Recorded)


class _Load:
    """The clients. A request counts for a fault that was active at any time during it."""

    def __init__(
        self, given: Asked, report: Report, connections: Connections, recordings: Recordings
    ) -> None:
        self._given = given
        self._report = report
        self._connections = connections
        self._recordings = recordings
        self._chance = random.Random(f"load {given.seed}")
        self._number = 0
        self._stored: dict[str, _Acknowledged] = {}
        self._sealed: list[dict[str, Any]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.fault = ANYTIME
        self._until = 0.0

    async def when_idle(self) -> None:
        """Measure the seconds to the first event of each kind without other requests."""
        for kind in clients.KINDS:
            firsts = []
            for _ in range(_IDLE):
                result = await clients.run(kind, self._place(), self._said(5, 10))
                if isinstance(result, Recording):
                    result = result.judged()
                if result.wrong:
                    self._report.wrong[f"{kind}, idle: {result.wrong}"] += 1
                firsts.append(result.first)
            self._report.idle[kind] = median(firsts)

    async def run(self) -> None:
        """Run the whole load."""
        self._until = time.monotonic() + self._given.seconds
        waiting = [asyncio.create_task(self._stay(number)) for number in range(self._given.open)]
        waiting.append(asyncio.create_task(self._arrive()))
        await asyncio.gather(*waiting)
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _stay(self, number: int) -> None:
        """Ask for one stream after another, each of half a minute."""
        await asyncio.sleep(_RAMP * number / self._given.open)
        while time.monotonic() < self._until:
            kind = ("stream", "unstored")[number % 2]
            await self._ask(kind, self._said(self._chance.randrange(20, 40), 1_000))

    async def _arrive(self) -> None:
        """Send requests of every kind at fixed times, whether or not the earlier ones have ended."""
        kinds = list(clients.KINDS)
        begun = time.monotonic()
        count = 0
        while time.monotonic() < self._until:
            count += 1
            await asyncio.sleep(begun + count / self._given.rate - time.monotonic())
            if len(self._tasks) > self._given.rate * 60:
                self._report.skipped += 1
                continue
            answer = self._said(self._chance.randrange(1, 30), self._chance.choice((0, 0, 5, 50)))
            task = asyncio.create_task(self._ask(self._chance.choice(kinds), answer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _ask(self, kind: str, said: Said) -> None:
        fault = self.fault
        result = await clients.run(kind, self._place(), said)
        fault = fault if fault != ANYTIME else self.fault
        if isinstance(result, Recording):
            self._recordings.add(_Recorded(fault, kind, result))
            has_failed = not (result.is_whole or result.has_left)
        else:
            self._add(fault, kind, result)
            has_failed = result.outcome == "broken" or result.outcome.startswith("refused")
        if has_failed:
            await asyncio.sleep(0.5)

    def _add(self, fault: str, kind: str, found: Result) -> None:
        self._report.add(fault, kind, found, corrupted=fault == CORRUPTS)
        if found.is_stored:
            self._stored[found.response_id] = _Acknowledged(found.outcome, found.text)

    def judge(self) -> None:
        """Check all recordings."""
        for each in self._recordings:
            self._add(each.fault, each.kind, each.recording.judged())

    async def look_again(self) -> None:
        """Check that the server still has the responses whose ends clients received, each with the same
        end."""
        self.fault = ANYTIME
        ids = self._chance.sample(list(self._stored), min(_LOOKED_AT, len(self._stored)))
        for response_id in ids:
            seen, (there, error) = self._stored[response_id], await self._acknowledged(response_id)
            if there != seen:
                what = f"{_shown(there, seen)}{error and f' ({error})'}"
                self._report.wrong[f"acknowledged as {seen.outcome}, but there is {what}"] += 1
        self._report.looked_at = len(ids)

    async def _acknowledged(self, response_id: str) -> tuple[_Acknowledged | None, str]:
        """The end of a stored response, and the code of its error; None if it does not exist or no server
        answers."""
        for _ in range(20):
            with suppress(Broken):
                path = f"/v1/responses/{response_id}"
                async with self._connections.asked("GET", path) as answer:
                    body = await answer.json()
                    if answer.status == 200:
                        acknowledged = _Acknowledged(body["status"], output_text(body))
                        return acknowledged, (body["error"] or {}).get("code", "")
                    if answer.status == 404:
                        return None, ""
            await asyncio.sleep(1)
        return None, ""

    def _said(self, count: int, pause: int) -> Said:
        self._number += 1
        return Said(self._number, count, pause)

    def _place(self) -> clients.Place:
        return clients.Place(self._connections, random.Random(self._chance.random()), self._sealed)


def _shown(there: _Acknowledged | None, seen: _Acknowledged) -> str:
    if there is None:
        return "nothing"
    return there.outcome if there.text == seen.text else f"{there.outcome} with another text"


def _logged(log: Path) -> Counter[str]:
    """The lines of the server's log above `info`, counted by level and event."""
    counts: Counter[str] = Counter()
    with log.open() as lines:
        for line in lines:
            if '"level":"info"' in line or '"level": "info"' in line:
                continue
            counts[_line(line)] += 1
    return counts


def _line(line: str) -> str:
    try:
        read = json.loads(line)
    except ValueError:
        return line.strip()[:100]
    return f"{read.get('level')} {read.get('event')} {str(read.get('error', ''))[:60]}".strip()

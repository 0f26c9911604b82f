"""The parts of a load: its faults, the mistakes that its clients detect, and a short run of the whole."""

import asyncio
import random
import re
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.protocol.codec import encode_sse
from openresponses_bridge.protocol.events import ResponseFailed
from openresponses_bridge.protocol.response import ResponseError
from openresponses_bridge.sse import DONE
from openresponses_server.store.endings import CUT_OFF, INTERRUPTED
from tests.load import clients
from tests.load.__main__ import parsed
from tests.load.faults import BREAKING, HARMLESS, FaultProxy, Kind, Schedule
from tests.load.model import Said
from tests.load.report import ANYTIME, Asked, Report
from tests.load.results import Recording, Result, misreported
from tests.load.returning import TOLERATED, Standing, differences, growth
from tests.load.running import run
from tests.load.scene import FAULTS, clock_of, set_clock
from tests.load.watch import Sample, cpu_seconds, tree, watching
from tests.load.wire import Connections
from tests.support.listening import listening
from tests.support.shared import REPOSITORY

pytestmark = pytest.mark.anyio
SENT = b"0123456789" * 1_000


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


@asynccontextmanager
async def proxied(schedule: Schedule) -> AsyncIterator[FaultProxy]:
    async with listening(echo) as port, FaultProxy(port, schedule).listening() as proxy:
        yield proxy


async def echoed(proxy: FaultProxy) -> bytes:
    """The part of `SENT` that an echo server returns through the proxy."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    received = b""
    try:
        writer.write(SENT)
        writer.write_eof()
        async with asyncio.timeout(60):
            while data := await reader.read(65_536):
                received += data
    except OSError:
        pass
    finally:
        writer.transport.abort()
    return received


def test_a_schedule_is_the_same_each_time() -> None:
    schedule = Schedule(7, tuple(Kind), 0.5)
    faults = [schedule.of(number) for number in range(200)]
    assert faults == [schedule.of(number) for number in range(200)]
    assert {each.kind for group in faults for each in group} == set(Kind)
    assert 60 < sum(map(bool, faults)) < 140
    assert faults != [Schedule(8, tuple(Kind), 0.5).of(number) for number in range(200)]


@pytest.mark.parametrize("kind", list(Kind))
async def test_a_fault_does_what_it_says(kind: Kind) -> None:
    async with proxied(Schedule(1, (kind,), 1.0, 4_000, 0.01)) as proxy:
        received = await echoed(proxy)
        assert proxy.count == {kind: 1}
    if kind in HARMLESS or kind is Kind.STALL:
        assert received == SENT
    elif kind is Kind.CORRUPT:
        assert len(received) == len(SENT)
        assert sum(a != b for a, b in zip(received, SENT, strict=True)) == 1
    else:
        assert kind in BREAKING
        assert len(received) < len(SENT)
        assert SENT.startswith(received)


async def test_all_connections_can_be_reset() -> None:
    async with proxied(Schedule(1, ())) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"x")
        assert await reader.read(1) == b"x"
        assert proxy.reset_all() == 1
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        writer.transport.abort()


async def test_connections_go_to_the_targets_in_turn() -> None:
    async def name(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"other")

    async with proxied(Schedule(1, ())) as proxy, listening(name) as port:
        proxy.targets.append(port)
        assert [await echoed(proxy) for _ in range(4)] == [SENT, b"other", SENT, b"other"]


AT_FIRST: Standing = {"processes": 3, "memory": 300, "files": 90, "running": 0, "leased responses": 0}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("memory", 301 + 3 * TOLERATED["memory"].each),
        ("files", 91 + 3 * TOLERATED["files"].each),
        ("running", 1),
        ("leased responses", 1),
        ("processes", 4),
        ("processes", 2),
    ],
)
def test_what_does_not_return_to_its_start_is_found(name: str, value: float) -> None:
    assert [each.partition(":")[0] for each in differences(AT_FIRST, AT_FIRST | {name: value})] == [name]


def test_what_is_tolerated_has_returned() -> None:
    tolerated = {"memory": 300 + 3 * TOLERATED["memory"].each, "files": 80.0}
    assert differences(AT_FIRST, AT_FIRST | tolerated) == []
    of_streams = {"memory": tolerated["memory"] + 2_000 * TOLERATED["memory"].of_stream}
    assert differences(AT_FIRST, AT_FIRST | of_streams) != []
    assert differences(AT_FIRST, AT_FIRST | of_streams, 2_000) == []


@pytest.mark.parametrize("grows", [0.0, 1.5, 8.0])
def test_memory_that_grows_under_an_even_load_is_found(grows: float) -> None:
    """Memory that a start takes is not growth, and neither is memory that is freed at the end."""
    seconds = range(0, 720, 2)
    levels = [300 + min(at, 30) * 4 + grows * at / 60 if at < 600 else 320 for at in seconds]
    samples = [Sample(at, level, 90, 5, 3) for at, level in zip(seconds, levels, strict=True)]
    assert growth(samples, 30, 600) == pytest.approx(grows)
    assert growth(samples, 30, 300) == 0


def test_what_a_report_holds_to_be_wrong() -> None:
    report = Report(Asked(1, 1, 1, 2, None, 1))
    failed = Result("failed")
    report.add("upstream breaks", "stream", failed, corrupted=False)
    report.add(ANYTIME, "leave", Result("left"), corrupted=False)
    report.add("upstream corrupts", "stream", Result("completed", wrong="other"), corrupted=True)
    assert not report.wrong
    report.add(ANYTIME, "stream", failed, corrupted=False)
    report.add("slow upstream", "whole", Result("completed", wrong="other"), corrupted=False)
    assert list(report.wrong) == [
        "stream during no fault: failed without a fault",
        "whole during slow upstream: other",
    ]
    assert report.ends["upstream corrupts", "stream"] == {"corrupted": 1}


SPENDING = "import sys; sum(range(10_000_000)); print(flush=True); sys.stdin.read()"


async def test_processes_are_watched_with_what_they_start() -> None:
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SPENDING!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", nested], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        assert len(tree(process.pid)) == 2
        assert cpu_seconds(process.pid) > 0
        async with watching(process.pid, {"it": lambda: process.pid, "none": lambda: None}, 0.0) as watched:
            pass
        process.stdin.close()
    assert [(each.processes, each.files >= 6, each.memory > 5) for each in watched.samples] == [
        (2, True, True)
    ]
    assert set(watched.cpu) == {"it"}


@pytest.mark.parametrize("seconds", [3600, -3600])
def test_a_clock_is_off_and_the_monotonic_one_is_not(tmp_path: Path, seconds: int) -> None:
    if missing := FAULTS["clocks differ"].missing():
        pytest.skip(missing)
    set_clock(tmp_path / "clock", seconds)
    code = "import time; print(time.time(), time.monotonic())"
    times = [
        [*map(float, subprocess.check_output([sys.executable, "-c", code], env=environment).split())]
        for environment in ({}, clock_of(tmp_path / "clock"), {})
    ]
    (before, began), (off, between), (after, ended) = times
    assert before + seconds <= off <= after + seconds
    assert began < between < ended


@pytest.mark.parametrize(
    ("status", "text", "wrong"),
    [
        ("completed", " 5.0 5.1", ""),
        ("completed", " 5.0", "completed with"),
        ("completed", " 5.1 5.0", "completed with"),
        ("failed", " 5.0", ""),
        ("failed", " 5.0 5.0", "failed with"),
        ("incomplete", " 6.0", "incomplete with"),
    ],
)
def test_what_an_answer_misreports_is_found(status: str, text: str, wrong: str) -> None:
    reason = misreported(status, text, Said(5, 2, 0))
    assert reason.startswith(wrong)
    assert bool(reason) == bool(wrong)


@pytest.mark.parametrize(("error", "wrong"), [(CUT_OFF, ""), (INTERRUPTED, "seq.increment")])
async def test_an_end_after_a_crash_may_lack_what_a_failing_log_lost_and_no_other(
    error: ResponseError, wrong: str
) -> None:
    expected = Said(5, 2, 0)
    machine, stored = ResponseStreamStateMachine("said"), ResponseStreamStateMachine("said")
    sent = [*machine.start(), *machine.text(" 5.0"), *machine.text(" 5.1")]
    begun = [*stored.start(), *stored.text(" 5.0")]
    ended = ResponseFailed(len(begun), replace(stored.snapshot, status="failed", error=error))
    result = Recording(expected, [encode_sse(sent), encode_sse([ended]) + DONE], is_whole=True).judged()
    assert (result.outcome, result.text) == ("failed", expected.text)
    assert result.wrong.startswith(wrong)
    assert bool(result.wrong) == bool(wrong)


async def test_a_client_says_when_nothing_answers() -> None:
    async with listening(echo) as port:
        pass
    place = clients.Place(Connections(port, keeps=True), random.Random(1), [])
    for kind in clients.KINDS:
        result = await clients.run(kind, place, Said(1, 2, 0))
        assert (result.judged() if isinstance(result, Recording) else result).outcome == "broken"


async def test_the_commands_of_the_page_can_be_given() -> None:
    commands = re.findall(r'make load ARGS="(.*)"', (REPOSITORY / "docs/capacity.md").read_text())
    assert [
        (options.minutes, options.open, options.faults, options.default_store)
        for options in map(parsed, map(shlex.split, commands))
    ] == [
        (10, 2_000, False, False),
        (60, 200, True, False),
        (10, 200, False, True),
    ]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_short_load_with_a_fault(fault: str) -> None:
    if missing := FAULTS[fault].missing():
        pytest.skip(missing)
    report = await run(Asked(45, open=20, rate=10, workers=2, every=20, seed=1, only=(fault,)))
    assert report.happened[fault]
    assert not report.wrong, report.table()


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_short_load_on_the_default_store() -> None:
    faults = ("clients break", "slow PostgreSQL")
    report = await run(Asked(45, 20, 10, workers=2, every=20, seed=1, only=faults, default_store=True))
    assert report.happened["clients break"]
    assert list(report.left_out) == ["slow PostgreSQL"]
    assert not report.wrong, report.table()

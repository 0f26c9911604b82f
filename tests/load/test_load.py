"""The parts of a load: its faults, what its clients find wrong, and a short one of all."""

import asyncio
import random
import re
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.load import clients
from tests.load.__main__ import parsed
from tests.load.faults import BREAKING, HARMLESS, FaultProxy, Kind, Schedule
from tests.load.model import Said
from tests.load.running import Asked, run
from tests.support.listening import listening
from tests.support.shared import REPOSITORY

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
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
    """What comes back of `SENT`, as far as it does."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    found = b""
    try:
        writer.write(SENT)
        writer.write_eof()
        async with asyncio.timeout(60):
            while data := await reader.read(65_536):
                found += data
    except OSError:
        pass
    finally:
        writer.transport.abort()
    return found


def test_a_schedule_is_the_same_each_time() -> None:
    schedule = Schedule(7, tuple(Kind), 0.5)
    faults = [schedule.of(number) for number in range(200)]
    assert faults == [schedule.of(number) for number in range(200)]
    assert {each.kind for found in faults for each in found} == set(Kind)
    assert 60 < sum(map(bool, faults)) < 140
    assert faults != [Schedule(8, tuple(Kind), 0.5).of(number) for number in range(200)]


@pytest.mark.parametrize("kind", list(Kind))
async def test_a_fault_does_what_it_says(kind: Kind) -> None:
    async with proxied(Schedule(1, (kind,), 1.0, 4_000, 0.01)) as proxy:
        found = await echoed(proxy)
        assert proxy.count == {kind: 1}
    if kind in HARMLESS or kind is Kind.STALL:
        assert found == SENT
    elif kind is Kind.CORRUPT:
        assert len(found) == len(SENT)
        assert sum(a != b for a, b in zip(found, SENT, strict=True)) == 1
    else:
        assert kind in BREAKING
        assert len(found) < len(SENT)
        assert SENT.startswith(found)


async def test_all_connections_can_be_reset() -> None:
    async with proxied(Schedule(1, ())) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"x")
        assert await reader.read(1) == b"x"
        assert proxy.reset_all() == 1
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        writer.transport.abort()


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
    found = clients.misreported(status, text, Said(5, 2, 0))
    assert found.startswith(wrong)
    assert bool(found) == bool(wrong)


async def test_a_client_says_when_nothing_answers() -> None:
    async with listening(echo) as port:
        pass
    place = clients.Place(port, random.Random(1))
    for kind in clients.KINDS:
        assert (await clients.run(kind, place, Said(1, 2, 0))).outcome == "broken"


async def test_the_commands_of_the_page_can_be_given() -> None:
    commands = re.findall(r'make load ARGS="(.*)"', (REPOSITORY / "docs/capacity.md").read_text())
    assert [
        (found.minutes, found.open, found.faults) for found in map(parsed, map(shlex.split, commands))
    ] == [
        (10, 2_000, False),
        (60, 200, True),
    ]


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_short_load_with_faults() -> None:
    report = await run(Asked(seconds=150, open=10, rate=5, workers=2, every=10, seed=1))
    assert not report.wrong, report.table()

"""The bounds of event logs in memory."""

import asyncio

import pytest

from openresponses_server.store.logs.base import LogGap, LogGone
from openresponses_server.store.logs.memory import MemoryLog
from tests.support.stores import frames
from tests.support.waiting import until


async def read_all(log: MemoryLog, run_id: str, after: int = -1) -> bytes:
    return b"".join([each.data async for each in log.read(run_id, after)])


async def test_s4_a_log_holds_its_last_bytes() -> None:
    log = MemoryLog(max_log_bytes=20_000)
    await log.open("r")
    for number in range(100):
        await log.append("r", frames(number, number, "x" * 1000))
    await log.close("r")
    with pytest.raises(LogGap) as gap:
        await read_all(log, "r")
    assert gap.value.expected == 0
    assert 80 <= gap.value.found < 100
    assert await read_all(log, "r", gap.value.found - 1) == frames(gap.value.found, 99, "x" * 1000).data


async def test_s4_reader_that_fell_behind_gets_a_gap() -> None:
    log = MemoryLog(max_log_bytes=5_000)
    await log.open("r")
    await log.append("r", frames(0, 0))
    reader = log.read("r")
    assert (await anext(reader)).last == 0
    for number in range(1, 50):
        await log.append("r", frames(number, number, "x" * 1000))
    with pytest.raises(LogGap) as gap:
        await anext(reader)
    assert gap.value.expected == 1


async def test_s4_oldest_closed_logs_go_first() -> None:
    log = MemoryLog(max_bytes=10_000)
    for name in ("live", "old", "young"):
        await log.open(name)
        await log.append(name, frames(0, 2, "x" * 1000))
        if name != "live":
            await log.close(name)
    await log.open("more")
    await log.append("more", frames(0, 2, "x" * 1000))
    with pytest.raises(LogGone):
        await read_all(log, "old")
    assert await read_all(log, "young") == frames(0, 2, "x" * 1000).data
    await log.close("live")
    assert await read_all(log, "live") == frames(0, 2, "x" * 1000).data


async def test_reader_within_an_expired_log_reads_on() -> None:
    now = 0.0
    log = MemoryLog(linger=10.0, clock=lambda: now)
    await log.open("r")
    for number in range(4):
        await log.append("r", frames(number, number, "x" * 300_000))
    reader = log.read("r")
    got = (await anext(reader)).data
    await log.close("r")
    now = 11.0
    await log.open("s")
    with pytest.raises(LogGone):
        await read_all(log, "r")
    got += b"".join([each.data async for each in reader])
    assert got == frames(0, 3, "x" * 300_000).data


async def test_s4_open_logs_are_held_to_the_limit_together() -> None:
    log = MemoryLog(max_bytes=100_000)
    for number in range(20):
        await log.open(f"r{number}")
    for number in range(30):
        for name in range(20):
            await log.append(f"r{name}", frames(number, number, "x" * 1000))
            assert log._bytes <= 100_000 + 1100
    await log.close("r3")
    with pytest.raises(LogGap) as gap:
        await read_all(log, "r3")
    assert await read_all(log, "r3", gap.value.found - 1) == frames(gap.value.found, 29, "x" * 1000).data


async def test_s4_the_largest_open_log_makes_room_for_the_others() -> None:
    log = MemoryLog(max_bytes=100_000)
    for name, count in (("large", 88), ("small", 10)):
        await log.open(name)
        for number in range(count):
            await log.append(name, frames(number, number, "x" * 1000))
    for number in range(10, 15):
        await log.append("small", frames(number, number, "x" * 1000))
    await log.close("small")
    assert await read_all(log, "small") == frames(0, 14, "x" * 1000).data
    await log.close("large")
    with pytest.raises(LogGap):
        await read_all(log, "large")


async def test_s4_closing_brings_the_logs_back_within_the_limit() -> None:
    """A single batch is never cut, so that open logs can be more."""
    log = MemoryLog(max_bytes=10_000)
    for name in ("a", "b", "c"):
        await log.open(name)
        await log.append(name, frames(0, 0, "x" * 6000))
    for name in ("a", "b", "c"):
        await log.close(name)
    assert log._bytes < 10_000


async def test_idle_process_lets_go_of_closed_logs() -> None:
    log = MemoryLog(linger=0.1, marked=0.2)
    await log.open("r")
    await log.append("r", frames(0, 9))
    await asyncio.sleep(0.05)
    await log.close("r")
    await log.discard("s")
    assert log._bytes > 0
    await until(lambda: not (log._logs or log._discarded))
    assert log._bytes == 0


async def test_log_that_nobody_closes_goes_some_day() -> None:
    log = MemoryLog(lifetime=0.1)
    await log.open("r")
    await log.append("r", frames(0, 0))
    reader = log.read("r")
    await anext(reader)
    with pytest.raises(LogGone):
        await anext(reader)
    assert log._bytes == 0

"""The bounds of event logs in memory."""

import pytest

from server.event_logs.base import LogGap, LogGone
from server.event_logs.memory import MemoryLog
from tests.support.stores import frames


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


async def test_s4_reader_that_fell_behind_is_told() -> None:
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

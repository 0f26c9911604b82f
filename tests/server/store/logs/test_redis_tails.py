"""Many readers of logs in Redis: one connection reads for all of them, in bounded memory (laws S4, S9)."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis

from openresponses_server.store.logs import redis_reading
from openresponses_server.store.logs.base import CHUNK_BYTES, LogError, LogGone
from openresponses_server.store.logs.redis import RedisLog
from openresponses_server.store.logs.redis_entries import Entry
from tests.support.services import OwnRedis, own_redis
from tests.support.stores import frame, frames
from tests.support.waiting import NEVER, eventually, until


@pytest.fixture(scope="module")
def server() -> Iterator[OwnRedis]:
    with own_redis() as started:
        yield started


@pytest.fixture
async def log(server: OwnRedis) -> AsyncIterator[RedisLog]:
    with redis.Redis.from_url(server.url) as admin:
        admin.flushall()
    await until(lambda: connections(server) == 0)  # those of the test before are closed
    opened = RedisLog(server.url, linger=NEVER, timeout=NEVER)
    yield opened
    await opened.shutdown()


async def read_all(log: RedisLog, run_id: str = "r", after: int = -1) -> bytes:
    return b"".join([each.data async for each in log.read(run_id, after)])


def connections(server: OwnRedis) -> int:
    """How many there are beside this question's."""
    with redis.Redis.from_url(server.url) as admin:
        return int(admin.info("clients")["connected_clients"]) - 1


def reads(server: OwnRedis) -> int:
    """How often Redis was asked for entries."""
    with redis.Redis.from_url(server.url) as admin:
        calls = admin.info("commandstats")
        return sum(calls.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("xread", "xrevrange"))


async def test_s9_readers_of_one_run_share_one_reading(
    server: OwnRedis, log: RedisLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, in_vain = log._tails._next, 0

    async def counted(places: dict[Any, Any]) -> Any:
        nonlocal in_vain
        entries = await ask(places)
        in_vain += not entries  # Redis waited for entries, and none came: as often as that takes time
        return entries

    monkeypatch.setattr(log._tails, "_next", counted)
    await log.open("r")
    before = reads(server)
    readers = [asyncio.create_task(read_all(log)) for _ in range(200)]
    await until(lambda: [tail._readers for tail in log._tails._tails.values()] == [200])
    joined, in_vain_then = reads(server), in_vain
    for number in range(100):
        await log.append("r", frames(number, number))
        await asyncio.sleep(0.001)
    assert connections(server) <= 10
    await log.close("r")
    assert set(await asyncio.gather(*readers)) == {frames(0, 99).data}
    # one that goes on, or has gone on, may be counted on one side
    assert joined - before <= 200 + in_vain_then + 1  # each looked for the log's end before it was there
    assert reads(server) - joined <= 100 + 1 + in_vain - in_vain_then + 1


async def test_s9_logs_that_are_read_share_one_connection(server: OwnRedis, log: RedisLog) -> None:
    names = [f"r{number}" for number in range(50)]
    for name in names:
        await log.open(name)
    readers = [asyncio.create_task(read_all(log, name)) for name in names]
    await until(lambda: len(log._tails._tails) == 50)
    for name in names:
        await log.append(name, frames(0, 3, name))
    assert connections(server) <= 10
    for name in names:
        await log.close(name)
    assert await asyncio.gather(*readers) == [frames(0, 3, name).data for name in names]


async def test_s4_reader_that_is_behind_holds_a_page_and_gets_everything(
    log: RedisLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    await log.open("r")
    await log.append("r", frames(0, 0))
    slow, quick = log.read("r"), asyncio.create_task(read_all(log))
    got = [(await anext(slow)).data]
    (tail,) = log._tails._tails.values()
    feed, sizes = tail.feed, list[int]()

    def fed(entries: list[Entry], most: int) -> None:
        feed(entries, most)
        sizes.append(tail.window.bytes)

    monkeypatch.setattr(tail, "feed", fed)
    for number in range(1, 400):
        await log.append("r", frames(number, number, "y" * 10_000))
    await log.close("r")
    whole = frame(0) + frames(1, 399, "y" * 10_000).data
    assert await quick == whole
    assert 500_000 < max(sizes) <= redis_reading._MOST
    async for each in slow:
        assert len(each.data) <= 4 * CHUNK_BYTES
        got.append(each.data)
    assert b"".join(got) == whole


async def test_s4_windows_share_what_there_is_for_all(log: RedisLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_reading, "_MOST_TOGETHER", 400_000)
    monkeypatch.setattr(redis_reading, "_LEAST", 20_000)
    names = [f"r{number}" for number in range(10)]
    for name in names:
        await log.open(name)
    readers = [asyncio.create_task(read_all(log, name)) for name in names]
    await until(lambda: len(log._tails._tails) == 10)
    for number in range(100):
        for name in names:
            await log.append(name, frames(number, number, "y" * 1000))
        assert sum(tail.window.bytes for tail in log._tails._tails.values()) <= 400_000 + 10 * 1100
    for name in names:
        await log.close(name)
    assert set(await asyncio.gather(*readers)) == {frames(0, 99, "y" * 1000).data}


async def test_s2_reader_that_begins_before_the_others_gets_what_they_had(log: RedisLog) -> None:
    await log.open("r")
    for number in range(10):
        await log.append("r", frames(number, number))
    late = asyncio.create_task(read_all(log, after=7))
    ahead = asyncio.create_task(read_all(log, after=11))
    await until(lambda: [tail._readers for tail in log._tails._tails.values()] == [2])
    early = asyncio.create_task(read_all(log))
    await until(lambda: [tail._readers for tail in log._tails._tails.values()] == [3])
    for number in range(10, 14):
        await log.append("r", frames(number, number))
    await log.close("r")
    assert await late == frames(8, 13).data
    assert await ahead == frames(12, 13).data
    assert await early == frames(0, 13).data


async def test_readers_wait_for_a_connection_and_never_fail_for_it(server: OwnRedis, log: RedisLog) -> None:
    """All of them begin at the front of a log that has grown far beyond what is kept for them."""
    await log.open("r")
    for number in range(200):
        await log.append("r", frames(number, number, "y" * 10_000))
    last = log.read("r", 198)
    await anext(last)
    readers = [asyncio.create_task(read_all(log)) for _ in range(40)]
    await asyncio.sleep(0.2)
    assert connections(server) <= 10
    await log.close("r")
    assert set(await asyncio.gather(*readers)) == {frames(0, 199, "y" * 10_000).data}
    assert [each async for each in last] == []


async def test_reading_ends_when_the_last_reader_has_left(
    server: OwnRedis, log: RedisLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_reading, "_UNREAD", 0.2)
    await log.open("r")
    readers = [asyncio.create_task(read_all(log)) for _ in range(5)]
    await until(lambda: [tail._readers for tail in log._tails._tails.values()] == [5])
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    await until(lambda: not log._tails._tails and log._tails._reading is None)
    await log.append("r", frames(0, 0))
    await log.close("r")
    assert await read_all(log) == frame(0)


async def test_outage_is_an_error_for_every_reader_and_over_for_the_next(
    server: OwnRedis, log: RedisLog
) -> None:
    for name in ("r", "s"):
        await log.open(name)
        await log.append(name, frames(0, 0))
    hasty = RedisLog(server.url, timeout=0.5)
    try:
        readers = [asyncio.create_task(read_all(hasty, name)) for name in ("r", "r", "s")]
        await until(lambda: sum(tail._readers for tail in hasty._tails._tails.values()) == 3)
        server.stop()
        failures = await asyncio.gather(*readers, return_exceptions=True)
        assert [type(each) for each in failures] == [LogError] * 3
        server.start()
        await log.append("r", frames(1, 1))
        await log.close("r")

        async def is_read() -> bool:
            with suppress(LogError):  # while Redis takes longer than that for an answer
                assert await read_all(hasty, after=0) == frame(1)
                return True
            return False

        await eventually(is_read)
    finally:
        await hasty.shutdown()


async def test_log_that_is_lost_while_nothing_comes_is_gone(
    server: OwnRedis, log: RedisLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_reading, "_CHECKED_EVERY", 0.2)
    for name in ("r", "s"):
        await log.open(name)
    lost, there = (asyncio.create_task(read_all(log, name)) for name in ("r", "s"))
    await until(lambda: sum(tail._readers for tail in log._tails._tails.values()) == 2)
    with redis.Redis.from_url(server.url) as admin:
        admin.delete("openresponses-bridge:log:r")
    with pytest.raises(LogGone):
        await lost
    assert not there.done()
    await log.close("s")
    assert await there == b""


async def test_who_has_just_begun_to_read_when_the_log_is_shut_down_gets_an_error(
    server: OwnRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = RedisLog(server.url)
    await log.open("r")
    begin, ends = log._tails._begin, []

    async def begun(key: str, run_id: str, after: int) -> redis_reading.Tail:
        tail = await begin(key, run_id, after)
        ends.append(asyncio.create_task(log.shutdown()))
        assert log._tails._reading is not None
        log._tails._reading.cancel()
        return tail

    monkeypatch.setattr(log._tails, "_begin", begun)
    with pytest.raises(LogError):
        await read_all(log)
    await ends[0]


async def test_who_still_reads_when_the_log_is_shut_down_gets_an_error(server: OwnRedis) -> None:
    log = RedisLog(server.url)
    await log.open("r")
    reader = asyncio.create_task(read_all(log))
    await until(lambda: [tail._readers for tail in log._tails._tails.values()] == [1])
    await log.shutdown()
    with pytest.raises(LogError):
        await reader

"""Event logs in Redis when Redis fails, forgets or is full (laws S2, S9)."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import redis
from msgspec.structs import replace

from openresponses_server.store.logs import redis as redis_logs
from openresponses_server.store.logs.base import LogError, LogGap, LogGone
from openresponses_server.store.logs.redis import _WRITING, RedisLog
from openresponses_server.store.writers import LogWriter
from tests.support.services import OwnRedis, own_redis
from tests.support.stores import frames
from tests.support.waiting import NEVER, until


@pytest.fixture(scope="module")
def process() -> Iterator[OwnRedis]:
    with own_redis() as started:
        yield started


@pytest.fixture
def server(process: OwnRedis) -> OwnRedis:
    """An empty one."""
    with redis.Redis.from_url(process.url) as admin:
        admin.flushall()
    return process


@pytest.fixture
async def log(server: OwnRedis) -> AsyncIterator[RedisLog]:
    server.stop()
    server.start()
    opened = RedisLog(server.url, timeout=NEVER)
    yield opened
    await opened.shutdown()


async def read_all(log: RedisLog, after: int = -1, into: bytearray | None = None) -> bytes:
    read = bytearray() if into is None else into
    async for each in log.read("r", after):
        read += each.data
    return bytes(read)


async def test_restart_leaves_a_gap_that_is_reported(server: OwnRedis, log: RedisLog) -> None:
    await log.open("r")
    await log.append("r", frames(0, 3))
    read = bytearray()
    reader = asyncio.create_task(read_all(log, into=read))
    follower = asyncio.create_task(read_all(log, after=3))
    await until(lambda: [tail.place for tail in log._tails._tails.values() if tail._readers == 2] == [b"4-0"])
    await until(lambda: read == frames(0, 3).data)  # what it reads later is lost with the log
    server.stop()
    appending = asyncio.create_task(log.append("r", frames(4, 5)))
    await asyncio.sleep(0.2)
    assert not appending.done()
    server.start()
    await appending
    await log.append("r", frames(6, 6))
    await log.close("r")
    assert await reader == frames(0, 6).data
    assert await follower == frames(4, 6).data
    with pytest.raises(LogGap) as gap:
        await read_all(log)
    assert (gap.value.expected, gap.value.found) == (0, 4)
    assert await read_all(log, after=4) == frames(5, 6).data


async def test_log_begun_anew_after_a_restart_goes_some_day(server: OwnRedis, log: RedisLog) -> None:
    await log.open("r")
    await log.append("r", frames(0, 3))
    server.stop()
    server.start()
    await log.append("r", frames(4, 4))
    with redis.Redis.from_url(server.url) as admin:
        assert 0 < admin.pttl("openresponses-bridge:log:r") <= 86_400_000


async def test_log_that_was_lost_is_gone(server: OwnRedis, log: RedisLog) -> None:
    await log.open("r")
    await log.append("r", frames(0, 3))
    reader = log.read("r")
    assert (await anext(reader)).last == 3
    server.stop()
    server.start()
    with pytest.raises(LogGone):
        await anext(reader)


async def test_down_for_long_is_an_error_for_writer_and_reader(server: OwnRedis) -> None:
    log = RedisLog(server.url, timeout=0.3)
    await log.open("r")
    server.stop()
    for call in (log.append("r", frames(0, 0)), log.open("s"), log.close("r"), read_all(log)):
        with pytest.raises(LogError) as down:
            await call
        assert (down.value.http_status, down.value.code) == (503, "event_log_unavailable")
    server.start()
    log._persist._timeout = NEVER
    await log.append("r", frames(0, 0))
    await log.shutdown()


async def test_the_address_of_a_server_that_is_down_or_silent_is_for_the_operator(
    server: OwnRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = server.url.removeprefix("redis://").removesuffix("/0")
    log = RedisLog(server.url.replace("redis://", "redis://:secret-of-redis@"), timeout=0.3)
    silent = RedisLog(server.url)
    with monkeypatch.context() as patch:
        patch.setattr(redis_logs, "_CHECK_SECONDS", NEVER)
        await silent.check()
    server.freeze()
    with pytest.raises(LogError) as frozen:
        await silent.check()
    server.thaw()
    server.stop()
    with pytest.raises(LogError) as down:
        await log.check()
    for failure in (frozen.value, down.value):
        assert failure.message == "The event log can't be reached."
        assert failure.details.count(address) == 1
        assert "secret-of-redis" not in failure.in_full
    assert frozen.value.details == f"{address} does not answer within 1 s"
    await log.shutdown()
    await silent.shutdown()
    server.start()


async def test_append_made_again_is_there_once(log: RedisLog) -> None:
    await log.open("r")
    for _ in range(2):
        await log.append("r", frames(0, 3))
    await log.append("r", frames(2, 5))  # what came since, together with what may be there already
    await log.close("r")
    assert await read_all(log) == frames(0, 5).data


async def test_log_holds_its_last_entries(server: OwnRedis) -> None:
    log = RedisLog(server.url, max_entries=100)
    await log.open("r")
    for number in range(1000):
        await log.append("r", frames(number, number))
    await log.close("r")
    with pytest.raises(LogGap) as gap:
        await read_all(log)
    assert 0 < gap.value.found <= 900
    assert await read_all(log, gap.value.found + 5) == frames(gap.value.found + 6, 999).data
    await log.shutdown()


async def test_s4_runs_do_not_open_a_connection_each_when_redis_stands_still(
    server: OwnRedis, log: RedisLog
) -> None:
    """They would all be kept."""
    names = [f"r{number}" for number in range(100)]
    await asyncio.gather(*map(log.open, names))
    server.freeze()
    opening = [asyncio.create_task(log.open(name)) for name in names]
    appending = [asyncio.create_task(log.append(name, frames(0, 1))) for name in names]
    await asyncio.sleep(1)
    server.thaw()
    assert await asyncio.gather(*opening, *appending) == [None] * 200
    with redis.Redis.from_url(server.url) as admin:
        assert admin.info("clients")["connected_clients"] < 7 + _WRITING


async def test_full_redis_is_reported(server: OwnRedis, log: RedisLog) -> None:
    await log.open("r")
    with redis.Redis.from_url(server.url) as admin:
        admin.config_set("maxmemory", 1)
        with pytest.raises(LogError):
            await log.append("r", frames(0, 3))
        admin.config_set("maxmemory", 0)
    await log.append("r", frames(0, 3))
    await log.close("r")
    assert await read_all(log) == frames(0, 3).data


async def test_every_log_goes_some_day(server: OwnRedis, log: RedisLog) -> None:
    with redis.Redis.from_url(server.url) as admin:
        await log.open("r")
        opened = admin.pttl("openresponses-bridge:log:r")
        await log.append("never_opened", frames(0, 3))
        appended = admin.pttl("openresponses-bridge:log:never_opened")
        await log.close("r")
        closed = admin.pttl("openresponses-bridge:log:r")
    assert 86_000_000 < opened <= 86_400_000
    assert 86_000_000 < appended <= 86_400_000
    assert 0 < closed <= 10_000


async def test_log_is_opened_by_whoever_makes_the_run_in_one_command(server: OwnRedis, log: RedisLog) -> None:
    """As by whoever queued it before; a log without entries is left as it is."""
    other = RedisLog(server.url)
    await other.open("r")
    with redis.Redis.from_url(server.url) as admin:
        before = admin.xinfo_stream("openresponses-bridge:log:r")["entries-added"]
        admin.config_resetstat()
        await log.open("r")
        assert [name for name in admin.info("commandstats") if "eval" in name] == ["cmdstat_eval"]
        assert not {"cmdstat_multi", "cmdstat_del"} & admin.info("commandstats").keys()
        assert admin.xinfo_stream("openresponses-bridge:log:r")["entries-added"] == before
    await other.shutdown()


async def test_discarded_log_leaves_nothing_of_the_run(server: OwnRedis, log: RedisLog) -> None:
    """And what is left to know it by goes some day."""
    other = RedisLog(server.url)
    await log.open("r")
    await log.append("r", frames(0, 3, "secret"))
    await other.discard("r")
    for writer, number in ((log, 4), (other, 4), (log, 5)):
        with pytest.raises(LogGone):
            await writer.append("r", frames(number, number, "secret"))
    await log.close("r")
    await other.shutdown()
    with redis.Redis.from_url(server.url) as admin:
        left = list(admin.scan_iter())
        assert b"secret" not in b"".join(admin.dump(key) for key in left)
        assert all(0 < admin.ttl(key) <= 300 for key in left)


async def test_log_that_redis_forgot_begins_anew_and_goes_some_day(server: OwnRedis, log: RedisLog) -> None:
    """While the connection stays: by FLUSHDB, or evicted because Redis was full."""
    await log.open("r")
    await log.append("r", frames(0, 3))
    with redis.Redis.from_url(server.url) as admin:
        admin.flushdb()
        await log.append("r", frames(4, 5))
        assert admin.pttl("openresponses-bridge:log:r") > 0
    await log.close("r")
    assert await read_all(log, 3) == frames(4, 5).data


async def test_log_is_discarded_in_a_full_redis(server: OwnRedis, log: RedisLog) -> None:
    await log.open("r")
    await log.append("r", frames(0, 3))
    with redis.Redis.from_url(server.url) as admin:
        admin.config_set("maxmemory", 1)
        await log.discard("r")
        admin.config_set("maxmemory", 0)
        assert list(admin.scan_iter()) == []


async def test_another_entry_under_the_number_is_not_ones_own(server: OwnRedis, log: RedisLog) -> None:
    """Another worker has ended the run with an event of this number."""
    other = RedisLog(server.url, timeout=NEVER)
    await log.open("r")
    await log.append("r", frames(0, 3))
    theirs = frames(4, 4)
    await other.append("r", theirs)
    await log.append("r", theirs)  # as if its answer was lost
    with pytest.raises(LogGone):
        await log.append("r", replace(theirs, data=theirs.data.replace(b"data", b"atad")))
    await other.shutdown()


async def test_nothing_is_kept_of_a_run_that_was_lost(log: RedisLog) -> None:
    """Another worker makes it, and closes its log."""

    async def go_on() -> None:
        return None

    for number in range(3):
        writer = LogWriter(log, f"r{number}", go_on, go_on)
        await writer.open()
        await writer.written(frames(0, 1))
        await writer.give_up(keep=True)
    assert log._expiring == set()

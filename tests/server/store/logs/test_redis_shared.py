"""Commands of all runs of a process to Redis over one connection (laws S2, S9)."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest
import redis
import uvloop

from openresponses_server.store.logs import redis_shared
from openresponses_server.store.logs.base import LogError, LogGone
from openresponses_server.store.logs.redis import RedisLog
from openresponses_server.store.writers import LogWriter
from tests.support.certificates import Authority
from tests.support.processes import free_port
from tests.support.services import OwnRedis, own_redis
from tests.support.stores import frames
from tests.support.waiting import NEVER


@pytest.fixture(scope="module")
def server() -> Iterator[OwnRedis]:
    with own_redis() as started:
        yield started


@pytest.fixture
def admin(server: OwnRedis) -> Iterator["redis.Redis[bytes]"]:
    with redis.Redis.from_url(server.url) as connected:
        connected.flushall()
        yield connected


@pytest.fixture
async def log(server: OwnRedis, admin: Any) -> AsyncIterator[RedisLog]:
    opened = RedisLog(server.url)
    yield opened
    await opened.shutdown()


async def logged(log: RedisLog, run_id: str = "r") -> bytes:
    return b"".join([each.data async for each in log.read(run_id, wait=False)])


def by_the_client(log: RedisLog, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The entries that Redis' client is asked to add, from now on."""
    commands: list[Any] = []
    real = log._writer.execute_command

    async def noted(*command: Any, **options: Any) -> Any:
        if command[0] == "XADD":
            commands.append(command)
        return await real(*command, **options)

    monkeypatch.setattr(log._writer, "execute_command", noted)
    return commands


async def test_what_is_there_at_one_moment_leaves_in_one_write(
    log: RedisLog, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"r{number}" for number in range(50)]
    for name in names:
        await log.open(name)
    await log.append("r0", frames(0, 3, "r0"))  # makes the connection
    names.remove("r0")
    added = by_the_client(log, monkeypatch)
    before = admin.info("stats")["total_reads_processed"]
    await asyncio.gather(*(log.append(name, frames(0, 3, name)) for name in names))
    assert admin.info("stats")["total_reads_processed"] - before < 10
    assert added == []
    for name in names:
        assert await logged(log, name) == frames(0, 3, name).data


async def test_connection_that_was_lost_is_made_anew(
    log: RedisLog, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await log.open("r")
    await log.append("r", frames(0, 3))
    added = by_the_client(log, monkeypatch)
    admin.client_kill_filter(_type="normal", skipme=True)
    for number in range(4, 10):
        await log.append("r", frames(number, number))
    assert len(added) <= 1
    assert await logged(log) == frames(0, 9).data


async def test_run_whose_connection_was_lost_goes_on_over_the_next_one(
    log: RedisLog, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def own() -> None:
        raise AssertionError("the log is not gone")

    runs = [LogWriter(log, name, own, own) for name in ("r", "s")]
    for run in runs:
        await run.open()
        await run.written(frames(0, 3))
    added = by_the_client(log, monkeypatch)
    appends: list[Any] = []
    monkeypatch.setattr(log, "append", partial(_noted, appends, log.append))
    admin.client_kill_filter(_type="normal", skipme=True)
    for number in range(4, 20):
        for run in runs:
            await run.written(frames(number, number))
    for name in ("r", "s"):
        assert await logged(log, name) == frames(0, 19).data
    assert len(appends) <= 4  # the rest are plain calls again
    assert len(added) <= 2


async def _noted(asked: list[Any], call: Any, *given: Any) -> None:
    asked.append(given)
    await call(*given)


@pytest.fixture(scope="module")
def every_way(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """URLs of a Redis that asks for a password, by how it is connected to."""
    folder = tmp_path_factory.mktemp("redis")
    authority, port = Authority(folder), free_port()
    certificate = str(authority.certificate("redis"))
    files = (
        "--tls-cert-file",
        certificate,
        "--tls-key-file",
        certificate,
        "--tls-ca-cert-file",
        str(authority.file),
    )
    listening = ("--tls-port", str(port), "--tls-auth-clients", "no")
    with own_redis(options=(*listening, *files)) as started:
        with redis.Redis.from_url(started.url) as admin:
            admin.acl_setuser("writer", enabled=True, passwords=["+a/b"], keys=["*"], categories=["+@all"])
            admin.config_set("requirepass", "hunter2")
        host = started.url.removeprefix("redis://").partition("/")[0]
        yield {
            "password": f"redis://:hunter2@{host}/3",
            "user": f"redis://writer:a%2Fb@{host}/3",
            "tls": f"rediss://:hunter2@127.0.0.1:{port}/3?ssl_ca_certs={authority.file}",
            "refused": f"redis://:other@{host}/3",
            "missing": f"redis://:hunter2@{host}/99",
            "distrusted": f"rediss://:hunter2@127.0.0.1:{port}/3",
        }


@pytest.mark.parametrize("way", ["password", "user", "tls"])
async def test_connection_is_made_as_the_address_says(every_way: dict[str, str], way: str) -> None:
    log = RedisLog(every_way[way])
    try:
        await log.open(way)
        for number in range(4):
            await log.append(way, frames(number, number))
        assert log._shared.connection is not None
        assert not log._shared.connection.is_closing
        assert await logged(log, way) == frames(0, 3).data
    finally:
        await log.shutdown()


def test_another_event_loop_has_the_connection_too(server: OwnRedis) -> None:
    async def append() -> None:
        log = RedisLog(server.url)
        try:
            await log.open("r")
            assert await log._shared.append("openresponses-bridge:log:r", frames(0, 3))
            assert await logged(log) == frames(0, 3).data
        finally:
            await log.shutdown()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(append())


@pytest.mark.parametrize("way", ["refused", "missing", "distrusted"])
async def test_no_entry_is_sent_over_a_connection_that_is_refused(
    every_way: dict[str, str], way: str
) -> None:
    log = RedisLog(every_way[way])
    try:
        assert not await log._shared.append("key", frames(0, 0))
        assert log._shared.connection is None
    finally:
        await log.shutdown()


async def test_what_redis_does_not_take_is_not_gathered(
    server: OwnRedis, log: RedisLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_shared, "_MOST_UNSENT", 1000)
    await log.open("r")
    await log.append("r", frames(0, 0))
    connection = log._shared.connection
    assert connection is not None
    entries = [frames(number, number, "x" * 1_000_000) for number in range(1, 20)]
    add = log.appender("r")
    assert add is not None
    answers: list[asyncio.Future[bool]] = []
    failed: list[asyncio.Future[bool]] = []
    server.freeze()
    try:
        for each in entries:
            answer = add(each, failed.append)
            assert answer is not None
            await asyncio.sleep(0)
            if failed:
                break
            answers.append(answer)
    finally:
        server.thaw()
    assert failed == [answer]
    taken = len(answers)
    assert 0 < taken < len(entries)
    assert all(await asyncio.gather(*answers))
    again = add(entries[taken], failed.append)
    assert again is not None
    assert await again
    assert await logged(log) == b"".join([frames(0, 0).data, *(each.data for each in entries[: taken + 1])])


async def test_append_that_nobody_waits_for_any_more_disturbs_none_after_it(
    log: RedisLog, admin: Any
) -> None:
    await log.open("r")
    await log.open("s")
    await log.append("r", frames(0, 0))
    admin.client_pause(300, all=False)
    for number in (1, 2):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await log.append("r", frames(number, number))
    await log.append("s", frames(0, 3, "s"))
    await log.append("r", frames(1, 4))  # what came since, with what may be there already
    await log.close("r")
    assert await logged(log) == frames(0, 4).data
    assert await logged(log, "s") == frames(0, 3, "s").data


async def test_connection_without_answers_is_given_up(
    log: RedisLog, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_shared, "_ANSWERED_WITHIN", 0.1)
    await log.open("r")
    await log.open("s")
    await log.append("r", frames(0, 0))
    first = log._shared.connection
    assert first is not None
    admin.client_pause(400, all=False)
    appending = asyncio.create_task(log.append("r", frames(1, 1)))
    await asyncio.sleep(0.2)
    await log.append("s", frames(0, 3, "s"))
    await appending
    assert first.is_closing
    assert log._shared.connection is not first
    assert await logged(log) == frames(0, 1).data
    assert await logged(log, "s") == frames(0, 3, "s").data


async def test_error_of_redis_is_found_out_by_its_client(log: RedisLog, admin: Any) -> None:
    """Here that the very entry is there already."""
    await log.open("r")
    for _ in range(2):
        await log.append("r", frames(0, 3))
    assert await logged(log) == frames(0, 3).data


def connections(log: RedisLog) -> int:
    """Those of the client that calls are repeated with."""
    pool: Any = log._writer.connection_pool
    return len(pool._available_connections) + len(pool._in_use_connections)


async def test_logs_are_opened_closed_and_discarded_over_the_connection(log: RedisLog, admin: Any) -> None:
    names = [f"r{number}" for number in range(50)]
    await log.open("first")  # makes the connection
    before = admin.info("stats")["total_reads_processed"]
    await asyncio.gather(*map(log.open, names))
    await asyncio.gather(*(log.append(name, frames(0, 3, name)) for name in names))
    await asyncio.gather(*map(log.close, names))
    for name in names:
        assert await logged(log, name) == frames(0, 3, name).data
    await log.open("r0")
    assert await logged(log, "r0") == b""
    await asyncio.gather(*map(log.discard, names))
    assert admin.info("stats")["total_reads_processed"] - before < 100
    assert connections(log) == 0
    for name in names:
        with pytest.raises(LogGone):
            await log.open(name)
    assert connections(log) == 0
    assert admin.xlen("openresponses-bridge:log:first") == 1


async def test_what_was_sent_together_is_answered_by_the_last(log: RedisLog, admin: Any) -> None:
    run = log._shared.run
    admin.set("text", "a")
    assert await run(("SET", "a", 1), ("INCR", "a")) == 2
    assert await run(("MULTI",), ("DEL", "a"), ("EXEC",)) == [1]
    assert await run(("INCR", "text"), ("EXISTS", "text")) == 1
    assert await run(("EXISTS", "text"), ("GET", "text")) is True
    assert await run(("EXISTS", "text"), ("INCR", "text")) is False
    assert await run(("GET", "nothing")) is False
    results = await asyncio.gather(
        *(run(("ECHO", "x"), ("INCRBY", f"n{number}", number)) for number in range(50))
    )
    assert results == list(range(50))


async def test_error_of_redis_for_a_log_is_found_out_by_its_client(log: RedisLog, admin: Any) -> None:
    await log.open("r")
    admin.set("openresponses-bridge:log:text", "no stream")
    with pytest.raises(LogError):
        await log.open("text")
    assert connections(log) == 1
    await log.close("text")
    await log.open("r")  # it is the same connection
    await log.discard("text")
    with pytest.raises(LogGone):
        await log.open("text")


async def test_redis_that_forgot_its_scripts_opens_logs_over_the_connection(
    log: RedisLog, admin: Any
) -> None:
    await log.open("r")
    admin.script_flush()
    await log.open("s")
    assert connections(log) == 0


async def test_client_takes_over_what_the_connection_does_not_take(
    log: RedisLog, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await log.open("r")
    connection = log._shared.connection
    assert connection is not None
    connection.pause_writing()
    await log.open("s")
    await log.append("s", frames(0, 3))
    await log.close("s")
    assert await logged(log, "s") == frames(0, 3).data
    await log.discard("s")
    with pytest.raises(LogGone):
        await log.open("s")
    assert connections(log) == 1
    assert log._shared.connection is connection
    assert not connection.is_closing


async def test_calls_that_nobody_waits_for_any_more_disturb_none_after_them(
    server: OwnRedis, log: RedisLog
) -> None:
    """Each has another number of answers."""
    await log.open("r")
    await log.append("r", frames(0, 3))
    connection = log._shared.connection
    server.freeze()
    try:
        for call in (log.open("s"), log.close("t"), log.discard("u"), log.open("v")):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await call
    finally:
        server.thaw()
    with pytest.raises(LogGone):
        await log.open("u")
    await log.open("s")
    await log.append("s", frames(0, 3, "s"))
    await log.append("r", frames(4, 5))
    await log.close("r")
    assert await logged(log) == frames(0, 5).data
    assert await logged(log, "s") == frames(0, 3, "s").data
    assert log._shared.connection is connection
    assert connections(log) == 0


async def test_redis_that_stands_still_is_an_error_and_works_again(
    server: OwnRedis, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although nobody else asks it anything."""
    log = RedisLog(server.url, timeout=0.3)
    await log.open("r")
    await log.append("r", frames(0, 3))
    first = log._shared.connection
    assert first is not None
    monkeypatch.setattr(redis_shared, "_ANSWERED_WITHIN", 0.1)
    server.freeze()
    try:
        for call in (log.open("s"), log.close("r"), log.discard("t")):
            with pytest.raises(LogError):
                await call
        assert first.is_closing
        opening = [asyncio.create_task(log.open(f"r{number}")) for number in range(20)]
        results = await asyncio.gather(*opening, return_exceptions=True)
        assert {type(each) for each in results} == {LogError}
        assert connections(log) == 0  # which would stand still, too
    finally:
        server.thaw()
        monkeypatch.undo()
    log._persist._timeout = NEVER  # however long Redis takes
    await log.open("again")
    await log.append("again", frames(0, 3))
    await log.close("again")
    assert await logged(log, "again") == frames(0, 3).data
    await log.shutdown()


async def test_calls_whose_connection_was_lost_go_over_the_next_one(log: RedisLog, admin: Any) -> None:
    await log.open("r")
    first = log._shared.connection
    assert first is not None
    opening = [asyncio.create_task(log.open(f"r{number}")) for number in range(20)]
    discarding = asyncio.create_task(log.discard("r"))
    await asyncio.sleep(0)
    first.abort()
    assert await asyncio.gather(*opening, discarding) == [None] * 21
    assert log._shared.connection is not first
    assert connections(log) == 0
    with pytest.raises(LogGone):
        await log.open("r")

"""What all runs of a process append to Redis over one connection (laws S2, S9)."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import redis

from openresponses_server.store.logs import redis_appends
from openresponses_server.store.logs.redis import RedisLog
from tests.support.services import OwnRedis, own_redis
from tests.support.stores import frames


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
    found: list[Any] = []
    real = log._writer.execute_command

    async def noted(*command: Any, **options: Any) -> Any:
        if command[0] == "XADD":
            found.append(command)
        return await real(*command, **options)

    monkeypatch.setattr(log._writer, "execute_command", noted)
    return found


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


async def test_connection_is_made_as_the_address_says(server: OwnRedis, admin: Any) -> None:
    admin.config_set("requirepass", "hunter2")
    host = server.url.removeprefix("redis://").partition("/")[0]
    log = RedisLog(f"redis://:hunter2@{host}/3")
    try:
        await log.open("r")
        for number in range(4):
            await log.append("r", frames(number, number))
        assert log._appends._link is not None
        assert log._appends._link.usable
        assert await logged(log) == frames(0, 3).data
    finally:
        admin.config_set("requirepass", "")
        await log.shutdown()


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
    monkeypatch.setattr(redis_appends, "_ANSWERED_WITHIN", 0.1)
    await log.open("r")
    await log.open("s")
    await log.append("r", frames(0, 0))
    first = log._appends._link
    assert first is not None
    admin.client_pause(400, all=False)
    appending = asyncio.create_task(log.append("r", frames(1, 1)))
    await asyncio.sleep(0.2)
    await log.append("s", frames(0, 3, "s"))
    await appending
    assert not first.usable
    assert log._appends._link is not first
    assert await logged(log) == frames(0, 1).data
    assert await logged(log, "s") == frames(0, 3, "s").data


async def test_error_of_redis_is_found_out_by_its_client(log: RedisLog, admin: Any) -> None:
    """Here that the very entry is there already."""
    await log.open("r")
    for _ in range(2):
        await log.append("r", frames(0, 3))
    assert await logged(log) == frames(0, 3).data

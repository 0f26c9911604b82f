"""Every kind of event log."""

import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import redis

from openresponses_server.store.logs.base import EventLog
from openresponses_server.store.logs.file import FileLog
from openresponses_server.store.logs.memory import MemoryLog
from openresponses_server.store.logs.redis import RedisLog
from tests.support.services import redis_server
from tests.support.waiting import NEVER

OpenLog = Callable[..., EventLog]


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    with redis_server() as url:
        yield url


@pytest.fixture
def prefix(redis_url: str) -> Iterator[str]:
    """A prefix for this test's keys, which are deleted afterwards."""
    chosen = f"orb-test-{uuid.uuid4().hex[:12]}"
    yield chosen
    with redis.Redis.from_url(redis_url) as client:
        for key in client.scan_iter(f"{chosen}:*"):
            client.delete(key)


@pytest.fixture(params=["memory", "file", "redis"])
async def open_log(request: pytest.FixtureRequest) -> AsyncIterator[OpenLog]:
    """Opens logs of one kind, on the same data where the kind shares any; `linger` in seconds."""
    logs: list[EventLog] = []

    def opened(**options: Any) -> EventLog:
        chosen = {"linger": NEVER, **options}
        if request.param == "redis":
            url, prefix = request.getfixturevalue("redis_url"), request.getfixturevalue("prefix")
            logs.append(RedisLog(url, prefix=prefix, timeout=NEVER, **chosen))
        elif request.param == "file":
            logs.append(FileLog(request.getfixturevalue("tmp_path") / "logs", **chosen))
        elif not logs or options:
            logs.append(MemoryLog(**chosen))
        return logs[-1]

    if request.param == "redis":
        request.getfixturevalue("prefix")
    yield opened
    for log in logs:
        await log.shutdown()


@pytest.fixture
def log(open_log: OpenLog) -> EventLog:
    return open_log()

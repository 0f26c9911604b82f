"""Workers with one Redis know together which routes are out, which of them probes, and where a session is."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest
import redis

from openresponses_bridge.protocol.codec import encode
from openresponses_server.settings import CircuitSettings
from openresponses_server.upstreams.routing import shared
from openresponses_server.upstreams.routing.routes import RouteTable
from openresponses_server.upstreams.routing.shared import RedisRoutes, received
from openresponses_server.upstreams.routing.states import Availability, Outcome, Route, Routes, State
from tests.support.clocks import Clock
from tests.support.services import OwnRedis, own_redis, redis_server
from tests.support.waiting import NEVER, until

pytestmark = pytest.mark.anyio
A, B = Route("a", 0, "m"), Route("b", 0, "m")


class Workers:
    """Workers that share a prefix of their own; `failed` are their calls that failed."""

    def __init__(self, url: str, stack: AsyncExitStack) -> None:
        self.url, self.prefix = url, f"test:{{{os.urandom(6).hex()}}}"
        self.failed: list[str] = []
        self.clock = Clock()
        self._stack = stack

    async def start(self) -> RouteTable:
        routes = Routes("order", {"a": CircuitSettings(failures=1, seconds=1.0)})
        table = RouteTable(routes, ["a", "b"], clock=self.clock)
        mine = RedisRoutes(self.url, table, lambda call, _code: self.failed.append(call), self.prefix)
        await self._stack.enter_async_context(mine.going())
        return table


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis has time to answer, and a worker that was not answered does not ask again meanwhile."""
    monkeypatch.setattr(shared, "_TIMEOUT", NEVER)
    monkeypatch.setattr(shared, "_PAUSE", NEVER)


@pytest.fixture
async def workers() -> AsyncIterator[Workers]:
    with redis_server() as url:
        async with AsyncExitStack() as stack:
            yield Workers(url, stack)


def how(table: RouteTable, route: Route) -> Availability:
    return table.routes.availability(route, table.clock())


async def listening(url: str, prefix: str, count: int) -> None:
    client = redis.Redis.from_url(url)
    await until(lambda: client.pubsub_numsub(f"{prefix}:changes")[0][1] == count)
    client.close()


async def test_a_limit_is_known_to_all_and_to_who_comes_later(workers: Workers) -> None:
    first, second = await workers.start(), await workers.start()
    await listening(workers.url, workers.prefix, 2)
    first.record(A, Outcome.LIMITED, "429", 500.0)
    await until(lambda: how(second, A) is Availability.LIMITED)
    # of what it did not hear but read, the time since then counts
    assert first.routes.until(A) - 100 < second.routes.until(A) <= first.routes.until(A)
    third = await workers.start()
    assert how(third, A) is Availability.LIMITED
    assert how(third, B) is Availability.IN
    assert workers.failed == []


async def test_an_opened_circuit_is_closed_for_all(workers: Workers) -> None:
    first, second = await workers.start(), await workers.start()
    await listening(workers.url, workers.prefix, 2)
    first.record(Route("a", 0), Outcome.TRIPPED, "401")
    await until(lambda: Route("a", 0) in second.routes.conditions)
    second.record(A, Outcome.BEGUN)
    await until(lambda: first.routes.conditions[Route("a", 0)].state is State.CLOSED)
    assert how(await workers.start(), A) is Availability.IN


async def test_one_of_all_workers_probes(workers: Workers) -> None:
    tables = [await workers.start() for _ in range(3)]
    assert all(table.shared is not None for table in tables)
    claimed = await asyncio.gather(*(table.shared.claim(A) for table in tables if table.shared is not None))
    assert sorted(claimed) == [False, False, True]
    # when it is known what came of it, it may be probed again
    tables[0].record(A, Outcome.TRIPPED, "5xx")
    client = redis.Redis.from_url(workers.url)
    await until(lambda: not client.keys(f"{workers.prefix}:probe:*"))
    client.close()


async def test_a_session_is_found_by_another_worker(workers: Workers) -> None:
    first, second = await workers.start(), await workers.start()
    first.remember("a name", B)
    while await second.recall("a name") != B:
        await asyncio.sleep(0.005)
    assert await second.recall("another") is None


async def test_everything_expires(workers: Workers) -> None:
    table = await workers.start()
    table.record(A, Outcome.LIMITED, "429", 60.0)
    table.remember("a name", B)
    assert table.shared is not None
    await table.shared.claim(A)
    client = redis.Redis.from_url(workers.url)
    names = f"{workers.prefix}:*"
    await until(lambda: len(client.keys(names)) >= 2)
    assert all(client.ttl(key) > 0 for key in client.keys(names))
    client.close()


HOSTILE = [
    b"",
    b"null",
    b"[]",
    b"\xff",
    encode(["w", "a", 0, "m", "nonsense", 1.0, None, "429", 0.0]),
    encode(["w", "a", 0, "m", "limited", "soon", None, "429", 0.0]),
    encode({"upstream": "a"}),
]


@pytest.mark.parametrize("data", HOSTILE)
def test_what_is_not_a_change_is_not_taken_for_one(data: bytes) -> None:
    assert received(data, "me", 0.0) is None


@pytest.fixture
def own() -> Iterator[OwnRedis]:
    with own_redis() as server:
        yield server


async def test_without_redis_each_knows_its_own(own: OwnRedis) -> None:
    async with AsyncExitStack() as stack:
        workers = Workers(own.url, stack)
        table = await workers.start()
        own.stop()
        table.record(A, Outcome.LIMITED, "429", 60.0)
        table.remember("a name", B)
        assert how(table, A) is Availability.LIMITED
        assert await table.recall("a name") == B
        assert table.shared is not None
        assert await table.shared.claim(A)
        for _ in range(20):
            assert await table.recall("another") is None
        assert 1 <= len(workers.failed) <= 3  # and no request waits for it again and again

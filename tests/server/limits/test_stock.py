"""Stored bytes of each key."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis

from openresponses_server.errors import HttpError
from openresponses_server.limits.redis_measurements import SharedMeasurements
from openresponses_server.limits.shared_redis import SharedRedis
from openresponses_server.limits.stock import Stock
from openresponses_server.store.base import ResponseStore, StoreError
from openresponses_server.store.memory import MemoryStore
from tests.support.failing_store import FailingStore, as_store
from tests.support.services import OwnRedis, own_redis
from tests.support.stores import messages, record


async def test_s8_a_key_that_has_as_many_bytes_as_it_may_stores_nothing_more() -> None:
    store = MemoryStore()
    await store.put(record("r", owner="k", input=messages("x" * 2000)))
    stock = Stock(store.stock, 3000)
    stock.check("k", 2999)  # not measured yet
    await stock.measure()
    stock.check("k", 100)
    with pytest.raises(HttpError) as refused:
        stock.check("k", 1000)
    assert (refused.value.http_status, refused.value.code) == (429, "stored_bytes_exceeded")
    assert refused.value.headers == {"retry-after": "60", "x-should-retry": "false"}
    stock.check("l", 2999)
    await store.delete("r", "k")
    await stock.measure()
    stock.check("k", 2999)


async def test_s8_what_is_stored_since_the_last_measurement_counts() -> None:
    store = FailingStore()
    stock = Stock(as_store(store).stock, 3000)
    await stock.measure()
    stock.grow("k", 2000)
    stock.grow("k", 1000)
    with pytest.raises(HttpError):
        stock.check("k")
    store.down.add("stock")
    await stock.measure()
    assert stock.of("k") == 3000  # nothing is known anew
    store.down.clear()
    await stock.measure()
    stock.check("k")


async def test_measuring_takes_a_small_part_of_the_time() -> None:
    class SlowStore(MemoryStore):
        async def stock(self) -> dict[str, int]:
            await asyncio.sleep(0.1)
            return {}

    store: ResponseStore = SlowStore()
    assert await Stock(store.stock, 1, interval=0.01).measure() >= 2.0
    measured: list[Any] = []

    class NotedStore(MemoryStore):
        async def stock(self) -> dict[str, int]:
            measured.append(1)
            return {}

    keeping = asyncio.create_task(Stock(NotedStore().stock, 1, interval=0.01).measure_repeatedly())
    while len(measured) < 3:
        await asyncio.sleep(0.01)
    keeping.cancel()


# --- measured by one worker for all ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[OwnRedis]:
    with own_redis() as started:
        yield started


@pytest.fixture
def own(server: OwnRedis) -> Iterator[redis.Redis]:
    """Empty."""
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
        yield client


class Held:
    """What is stored, by key. A measurement is of the time when it begins, and lasts until what is `going`
    then is set."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.calls = 0
        self.going = asyncio.Event()
        self.going.set()

    async def measure(self) -> dict[str, int]:
        self.calls += 1
        sizes, going = dict(self.sizes), self.going
        await going.wait()
        return sizes


class Worker:
    def __init__(
        self, url: str, held: Held, store: str = "s", interval: float = 60.0, **options: Any
    ) -> None:
        self.redis = SharedRedis(url, lambda *_: None, **({"timeout": 10.0, "lease": 60.0} | options))
        self.redis.alone = False
        self.held = held
        self.others = SharedMeasurements(self.redis)
        self.stock = Stock(held.measure, 3000, interval, store=store, others=self.others)
        self.stored = 0

    def store(self, size: int, owner: str = "k") -> None:
        """What is counted is stored at once."""
        self.held.sizes[owner] = self.held.sizes.get(owner, 0) + size
        self.stored += size
        self.stock.grow(owner, size)

    async def look(self) -> int:
        await self.stock.look()
        return self.stock.of("k")

    @asynccontextmanager
    async def measuring(self) -> AsyncIterator["asyncio.Task[int]"]:
        """This worker measures within the context, and has measured after it unless the task is cancelled."""
        others, self.held.going = self.held.going, asyncio.Event()
        going, before = self.held.going, self.held.calls
        looking = asyncio.create_task(self.look())
        await until(lambda: self.held.calls > before)
        self.held.going = others
        yield looking
        going.set()
        await asyncio.wait([looking])


async def until(check: Callable[[], bool]) -> None:
    while not check():
        await asyncio.sleep(0.002)


@asynccontextmanager
async def fleet(server: OwnRedis, held: Held, count: int = 2, **options: Any) -> AsyncIterator[list[Worker]]:
    workers = [Worker(server.url, held, **options) for _ in range(count)]
    try:
        yield workers
    finally:
        for each in workers:
            await each.redis.close()


Pair = tuple[Held, Worker, Worker]


@pytest.fixture
async def pair(server: OwnRedis, own: redis.Redis) -> AsyncIterator[Pair]:
    """What is stored, and two workers that measure it."""
    store = Held()
    async with fleet(server, store) as (one, other):
        yield store, one, other


KEY = "openresponses-bridge:{limits}:stored:s"


def pass_time(own: redis.Redis) -> None:
    """The lease of the measuring worker, or the pause after a measurement, has ended."""
    own.hset(KEY, "for", "0")


async def test_s8_what_is_stored_counts_while_it_is_measured() -> None:
    store = Held()
    stock = Stock(store.measure, 3000)
    stock.grow("k", 3000)
    store.going.clear()
    measuring = asyncio.create_task(stock.measure())
    await until(lambda: store.calls == 1)
    with pytest.raises(HttpError):
        stock.check("k")
    store.going.set()
    await measuring
    stock.check("k", 2999)


async def test_s8_one_worker_measures_and_all_refuse_a_key_at_its_limit(
    server: OwnRedis, own: redis.Redis
) -> None:
    store = Held()
    store.sizes = {"k": 3000, "l": 10} | {f"key-{n}": n for n in range(5000)}
    async with fleet(server, store, 4) as workers:
        for each in workers:
            await each.look()
            with pytest.raises(HttpError):
                each.stock.check("k")
            each.stock.check("l", 2989)
            assert each.stock.of("key-4999") == 4999
        assert store.calls == 1
        assert 0 < own.pttl(KEY) <= 120_000


async def test_s8_workers_of_other_stores_measure_theirs(server: OwnRedis, own: redis.Redis) -> None:
    one, other = Held(), Held()
    one.sizes, other.sizes = {"k": 1}, {"k": 2}
    async with fleet(server, one, 1) as (first,), fleet(server, other, 1, store="t") as (second,):
        assert [await first.look(), await second.look()] == [1, 2]


async def test_s8_what_is_stored_after_the_beginning_of_anothers_measurement_is_not_forgotten(
    own: redis.Redis, pair: Pair
) -> None:
    _, one, other = pair
    other.store(100)
    assert await one.look() == 100
    assert await other.look() == 200  # it can't know that this is in the first measurement
    pass_time(own)
    async with one.measuring():
        other.store(10)
        assert await other.look() == 210
        other.store(1)
    assert [one.stock.of("k"), await other.look()] == [100, 111]  # each once
    pass_time(own)
    assert [await one.look(), await other.look()] == [111, 111]


async def test_s8_a_worker_that_dies_while_it_measures_is_followed_by_another(
    own: redis.Redis, pair: Pair
) -> None:
    store, one, other = pair
    one.store(7)
    other.store(5)
    async with one.measuring() as looking:
        looking.cancel()
    assert await other.look() == 5
    assert store.calls == 1  # its lease lasts
    pass_time(own)
    assert await other.look() == 12
    assert store.calls == 2


async def test_s8_a_worker_that_measures_for_long_keeps_its_turn(server: OwnRedis, own: redis.Redis) -> None:
    store = Held()
    async with fleet(server, store, heartbeat=0.01) as (one, other):
        async with one.measuring():
            own.hset(KEY, "at", "1")
            await until(lambda: own.hget(KEY, "at") != b"1")
            await other.look()
        assert store.calls == 1
        store.sizes["k"] = 5
        assert await other.look() == 0


@pytest.mark.parametrize("emptied", [True, False])
async def test_s8_two_that_measure_at_once_have_both_measured_and_the_later_one_is_published(
    server: OwnRedis, own: redis.Redis, emptied: bool
) -> None:
    store = Held()
    async with fleet(server, store, 3) as (one, other, third):
        one.store(7)
        async with one.measuring():
            if emptied:
                own.flushall()
            else:
                pass_time(own)
            other.store(5)
            async with other.measuring():
                one.store(1)
                other.store(2)
            assert other.stock.of("k") == 14
        assert one.stock.of("k") == 8  # what was measured first, and what it has stored since
        assert await third.look() == 12
        await other.look()
        pass_time(own)
        assert [await each.look() for each in (one, other, third)] == [15, 15, 15]


async def test_s8_a_worker_without_redis_measures_and_takes_nothing_older_than_that(
    own: redis.Redis, pair: Pair
) -> None:
    store, one, other = pair
    await other.look()
    pass_time(own)
    async with one.measuring():
        other.store(5)
        other.redis.alone = True
        other.stock._due = 0.0
        assert [await other.look(), store.calls] == [5, 3]
        other.redis.alone = False
        other.store(1)
    assert one.stock.of("k") == 0
    assert [await other.look(), await other.look()] == [6, 6]  # the first one's measurement has neither
    pass_time(own)
    assert [await one.look(), await other.look()] == [6, 6]


async def test_s8_without_redis_the_pause_between_measurements_is_kept(pair: Pair) -> None:
    store, one, other = pair
    await one.look()
    await other.look()
    other.redis.alone = True
    await other.look()
    assert store.calls == 1


async def test_s8_an_older_number_is_not_taken_and_the_next_one_is_higher(
    own: redis.Redis, pair: Pair
) -> None:
    """Redis has lost its data, and its clock was set back."""
    _, one, other = pair
    other.store(9)
    ahead = 10**14
    own.hset(KEY, mapping={"begun": ahead, "published": ahead, "result": '{"k": 9}', "for": 60_000})
    own.hset(KEY, "at", str(round(time.time() * 1000) - 1000))
    assert await other.look() == 18
    own.flushall()
    one.store(1)
    assert await one.look() == 10
    assert await other.look() == 18
    pass_time(own)
    assert await one.look() == 10
    assert int(own.hget(KEY, "published") or 0) > ahead
    assert await other.look() == 10


async def test_s8_a_worker_numbers_its_measurement_above_those_that_it_has(
    own: redis.Redis, pair: Pair
) -> None:
    store, one, other = pair
    for ahead in (10**14, 10**14 + 1):
        await one.look()
        own.hset(KEY, mapping={"begun": ahead, "published": ahead})
        await other.look()
        own.flushall()
        store.sizes["k"] = ahead
        assert [await other.look(), await one.look()] == [ahead, ahead]
        assert int(own.hget(KEY, "begun") or 0) > ahead


async def test_s8_a_clock_of_redis_that_was_set_back_stops_no_measurement(
    own: redis.Redis, pair: Pair
) -> None:
    store, one, other = pair
    await one.look()
    own.hset(KEY, mapping={"at": 10**14})
    store.sizes["k"] = 4
    assert await other.look() == 4


@pytest.mark.parametrize("result", ["", "[", '{"k": "x"}', "[1]"])
async def test_s8_what_can_not_be_shared_is_measured_by_each(
    own: redis.Redis, pair: Pair, result: str
) -> None:
    store, one, other = pair
    store.sizes["k"] = 4
    await one.look()
    own.hset(KEY, mapping={"result": result})
    assert [await other.look(), await other.look()] == [4, 4]
    assert store.calls == 2


async def test_s8_more_keys_than_can_be_shared_are_measured_by_each(own: redis.Redis, pair: Pair) -> None:
    store, one, other = pair
    store.sizes = {f"{n:060}": 1 for n in range(20_000)} | {"k": 4}
    assert await one.look() == 4
    assert own.hstrlen(KEY, "result") == 0
    assert [await other.look(), store.calls] == [4, 2]


async def test_s8_a_store_that_fails_forgets_nothing_and_is_tried_again_by_whoever_has_the_turn(
    server: OwnRedis, own: redis.Redis
) -> None:
    class FailingHeld(Held):
        down = True

        async def measure(self) -> dict[str, int]:
            sizes = await super().measure()
            if self.down:
                raise StoreError(StoreError.UNAVAILABLE, "The session store can't be reached.")
            return sizes

    store = FailingHeld()
    async with fleet(server, store) as (one, other):
        for turn in range(20):
            one.store(1)
            other.store(2)
            for each in (one, other)[:: -1 if turn % 2 else 1]:
                await each.look()
            pass_time(own)
            assert len(other.stock._apart) <= 3
        assert [one.stock.of("k"), other.stock.of("k")] == [20, 40]
        store.down = False
        assert [await one.look(), await other.look()] == [60, 60]


@pytest.mark.parametrize("seed", range(4))
async def test_s8_nothing_is_forgotten_nor_counted_twice_for_long_whatever_happens(
    server: OwnRedis, own: redis.Redis, seed: int
) -> None:
    """Workers store, look, measure for shorter or longer than their lease, die and come, know nothing of
    Redis, and Redis is emptied, all at random."""
    rng = random.Random(seed)

    class SlowHeld(Held):
        async def measure(self) -> dict[str, int]:
            sizes = await super().measure()
            await asyncio.sleep(rng.choice((0.0, 0.0, 0.002, 0.01)))
            return sizes

    store = SlowHeld()
    async with fleet(server, store, 4, interval=0.0, lease=0.005, heartbeat=1000.0) as workers:
        looking: dict[Worker, asyncio.Task[int]] = {}
        for _ in range(600):
            each = rng.choice(workers)
            each.redis.alone = rng.random() < 0.05
            if each not in looking or looking[each].done():
                looking[each] = asyncio.create_task(each.look())
            elif rng.random() < 0.05:  # it dies, and another one comes
                looking.pop(each).cancel()
                each.stock = Stock(store.measure, 3000, 0.0, store="s", others=each.others)
                each.stored = 0
            if rng.random() < 0.02:
                own.flushall()
            await asyncio.sleep(rng.choice((0.0, 0.0, 0.001, 0.003)))
            rng.choice(workers).store(rng.randrange(1, 1000))
            assert all(each.stock.of("k") >= each.stored for each in workers)
            assert all(len(each.stock._apart) <= 3 for each in workers)
        await asyncio.wait(looking.values())
        for each in workers:
            each.redis.alone = False
            each.stock._interval = 60.0
            await each.look()
        pass_time(own)
        calls = store.calls
        assert [await each.look() for each in workers] == [store.sizes["k"]] * 4
        assert store.calls == calls + 1

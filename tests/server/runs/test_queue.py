"""The queue of runs that wait for a worker, and the words between workers, when something is lost or
does not answer."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator

import pytest
import redis

from openresponses_bridge import ResponseStreamStateMachine
from openresponses_server.limits.gate import Gate
from openresponses_server.runs.queue import RunQueue
from openresponses_server.runs.settle import Settler
from openresponses_server.runs.signals import RedisSignals
from openresponses_server.runs.support import RunSupport
from openresponses_server.settings import Limits, Settings
from openresponses_server.store.base import NOBODY, Lease, StoredResponse, StoreError
from openresponses_server.store.logs.base import LogError
from openresponses_server.store.logs.memory import MemoryLog
from openresponses_server.store.memory import MemoryStore
from openresponses_server.store.writers import WAITING
from openresponses_server.tasks import end_tasks
from tests.support.services import OwnRedis, own_redis
from tests.support.waiting import until


@pytest.fixture(scope="module")
def server() -> Iterator[OwnRedis]:
    with own_redis() as started:
        yield started


@pytest.fixture
async def silent() -> AsyncIterator[str]:
    """The URL of a Redis that accepts connections and never answers."""
    writers = []

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(OSError):
            while await reader.read(65536):
                pass

    listening = await asyncio.start_server(swallow, "127.0.0.1", 0)
    yield f"redis://127.0.0.1:{listening.sockets[0].getsockname()[1]}/0"
    listening.close()
    for writer in writers:
        writer.close()


class Worker:
    """One worker's share of a store and a queue. Its runs take a place and stay."""

    def __init__(self, url: str, store: MemoryStore, places: int = 1) -> None:
        self.store = store
        self.taken: list[str] = []
        self.asked = 0
        self.gate = Gate(Limits(concurrent=places))
        self.places = contextlib.AsyncExitStack()
        self.queue = RunQueue(url, store.name, f"worker-{id(self)}", 10.0)
        self.settler = Settler(store, MemoryLog(), 10.0)
        self.settler.rerun = self._make

    async def _make(self, record: StoredResponse, _worker: str, _makings: int) -> None:
        self.taken.append(record.response.id)
        await self.places.enter_async_context(self.gate.slot(record.owner, waits=False))

    async def _take(self, response_id: str) -> None:
        self.asked += 1
        now = await self.store.now()
        record = await self.store.acquire(response_id, Lease("taker", now + 10), now)
        if record is not None:
            await self.settler.resume(record, "taker")

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.queue.serve(self._take, self.settler.resume_waiting, self.gate))
        try:
            yield
        finally:
            await end_tasks([task])
            await self.queue.close()


async def put_waiting(store: MemoryStore, count: int, since: float, owner: str = "") -> list[str]:
    """Responses that were queued `since` seconds ago."""
    ids = []
    for _ in range(count):
        machine = ResponseStreamStateMachine("m")
        lease = Lease(NOBODY, time.time() - since + WAITING)
        await store.put(StoredResponse(machine.snapshot, [], owner=owner, request=b"{}", lease=lease))
        ids.append(machine.response_id)
    return ids


async def test_idle_worker_finds_what_lost_its_entry(server: OwnRedis) -> None:
    store = MemoryStore()
    ids = await put_waiting(store, 3, since=5.0)
    worker = Worker(server.url, store, places=10)
    async with worker.serving():
        await until(lambda: len(worker.taken) == 3)
    assert sorted(worker.taken) == sorted(ids)


async def test_what_lost_its_entry_is_found_while_other_entries_come(server: OwnRedis) -> None:
    store = MemoryStore()
    worker = Worker(server.url, store)

    async def put_others() -> None:
        while True:
            await worker.queue.put("resp_other", "")
            await asyncio.sleep(0.01)

    async with worker.serving():
        others = asyncio.create_task(put_others())
        try:
            await until(lambda: worker.asked > 10)
            ids = await put_waiting(store, 1, since=5.0)
            await until(lambda: worker.taken == ids)
        finally:
            await end_tasks([others])


async def test_what_another_worker_left_is_not_looked_for_with_each_entry(server: OwnRedis) -> None:
    worker = Worker(server.url, MemoryStore())
    for _ in range(50):
        await worker.queue.put("resp_other", "")
    with redis.Redis.from_url(server.url) as admin:
        admin.config_resetstat()
        async with worker.serving():
            await until(lambda: worker.asked == 50)
        stats = admin.info("commandstats")
    assert stats["cmdstat_xreadgroup"]["calls"] >= 50
    assert stats["cmdstat_xautoclaim"]["calls"] < 10


async def test_what_lost_its_entry_is_found_without_redis(server: OwnRedis) -> None:
    store = MemoryStore()
    await put_waiting(store, 1, since=5.0)
    worker = Worker("redis://127.0.0.1:1/0", store)
    async with worker.serving():
        await until(lambda: len(worker.taken) == 1)


async def test_what_waits_for_the_queue_is_left_to_it(server: OwnRedis) -> None:
    store = MemoryStore()
    await put_waiting(store, 1, since=0.0)
    worker = Worker(server.url, store)
    assert not await worker.settler.resume_waiting()
    await worker.queue.close()
    assert worker.taken == []


async def test_worker_takes_no_more_than_it_has_places(server: OwnRedis) -> None:
    """A long queue stays for all."""
    store = MemoryStore()
    await put_waiting(store, 9, since=30.0)
    workers = [Worker(server.url, store, places) for places in (1, 2, 3)]
    async with contextlib.AsyncExitStack() as stack:
        for worker in workers:
            await stack.enter_async_context(worker.serving())
        await until(lambda: all(worker.gate.runs.full for worker in workers))
        await asyncio.sleep(0.2)
        assert [len(worker.taken) for worker in workers] == [1, 2, 3]
    waiting = await store.claim_waiting(Lease("last", 0.0), time.time() + 60, limit=9)
    assert [each.response.status for each in waiting] == ["queued"] * 3


async def test_workers_of_another_store_leave_the_queue_alone(server: OwnRedis) -> None:
    """Two deployments may share one Redis; what one can't make it must not take."""
    store = MemoryStore()
    stranger, own = Worker(server.url, MemoryStore()), Worker(server.url, store)
    (response_id,) = await put_waiting(store, 1, since=-60.0)  # found by its entry alone
    async with stranger.serving():
        await own.queue.put(response_id, "")
        await asyncio.sleep(0.2)
        async with own.serving():
            await until(lambda: own.taken == [response_id])
    assert stranger.taken == []


async def test_request_does_not_wait_for_a_queue_that_is_silent(silent: str) -> None:
    queue = RunQueue(silent, "store", "w", 10.0)
    with pytest.raises(LogError):
        await queue.put("r", "")
    await queue.close()


async def test_cancelling_does_not_wait_for_a_redis_that_is_silent(silent: str) -> None:
    signals = RedisSignals(silent, "me")
    assert not await signals.cancel("r", "other-1")
    await signals.close()


async def test_deletion_waits_shortly_for_a_log_that_is_silent_and_is_done_later(silent: str) -> None:
    runs = RunSupport(Settings(), MemoryStore())
    answers = asyncio.Event()
    discarded: list[str] = []

    class Slow(MemoryLog):
        async def discard(self, run_id: str) -> None:
            await answers.wait()
            discarded.append(run_id)

    runs.event_log = Slow()
    await runs.discard("r")
    assert discarded == []
    answers.set()
    await until(lambda: discarded == ["r"])


async def test_listener_survives_a_cancel_that_fails(server: OwnRedis) -> None:
    signals = RedisSignals(server.url, "me")
    heard: list[str] = []

    def on_cancel(response_id: str) -> None:
        heard.append(response_id)
        if response_id == "bad":
            raise RuntimeError("it fails")

    listening = asyncio.create_task(signals.listen(on_cancel))
    with redis.Redis.from_url(server.url) as admin:
        await until(lambda: admin.publish("openresponses-bridge:cancel", "bad") == 1)
        await until(lambda: "bad" in heard)
        assert admin.publish("openresponses-bridge:cancel", "good") == 1
        await until(lambda: "good" in heard)
        assert not listening.done()
        admin.publish("openresponses-bridge:cancel", b"\xff")
        admin.publish("openresponses-bridge:cancel", "better")
        await until(lambda: "better" in heard)
    await end_tasks([listening])
    await signals.close()


async def test_cancel_is_sent_to_the_process_that_makes_it_or_else_to_all(server: OwnRedis) -> None:
    """To all is how workers of an earlier version hear it."""
    names = ("one", "two")
    signals = {name: RedisSignals(server.url, name) for name in names}
    heard: dict[str, list[str]] = {name: [] for name in names}
    listening = [asyncio.create_task(signals[name].listen(heard[name].append)) for name in names]
    with redis.Redis.from_url(server.url) as admin:
        await until(lambda: admin.pubsub_numsub("openresponses-bridge:cancel")[0][1] == 2)
    assert await signals["one"].cancel("first", "two-17")
    assert await signals["one"].cancel("second", "earlier-3")
    await until(lambda: all("second" in each for each in heard.values()))
    assert heard == {"one": ["second"], "two": ["first", "second"]}
    await end_tasks(listening)
    for each in signals.values():
        await each.close()


async def test_s8_a_key_at_its_limit_does_not_hold_up_those_behind_it(server: OwnRedis) -> None:
    store = MemoryStore()
    worker = Worker(server.url, store)
    worker.gate = Gate(Limits(concurrent=4, concurrent_per_key=2))
    ids = await put_waiting(store, 6, since=0.0, owner="greedy")
    ids += await put_waiting(store, 1, since=0.0, owner="modest")
    for response_id in ids[:-1]:
        await worker.queue.put(response_id, "greedy")
    await worker.queue.put(ids[-1], "modest")
    async with worker.serving():
        await until(lambda: len(worker.taken) == 3)
    assert worker.taken == [*ids[:2], ids[-1]]
    assert await store.waiting("greedy", 10) == (4, 4)
    assert not await worker.settler.resume_waiting(["greedy"])


async def test_a_long_queue_is_claimed_side_by_side(server: OwnRedis) -> None:
    """A claim waits for the store: one that has to wait does not hold up those behind it, and one that fails
    is made again."""
    store = MemoryStore()
    worker = Worker(server.url, store, places=4)
    slow, *others = await put_waiting(store, 4, since=0.0)
    released = asyncio.Event()
    failures = [StoreError(StoreError.UNAVAILABLE, "down")]

    async def claim(response_id: str) -> None:
        if response_id == slow:
            await released.wait()
        elif response_id == others[-1] and failures:
            raise failures.pop()
        await worker._take(response_id)

    for response_id in (slow, *others):
        await worker.queue.put(response_id, "")
    worker.queue._idle = 100  # ms
    serving = asyncio.create_task(worker.queue.serve(claim, worker.settler.resume_waiting, worker.gate))
    await until(lambda: worker.taken == others[:-1])
    released.set()
    await until(lambda: sorted(worker.taken) == sorted([slow, *others]))
    await end_tasks([serving])
    await worker.queue.close()

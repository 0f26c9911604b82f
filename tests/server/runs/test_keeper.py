"""`Keeper`: a run is kept for as long as it lasts, however long its last item takes (laws S1, S2)."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from io import StringIO
from types import SimpleNamespace
from typing import cast

import pytest

from openresponses_bridge import ResponseStreamStateMachine
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.input_items import MessageParam
from openresponses_server.runs.keeper import Keeper
from openresponses_server.runs.run import ActiveRuns, Run
from openresponses_server.store.base import Lease, StoredConversation, StoredResponse, StoreError
from openresponses_server.store.frames import Frames
from openresponses_server.store.idempotency import IdempotencyKey
from openresponses_server.store.logs.memory import MemoryLog
from openresponses_server.store.memory import MemoryStore
from openresponses_server.store.persistence import RecordOptions, ResponseSessionPersistenceTransformer
from openresponses_server.store.records import Row
from openresponses_server.store.writers import StoringTimes
from openresponses_server.tasks import end_tasks
from tests.support.failing_store import FailingStore, as_store
from tests.support.waiting import until

INTERVAL = 1.0  # seconds of the bench's clock
LEASE = 4.0
TURN = 0.01  # real seconds between two looks of the keeper


class Store(MemoryStore):
    """Notes which leases were renewed together, and fails as the test sets it; how often it did."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock=clock)
        self.renewed: list[set[str]] = []
        self.refused = 0
        self.down = False
        self.full = False

    async def put(self, record: StoredResponse, frames: Frames | None = None) -> None:
        if self.full:
            raise StoreError(StoreError.FULL, "Full.")
        await super().put(record, frames)

    async def renew(self, held: Mapping[str, str], until: float) -> set[str]:
        if self.down:
            self.refused += 1
            raise StoreError(StoreError.UNAVAILABLE, "Down.")
        self.renewed.append(set(held))
        return await super().renew(held, until)


class Bench:
    """A run whose first item is finished and stored, and the keeper at work. Time stands unless a test
    moves it."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.machine = ResponseStreamStateMachine("m")
        self.store = Store(clock=lambda: self.now)
        self.keeper = Keeper(self.store, 2 * TURN, LEASE, lambda: self.now)
        self.passed = -1
        self.lost = 0
        self.kept = ResponseSessionPersistenceTransformer(
            StoredResponse(self.machine.snapshot, []),
            lambda: self.machine.snapshot,
            self.store,
            MemoryLog(),
            "worker-1",
            StoringTimes(interval=INTERVAL, lease=LEASE, clock=lambda: self.now),
            RecordOptions(wake=self.keeper.wake),
        )

    async def begin(self) -> None:
        self.keeper.add(self.kept, self.on_lost)
        await self.take(self.machine.start() + self.machine.text("First"))
        await self.take(self.machine.block_done())
        await until(lambda: self.stored == self.passed)  # a finished item is stored at once

    async def take(self, events: list[Event]) -> None:
        await self.kept.persist(events)
        self.passed = self.kept.batch.last

    def on_lost(self) -> None:
        self.lost += 1

    async def record(self) -> StoredResponse:
        entry = await self.store.get(self.machine.response_id)
        assert entry is not None
        return entry

    @property
    def row(self) -> Row:
        record = self.store._records.get(self.machine.response_id)
        assert record is not None
        return record.row

    @property
    def stored(self) -> int:
        return self.row.last_sequence

    @property
    def lease_until(self) -> float | None:
        return self.row.lease_until


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    instance = Bench()
    clock = SimpleNamespace(monotonic=lambda: instance.now)
    monkeypatch.setattr("openresponses_server.runs.keeper.time", clock)
    keeping = asyncio.create_task(instance.keeper.make_checkpoints())
    await instance.begin()
    yield instance
    await end_tasks([keeping])


async def test_s1_run_is_checkpointed_every_interval_after_its_last_finished_item(bench: Bench) -> None:
    first_lease = bench.lease_until
    assert first_lease is not None
    for number in range(6):
        before = bench.stored
        await bench.take(bench.machine.text(f" {number}"))
        await asyncio.sleep(3 * TURN)
        assert bench.stored == before  # the interval is not over
        bench.now += INTERVAL
        await until(lambda: bench.stored == bench.passed)
        record = await bench.record()
        assert (record.response.status, record.lease) == ("in_progress", Lease("worker-1", bench.now + LEASE))
        assert record.response.output_text.endswith(f" {number}")
    assert bench.now > first_lease


async def test_s1_lease_of_a_quiet_run_is_renewed_beyond_its_first_length(bench: Bench) -> None:
    stored, first_lease = bench.stored, bench.lease_until
    assert first_lease is not None
    while bench.now <= first_lease + LEASE:
        bench.now += LEASE / 4
        await bench.keeper.renew()
        assert bench.lease_until == bench.now + LEASE
        assert await bench.store.claim_orphans(Lease("other", bench.now + LEASE), bench.now) == []
    assert bench.stored == stored


async def test_s1_leases_are_renewed_by_themselves_and_after_an_outage(bench: Bench) -> None:
    keeper = Keeper(bench.store, 2 * TURN, 2 * TURN)
    keeper.add(bench.kept, bench.on_lost)
    renewing = asyncio.create_task(keeper.renew_leases())
    try:
        await until(lambda: len(bench.store.renewed) > 1)
        bench.store.down = True
        await until(lambda: bench.store.refused > 0)
        bench.store.down, times = False, len(bench.store.renewed)
        await until(lambda: len(bench.store.renewed) > times)
    finally:
        renewing.cancel()


async def test_s1_leases_that_a_slow_store_renewed_too_late_are_renewed_again(bench: Bench) -> None:
    renew = bench.store.renew

    async def slow(held: Mapping[str, str], until: float) -> set[str]:
        if not bench.store.renewed:
            bench.now += 3 * LEASE
        return await renew(held, until)

    bench.store.renew = slow  # type: ignore[method-assign]
    await bench.keeper.renew()
    assert bench.lease_until == bench.now + LEASE
    assert len(bench.store.renewed) == 2


async def test_s1_leases_of_all_runs_are_renewed_in_one_call(bench: Bench) -> None:
    others = [Bench() for _ in range(2)]
    for other in others:
        other.store, other.kept._record._store = bench.store, bench.store
        await other.take(other.machine.start())
        bench.keeper.add(other.kept, other.on_lost)
    await others[0].take(others[0].machine.finish())
    await bench.keeper.renew()
    assert bench.store.renewed == [{bench.machine.response_id, others[1].machine.response_id}]


async def test_renewals_that_many_ask_for_meanwhile_are_one(bench: Bench) -> None:
    renew = bench.store.renew

    async def slowly(leases: Mapping[str, str], until: float) -> set[str]:
        await asyncio.sleep(0)
        bench.now += 0.1
        return await renew(leases, until)

    bench.store.renew = slowly  # type: ignore[method-assign]
    await asyncio.gather(*(bench.keeper.renew() for _ in range(20)))
    assert len(bench.store.renewed) == 2  # the one that was under way, and one for all others


async def test_s1_run_that_another_worker_has_settled_is_reported_by_the_renewal(bench: Bench) -> None:
    bench.now += LEASE + 1
    (taken,) = await bench.store.claim_orphans(Lease("other", bench.now + LEASE), bench.now)
    await bench.keeper.renew()
    await until(lambda: bench.lost > 0)
    assert (await bench.record()).lease == taken.lease


async def test_run_that_ends_while_its_lease_is_renewed_is_not_taken_for_lost(bench: Bench) -> None:
    renew = bench.store.renew

    async def ended_meanwhile(leases: Mapping[str, str], until: float) -> set[str]:
        await bench.take(bench.machine.finish())
        return await renew(leases, until)

    bench.store.renew = ended_meanwhile  # type: ignore[method-assign]
    await bench.keeper.renew()
    await bench.keeper.make_due_checkpoints()
    assert bench.kept.saved
    assert bench.lost == 0


async def test_s1_run_whose_response_was_deleted_is_lost_once(bench: Bench) -> None:
    """It need not go on: nothing of it can be stored."""
    await bench.store.delete(bench.machine.response_id)
    bench.keeper.recheck(bench.machine.response_id)
    await bench.take(bench.machine.text("more"))
    await until(lambda: bench.lost > 0)
    bench.now += INTERVAL + LEASE
    await asyncio.sleep(3 * TURN)
    assert bench.lost == 1


async def test_s1_run_that_was_broken_off_is_left_to_be_settled(bench: Bench) -> None:
    """Its lease is not renewed any more."""
    bench.keeper.remove(bench.kept, ended=False)
    bench.now += LEASE + 1
    await bench.keeper.renew()
    (taken,) = await bench.store.claim_orphans(Lease("other", bench.now + LEASE), bench.now)
    assert taken.response.id == bench.machine.response_id


async def test_run_whose_beginning_was_refused_is_not_kept(bench: Bench) -> None:
    """Nothing of it was sent, so that there is no end to store when there is room again."""
    refused = Bench()
    refused.store.full = True
    bench.keeper.add(refused.kept, refused.on_lost)
    with pytest.raises(StoreError):
        await refused.take(refused.machine.start())
    bench.keeper.remove(refused.kept, ended=True)
    assert {each for each, _ in bench.keeper._kept} == {bench.machine.response_id}


async def test_s1_a_run_that_came_back_under_its_id_is_kept_beside_its_first_attempt(bench: Bench) -> None:
    """This process lost a run, and acquired it again while the first attempt still ends."""
    machine, lost = bench.machine, bench.kept
    again = ResponseSessionPersistenceTransformer(
        StoredResponse(machine.snapshot, []),
        lambda: machine.snapshot,
        bench.store,
        MemoryLog(),
        "worker-2",
        StoringTimes(interval=INTERVAL, lease=LEASE, clock=lambda: bench.now),
        RecordOptions(stored=True),
    )
    bench.now += LEASE + 1
    await bench.store.claim_orphans(Lease("worker-2", bench.now + LEASE), bench.now)
    bench.keeper.remove(lost, ended=True)  # whose end is not stored yet
    bench.keeper.add(again, bench.on_lost)
    bench.keeper.remove(lost, ended=False)
    bench.now += LEASE / 2
    await bench.keeper.renew()
    assert bench.lease_until == bench.now + LEASE
    bench.keeper.remove(again, ended=False)
    await bench.keeper.make_due_checkpoints()
    assert not bench.keeper._kept


@pytest.mark.parametrize("at_end", [True, False])
async def test_s1_a_refused_request_has_no_response_that_succeeded(at_end: bool) -> None:
    """The store has made the beginning, of which its answer was lost, so that the client knows of none."""
    bench, store = Bench(), FailingStore()
    keeper = Keeper(as_store(store), 2 * TURN, LEASE, lambda: bench.now)
    conversation = StoredConversation("conv_a", "", 1.0, None, b"{}")
    await store.conversations.create(conversation, [])
    machine = ResponseStreamStateMachine("m")
    persistence = ResponseSessionPersistenceTransformer(
        StoredResponse(machine.snapshot, [MessageParam("user", "Hello?")], conversation="conv_a"),
        lambda: machine.snapshot,
        as_store(store),
        MemoryLog(),
        "worker-1",
        StoringTimes(timeout=0.0, certainty=0.0, clock=lambda: bench.now),
        RecordOptions(),
    )
    persistence.sends_only_at_end = at_end
    keeper.add(persistence, bench.on_lost)
    store.mute = {"put"}
    if at_end:
        sent = await persistence.persist(machine.start() + machine.text("Hello") + machine.finish("stop"))
        assert sent[-1].type == "response.failed"
    else:
        with pytest.raises(StoreError):
            await persistence.persist(machine.start() + machine.text("Hello"))
    assert await store.kept.get(machine.response_id) is not None
    keeper.remove(persistence, ended=at_end)
    await keeper.make_due_checkpoints()
    store.mute = set()
    bench.now += INTERVAL
    await keeper.make_due_checkpoints()
    record = await store.kept.get(machine.response_id)
    assert record is not None
    assert (record.response.status, record.lease) == ("failed", None)
    assert await store.conversations.items("conv_a", "") == []
    stored = b"".join([each.data async for each in store.kept.frames(machine.response_id)])
    assert stored.count(b"event: response.failed") == 1
    assert not keeper._kept


@pytest.mark.parametrize("arrived", [True, False])
async def test_s1_a_refused_request_keeps_its_key_from_nobody(arrived: bool) -> None:
    """Whether the store made its beginning or not; another request may have the key by then."""
    bench, store, key = Bench(), FailingStore(), IdempotencyKey("a" * 64, "b" * 64, 4e9)
    keeper = Keeper(as_store(store), 2 * TURN, LEASE, lambda: bench.now)
    persistence = ResponseSessionPersistenceTransformer(
        StoredResponse(bench.machine.snapshot, []),
        lambda: bench.machine.snapshot,
        as_store(store),
        MemoryLog(),
        "worker-1",
        StoringTimes(timeout=0.0, clock=lambda: bench.now),
        RecordOptions(key=key),
    )
    store.mute = {"put"}
    with pytest.raises(StoreError):
        await persistence.queue()
    store.mute = set()
    if not arrived:
        await store.kept.delete(bench.machine.response_id)
        await store.kept.put(StoredResponse(ResponseStreamStateMachine("m").snapshot, []), key=key)
    keeper.retract(persistence)
    await keeper.make_due_checkpoints()
    record = await store.kept.get(bench.machine.response_id)
    assert record is not None
    assert (record.response.status, record.lease) == ("failed", None)
    assert (await store.kept.keyed(key.name) is None) is arrived
    assert not keeper._kept


def test_a_run_that_ends_is_not_removed_for_another_of_its_response() -> None:
    running, first, second = ActiveRuns(), cast(Run, object()), cast(Run, object())
    running.add("resp_1", "", first)
    running.add("resp_1", "", second)
    running.remove("resp_1", first)
    assert running.find("resp_1") is second
    running.remove("resp_1", second)
    running.remove("resp_1", second)
    assert len(running) == 0


async def test_s1_end_of_a_run_that_was_never_stored_does_not_stop_the_keeper(bench: Bench) -> None:
    """One that is over with its first batch is never added, and there is nothing to make up for."""
    machine = ResponseStreamStateMachine("m")
    short = ResponseSessionPersistenceTransformer(
        StoredResponse(machine.snapshot, []),
        lambda: machine.snapshot,
        bench.store,
        MemoryLog(),
        "worker-2",
        StoringTimes(),
        RecordOptions(),
    )
    bench.keeper.remove(short, ended=True)
    await bench.keeper.make_due_checkpoints()
    await bench.keeper.drain()


async def test_failure_of_a_run_is_one_short_line_whatever_the_run_holds(logs: StringIO) -> None:
    async def fail() -> None:
        output = ["word"] * 1_000_000
        raise RuntimeError(f"It failed after {len(output)} words.")

    task = Bench().keeper.start(fail())
    await asyncio.wait([task])
    line = logs.getvalue()
    assert len(line) < 2_000
    assert json.loads(line)["event"] == "run.internal_error"
    assert "after 1000000 words" in line

"""Writes that share a transaction: each has its own outcome, as if it were written alone (laws S1, S9)."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from openresponses_server.store.base import WRITTEN_TOGETHER, Lease, LeaseLost, ResponseStore, StoreError
from openresponses_server.store.frames import PIECE_BYTES, Frames
from openresponses_server.store.memory import MemoryStore
from openresponses_server.store.sql.grouping import GroupedWrites
from openresponses_server.store.sql.store import SqlStore
from openresponses_server.store.sql.writes import RunChanges, Write
from tests.support.stores import Place, frames, record, streamed
from tests.support.waiting import until

RUNS = 40


def write(name: str, data: bytes = b"x") -> Write:
    changes = RunChanges(of_id=name, of_worker="w", updated_at=1.0, lease_until=2.0)
    return Write(changes, Frames(0, 0, data))


class Recorded:
    """A database that says which writes came together. Those of `failing` fail, and with them their
    transaction; `gate` lets transactions end."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.failing: set[str] = set()
        self.cancelled = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def run(self, writes: Sequence[Write]) -> list[bool]:
        names = [each.response_id for each in writes]
        self.groups.append(names)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.failing & set(names):
            raise StoreError(StoreError.FAILED, "refused")
        return [not name.startswith("lost") for name in names]


async def test_a_transaction_that_ignores_its_cancellation_does_not_take_the_place_of_others() -> None:
    """As the driver does until a server, which may stand still, has confirmed the first one."""
    ignored: list[str] = []

    async def run(writes: Sequence[Write]) -> list[bool]:
        if writes[0].response_id == "stuck":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ignored.append("stuck")
            await asyncio.Event().wait()
        return [True for _ in writes]

    grouped = GroupedWrites(run, 1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await grouped.execute(write("stuck"))
    assert await grouped.execute(write("next"))
    assert ignored == ["stuck"]


async def test_writes_of_one_moment_are_one_transaction() -> None:
    database = Recorded()
    grouped = GroupedWrites(database.run, 1)
    results = await asyncio.gather(*(grouped.execute(write(name)) for name in ("a", "lost", "b")))
    assert results == [True, False, True]
    assert database.groups == [["a", "lost", "b"]]
    assert await grouped.execute(write("c"))
    assert database.groups[1:] == [["c"]]


async def test_what_comes_while_all_transactions_are_under_way_goes_together() -> None:
    database = Recorded()
    grouped = GroupedWrites(database.run, 2)
    database.gate.clear()
    tasks = []
    for name in "abcde":
        tasks.append(asyncio.create_task(grouped.execute(write(name))))
        await asyncio.sleep(0.01)
    assert database.groups == [["a"], ["b"]]
    database.gate.set()
    assert all(await asyncio.gather(*tasks))
    assert database.groups[2:] == [["c", "d", "e"]]


async def test_transactions_are_bounded() -> None:
    database = Recorded()
    grouped = GroupedWrites(database.run, 1)
    names = [f"r{number}" for number in range(WRITTEN_TOGETHER + 3)]
    await asyncio.gather(*(grouped.execute(write(name)) for name in names))
    assert database.groups == [names[:WRITTEN_TOGETHER], names[WRITTEN_TOGETHER:]]
    large = b"x" * 3_000_000
    await asyncio.gather(
        *(grouped.execute(write(name, large * (name == "b") * 4 or large)) for name in "abc")
    )
    assert database.groups[2:] == [["a"], ["b"], ["c"]]


async def test_two_writes_of_one_response_keep_their_order() -> None:
    database = Recorded()
    grouped = GroupedWrites(database.run, 1)
    await asyncio.gather(*(grouped.execute(write(name)) for name in "abaca"))
    assert database.groups == [["a", "b"], ["a", "c"], ["a"]]


async def test_one_that_fails_fails_alone() -> None:
    database = Recorded()
    database.failing = {"b"}
    grouped = GroupedWrites(database.run, 1)
    results: list[Any] = await asyncio.gather(
        *(grouped.execute(write(name)) for name in "abc"), return_exceptions=True
    )
    assert results[0::2] == [True, True]
    assert isinstance(results[1], StoreError)
    assert sorted(database.groups[1:]) == [["a"], ["b"], ["c"]]


async def test_failures_are_not_shared() -> None:
    """An exception that several raise would grow with each."""
    database = Recorded()
    database.failing = {"a", "b"}
    grouped = GroupedWrites(database.run, 1)
    first, second = await asyncio.gather(
        *(grouped.execute(write(name)) for name in "ab"), return_exceptions=True
    )
    assert isinstance(first, StoreError)
    assert isinstance(second, StoreError)
    assert first is not second


async def test_who_leaves_before_the_transaction_is_left_out() -> None:
    database = Recorded()
    grouped = GroupedWrites(database.run, 1)
    database.gate.clear()
    tasks = [asyncio.create_task(grouped.execute(write("a")))]
    await until(lambda: database.groups == [["a"]])
    tasks += [asyncio.create_task(grouped.execute(write(name))) for name in ("b", "c")]
    await asyncio.sleep(0)
    await _ended(tasks[1])
    database.gate.set()
    assert await tasks[0]
    assert await tasks[2]
    assert database.groups[1:] == [["c"]]


async def _ended(task: asyncio.Task[bool]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def test_transaction_goes_on_for_those_who_stay_and_ends_when_all_have_left() -> None:
    database = Recorded()
    grouped = GroupedWrites(database.run, 1)
    database.gate.clear()
    tasks = [asyncio.create_task(grouped.execute(write(name))) for name in "ab"]
    await until(lambda: database.groups == [["a", "b"]])
    await _ended(tasks[0])
    assert database.cancelled == 0
    await _ended(tasks[1])
    await until(lambda: database.cancelled == 1)
    database.gate.set()
    assert await grouped.execute(write("c"))


# --- databases ---------------------------------------------------------------------------------------------


@pytest.fixture
def sql(shared_place: Place) -> SqlStore:
    store = shared_place.open()
    assert isinstance(store, SqlStore)
    store._clock = lambda: 1_000.0
    return store


async def rows(store: ResponseStore) -> list[bytes]:
    return sorted([line async for line in store.export()])


def counted(store: SqlStore) -> list[int]:
    """How many writes each transaction had, from now on."""
    sizes: list[int] = []
    grouped = store._database._groups
    run = grouped._run

    async def noted(writes: Sequence[Write]) -> Sequence[bool]:
        sizes.append(len(writes))
        return await run(writes)

    grouped._run = noted
    return sizes


@pytest.mark.parametrize("seed", range(3))
async def test_s1_what_is_written_together_is_what_a_store_in_memory_holds(sql: SqlStore, seed: int) -> None:
    """Responses that begin, go on and end in any mixture of one moment, some of them another worker's, some
    with long frames, none of them with any."""
    chance = random.Random(seed)
    end = streamed("Hello")[0]
    memory = MemoryStore(clock=sql._clock)
    sizes = counted(sql)
    begun: list[str] = []
    last: dict[str, int] = {}
    for moment in range(6):
        calls: list[tuple[str, tuple[Any, ...]]] = []
        for name in [each for each in begun if chance.random() < 0.7]:
            worker = "w-1" if chance.random() < 0.9 else "w-2"
            new = None
            if chance.random() < 0.8:
                text = "x" * (2 * PIECE_BYTES + 5) if chance.random() < 0.1 else "x"
                new = frames(last[name] + 1, last[name] + 3, text)
                if worker == "w-1":
                    last[name] += 3
            response = replace(end, id=name, status="in_progress") if chance.random() < 0.5 else None
            if chance.random() < 0.2:
                calls.append(("finish", (name, worker, replace(end, id=name), new)))
                if worker == "w-1":
                    begun.remove(name)
            else:
                calls.append(("checkpoint", (name, Lease(worker, 100.0 + moment), response, new)))
        for number in range(20):
            name = f"r{moment}-{number}"
            has_ended = chance.random() < 0.3
            lease = None if has_ended else Lease("w-1", 50.0)
            turn = record(name, owner=chance.choice("kl"), lease=lease, created_at=5.5)
            calls.append(("put", (turn, frames(0, 2) if has_ended or chance.random() < 0.5 else None)))
            if not has_ended:
                begun.append(name)
                last[name] = 2
        chance.shuffle(calls)
        outcomes = []
        for store in (memory, sql):
            done = await asyncio.gather(
                *(getattr(store, method)(*arguments) for method, arguments in calls), return_exceptions=True
            )
            outcomes.append([type(each) for each in done])
        assert outcomes[0] == outcomes[1]
    assert LeaseLost in outcomes[0]
    assert max(sizes) > 10
    assert await rows(sql) == await rows(memory)


async def test_renewals_and_checkpoints_of_the_same_runs_do_not_block_each_other(sql: SqlStore) -> None:
    names = [f"r{number}" for number in range(RUNS)]
    await asyncio.gather(*(sql.put(record(name, lease=Lease("w-1", 50.0))) for name in names))
    leases = dict.fromkeys(names, "w-1")

    async def checkpoints(order: list[str]) -> None:
        for number in range(15):
            await asyncio.gather(
                *(sql.checkpoint(name, Lease("w-1", 60.0), None, frames(number, number)) for name in order)
            )

    async def renewals() -> None:
        for _ in range(30):
            assert await sql.renew(leases, 70.0) == set()

    backwards = names[: RUNS // 2][::-1], names[RUNS // 2 :][::-1]
    await asyncio.gather(renewals(), renewals(), *map(checkpoints, backwards))


async def test_what_a_database_refuses_of_one_does_not_keep_the_others_from_it(sql: SqlStore) -> None:
    names = [f"r{number}" for number in range(5)]
    await asyncio.gather(*(sql.put(record(name, lease=Lease("w-1", 50.0))) for name in names))
    impossible = Frames(2**63, 2**63, b"x")  # beyond a column
    done = await asyncio.gather(
        *(
            sql.checkpoint(name, Lease("w-1", 60.0), None, impossible if name == "r2" else frames(0, 1))
            for name in names
        ),
        return_exceptions=True,
    )
    assert [isinstance(each, Exception) for each in done] == [name == "r2" for name in names]
    records = [await sql.get(name) for name in names]
    assert [each.last_sequence for each in records if each is not None] == [1, 1, -1, 1, 1]

"""A process reads the managed keys that were changed, and nevertheless knows all of its store (law S7):
whoever has changed them, in whichever order, and also when the store went back to an earlier state."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import Connection, Engine, create_engine, delete, insert, select, text, update
from sqlalchemy.pool import NullPool

from openresponses_server.http.managed_keys import KeyBook, KeyChange, ManagedKey, hash_of, owner_of
from openresponses_server.limits.owners import KeyLimits, OwnerLimits
from openresponses_server.store.base import StoreError
from openresponses_server.store.keys import KEPT, KeyKeeper, KeyStore
from openresponses_server.store.sql import key_rows
from openresponses_server.store.sql.tables import api_keys, key_changes, key_history
from tests.support.clocks import Clock
from tests.support.scale import FACTOR
from tests.support.stores import Place

OWNERS = ("alice", "bob")
STEPS = 120
KEPT_OF_A_SCHEDULE = 6


def secret_of(key_id: str) -> str:
    return f"orb_{key_id}"


def made(key_id: str, owner: str = "alice", **fields: Any) -> ManagedKey:
    return ManagedKey(key_id, hash_of(secret_of(key_id)), "abcd", "n", owner, 1.0, **fields)


class Process:
    """What one process knows of the keys of a store; how many it has read, how often all of them and how
    often those that were changed."""

    def __init__(self, place: Place, clock: Clock | None = None) -> None:
        store = place.open()
        assert store.keys is not None
        self.store: KeyStore = store.keys
        self._limits = OwnerLimits()
        self.book = KeyBook(self._limits, clock or Clock(1000.0))
        self.keeper = KeyKeeper(self.book, self.store)
        self.read = self.wholes = self.parts = 0
        self._all, self._changed = self.store.all, self.store.changed
        self.store.all, self.store.changed = self._count_all, self._count_changed  # type: ignore[method-assign]

    async def _count_all(self) -> list[ManagedKey]:
        keys = await self._all()
        self.wholes += 1
        self.read += len(keys)
        return keys

    async def _count_changed(self, *between: Any) -> dict[str, ManagedKey | None] | None:
        changes = await self._changed(*between)
        self.parts += changes is not None
        self.read += len(changes or ())
        return changes

    async def look(self) -> tuple[int, int]:
        """How many keys it reads, and how often all."""
        before = self.read, self.wholes
        await self.keeper.look()
        return self.read - before[0], self.wholes - before[1]

    def accepts(self, key_id: str) -> bool:
        return self.book.access(secret_of(key_id)) is not None

    def known(self, key_ids: list[str]) -> list[object]:
        """All that a request with one of these keys can meet."""
        accesses = [self.book.access(secret_of(each)) for each in key_ids]
        return [each and (each.owner, each.models) for each in accesses] + [
            self._limits.of(owner_of(each)) for each in OWNERS
        ]


class Before:
    """The release before revision 0012 over the same database: what it executes."""

    def __init__(self, place: Place) -> None:
        self.engine: Engine = create_engine(place.url, poolclass=NullPool)

    @contextmanager
    def _changing(self) -> Iterator[Connection]:
        with self.engine.begin() as connection:
            connection.execute(
                text(
                    "INSERT INTO api_key_changes (id, number) VALUES (1, 1)"
                    " ON CONFLICT (id) DO UPDATE SET number = api_key_changes.number + 1"
                )
            )
            yield connection

    def add(self, *keys: ManagedKey) -> None:
        with self._changing() as connection:
            connection.execute(insert(api_keys), [key_rows._row(key) for key in keys])

    def change(self, key_id: str, change: KeyChange) -> None:
        with self._changing() as connection:
            changed = update(api_keys).where(api_keys.c.id == key_id)
            connection.execute(changed.values(**key_rows._columns(change.values)))

    def sweep(self, before: float) -> None:
        with self.engine.begin() as connection:
            connection.execute(
                text("DELETE FROM api_keys WHERE revoked_at < :before OR expires_at < :before"),
                {"before": before},
            )

    def number(self) -> int:
        """That release reads all keys when it differs."""
        with self.engine.connect() as connection:
            number = connection.scalar(text("SELECT number FROM api_key_changes WHERE id = 1"))
            return int(number or 0)


TABLES = (api_keys, key_changes, key_history)
State = list[list[dict[str, Any]]]


def backup(engine: Engine) -> State:
    with engine.connect() as connection:
        return [[dict(row) for row in connection.execute(select(each)).mappings()] for each in TABLES]


def restore(engine: Engine, state: State) -> None:
    with engine.begin() as connection:
        for table, rows in zip(TABLES, state, strict=True):
            connection.execute(delete(table))
            if rows:
                connection.execute(insert(table), rows)


LIMITED = KeyChange(limits=KeyLimits(requests_per_minute=7))
REVOKED = KeyChange(revoked_at=999.0)


async def filled(place: Place, count: int) -> Process:
    """A process that knows so many keys and the state after a change by this release."""
    Before(place).add(*(made(f"key_{number}") for number in range(count)))
    process = Process(place)
    await process.store.change("key_0", LIMITED)
    assert await process.look() == (count, 1)
    return process


async def test_a_change_costs_what_was_changed(shared_place: Place) -> None:
    process, writer = await filled(shared_place, 300), Process(shared_place)
    assert await process.look() == (0, 0)
    for count in (1, 4, 40):
        for number in range(count):
            await writer.store.change(f"key_{number}", LIMITED)
        assert await process.look() == (count, 0)
    for _ in range(5):
        await writer.store.change("key_7", LIMITED)
    await writer.store.change("key_7", REVOKED)
    await writer.store.add(made("key_new", "bob"))
    assert process.accepts("key_7")
    assert await process.look() == (2, 0)
    assert not process.accepts("key_7")
    assert process.accepts("key_new")
    assert not await writer.store.change("key_gone", REVOKED)
    assert await process.look() == (1, 0)
    assert not process.accepts("key_gone")


async def test_the_database_reads_no_more_than_that(shared_place: Place) -> None:
    process = await filled(shared_place, 3000)
    since = await process.store.version()
    for number in range(5):
        await process.store.change(f"key_{number}", LIMITED)
    until = await process.store.version()
    with Before(shared_place).engine.connect() as connection:
        statement = str(key_rows._CHANGED.compile(connection))
        if connection.dialect.name == "sqlite":
            between = {"since": since.number, "until": until.number}
            plan = connection.exec_driver_sql(
                f"EXPLAIN QUERY PLAN {statement}", (between["since"], between["until"])
            )
            steps = [row[3] for row in plan]
            assert steps
            assert all(step.startswith("SEARCH") for step in steps), steps
            return
        for number, name in enumerate(("since", "until"), 1):
            statement = statement.replace(f"%({name})s", f"${number}")
        connection.exec_driver_sql(f"PREPARE changed AS {statement}")
        for mode in ("force_generic_plan", "force_custom_plan"):
            connection.exec_driver_sql(f"SET plan_cache_mode = {mode}")
            query = f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE changed({since.number}, {until.number})"
            (explanation,) = connection.exec_driver_sql(query).scalar_one()
            assert keys_read(explanation["Plan"]) == 6, (
                explanation
            )  # that of the state which is known, and five


def keys_read(plan: dict[str, Any]) -> int:
    """The rows of keys that a plan of PostgreSQL has read, those that it left out too."""
    here = 0
    if plan.get("Relation Name") == "api_keys":
        here = plan["Actual Loops"] * (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0))
    return here + sum(keys_read(each) for each in plan.get("Plans", ()))


async def test_an_older_release_and_this_one_see_what_the_other_changes(shared_place: Place) -> None:
    process, older = await filled(shared_place, 3), Before(shared_place)
    older.add(made("key_old"))
    assert await process.look() == (4, 1)
    assert process.accepts("key_old")
    older.change("key_old", REVOKED)
    assert await process.look() == (4, 1)
    assert not process.accepts("key_old")
    await process.store.change("key_2", REVOKED)
    assert await process.look() == (4, 1), "it can't know that nothing else happened"
    assert not process.accepts("key_2")
    await process.store.change("key_1", LIMITED)
    older.change("key_1", REVOKED)
    await process.store.change("key_1", LIMITED)
    assert await process.look() == (4, 1)
    assert not process.accepts("key_1")
    for change in (
        process.store.add(made("key_new")),
        process.store.change("key_new", LIMITED),
        process.store.change("key_new", REVOKED),
    ):
        number = older.number()
        await change
        assert older.number() == number + 1
    assert await process.look() == (1, 0)
    assert not process.accepts("key_new")


@pytest.mark.parametrize("more", [0, 1, 2, 3])
async def test_a_store_that_went_back_is_read_again(shared_place: Place, more: int) -> None:
    """Its numbers are behind what a process knows, where that is, or beyond it: before the process looks."""
    process, engine = await filled(shared_place, 5), Before(shared_place).engine
    state = backup(engine)
    await process.store.change("key_1", REVOKED)
    await process.store.add(made("key_new"))
    await process.look()
    known = await process.store.version()
    assert (process.accepts("key_1"), process.accepts("key_new")) == (False, True)
    restore(engine, state)
    for number in range(more):
        await process.store.change(f"key_{number + 2}", REVOKED)
    assert (await process.store.version()).number == known.number + more - 2
    await process.look()
    accepted = [process.accepts(f"key_{each}") for each in ("1", "new", "2", "3", "4")]
    assert accepted == [True, False, more < 1, more < 2, more < 3]
    assert process.wholes == 2


async def test_a_process_that_was_away_for_long_reads_all(
    shared_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_rows, "KEPT_CHANGES", 5)
    process, engine = await filled(shared_place, 9), Before(shared_place).engine
    for count, wholes in ((4, 0), (5, 1), (6, 1), (4, 0)):
        for number in range(count):
            await process.store.change(f"key_{number}", LIMITED)
        assert (await process.look())[1] == wholes
        assert len(backup(engine)[2]) <= 5


async def test_numbers_that_somebody_has_set_back_do_not_refuse_changes(shared_place: Place) -> None:
    process, engine = await filled(shared_place, 3), Before(shared_place).engine
    await process.store.change("key_1", LIMITED)
    with engine.begin() as connection:
        connection.execute(delete(key_changes))
    await process.store.change("key_1", REVOKED)
    await process.look()
    assert not process.accepts("key_1")
    assert [row["key_id"] for row in backup(engine)[2]] == ["key_1"]


async def test_what_a_sweep_deletes_is_forgotten(shared_place: Place) -> None:
    process = await filled(shared_place, 9)
    for number in (3, 4, 5):
        await process.store.change(f"key_{number}", KeyChange(expires_at=2000.0))
    assert await process.look() == (3, 0)
    number = (await process.store.version()).number
    assert await process.store.sweep(2000.0 + KEPT) == 0
    assert (await process.store.version()).number == number, "nobody reads anything after a sweep of none"
    assert process.accepts("key_3")
    assert await process.store.sweep(2000.5 + KEPT) == 3
    assert await process.look() == (3, 0)
    assert [process.accepts(f"key_{number}") for number in (2, 3, 6)] == [True, False, True]


async def test_a_change_is_seen_after_those_before_it(shared_place: Place) -> None:
    """A transaction that has its number but has not ended holds up those behind it, so that no process passes
    its number."""
    process, writer = await filled(shared_place, 3), Process(shared_place)
    with Before(shared_place).engine.begin() as connection:
        key_rows.record_changes(connection, connection.dialect.name, ["key_1"])
        connection.execute(update(api_keys).where(api_keys.c.id == "key_1").values(revoked_at=1.0))
        waiting = asyncio.create_task(writer.store.change("key_2", REVOKED))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        assert await process.look() == (0, 0)
    await waiting
    assert await process.look() == (2, 0)
    assert [process.accepts(f"key_{number}") for number in (0, 1, 2)] == [True, False, False]


async def test_changes_at_once_are_read_one_by_one(shared_place: Place) -> None:
    process = await filled(shared_place, 20)
    writers = [Process(shared_place).store for _ in range(3)]

    async def change(number: int) -> None:
        await writers[number % 3].change(f"key_{number}", REVOKED)

    changing = [asyncio.create_task(change(number)) for number in range(20)]
    while not all(task.done() for task in changing):
        await process.look()
        await asyncio.sleep(0)
    await asyncio.gather(*changing)
    await process.look()
    assert not any(process.accepts(f"key_{number}") for number in range(20))
    assert process.wholes == 1


async def test_what_could_not_be_read_is_read_at_the_next_look(
    shared_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await filled(shared_place, 3)
    await process.store.change("key_1", REVOKED)

    async def fails(*_: Any) -> None:
        raise StoreError(StoreError.UNAVAILABLE, "The session store can't be reached.")

    with monkeypatch.context() as down:
        down.setattr(process.store, "changed", fails)
        with pytest.raises(StoreError):
            await process.look()
    assert process.accepts("key_1")
    assert await process.look() == (1, 0)
    assert not process.accepts("key_1")


@pytest.mark.parametrize("seed", range(2 * FACTOR))
async def test_whatever_was_done_a_process_knows_the_table(
    shared_place: Place, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adds, changes, revocations and sweeps by both releases, in any order, and the store put back to earlier
    states. Of these the older release has only the number to tell them by: it changes nothing more then."""
    monkeypatch.setattr(key_rows, "KEPT_CHANGES", KEPT_OF_A_SCHEDULE)
    chosen, clock = random.Random(seed), Clock(1000.0)
    processes, older = [Process(shared_place, clock) for _ in range(3)], Before(shared_place)
    new = Process(shared_place, clock).store
    states, ids, was_restored = [backup(older.engine)], ["key_none"], False
    for number in range(STEPS):
        by_older = not was_restored and chosen.random() < 0.15
        clock.now += chosen.choice([0.0, 0.0, 1.0, 7.0])
        what = chosen.choices(
            ["add", "limit", "expire", "revoke", "sweep", "back up", "restore", "look"],
            [4, 4, 2, 2, 1, 1, 0.3 if number > STEPS / 2 else 0, 8],
        )[0]
        key_id = chosen.choice(ids)
        if what == "add":
            limits = KeyLimits(requests_per_minute=chosen.randrange(1, 9))
            key = made(f"key_{number}", chosen.choice(OWNERS), limits=limits)
            ids.append(key.id)
            if by_older:
                older.add(key)
            else:
                await new.add(replace(key, models=("m",)))
        elif what in ("limit", "expire", "revoke"):
            change = {
                "limit": KeyChange(limits=KeyLimits(concurrent=chosen.randrange(1, 9))),
                "expire": KeyChange(expires_at=clock.now + chosen.randrange(20)),
                "revoke": KeyChange(revoked_at=clock.now),
            }[what]
            if by_older:
                older.change(key_id, change)
            else:
                await new.change(key_id, change)
        elif what == "sweep":
            if by_older:
                older.sweep(clock.now)
            else:
                await new.sweep(clock.now + KEPT)
        elif what == "back up":
            states.append(backup(older.engine))
        elif what == "restore":
            restore(older.engine, chosen.choice(states))
            was_restored = True
        else:
            process, fresh = chosen.choice(processes), Process(shared_place, clock)
            await process.look()
            await fresh.look()
            assert process.known(ids) == fresh.known(ids), number
    assert sum(process.wholes for process in processes) > len(processes)
    assert sum(process.parts for process in processes) > len(processes)

"""A response's beginning, checkpoints and end: all of a write is stored, or nothing of it (laws S1, S9)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import create_engine, text

from openresponses_bridge.protocol.response import Response
from openresponses_server.store.base import Lease, LeaseLost, ResponseStore, StoredResponse, StoreError
from openresponses_server.store.frames import PIECE_BYTES
from openresponses_server.store.idempotency import IdempotencyKey, KeyedResponse
from openresponses_server.store.memory import MemoryStore
from openresponses_server.store.sql.store import SqlStore
from tests.support.stores import Place, failing_table, frame, frames, record, streamed

RUN = Lease("w-1", 10.0)
OWNER = "o'\\%s"
DISK_FULL = "53100"
LONG = "x" * (2 * PIECE_BYTES + 5)


def sql_store(place: Place) -> SqlStore:
    store = place.open()
    assert isinstance(store, SqlStore)
    store._clock = lambda: 1_000.0
    return store


@pytest.fixture
def sql(shared_place: Place) -> SqlStore:
    return sql_store(shared_place)


async def rows(store: ResponseStore) -> list[bytes]:
    return sorted([line async for line in store.export()])


def odd(response_id: str, previous: str | None = None, **fields: Any) -> StoredResponse:
    """A record with what databases are particular about in its columns."""
    return record(response_id, previous, "a\0b % :x {}'", owner=OWNER, created_at=5.5, **fields)


async def store_all(store: ResponseStore, turns: dict[str, StoredResponse], end: Response) -> None:
    """A turn that ends at once, one in the background, one whose writes are made again, one with long frames
    and one that is stored twice."""
    await store.put(turns["whole"], frames(0, 4))
    await store.put(turns["queued"])
    await store.checkpoint("queued", RUN, replace(end, id="queued"))
    await store.finish("queued", "w-1", replace(end, id="queued"), None)
    await store.put(turns["run"], frames(0, 1))
    for last in (3, 4):
        await store.checkpoint("run", replace(RUN, until=20.5), replace(end, id="run"), frames(2, last))
    await store.checkpoint("run", replace(RUN, until=30.5))
    await store.checkpoint("run", replace(RUN, until=40.5), None, frames(5, 6))
    for _ in range(2):
        await store.finish("run", "w-1", replace(end, id="run"), frames(7, 9))
    await store.put(turns["long"], frames(0, 1, LONG))
    for words in (LONG, "short", "x" * PIECE_BYTES):
        await store.checkpoint("long", RUN, None, frames(2, 3, words))
    await store.finish("long", "w-1", replace(end, id="long"), frames(4, 4, LONG))
    await store.put(replace(turns["twice"], input=[], lease=RUN), frames(0, 3, LONG))
    await store.put(turns["twice"], frames(0, 1))


async def test_s1_what_is_written_is_what_a_store_in_memory_holds(sql: SqlStore) -> None:
    end = streamed("Hello")[0]
    whole = odd("whole", expires_at=9e9)
    turns = {
        "whole": whole,
        "run": odd("run", "whole", status="in_progress", lease=RUN),
        "queued": odd("queued", status="queued", lease=RUN, request=b"{}", input=[]),
        "long": odd("long", lease=RUN),
        "twice": odd("twice", "run"),
    }
    memory = MemoryStore(clock=sql._clock)
    for store in (memory, sql):
        await store_all(store, turns, end)
    assert await rows(sql) == await rows(memory)
    named = [whole.response.output[0].id, end.output[0].id, turns["twice"].response.output[0].id]
    items = await sql.items(named, OWNER)
    assert sorted(items) == sorted(named)
    assert items == await memory.items(named, OWNER)


async def test_nothing_of_a_write_is_there_that_found_no_row(sql: SqlStore) -> None:
    end = streamed("Hello")[0]
    await sql.put(record("r", lease=RUN), frames(0, 1))
    before = await rows(sql)
    with pytest.raises(LeaseLost):
        await sql.checkpoint("r", Lease("w-2", 30.0), replace(end, id="r"), frames(2, 3, LONG))
    with pytest.raises(LeaseLost):
        await sql.finish("r", "w-2", replace(end, id="r"), frames(2, 3))
    with pytest.raises(StoreError) as conflict:
        await sql.put(record("r", owner="other"), frames(0, 9, LONG))
    assert conflict.value.code == StoreError.CONFLICT
    assert await rows(sql) == before


async def test_what_was_deleted_and_later_turns_need_is_not_replaced(sql: SqlStore) -> None:
    await sql.put(record("r", owner="k"))
    await sql.put(record("later", "r", owner="k"))
    await sql.delete("r", "k")
    before = await rows(sql)
    with pytest.raises(StoreError) as conflict:
        await sql.put(record("r", owner="k"), frames(0, 1))
    assert conflict.value.code == StoreError.CONFLICT
    assert await rows(sql) == before


async def test_what_goes_beyond_one_piece_is_written_in_pieces(sql: SqlStore) -> None:
    await sql.put(record("r"), frames(0, 0, "x" * PIECE_BYTES))
    assert [len(piece.data) async for piece in sql.frames("r")] == [PIECE_BYTES, len(frame(0)) - 1]


async def test_a_key_of_what_a_release_before_has_hidden_is_free(shared_place: Place) -> None:
    """That release knows nothing of keys."""
    sql, key = sql_store(shared_place), IdempotencyKey("a" * 64, "b" * 64, 4e9)
    await sql.put(record("r", owner="k"), key=key)
    with connected(shared_place) as other:
        other.execute(text("UPDATE responses SET owner = '~k' WHERE id = 'r'"))
    assert await sql.keyed(key.name, "k") is None
    await sql.put(record("s", owner="k"), key=key)
    assert await sql.keyed(key.name, "k") == KeyedResponse("s", "b" * 64)


async def test_s9_of_many_that_store_one_id_at_once_one_owner_has_it(shared_place: Place) -> None:
    stores = [shared_place.open() for _ in range(3)]
    owners = [f"k{number % 4}" for number in range(24)]
    done = await asyncio.gather(
        *(stores[n % 3].put(record("r", owner=owner), frames(0, n)) for n, owner in enumerate(owners)),
        return_exceptions=True,
    )
    stored = {owner for owner, failure in zip(owners, done, strict=True) if failure is None}
    assert len(stored) == 1
    assert done.count(None) == 6
    assert {getattr(failure, "code", "") for failure in done if failure is not None} == {StoreError.CONFLICT}
    (line,) = await rows(stores[0])
    assert f'"owner":"{stored.pop()}"'.encode() in line


# --- writes that fail ------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["response_frames", "response_pieces", "response_output"])
async def test_s1_nothing_of_a_write_is_there_that_failed(shared_place: Place, table: str) -> None:
    sql, end = sql_store(shared_place), streamed("Hello")[0]
    expected = StoreError.FAILED if shared_place.url.startswith("sqlite") else StoreError.FULL
    await sql.put(record("run", lease=RUN))
    await sql.put(record("own", input=[]))
    before = await rows(sql)
    writes: list[Callable[[], Awaitable[None]]] = [
        lambda: sql.put(record("new"), frames(0, 1, LONG)),
        lambda: sql.put(record("own", text="Replaced"), frames(0, 1, LONG)),
        lambda: sql.finish("run", "w-1", replace(end, id="run"), frames(0, 1, LONG)),
    ]
    if table != "response_output":
        writes.append(lambda: sql.checkpoint("run", RUN, replace(end, id="run"), frames(0, 1, LONG)))
    with failing_table(shared_place, table, sqlstate=DISK_FULL):
        for write in writes:
            with pytest.raises(StoreError) as failed:
                await write()
            assert failed.value.code == expected
            assert await rows(sql) == before
    for write in reversed(writes):
        await write()
    assert len(await rows(sql)) > len(before)


# --- PostgreSQL ------------------------------------------------------------------------------------------


@pytest.fixture
def postgres_place(shared_place: Place) -> Place:
    if shared_place.url.startswith("sqlite"):
        pytest.skip("connections are PostgreSQL's")
    return shared_place


@contextmanager
def connected(place: Place) -> Iterator[Any]:
    engine = create_engine(place.url)
    with engine.begin() as connection:
        yield connection
    engine.dispose()


async def test_connections_that_were_lost_are_not_noticed(postgres_place: Place) -> None:
    sql = sql_store(postgres_place)
    await asyncio.gather(*(sql.put(record(f"r{n}", lease=RUN), frames(0, 1)) for n in range(8)))
    with connected(postgres_place) as admin:
        admin.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )
    await sql.put(record("r0", text="Replaced"))
    for n in range(12):
        await sql.put(record(f"s{n}"), frames(0, 1))
    await asyncio.gather(*(sql.checkpoint(f"r{n}", RUN, None, frames(2, 3)) for n in range(1, 8)))
    assert all([await sql.get(f"s{n}") is not None for n in range(12)])


async def test_a_write_that_is_broken_off_leaves_its_connection_usable(postgres_place: Place) -> None:
    sql = sql_store(postgres_place)
    await sql.put(record("r", lease=RUN), frames(0, 1))
    end = replace(streamed("Hello")[0], id="r")
    with connected(postgres_place) as other:
        other.execute(text("SELECT 1 FROM responses WHERE id = 'r' FOR UPDATE"))
        for _ in range(12):  # more often than there are connections
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await sql.finish("r", "w-1", end, frames(2, 3))
    await sql.finish("r", "w-1", end, frames(2, 3))
    entry = await sql.get("r")
    assert entry is not None
    assert entry.last_sequence == 3

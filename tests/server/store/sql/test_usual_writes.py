"""A run's beginning, checkpoints and end, written at once: the same rows as in the general way (law S1)."""

import asyncio
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from openresponses_bridge.protocol.response import Response
from openresponses_server.store.base import Lease, LeaseLost, StoredResponse, StoreError
from openresponses_server.store.frames import PIECE_BYTES
from openresponses_server.store.sql import store as module
from openresponses_server.store.sql.store import SqlStore
from tests.support.stores import Place, frame, frames, record, streamed

RUN = Lease("w-1", 10.0)
OWNER = "o'\\%s"


class Watched:
    """A store, and which of its writes were made at once, in order."""

    def __init__(self, place: Place) -> None:
        store = place.open()
        assert isinstance(store, SqlStore)
        self.store = store
        self.at_once: list[bool] = []
        self._database: Any = store._database
        self._write = self._database.write_at_once
        self._database.write_at_once = self._noted
        store._clock = lambda: 1_000.0

    async def _noted(self, write: Any) -> bool:
        self.at_once.append(await self._write(write))
        return self.at_once[-1]

    async def rows(self) -> list[bytes]:
        return sorted([line async for line in self.store.export()])


@pytest.fixture
def watched(shared_place: Place) -> Watched:
    return Watched(shared_place)


def odd(response_id: str, previous: str | None = None, **fields: Any) -> StoredResponse:
    """A record with what databases are particular about in its columns."""
    return record(response_id, previous, "a\0b % :x {}'", owner=OWNER, created_at=5.5, **fields)


async def store_all(store: SqlStore, turns: dict[str, StoredResponse], end: Response) -> None:
    """A turn that ends at once, one of three writes that are made again, one in the background."""
    await store.put(turns["whole"], frames(0, 4))
    await store.put(turns["run"], frames(0, 1))
    for last in (3, 4):
        await store.checkpoint("run", replace(RUN, until=20.5), replace(end, id="run"), frames(2, last))
    for _ in range(2):
        await store.finish("run", "w-1", replace(end, id="run"), frames(5, 6))
    await store.put(turns["queued"])
    await store.checkpoint("queued", RUN, replace(end, id="queued"))
    await store.finish("queued", "w-1", replace(end, id="queued"), None)


async def test_s1_what_is_written_at_once_is_what_the_general_way_writes(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, end = watched.store, streamed("Hello")[0]
    whole = odd("whole", expires_at=9e9)
    named = [whole.response.output[0].id, end.output[0].id]
    turns = {
        "whole": whole,
        "run": odd("run", "whole", status="in_progress", lease=RUN),
        "queued": odd("queued", status="queued", lease=RUN, request=b"{}", input=[]),
    }
    await store_all(store, turns, end)
    # the second end of the run finds none to store
    assert watched.at_once == [True, True, True, True, True, False, True, True, True]
    rows, items = await watched.rows(), await store.items(named, OWNER)
    assert sorted(items) == sorted(named)
    for response_id in ("run", "whole", "queued"):
        await store.delete(response_id, OWNER)
    assert await watched.rows() == []
    monkeypatch.setattr(module, "is_usual", lambda _: False)
    await store_all(store, turns, end)
    assert len(watched.at_once) == 9
    assert await watched.rows() == rows
    assert await store.items(named, OWNER) == items


async def test_nothing_of_a_write_is_there_that_found_no_row(watched: Watched) -> None:
    end = streamed("Hello")[0]
    await watched.store.put(record("r", lease=RUN), frames(0, 1))
    before = await watched.rows()
    with pytest.raises(LeaseLost):
        await watched.store.checkpoint("r", Lease("w-2", 30.0), replace(end, id="r"), frames(2, 3))
    with pytest.raises(LeaseLost):
        await watched.store.finish("r", "w-2", replace(end, id="r"), frames(2, 3))
    with pytest.raises(StoreError) as conflict:
        await watched.store.put(record("r", owner="other"), frames(0, 9))
    assert conflict.value.code == StoreError.CONFLICT
    assert await watched.rows() == before


async def test_what_goes_beyond_one_piece_is_written_in_pieces(watched: Watched) -> None:
    long = frames(0, 0, "x" * PIECE_BYTES)
    await watched.store.put(record("r"), long)
    assert watched.at_once == []
    assert [len(piece.data) async for piece in watched.store.frames("r")] == [
        PIECE_BYTES,
        len(frame(0)) - 1,
    ]


# --- PostgreSQL ------------------------------------------------------------------------------------------


@pytest.fixture
def on_postgres(shared_place: Place) -> Watched:
    if shared_place.url.startswith("sqlite"):
        pytest.skip("connections are PostgreSQL's")
    return Watched(shared_place)


def connected(watched: Watched) -> psycopg.Connection[Any]:
    url = watched._database._url.render_as_string(hide_password=False)
    return psycopg.connect(url.replace("+psycopg", ""), autocommit=True)


async def test_connections_that_were_lost_are_not_noticed(on_postgres: Watched) -> None:
    await asyncio.gather(*(on_postgres.store.put(record(f"r{n}"), frames(0, 1)) for n in range(8)))
    with connected(on_postgres) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    on_postgres.at_once.clear()
    for n in range(20):
        await on_postgres.store.put(record(f"s{n}"), frames(0, 1))
    assert not on_postgres.at_once[0]
    assert all(on_postgres.at_once[10:])
    assert all([await on_postgres.store.get(f"s{n}") is not None for n in range(20)])


async def test_a_write_that_is_broken_off_leaves_its_connection_usable(on_postgres: Watched) -> None:
    await on_postgres.store.put(record("r", lease=RUN), frames(0, 1))
    end = replace(streamed("Hello")[0], id="r")
    with connected(on_postgres) as other, other.transaction():
        other.execute("SELECT 1 FROM responses WHERE id = 'r' FOR UPDATE")
        for _ in range(12):  # more often than there are connections
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await on_postgres.store.finish("r", "w-1", end, frames(2, 3))
    on_postgres.at_once.clear()
    await on_postgres.store.finish("r", "w-1", end, frames(2, 3))
    found = await on_postgres.store.get("r")
    assert found is not None
    assert found.last_sequence == 3
    assert on_postgres.at_once == [True]

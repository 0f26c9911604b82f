"""From every earlier schema with data, while workers of before and after are at it."""

import asyncio
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from alembic import command
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.pool import NullPool
from structlog.testing import capture_logs

from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.input_items import MessageParam
from openresponses_server.store.base import Lease, ResponseStore, StoreError
from openresponses_server.store.sql import database, migrate
from openresponses_server.store.sql.locations import database_url
from openresponses_server.store.sql.migrate import _config, upgrade
from openresponses_server.store.sql.migrations import online
from openresponses_server.store.sql.sqlite_file import OLDEST, REVISION
from openresponses_server.store.stores import open_store
from tests.support.services import postgres_database
from tests.support.stores import frames, record

EARLIER = ["0001", "0002", "0003", "0004", "0005"]
_RESPONSE = text(
    """INSERT INTO responses (id, owner, previous_response_id, status, created_at, updated_at, lease_worker,
    last_sequence, response) VALUES (:id, 'k', :link, 'completed', 1, 1, 'w', 3, :response)"""
)
_INPUT = text(
    "INSERT INTO response_input (response_id, position, item_id, item) VALUES (:id, 0, :name, :item)"
)
_FRAMES = text(
    "INSERT INTO response_frames (response_id, first_sequence, last_sequence, data) VALUES (:id, 0, 3, :data)"
)
_OUTPUT = text("INSERT INTO response_output (response_id, item_id) VALUES (:id, :name)")


@contextmanager
def at_revision(kind: str, revision: str, folder: Any) -> Iterator[tuple[str, Engine]]:
    """The address of a database as that version made it, and connections to it."""
    if kind == "sqlite":
        url = f"sqlite:///{folder}/s.sqlite3"
        engine = create_engine(database_url(url), poolclass=NullPool)
        _make(engine, revision)
        yield url, engine
        return
    with postgres_database() as url:
        engine = create_engine(database_url(url), poolclass=NullPool)
        _make(engine, revision)
        yield url, engine


def _make(engine: Engine, revision: str) -> None:
    with engine.begin() as connection:
        command.upgrade(_config(connection), revision)


def fill(connection: Connection, revision: str, count: int, first: int = 0) -> None:
    """Chains of three, as a version at that revision stored them."""
    for number in range(first, first + count):
        name, link = f"r{number}", f"r{number - 1}" if number % 3 else None
        response = record(name, link).response
        connection.execute(_RESPONSE, {"id": name, "link": link, "response": encode(response)})
        item = MessageParam("user", name, id=f"in{number}")
        connection.execute(_INPUT, {"id": name, "name": item.id.encode(), "item": encode(item)})  # type: ignore[union-attr]
        connection.execute(_FRAMES, {"id": name, "data": frames(0, 3).data})
        if revision >= "0002":
            connection.execute(_OUTPUT, {"id": name, "name": response.output[0].id.encode()})


async def check(store: ResponseStore, count: int) -> None:
    """All of it can be used."""
    for number in range(count):
        turns = await store.chain(f"r{number}", "k")
        assert [turn.response.id for turn in turns] == [
            f"r{each}" for each in range(number - number % 3, number + 1)
        ]
        assert (await store.items([f"in{number}"], "k")).keys() == {f"in{number}"}
        made = turns[-1].response.output[0].id
        assert (await store.items([made], "k")).keys() == {made}
        data = b"".join([piece.data async for piece in store.frames(f"r{number}", "k")])
        assert data == frames(0, 3).data
    assert len([line async for line in store.export()]) == count


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("revision", EARLIER)
async def test_every_earlier_schema_is_upgraded_with_its_data(
    kind: str, revision: str, tmp_path: Any
) -> None:
    with at_revision(kind, revision, tmp_path) as (url, engine):
        with engine.begin() as connection:
            fill(connection, revision, 12)
        said: list[str] = []
        assert await asyncio.to_thread(upgrade, database_url(url), said.append) == (revision, REVISION)
        assert said == [f"{each:04}: done" for each in range(int(revision) + 1, int(REVISION) + 1)]
        store = open_store(url)
        await check(store, 12)
        assert await store.delete("r0", "k")
        assert len(await store.chain("r2", "k")) == 3
        await store.close()


async def test_workers_go_on_while_postgres_is_upgraded(tmp_path: Any) -> None:
    """Through every step, with transactions that write to several tables, and deletions."""
    revision = "0001"
    with at_revision("postgres", revision, tmp_path) as (url, engine):
        with engine.begin() as connection:
            fill(connection, revision, 60)
        stop = threading.Event()
        slowest = 0.0
        written = 60

        def work() -> None:
            nonlocal slowest, written
            while not stop.is_set():
                began = time.monotonic()
                with engine.begin() as connection:
                    fill(connection, "0001", 3, written)
                    connection.execute(text("DELETE FROM responses WHERE id = :id"), {"id": f"r{written}"})
                    connection.execute(text("SELECT count(*) FROM response_input"))
                    connection.execute(text("UPDATE responses SET updated_at = 2 WHERE id = 'r1'"))
                slowest = max(slowest, time.monotonic() - began)
                written += 3

        worker = threading.Thread(target=work)
        worker.start()
        try:
            await asyncio.to_thread(upgrade, database_url(url))
        finally:
            stop.set()
            worker.join()
        assert written > 63
        assert slowest < 4
        store = open_store(url)
        for number in range(60):
            assert await store.chain(f"r{number}", "k")
            assert len(await store.items([f"in{number}"], "k")) == 1
        await store.close()


async def test_workers_of_before_and_after_share_a_database(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over the newest migration: one that was opened before it, one after, and one of before that is started
    after it."""
    with at_revision("postgres", OLDEST, tmp_path) as (url, engine):
        with engine.begin() as connection:
            fill(connection, OLDEST, 6)
        before = open_store(url)
        await before.put(record("running", "r2", owner="k", lease=Lease("w", 4e9)), frames(0, 1))
        upgrading = asyncio.create_task(asyncio.to_thread(upgrade, database_url(url)))
        number = 0
        while not upgrading.done():
            await before.checkpoint("running", Lease("w", 4e9), None, frames(2 + number, 2 + number))
            await before.put(record(f"of before {number}", "r5", owner="k"))
            number += 1
        await upgrading
        after = open_store(url)
        assert await after.renew({"running": "w"}, 5e9) == set()
        await before.finish("running", "w", record("running", "r2").response, frames(2 + number, 3 + number))
        assert len(await after.chain("running", "k")) == 4
        await after.put(record("of after", "running", owner="k"))
        assert len(await before.chain("of after", "k")) == 5
        assert await before.delete("running", "k")
        assert len(await after.chain("of after", "k")) == 5
        with monkeypatch.context() as patched:
            patched.setattr(database, "REVISION", OLDEST)
            monkeypatch.setattr("openresponses_server.store.sql.postgres.REVISION", OLDEST)
            again = open_store(url)
            assert len(await again.chain("of after", "k")) == 5
            with engine.begin() as connection:
                connection.execute(
                    text("UPDATE openresponses_bridge_usable SET oldest = :r"), {"r": REVISION}
                )
            refused = open_store(url)
            with pytest.raises(StoreError, match=f"at revision {REVISION} "):
                await refused.get("r0", "k")
        for store in (before, after, again, refused):
            await store.close()


async def test_new_worker_is_started_before_the_upgrade(tmp_path: Any) -> None:
    with at_revision("postgres", OLDEST, tmp_path) as (url, engine):
        with engine.begin() as connection:
            fill(connection, OLDEST, 6)
        store = open_store(url)
        with capture_logs() as logged:
            await check(store, 6)
        (other,) = [line for line in logged if line["event"] == "store.other_revision"]
        assert (other["at"], "db upgrade" in other["hint"]) == (OLDEST, True)
        assert await store.delete("r1", "k")
        assert len(await store.chain("r2", "k")) == 3
        await store.delete("r2", "k")
        assert await store.sweep(4e9) == 0
        assert len([line async for line in store.export()]) == 4
        await store.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_tables_of_a_later_version_that_say_nothing_are_refused(kind: str, tmp_path: Any) -> None:
    with at_revision(kind, "0004", tmp_path) as (url, engine):
        with engine.begin() as connection:
            connection.execute(text("UPDATE openresponses_bridge_version SET version_num = '9999'"))
        store = open_store(url)
        with pytest.raises(StoreError, match="at revision 9999"):
            await store.get("r")
        await store.close()


async def test_upgrade_that_was_broken_off_is_begun_again(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at_revision("postgres", "0001", tmp_path) as (url, engine):
        with engine.begin() as connection:
            fill(connection, "0001", 150)

        def breaks(batches: Iterable[Any], what: str, total: int) -> Iterator[Any]:
            yield next(iter(batches))
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(online, "reported", breaks)
            with pytest.raises(KeyboardInterrupt):
                upgrade(database_url(url))
        with engine.begin() as connection:
            assert connection.scalar(text("SELECT count(*) FROM response_output")) == 100
            # as a building of the index that was broken off leaves it
            connection.execute(text("CREATE INDEX ix_responses_waiting ON responses (id)"))
            broken = "WHERE indexrelid = 'ix_responses_waiting'::regclass"
            connection.execute(text(f"UPDATE pg_index SET indisvalid = false {broken}"))
        assert upgrade(database_url(url)) == ("0001", REVISION)
        with engine.begin() as connection:
            made = connection.scalar(text("SELECT pg_get_indexdef('ix_responses_waiting'::regclass)"))
            assert "(owner)" in str(made)
            assert connection.scalar(text("SELECT count(*) FROM response_output")) == 150
        store = open_store(url)
        await check(store, 150)
        await store.close()


async def test_lock_that_is_held_is_waited_for_without_holding_up_others(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "STEP_PATIENCE", 200)
    monkeypatch.setattr(migrate, "_PAUSE", 0.1)
    monkeypatch.setattr(online, "STEP_PATIENCE", 200)
    with at_revision("postgres", "0002", tmp_path) as (url, engine):
        with engine.begin() as connection:
            fill(connection, "0002", 3)
        said: list[str] = []
        with engine.connect() as reader, engine.connect() as other:
            reader.execute(text("SELECT count(*) FROM responses"))  # and its transaction stays open
            upgrading = asyncio.create_task(asyncio.to_thread(upgrade, database_url(url), said.append))
            while "waits for a lock" not in said:
                began = time.monotonic()
                other.execute(text("SELECT count(*) FROM responses"))
                other.rollback()
                assert time.monotonic() - began < 1
                await asyncio.sleep(0.01)
            reader.rollback()
            assert await upgrading == ("0002", REVISION)
        monkeypatch.setattr(migrate, "_TRIES", 1)
        with engine.begin() as connection:
            command.downgrade(_config(connection), "0002")
        with engine.connect() as reader:
            reader.execute(text("SELECT count(*) FROM responses"))
            with pytest.raises(StoreError) as busy:
                await asyncio.to_thread(upgrade, database_url(url))
        assert busy.value.code == StoreError.BUSY


async def test_several_upgrade_at_once(tmp_path: Any) -> None:
    with at_revision("postgres", "0001", tmp_path) as (url, engine):
        with engine.begin() as connection:
            fill(connection, "0001", 9)
        program = (
            "import sys; from openresponses_server.commands.cli import main\n"
            "main(['db', 'upgrade', '--store', sys.argv[1]])"
        )
        other = await asyncio.create_subprocess_exec(sys.executable, "-c", program, url)
        with migrate._only_one(engine):
            here = asyncio.create_task(asyncio.to_thread(upgrade, database_url(url)))
            await asyncio.sleep(0.2)
            assert not here.done()
        await here
        assert await other.wait() == 0
        store = open_store(url)
        await check(store, 9)
        await store.close()


def test_progress_is_reported_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(online, "_REPORTED_EVERY", 0.0)
    monkeypatch.setattr(online, "_report", lambda: said.append)
    assert list(online.reported([[1, 2], [3]], "read", 3)) == [[1, 2], [3]]
    assert said == ["read: 2 of 3", "read: 3 of 3"]

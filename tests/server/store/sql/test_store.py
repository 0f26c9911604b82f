"""Databases that fail, recover, are of another version or are shared (laws S1, S2, S9)."""

import asyncio
import gc
import sqlite3
import stat
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest
from sqlalchemy import Connection, create_engine, event

from openresponses_bridge import ResponseStreamStateMachine
from openresponses_bridge.protocol.input_items import MessageParam
from openresponses_server.settings import SettingsError
from openresponses_server.store import writers
from openresponses_server.store.base import (
    Lease,
    ResponseStore,
    StoredConversation,
    StoredResponse,
    StoreError,
)
from openresponses_server.store.idempotency import IdempotencyKey, KeyedResponse, KeyTaken
from openresponses_server.store.logs.memory import MemoryLog
from openresponses_server.store.persistence import RecordOptions, ResponseSessionPersistenceTransformer
from openresponses_server.store.records import row_of
from openresponses_server.store.sql import postgres, queries
from openresponses_server.store.sql.locations import database_url
from openresponses_server.store.sql.record_rows import use_key
from openresponses_server.store.sql.sqlite import WatchedFile
from openresponses_server.store.sql.sqlite_file import REVISION, default_file
from openresponses_server.store.sql.store import SqlStore
from openresponses_server.store.stores import open_store
from openresponses_server.store.writers import StoringTimes
from tests.support.forked import FORKING
from tests.support.services import OwnPostgres, own_postgres
from tests.support.stores import Place, emptied, frames, record, streamed


@pytest.fixture
async def file_store(tmp_path: Path, sqlite_template: Path) -> AsyncIterator[SqlStore]:
    (tmp_path / "s.sqlite3").write_bytes(sqlite_template.read_bytes())
    store = SqlStore(database_url(f"sqlite:///{tmp_path}/s.sqlite3"))
    yield store
    await store.close()


def on_connect(store: SqlStore, pragma: str) -> None:
    """Have the store's writing connection set this."""
    writer: Any = store._database._writer  # type: ignore[attr-defined]
    event.listen(writer, "connect", lambda connection, _: connection.execute(f"PRAGMA {pragma}"))


async def test_a_key_that_another_request_gets_meanwhile_stays_its_own(postgres_url: str) -> None:
    """The key of a response that failed is free. Between the look at it and its release, another request's
    transaction may have had it stand for its own response."""
    place = Place(emptied(postgres_url))
    store = place.open()
    key = IdempotencyKey("a" * 64, "b" * 64, 4e9)
    await store.put(record("failed", owner="k", status="failed"), key=key)
    rows = [row_of(record(name, owner="k"), 1.0, -1) for name in ("mine", "theirs")]
    for each in ("mine", "theirs"):
        await store.put(record(each, owner="k"))
    engine = create_engine(database_url(postgres_url))
    between: list[str] = []

    class Between:
        def __init__(self, connection: Any) -> None:
            self._connection = connection

        def execute(self, statement: Any, values: Any) -> Any:
            if statement is queries.FREE_KEY and not between:
                between.append("theirs")
                with engine.begin() as other:
                    use_key(other, key, rows[1], 1.0)
            return self._connection.execute(statement, values)

    try:
        with engine.begin() as mine, pytest.raises(KeyTaken) as taken:
            use_key(cast(Connection, Between(mine)), key, rows[0], 1.0)
        assert taken.value.found == KeyedResponse("theirs", "b" * 64)
        assert await store.keyed("a" * 64, "k") == KeyedResponse("theirs", "b" * 64)
    finally:
        engine.dispose()
        await place.close()


# --- SQLite ----------------------------------------------------------------------------------------------


async def test_s1_full_disk_is_reported_and_nothing_acknowledged_is_lost(file_store: SqlStore) -> None:
    on_connect(file_store, "max_page_count = 200")
    await file_store.put(record("run", lease=Lease("w", 10.0)), frames(0, 1))
    stored = 0

    async def fill() -> None:
        nonlocal stored
        for _ in range(500):
            await file_store.put(record(f"r{stored}", text="x" * 2000))
            stored += 1

    with pytest.raises(StoreError) as full:
        await fill()
    assert (full.value.http_status, full.value.code) == (503, "store_full")
    with pytest.raises(StoreError):
        await file_store.finish("run", "w", streamed("x" * 10**6)[0], frames(2, 2))
    for number in range(stored):
        got = await file_store.get(f"r{number}")
        assert got is not None
        assert got.response.output_text == "x" * 2000
    assert await file_store.get(f"r{stored}") is None
    run = await file_store.get("run")
    assert run is not None
    assert (run.lease, run.last_sequence) == (Lease("w", 10.0), 1)
    for number in range(stored):
        await file_store.delete(f"r{number}")
    await file_store.finish("run", "w", run.response, frames(2, 2))


async def test_s1_commits_wait_for_the_disk(file_store: SqlStore) -> None:
    def pragmas(connection: Any) -> list[Any]:
        names = ("journal_mode", "synchronous", "foreign_keys")
        return [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names]

    for run in (file_store._database.read, file_store._database.write):
        assert await run(pragmas) == ["wal", 2, 1]


async def test_locked_for_too_long_is_reported(file_store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    on_connect(file_store, "busy_timeout = 100")
    await file_store.put(record("r"))
    path = file_store._database._url.database  # type: ignore[attr-defined]
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError) as busy:
        await file_store.put(record("s"))
    assert busy.value.code == StoreError.BUSY
    assert await file_store.get("r") is not None
    other.execute("ROLLBACK")
    other.close()
    await file_store.put(record("s"))


def storing(
    store: SqlStore, machine: ResponseStreamStateMachine, times: StoringTimes
) -> ResponseSessionPersistenceTransformer:
    """What stores a turn of the conversation `conv_a`."""
    record = StoredResponse(machine.snapshot, [MessageParam("user", "Hello?")], "k", conversation="conv_a")
    return ResponseSessionPersistenceTransformer(
        record, lambda: machine.snapshot, store, MemoryLog(), "w", times, RecordOptions()
    )


@pytest.mark.parametrize("begun", [True, False])
async def test_s1_an_end_that_was_given_up_behind_a_lock_is_not_stored_later(
    file_store: SqlStore, begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits in its thread when the client is sent a failure, which is what the store says then."""
    machine = ResponseStreamStateMachine("m")
    await file_store.conversations.create(StoredConversation("conv_a", "k", 1.0, None, b"{}"), [])
    persistence = storing(file_store, machine, StoringTimes(timeout=0.0, certainty=0.0))
    persistence.sends_only_at_end = not begun
    monkeypatch.setattr(writers, "_BEGINNING", 0.0)
    sent = await persistence.persist(machine.start())
    path = file_store._database._url.database  # type: ignore[attr-defined]
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        sent += await persistence.persist(machine.text("Hello") + machine.finish("stop"))
        assert sent[-1].type == "response.failed"
        other.execute("ROLLBACK")
    await file_store.use_once("behind it", 4e9)
    entry = await file_store.get(machine.response_id, "k")
    assert (None if entry is None else entry.response.status) == ("in_progress" if begun else None)
    persistence.retract()
    await persistence.checkpoint()
    entry = await file_store.get(machine.response_id, "k")
    assert entry is not None
    assert entry.response == sent[-1].response  # type: ignore[union-attr]
    assert await file_store.conversations.items("conv_a", "k") == []


async def test_s1_an_end_that_another_process_reads_before_the_writer_hears_of_it_stands(
    file_store: SqlStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is slow: the commit is done when the writer has given up waiting for it."""
    machine = ResponseStreamStateMachine("m")
    other = SqlStore(database_url(f"sqlite:///{tmp_path}/s.sqlite3"))
    persistence = storing(file_store, machine, StoringTimes(timeout=0.0, certainty=3600.0))
    await persistence.persist(machine.start())
    answers, tries = threading.Event(), 0
    check, finish = WatchedFile.check, file_store.finish

    def check_late(self: WatchedFile, connected_to: Any) -> None:
        answers.wait()
        check(self, connected_to)

    async def counted(*given: Any, **named: Any) -> None:
        nonlocal tries
        tries += 1
        await finish(*given, **named)

    monkeypatch.setattr(writers, "_SHORTEST", 0.2)
    monkeypatch.setattr(WatchedFile, "check", check_late)
    monkeypatch.setattr(file_store, "finish", counted)
    ending = asyncio.create_task(persistence.persist(machine.text("Hello") + machine.finish("stop")))

    async def status() -> str:
        entry = await other.get(machine.response_id, "k")
        return "" if entry is None else entry.response.status

    async def is_read() -> bool:
        return await status() == "completed" and tries > 1

    try:
        while not (await is_read() or ending.done()):
            await asyncio.sleep(0.01)
        await asyncio.wait([ending], timeout=0.5)  # it is given up once more, unless it may be stored
    finally:
        answers.set()
    sent = await ending
    await persistence.checkpoint()
    assert (sent[-1].type, await status()) == ("response.completed", "completed")
    await other.close()


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda path: path.write_bytes(b"no database at all" * 100), "not a SQLite database"),
        (lambda path: path.mkdir(), "can't be"),
        (lambda path: path.parent.joinpath("file").write_text(""), "can't be"),
    ],
    ids=["text", "folder", "within-a-file"],
)
async def test_file_that_is_not_a_database_is_reported(tmp_path: Path, prepare: Any, message: str) -> None:
    path = tmp_path / "s.sqlite3"
    prepare(path)
    if (tmp_path / "file").exists():
        path = tmp_path / "file" / "s.sqlite3"
    store = SqlStore(database_url(f"sqlite:///{path}"))
    with pytest.raises(StoreError, match=message):
        await store.get("r")
    await store.close()


async def test_opened_late_once_the_file_can_be_made(tmp_path: Path) -> None:
    blocker = tmp_path / "folder"
    blocker.write_text("")
    store = SqlStore(database_url(f"sqlite:///{blocker}/s.sqlite3"))
    with pytest.raises(StoreError):
        await store.put(record("r"))
    blocker.unlink()
    await store.put(record("r"))
    assert await store.get("r") is not None
    await store.close()


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[tuple[ResponseStore, Path]]:
    """A store that is open, with a record `r`, and its file."""
    path = tmp_path / "s.sqlite3"
    store = open_store(f"sqlite:///{path}")
    await store.put(record("r"))
    await asyncio.gather(*(store.get("r") for _ in range(8)))
    yield store, path
    await store.close()


def move(path: Path, to: Path) -> None:
    """The file with all that belongs to it."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).rename(to.with_name(to.name + suffix))


async def test_s1_deleted_file_is_reported_at_every_call_and_not_made_again(
    watched: tuple[ResponseStore, Path],
) -> None:
    store, path = watched
    path.unlink()
    for call in (lambda: store.get("r"), lambda: store.put(record("s")), lambda: store.sweep(0.0)):
        with pytest.raises(StoreError, match=r"s\.sqlite3 was deleted") as gone:
            await call()
        assert gone.value.code == StoreError.UNAVAILABLE
        assert str(path) in gone.value.details
        assert str(path.parent) not in gone.value.message
    assert not path.exists()


async def test_s1_file_that_is_put_back_is_used_again(watched: tuple[ResponseStore, Path]) -> None:
    store, path = watched
    move(path, path.with_name("away"))
    with pytest.raises(StoreError):
        await store.put(record("s"))
    move(path.with_name("away"), path)
    await store.put(record("t"))
    assert [await store.get(each) is not None for each in "rst"] == [True, False, True]


async def test_s1_what_is_stored_goes_to_the_file_that_took_the_place_of_another(
    watched: tuple[ResponseStore, Path],
) -> None:
    store, path = watched
    other = open_store(f"sqlite:///{path.with_name('other')}")
    await other.put(record("of-the-other"))
    await other.close()
    move(path, path.with_name("away"))
    path.with_name("other").rename(path)
    assert await store.get("r") is None
    assert await store.get("of-the-other") is not None
    await store.put(record("s"))
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT id FROM responses ORDER BY 1").fetchall() == [
            ("of-the-other",),
            ("s",),
        ]


@pytest.mark.parametrize("noticed", [False, True])
async def test_s1_nothing_counts_as_stored_whose_file_goes_before_the_commit_is_over(
    watched: tuple[ResponseStore, Path], noticed: bool
) -> None:
    store, path = watched
    database: Any = store._database  # type: ignore[attr-defined]

    def replace(statement: str) -> None:
        if statement == "COMMIT" and not path.with_name("away").exists():
            move(path, path.with_name("away"))
            if noticed:  # by another call, which uses the file that is there now
                path.touch()
                database._file.know()

    def watch(connection: Any, *_: Any) -> None:
        connection.set_trace_callback(replace)

    event.listen(database._writer, "checkout", watch)
    with pytest.raises(StoreError, match="deleted"):
        await store.put(record("s"))


async def test_file_is_made_for_its_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "s.sqlite3"
    store = open_store(f"sqlite:///{path}")
    await store.put(record("r"))
    await store.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_default_file_follows_the_platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    expected = tmp_path / "data" / "openresponses-bridge" / "sessions.sqlite3"
    for address in ("sqlite:", "sqlite://", "sqlite:///"):
        assert database_url(address).database == str(expected)
    for odd in ("", "relative"):
        monkeypatch.setenv("XDG_DATA_HOME", odd)
        assert default_file() == tmp_path / ".local" / "share" / "openresponses-bridge" / "sessions.sqlite3"
    monkeypatch.setattr("sys.platform", "darwin")
    assert default_file().parent == tmp_path / "Library" / "Application Support" / "openresponses-bridge"


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("redis://x", "store: 'redis' is not one of"),
        ("mysql://x", "store: 'mysql' is not one of"),
        ("postgresql+asyncpg://x/y", "asyncpg"),
        ("sqlite://host/x", "sqlite:///"),
        ("sqlite:///:memory:", "memory://"),
        ("sqlite:///x?mode=ro", "sqlite:///"),
        ("postgresql+psycopg:x", "not a URL"),
        ("", "not one of"),
    ],
)
def test_address_that_names_no_store(address: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        open_store(address)


def test_no_password_in_an_error() -> None:
    with pytest.raises(SettingsError) as wrong:
        open_store("postgresql+psycopg://me:hunter2@host:port/db")
    assert "hunter2" not in str(wrong.value)


# --- versions --------------------------------------------------------------------------------------------


async def test_outdated_database_is_reported(shared_place: Place) -> None:
    await shared_place.open().put(record("r"))
    engine = create_engine(database_url(shared_place.url))
    for revision, oldest, back in (("9999", "9999", False), (REVISION, REVISION, True)):
        with engine.begin() as connection:
            connection.exec_driver_sql(f"UPDATE openresponses_bridge_version SET version_num = '{revision}'")
            connection.exec_driver_sql(f"UPDATE openresponses_bridge_usable SET oldest = '{oldest}'")
        if back:
            assert await shared_place.open().get("r") is not None
            continue
        with pytest.raises(StoreError, match="db upgrade") as outdated:
            await shared_place.open().get("r")
        assert outdated.value.code == StoreError.OUTDATED
    engine.dispose()


def _open_and_put(url: str, name: str) -> None:
    async def work() -> None:
        store = open_store(url)
        await store.put(record(name))
        await store.close()

    asyncio.run(work())


def test_s9_several_processes_set_up_one_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.sqlite3"
    workers = [FORKING.Process(target=_open_and_put, args=(url, f"r{number}")) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 4

    async def found() -> list[bool]:
        store = open_store(url)
        there = [await store.get(f"r{number}") is not None for number in range(4)]
        await store.close()
        return there

    assert asyncio.run(found()) == [True] * 4


# --- PostgreSQL ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[OwnPostgres]:
    with own_postgres() as started:
        yield started


async def test_postgres_down_is_reported_and_recovered_from(server: OwnPostgres) -> None:
    store: ResponseStore = open_store(f"{server.url}/test")
    await store.put(record("r", lease=Lease("w", 10.0)), frames(0, 1))
    await asyncio.gather(*(store.get("r") for _ in range(8)))
    server.stop()
    for call in (store.get("r"), store.checkpoint("r", Lease("w", 20.0), None, frames(2, 2))):
        with pytest.raises(StoreError, match="can't be reached") as down:
            await call
        assert (down.value.http_status, down.value.code) == (503, "store_unavailable")
    server.start()
    await store.checkpoint("r", Lease("w", 20.0), None, frames(2, 3))
    got = await store.get("r")
    assert got is not None
    assert (got.lease, got.last_sequence) == (Lease("w", 20.0), 3)
    server.stop()
    server.start()
    await asyncio.gather(*(store.get("r") for _ in range(8)))  # without a failure in between
    await store.close()
    gc.collect()  # complains of a connection that is not closed


async def test_postgres_that_is_not_there_is_reported_without_its_address() -> None:
    store = open_store("postgresql+psycopg://me:hunter2@127.0.0.1:9/secret")
    with pytest.raises(StoreError) as down:
        await store.get("r")
    assert down.value.code == StoreError.UNAVAILABLE
    assert not {"hunter2", "secret", "127.0.0.1"} & set(down.value.message.split())
    await store.close()


async def test_s9_empty_postgres_is_set_up_by_whoever_comes_first(server: OwnPostgres) -> None:
    with psycopg.connect(f"{server.url}/postgres", autocommit=True) as admin:
        admin.execute("CREATE DATABASE fresh")
    stores = [open_store(f"{server.url}/fresh") for _ in range(4)]
    await asyncio.gather(*(store.put(record(f"r{number}")) for number, store in enumerate(stores)))
    for number, store in enumerate(stores):
        assert await store.get(f"r{(number + 1) % 4}") is not None
        await store.close()


async def test_more_calls_than_connections(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "_CONNECTIONS", 2)
    store = open_store(postgres_url)
    await asyncio.gather(*(store.put(record(f"many{number}")) for number in range(50)))
    assert all([await store.delete(f"many{number}") for number in range(50)])
    await store.close()


async def test_look_ups_of_one_moment_share_a_round_trip_and_each_has_its_own_outcome(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(postgres_url)
    assert isinstance(store, SqlStore)
    database = store._database
    assert isinstance(database, postgres.Postgres)
    names = [f"one{number}" for number in range(40)]
    await asyncio.gather(*(store.put(record(name)) for name in names))
    sizes: list[int] = []
    run = database._reads._run

    async def noted(asked: Sequence[Any]) -> Sequence[list[Any]]:
        sizes.append(len(asked))
        return await run(asked)

    monkeypatch.setattr(database._reads, "_run", noted)
    wrong = postgres._Asked("SELECT nothing FROM nowhere", {})
    results = await asyncio.gather(
        *(store.get(name) for name in [*names, "missing"]),
        database._reads.execute(wrong),
        return_exceptions=True,
    )
    assert [each.response.id for each in results[:40] if isinstance(each, StoredResponse)] == names
    assert results[40] is None
    assert isinstance(results[41], Exception)
    assert sizes[:3] == [16, 16, 10]
    assert await store.get("one7") is not None
    assert all([await store.delete(name) for name in names])
    await store.close()


async def test_s9_leases_go_by_the_servers_clock_not_by_this_machines(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker whose clock is an hour ahead does not take the others' runs for dead."""
    right = time.time()
    ahead = SimpleNamespace(time=lambda: right + 3600.0, monotonic=time.monotonic)
    for module in ("database", "postgres"):
        monkeypatch.setattr(f"openresponses_server.store.sql.{module}.time", ahead)
    place = Place(emptied(postgres_url))
    try:
        assert abs(await place.open().now() - right) < 60
    finally:
        await place.close()

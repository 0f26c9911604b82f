"""The migrations lead to the tables that the queries are built from, and back."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Engine, create_engine, inspect, text
from sqlalchemy.pool import NullPool

from openresponses_bridge.protocol.input_items import MessageParam
from openresponses_server.store.base import Lease, StoredResponse, StoreError
from openresponses_server.store.frames import PIECE_BYTES, Frames
from openresponses_server.store.sql.locations import database_url
from openresponses_server.store.sql.migrate import _config, newest, upgrade
from openresponses_server.store.sql.migrations.versions import r0003_lz4
from openresponses_server.store.sql.sqlite_file import REVISION, VERSION_TABLE
from openresponses_server.store.sql.tables import metadata
from openresponses_server.store.stores import open_store
from tests.support.services import postgres_database
from tests.support.stores import Place, record


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """A database of its own, set up."""
    if request.param == "sqlite":
        url = database_url(f"sqlite:///{request.getfixturevalue('tmp_path')}/s.sqlite3")
        upgrade(url)
        yield create_engine(url, poolclass=NullPool)
    else:
        with postgres_database() as address:
            upgrade(database_url(address))
            yield create_engine(address, poolclass=NullPool)


def test_code_and_newest_migration_agree() -> None:
    assert newest() == REVISION


def test_migrations_make_the_tables(engine: Engine) -> None:
    with engine.connect() as connection:
        options = {"version_table": VERSION_TABLE, "compare_type": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, metadata) == []


def test_upgrade_says_what_it_did_and_may_be_repeated(engine: Engine) -> None:
    assert upgrade(engine.url) == (REVISION, REVISION)


async def test_items_of_a_database_at_0001_are_found_after_the_upgrade(engine: Engine) -> None:
    url = engine.url.render_as_string(hide_password=False).replace("+pysqlite", "")
    inputs = [f"in{number}" for number in range(250)]
    made = [record(f"r_{each}", input=[MessageParam("user", "a", id=each)]) for each in inputs]
    running = record("running", lease=Lease("w", 10.0), input=[])
    before = open_store(url)
    for each in (*made, running):
        await before.put(each)
    await before.close()
    with engine.begin() as connection:
        command.downgrade(_config(connection), "0001")
    assert upgrade(engine.url) == ("0001", REVISION)
    store = open_store(url)
    names = [each.response.output[0].id for each in made]
    unfinished = running.response.output[0].id
    assert (await store.items([*names, *inputs, unfinished])).keys() == {*names, *inputs}
    await store.finish("running", "w", running.response)
    assert (await store.items([unfinished])).keys() == {unfinished}
    assert await store.delete("r_in0")
    assert (await store.items([names[0], inputs[0]])) == {}
    await store.close()


async def test_sqlite_file_at_0001_is_upgraded_when_it_is_opened(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.sqlite3"
    await _at_0001(url, record("r"))
    store = open_store(url)
    assert [turn.response.id for turn in await store.chain("r")] == ["r"]
    await store.close()
    assert upgrade(database_url(url)) == (REVISION, REVISION)


async def test_postgres_at_0001_is_refused_until_it_is_upgraded() -> None:
    with postgres_database() as url:
        await _at_0001(url, record("r"))
        store = open_store(url)
        with pytest.raises(StoreError, match=r"at revision 0001 .* `openresponses-bridge db upgrade`"):
            await store.get("r")
        upgrade(database_url(url))
        assert await store.get("r") is not None
        await store.close()


async def _at_0001(url: str, stored: StoredResponse) -> None:
    store = open_store(url)
    await store.put(stored)
    await store.close()
    engine = create_engine(database_url(url), poolclass=NullPool)
    with engine.begin() as connection:
        command.downgrade(_config(connection), "0001")


_COMPRESSED = """SELECT attrelid::regclass || '.' || attname FROM pg_attribute
    WHERE attcompression = 'l' AND attrelid::regclass::text = ANY(:tables) ORDER BY 1"""
_LARGE = [
    "response_frames.data",
    "response_input.item",
    "response_pieces.data",
    "responses.request",
    "responses.response",
]


def _compressed(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.scalars(text(_COMPRESSED), {"tables": list(metadata.tables)}))


async def test_postgres_compresses_large_columns_with_lz4_from_0003_on() -> None:
    with postgres_database() as url:
        upgrade(database_url(url))
        engine = create_engine(database_url(url), poolclass=NullPool)
        with engine.connect() as connection:
            methods = "SELECT enumvals FROM pg_settings WHERE name = 'default_toast_compression'"
            if "lz4" not in (connection.scalar(text(methods)) or ()):
                pytest.skip("this PostgreSQL was built without lz4")
        assert _compressed(engine) == _LARGE
        store = open_store(url)
        await store.put(record("r", text="x" * 100_000))
        await store.close()
        with engine.begin() as connection:
            command.downgrade(_config(connection), "0002")
        assert _compressed(engine) == []
        assert upgrade(engine.url) == ("0002", REVISION)
        assert _compressed(engine) == _LARGE
        store = open_store(url)
        again = await store.get("r")
        assert again is not None
        assert again.response.output_text == "x" * 100_000
        await store.close()


def test_postgres_without_lz4_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with postgres_database() as url:
        upgrade(database_url(url))
        engine = create_engine(database_url(url), poolclass=NullPool)
        with engine.begin() as connection:
            command.downgrade(_config(connection), "0002")
        for unknown in ("SELECT ARRAY['pglz']", "SELECT enumvals FROM pg_settings WHERE false"):
            monkeypatch.setattr(r0003_lz4, "_METHODS", text(unknown))
            with engine.begin() as connection, Operations.context(MigrationContext.configure(connection)):
                r0003_lz4.upgrade()
            assert _compressed(engine) == []


def test_downgrade_leaves_nothing(engine: Engine) -> None:
    with engine.begin() as connection:
        command.downgrade(_config(connection), "base")
    assert inspect(engine).get_table_names() == [VERSION_TABLE]
    assert upgrade(engine.url) == (None, REVISION)


@pytest.mark.parametrize("times", [1, 5])
async def test_long_frames_survive_the_way_down_and_up(shared_place: Place, times: int) -> None:
    long = b"a: b\n\n" * (times * PIECE_BYTES // 6 + 1)
    count = long.count(b"\n\n")
    store = shared_place.open()
    await store.put(record("r"), Frames(0, count - 1, long))
    exported = [line async for line in store.export()]
    await store.close()
    engine = create_engine(database_url(shared_place.url), poolclass=NullPool)
    with engine.begin() as connection:
        command.downgrade(_config(connection), "0003")
        (data,) = connection.scalars(text("SELECT data FROM response_frames"))
        assert data == long
    upgrade(engine.url)
    again = shared_place.open()
    assert b"".join([piece.data async for piece in again.frames("r")]) == long
    assert [line async for line in again.export()] == exported

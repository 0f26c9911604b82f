"""The migrations lead to the tables that the queries are built from."""

import asyncio
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Engine, MetaData, create_engine, text
from sqlalchemy.pool import NullPool

from openresponses_server.store.base import StoreError
from openresponses_server.store.sql import database, migrate
from openresponses_server.store.sql.database import make_tables
from openresponses_server.store.sql.locations import database_url
from openresponses_server.store.sql.migrate import _config, upgrade
from openresponses_server.store.sql.migrations.versions import (
    r0007_baseline,
    r0008_conversations,
    r0009_used_once,
)
from openresponses_server.store.sql.sqlite_file import BASELINE, REVISION, VERSION_TABLE
from openresponses_server.store.sql.tables import metadata
from openresponses_server.store.stores import open_store
from openresponses_server.store.usage import NAMES
from tests.support.new_tables import MIGRATE, made_as_the_first
from tests.support.services import postgres_database
from tests.support.stores import record

DESCRIPTIONS = {
    "sqlite": ["SELECT name, sql FROM sqlite_master ORDER BY name"],
    "postgresql": [
        "SELECT table_name, column_name, data_type, is_nullable, column_default, collation_name"
        " FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2",
        "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1",
        "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE connamespace = 'public'::regnamespace ORDER BY 1",
    ],
}


@pytest.fixture(scope="module", autouse=True)
def _migrations() -> Iterator[None]:
    """All of them run for each database here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "upgrade", MIGRATE)
        yield


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
    assert ScriptDirectory.from_config(_config(None)).get_current_head() == REVISION


def test_migrations_make_the_tables(engine: Engine) -> None:
    with engine.connect() as connection:
        options = {"version_table": VERSION_TABLE, "compare_type": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, metadata) == []


def test_databases_of_other_tests_have_the_same_tables(engine: Engine) -> None:
    databases = []
    with made_as_the_first():
        for _ in range(2):
            tables = MetaData()
            tables.reflect(engine)
            tables.drop_all(engine)
            assert upgrade(engine.url) == (None, REVISION)
            with engine.connect() as connection:
                described = [
                    connection.execute(text(each)).all() for each in DESCRIPTIONS[engine.dialect.name]
                ]
                rows = [sorted(connection.execute(table.select()).all()) for table in tables.sorted_tables]
            databases.append((described, rows))
    assert databases[0] == databases[1]


def test_upgrade_says_what_it_did_and_may_be_repeated(engine: Engine) -> None:
    assert upgrade(engine.url) == (REVISION, REVISION)


@pytest.mark.parametrize("revision", ["0001", "0006"])
async def test_database_of_before_the_baseline_is_refused_and_stays_as_it_is(
    engine: Engine, revision: str
) -> None:
    url = engine.url.render_as_string(hide_password=False).replace("+pysqlite", "")
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '{revision}'"))
    store = open_store(url)
    way_out = f"at revision {revision} .*`openresponses-bridge db export`.*`openresponses-bridge db import`"
    with pytest.raises(StoreError, match=way_out) as refused:
        await store.get("r")
    assert refused.value.code == StoreError.OUTDATED
    await store.close()
    with pytest.raises(StoreError, match=way_out):
        upgrade(engine.url)
    with engine.connect() as connection:
        assert connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}")) == revision


@pytest.mark.parametrize("revision", ["0001", "9999"])
def test_what_another_process_refuses_is_raised_here(
    engine: Engine, revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '{revision}'"))
    with pytest.raises(StoreError) as here:
        make_tables(engine.url)
    monkeypatch.delitem(sys.modules, "alembic")
    with pytest.raises(StoreError) as apart:
        make_tables(engine.url)
    assert (apart.value.code, apart.value.in_full) == (here.value.code, here.value.in_full)


def test_a_process_that_ends_without_a_reason_is_a_failure(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "alembic")
    monkeypatch.setattr(
        database, "isolated_command", lambda module: [sys.executable, "-c", f"import {module}s"]
    )
    with pytest.raises(StoreError, match="can't be made") as failed:
        make_tables(engine.url)
    assert failed.value.code == StoreError.FAILED
    assert "ModuleNotFoundError" in failed.value.details


def test_file_whose_name_is_not_unicode_is_set_up_in_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / os.fsdecode(b"caf\xe9?.db")
    monkeypatch.delitem(sys.modules, "alembic")
    make_tables(URL.create("sqlite+pysqlite", database=str(file)))
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone() == (REVISION,)


async def test_database_that_seven_steps_led_to_is_used_as_it_is(engine: Engine) -> None:
    """Its tables are these; but what they say of who may use them is of an earlier step."""
    url = engine.url.render_as_string(hide_password=False).replace("+pysqlite", "")
    with engine.begin() as connection:
        connection.execute(text("UPDATE openresponses_bridge_usable SET oldest = '0004'"))
    assert upgrade(engine.url) == (REVISION, REVISION)
    store = open_store(url)
    await store.put(record("r"))
    assert [turn.response.id for turn in await store.chain("r")] == ["r"]
    await store.close()


async def test_database_of_the_baseline_is_upgraded_and_older_workers_go_on_using_it(engine: Engine) -> None:
    url = engine.url.render_as_string(hide_password=False).replace("+pysqlite", "")
    store = open_store(url)
    await store.put(record("r"))
    await store.close()
    with engine.begin() as connection:  # as it was at the baseline
        of_keys = ("api_keys", "api_key_changes", "api_key_history")
        for table in (*of_keys, "idempotency_keys", "used_once", "conversation_items"):
            connection.execute(text(f"DROP TABLE {table}"))
        connection.execute(text("DROP TABLE conversations"))
        connection.execute(text("ALTER TABLE responses DROP COLUMN conversation_id"))
        for table in ("usage_days", "usage_agents"):
            for column in ("priced", "cost"):
                connection.execute(text(f"ALTER TABLE {table} DROP COLUMN {column}"))
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '{BASELINE}'"))
    store = open_store(url)
    if engine.dialect.name == "sqlite":  # one machine's: opening it is enough
        assert await store.get("r") is not None
    else:
        with pytest.raises(StoreError, match=f"at revision {BASELINE} .*`openresponses-bridge db upgrade`"):
            await store.get("r")
        assert upgrade(engine.url) == (BASELINE, REVISION)
        assert await store.get("r") is not None
    await store.close()
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT oldest FROM openresponses_bridge_usable")) == BASELINE


def test_what_an_older_worker_counts_has_no_known_cost(engine: Engine) -> None:
    older = [name for name in NAMES if name not in ("priced", "cost")]
    columns, values = ", ".join(("owner", "day", "model", *older)), ", ".join("1" for _ in older)
    with engine.begin() as connection:
        connection.execute(
            text(f"INSERT INTO usage_days ({columns}) VALUES ('k', '2026-01-31', 'm', {values})")
        )
        row = connection.execute(text("SELECT requests, priced, cost FROM usage_days")).one()
    assert tuple(row) == (1, 0, 0)


async def test_tables_of_a_later_version_are_used_if_they_say_so(engine: Engine) -> None:
    url = engine.url.render_as_string(hide_password=False).replace("+pysqlite", "")
    for oldest, is_used in (REVISION, True), ("9999", False), (None, False):
        with engine.begin() as connection:
            connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
            if oldest is None:
                connection.execute(text("DROP TABLE openresponses_bridge_usable"))
            else:
                connection.execute(text(f"UPDATE openresponses_bridge_usable SET oldest = '{oldest}'"))
        store = open_store(url)
        if is_used:
            assert await store.get("r") is None
        else:
            with pytest.raises(StoreError, match="at revision 9999"):
                await store.get("r")
        await store.close()


async def test_several_set_up_one_postgres_at_once() -> None:
    with postgres_database() as url:
        engine = create_engine(database_url(url), poolclass=NullPool)
        program = (
            "import sys; from openresponses_cli.commands.cli import main\n"
            "main(['db', 'upgrade', '--store', sys.argv[1]])"
        )
        with migrate._only_one(engine):
            other = await asyncio.create_subprocess_exec(sys.executable, "-c", program, url)
            here = asyncio.create_task(asyncio.to_thread(upgrade, database_url(url)))
            await asyncio.sleep(0.2)
            assert not here.done()
        _before, after = await here
        assert after == REVISION
        assert await other.wait() == 0
        store = open_store(url)
        await store.put(record("r"))
        assert await store.get("r") is not None
        await store.close()


_COMPRESSED = """SELECT attrelid::regclass || '.' || attname FROM pg_attribute
    WHERE attcompression = 'l' AND attrelid::regclass::text = ANY(:tables) ORDER BY 1"""
_LARGE = [
    "conversation_items.item",
    "response_frames.data",
    "response_input.item",
    "response_pieces.data",
    "responses.request",
    "responses.response",
]


def _compressed(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.scalars(text(_COMPRESSED), {"tables": list(metadata.tables)}))


async def test_postgres_compresses_large_columns_with_lz4_where_it_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
        again = await store.get("r")
        assert again is not None
        assert again.response.output_text == "x" * 100_000
        await store.close()
    for unknown in ("SELECT ARRAY['pglz']", "SELECT enumvals FROM pg_settings WHERE false"):
        for step in (r0007_baseline, r0008_conversations):
            monkeypatch.setattr(step, "_METHODS", text(unknown))
        with postgres_database() as url:
            engine = create_engine(database_url(url), poolclass=NullPool)
            with engine.begin() as connection, Operations.context(MigrationContext.configure(connection)):
                r0007_baseline.upgrade()
                r0008_conversations.upgrade()
                r0009_used_once.upgrade()
            assert _compressed(engine) == []

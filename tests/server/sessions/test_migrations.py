"""The migrations lead to the tables that the queries are built from, and back."""

from collections.abc import Iterator

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, create_engine, inspect
from sqlalchemy.pool import NullPool

from server.sessions.locations import database_url
from server.sessions.migrate import _config, newest, upgrade
from server.sessions.tables import REVISION, VERSION_TABLE, metadata
from tests.support.services import postgres_database


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


def test_downgrade_leaves_nothing(engine: Engine) -> None:
    with engine.begin() as connection:
        command.downgrade(_config(connection), "base")
    assert inspect(engine).get_table_names() == [VERSION_TABLE]
    assert upgrade(engine.url) == (None, REVISION)

"""Bringing a database to the tables that this code needs."""

from __future__ import annotations

import threading
from typing import Any, Final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import URL, Connection, create_engine, event, inspect, text
from sqlalchemy.pool import NullPool

from server.sessions.errors import StoreError
from server.sessions.sql.failures import FAILURES, file_error, store_error
from server.sessions.sql.locations import file_of, is_sqlite, make_private_file
from server.sessions.sql.tables import VERSION_TABLE, metadata

# Any number, as long as it is always the same: who holds it upgrades.
_ADVISORY_LOCK: Final = 6_310_553_921_404_117
# Alembic keeps the migration that is running in module globals.
_one_at_a_time: Final = threading.Lock()


def upgrade(url: URL) -> tuple[str | None, str]:
    """Run what is missing, in one transaction; the revisions before and after. Blocks.

    Of several processes that try at once, one works and the others find it done. Raises StoreError.
    """
    try:
        with _one_at_a_time:
            return _upgrade(url)
    except CommandError as error:  # a revision that this version does not know
        raise StoreError(StoreError.OUTDATED, f"The session store is of another version: {error}.") from error
    except FAILURES as error:
        raise store_error(error) from error


def is_set_up(url: URL) -> bool:
    """Whether there is a database with our tables, of whatever revision; nothing is made. Blocks. Raises
    StoreError."""
    if is_sqlite(url) and not file_of(url).exists():
        return False
    engine = create_engine(url, poolclass=NullPool)
    try:
        with engine.connect() as connection:
            return _revision(connection) is not None
    except FAILURES as error:
        raise store_error(error) from error
    finally:
        engine.dispose()


def _upgrade(url: URL) -> tuple[str | None, str]:
    engine = create_engine(url, poolclass=NullPool)
    if is_sqlite(url):
        try:
            make_private_file(url)
        except OSError as error:
            raise file_error(error) from error
        event.listen(engine, "connect", _leave_transactions_to_us)
        event.listen(engine, "begin", _lock_for_writing)
    try:
        with engine.begin() as connection:
            if not is_sqlite(url):
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
            before = _revision(connection)
            if before is None:
                _refuse_tables_of_others(connection)
            command.upgrade(_config(connection), "head")
            return before, newest()
    finally:
        engine.dispose()


def newest() -> str:
    """The last of the migrations that this package ships."""
    head = ScriptDirectory.from_config(_config(None)).get_current_head()
    assert head is not None
    return head


def _revision(connection: Connection) -> str | None:
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    return context.get_current_revision()


def _refuse_tables_of_others(connection: Connection) -> None:
    foreign = metadata.tables.keys() & set(inspect(connection).get_table_names())
    if foreign:
        raise StoreError(
            StoreError.UNUSABLE,
            "The session store's database belongs to something else.",
            f"there is a table `{min(foreign)}` that openresponses-bridge did not make; give it a "
            "database of its own",
        )


def _config(connection: Connection | None) -> Config:
    config = Config()
    config.set_main_option("script_location", "server.sessions.sql:migrations")
    config.attributes["connection"] = connection
    return config


def _leave_transactions_to_us(dbapi_connection: Any, _record: Any) -> None:
    dbapi_connection.isolation_level = None  # sqlite3 would begin no transaction before CREATE TABLE
    dbapi_connection.execute("PRAGMA busy_timeout = 30000")
    dbapi_connection.execute("PRAGMA journal_mode = WAL")


def _lock_for_writing(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")

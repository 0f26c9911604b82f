"""Upgrades a database to the tables of this code."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.util import CommandError
from sqlalchemy import URL, Connection, Engine, Index, create_engine, event, inspect, text
from sqlalchemy.pool import NullPool

from openresponses_server.store.base import StoreError
from openresponses_server.store.sql.failures import FAILURES, file_error, outdated, store_error
from openresponses_server.store.sql.locations import file_of, is_sqlite, make_private_file
from openresponses_server.store.sql.sqlite_file import REVISION, VERSION_TABLE
from openresponses_server.store.sql.tables import (
    NAMED_INPUT,
    WAITING,
    agents,
    days,
    metadata,
    response_input,
    response_output,
    responses,
)

# The indexes of the tables, which migrations make. No query is built from them, and SQLAlchemy loads both
# databases' code for them: so they are here, and who migrates gets the tables with all that is theirs.

_CONTINUING: Final = responses.c.previous_response_id.is_not(None)
_EXPIRING: Final = responses.c.expires_at.is_not(None)
_RUNNING: Final = responses.c.lease_until.is_not(None)
Index(
    "ix_responses_previous_response_id",
    responses.c.previous_response_id,
    sqlite_where=_CONTINUING,
    postgresql_where=_CONTINUING,
)
Index("ix_responses_expires_at", responses.c.expires_at, sqlite_where=_EXPIRING, postgresql_where=_EXPIRING)
Index("ix_responses_lease_until", responses.c.lease_until, sqlite_where=_RUNNING, postgresql_where=_RUNNING)
Index("ix_responses_listed", responses.c.owner, responses.c.created_at, responses.c.id)
Index("ix_responses_waiting", responses.c.owner, sqlite_where=WAITING, postgresql_where=WAITING)
Index(
    "ix_response_input_item_id",
    response_input.c.item_id,
    sqlite_where=NAMED_INPUT,
    postgresql_where=NAMED_INPUT,
)
Index("ix_response_output_item_id", response_output.c.item_id)
Index("ix_usage_days_day", days.c.day)
Index("ix_usage_agents_used_at", agents.c.used_at)


# Any number, as long as it is always the same: who holds it upgrades.
_ADVISORY_LOCK: Final = 6_310_553_921_404_117
_LOOK: Final = 0.05  # seconds between two checks whether another process is done
# Alembic keeps the migration that is running in module globals.
_one_at_a_time: Final = threading.Lock()


def upgrade(url: URL) -> tuple[str | None, str]:
    """Run the missing migrations in one transaction; returns the revisions before and after. Blocks. Of
    several processes that try at once, one does the work and the others find it done. Raises StoreError, also
    for a database made before the baseline."""
    try:
        with _one_at_a_time:
            return _upgrade(url), REVISION
    except CommandError as error:  # a revision that this version does not know
        raise StoreError(StoreError.OUTDATED, f"The session store is of another version: {error}.") from error
    except FAILURES as error:
        raise store_error(error) from error


def is_set_up(url: URL) -> bool:
    """Whether a database with our tables exists, of any revision; makes nothing. Blocks. Raises
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


def writing_engine(url: URL) -> Engine:
    """Connections whose transactions write, of this process alone. SQLite's file is made if need be. Raises
    StoreError."""
    engine = create_engine(url, poolclass=NullPool)
    if is_sqlite(url):
        try:
            make_private_file(url)
        except OSError as error:
            raise file_error(error) from error
        event.listen(engine, "connect", _leave_transactions_to_us)
        event.listen(engine, "begin", _lock_for_writing)
    return engine


def _upgrade(url: URL) -> str | None:
    """The revision before."""
    engine = writing_engine(url)
    try:
        with nullcontext() if is_sqlite(url) else _only_one(engine), engine.begin() as connection:
            before = _revision(connection)
            if before is None:
                _refuse_tables_of_others(connection)
            elif before < REVISION:
                raise outdated(before)
            command.upgrade(_config(connection), "head")
            return before
    finally:
        engine.dispose()


@contextmanager
def _only_one(engine: Engine) -> Iterator[None]:
    """Of several processes, the others wait outside of any transaction."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        lock = text("SELECT pg_try_advisory_lock(:key)")
        while not connection.scalar(lock, {"key": _ADVISORY_LOCK}):
            time.sleep(_LOOK)
        try:
            yield
        finally:
            connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": _ADVISORY_LOCK})


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
    config.set_main_option("script_location", "openresponses_server.store.sql:migrations")
    config.attributes["connection"] = connection
    return config


def _leave_transactions_to_us(dbapi_connection: Any, _record: Any) -> None:
    dbapi_connection.isolation_level = None  # sqlite3 would begin no transaction before CREATE TABLE
    dbapi_connection.execute("PRAGMA busy_timeout = 30000")
    dbapi_connection.execute("PRAGMA journal_mode = WAL")
    dbapi_connection.execute("PRAGMA foreign_keys = ON")


def _lock_for_writing(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")

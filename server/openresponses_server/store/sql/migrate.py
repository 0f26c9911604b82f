"""Upgrades a database to the tables of this code."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.util import CommandError
from sqlalchemy import URL, Connection, Engine, Index, bindparam, create_engine, event, inspect, select, text
from sqlalchemy.pool import NullPool

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_bridge.protocol.secrets import json_without_secrets, request_json_without_secrets
from openresponses_server.store.base import StoreError
from openresponses_server.store.sql.failures import FAILURES, file_error, outdated, store_error
from openresponses_server.store.sql.locations import file_of, is_sqlite, make_private_file
from openresponses_server.store.sql.sqlite_file import BASELINE, REVISION, VERSION_TABLE
from openresponses_server.store.sql.tables import (
    NAMED_INPUT,
    WAITING,
    agents,
    api_keys,
    conversation_items,
    conversations,
    days,
    idempotency_keys,
    metadata,
    response_frames,
    response_input,
    response_output,
    response_pieces,
    responses,
    used_once,
)

# The indexes of the tables, which migrations make. No query is built from them, and SQLAlchemy loads both
# databases' code for them. So they are here, where a migration finds the tables with everything that belongs
# to them.

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
_FADING: Final = conversations.c.expires_at.is_not(None)
Index("ix_conversations_owner", conversations.c.owner)
Index(
    "ix_conversations_expires_at", conversations.c.expires_at, sqlite_where=_FADING, postgresql_where=_FADING
)
Index(
    "ix_conversation_items_item_id",
    conversation_items.c.conversation_id,
    conversation_items.c.item_id,
    unique=True,
)
Index("ix_api_keys_hash", api_keys.c.hash, unique=True)
Index("ix_usage_days_day", days.c.day)
Index("ix_usage_agents_used_at", agents.c.used_at)
Index("ix_idempotency_keys_response_id", idempotency_keys.c.response_id)
Index("ix_idempotency_keys_until", idempotency_keys.c.until)
Index("ix_used_once_until", used_once.c.until)


# Any number, as long as it is always the same: the process that holds this lock upgrades.
_ADVISORY_LOCK: Final = 6_310_553_921_404_117
_LOOK: Final = 0.05  # seconds between two checks whether another process is done
# Alembic keeps the migration that is running in module globals.
_one_at_a_time: Final = threading.Lock()


def upgrade(url: URL) -> tuple[str | None, str]:
    """Run the missing migrations in one transaction. Returns the revisions before and after. Blocks. If
    several processes try at once, one does the work and the others find it done. Raises StoreError, also for
    a database made before the baseline."""
    try:
        with _one_at_a_time:
            return _upgrade(url), REVISION
    except CommandError as error:  # a revision that this version does not know
        raise StoreError(StoreError.OUTDATED, f"The session store is of another version: {error}.") from error
    except FAILURES as error:
        raise store_error(error) from error


def main() -> None:
    """Upgrade the database whose URL, in its parts as JSON, is on standard input. A StoreError is written to
    standard output as JSON, and the process then exits with status 1."""
    try:
        upgrade(URL.create(**decode_json(sys.stdin.buffer.read())))
    except StoreError as error:
        failure = {"code": error.code, "message": error.message, "details": error.details}
        sys.stdout.buffer.write(encode(failure))
        sys.exit(1)


def remove_secrets(url: URL) -> int:
    """Remove the secrets of tools, which earlier versions have stored, from ended responses, their input,
    requests and frames. Returns how many responses had any. Blocks. Each response is a transaction of its
    own, so that servers continue and an interrupted call may be repeated. Raises StoreError."""
    engine = writing_engine(url)
    try:
        with engine.connect() as connection:
            if is_sqlite(url):
                connection.connection.cursor().execute("PRAGMA secure_delete = ON")
            done, after = 0, ""
            while True:
                with connection.begin():
                    response_ids = connection.scalars(_NEXT_IDS, {"after": after}).all()
                for response_id in response_ids:
                    with connection.begin():
                        done += _clean_response(connection, response_id)
                if not response_ids:
                    break
                after = response_ids[-1]
            if done and is_sqlite(url):  # older pages, with what was removed, may still be in the log
                connection.connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return done
    except FAILURES as error:
        raise store_error(error) from error
    finally:
        engine.dispose()


_ENDED: Final = responses.c.lease_until.is_(None)  # a running one may need its secrets, stored nowhere else
_NEXT_IDS: Final = (
    select(responses.c.id)
    .where(responses.c.id > bindparam("after"), _ENDED)
    .order_by(responses.c.id)
    .limit(500)
)
_TOOLS: Final = b'"tools":[{'


def _clean_response(connection: Connection, response_id: str) -> bool:
    """Remove the secrets of a response. Returns True if it had any."""
    columns = responses.c.response, responses.c.request
    which = select(*columns).where(responses.c.id == response_id, _ENDED).with_for_update()
    row = connection.execute(which).first()
    if row is None:  # deleted meanwhile
        return False
    response, request = _cleaned(row.response), row.request and _cleaned_request(row.request)
    changed = [response, request] != [row.response, row.request]
    if changed:
        values = {"response": response, "request": request}
        connection.execute(responses.update().where(responses.c.id == response_id).values(**values))
    whose = response_input.c.response_id == response_id
    for position, item in connection.execute(
        select(response_input.c.position, response_input.c.item).where(whose)
    ).all():
        cleaned = _cleaned(item)
        if cleaned != item:
            changed = True
            at = whose & (response_input.c.position == position)
            connection.execute(response_input.update().where(at).values(item=cleaned))
    if response != row.response:  # its frames have the same content
        _clean_frames(connection, response_id)
    return changed


def _clean_frames(connection: Connection, response_id: str) -> None:
    """Remove secrets from a response's frames, one checkpoint at a time. All frames keep their lengths, on
    which readers rely."""
    blocks = response_frames, response_pieces
    rows, more = (table.c.response_id == response_id for table in blocks)
    firsts = connection.scalars(select(response_frames.c.first_sequence).where(rows)).all()
    for first in firsts:
        row = rows & (response_frames.c.first_sequence == first)
        pieces = more & (response_pieces.c.first_sequence == first)
        stored = [(response_frames, row, connection.scalar(select(response_frames.c.data).where(row)) or b"")]
        query = select(response_pieces.c.piece, response_pieces.c.data).where(pieces)
        for piece, data in connection.execute(query.order_by(response_pieces.c.piece)).all():
            stored.append((response_pieces, pieces & (response_pieces.c.piece == piece), data))
        whole = b"".join(data for _, _, data in stored)
        cleaned = b"".join(_cleaned(line, padded=True) for line in whole.splitlines(keepends=True))
        start, last = 0, stored[-1][1]
        for table, which, data in stored:
            part = cleaned[start : None if which is last else start + len(data)]
            start += len(data)
            if part != data:
                connection.execute(table.update().where(which).values(data=part))


def _cleaned_request(data: bytes) -> bytes:
    data = _cleaned(data)
    try:
        body = decode_json(data)
    except WireError:
        return data
    cleaned = request_json_without_secrets(body) if isinstance(body, dict) else body
    return data if cleaned is body else encode(cleaned)


def _cleaned(data: bytes, *, padded: bool = False) -> bytes:
    """Return JSON, or a line of a frame with JSON, without the secrets of the tools in it. What can't be
    decoded is not changed. `padded`: filled up with spaces to the same length."""
    if _TOOLS not in data:
        return data
    start, length = data.index(b"{"), len(data)
    try:
        body = decode_json(data[start:])
    except WireError:
        return data
    for tools, clean_tools in json_without_secrets(body):
        before, after = encode(tools), encode(clean_tools)
        tools[:] = clean_tools
        if before in data:
            data = data.replace(before, after.ljust(len(before)) if padded else after)
        else:  # it was not encoded by this code
            data = data[:start] + encode(body)
            data = data.ljust(length - 1) + b"\n" if padded else data
    return data


def is_set_up(url: URL) -> bool:
    """Return True if a database with our tables exists, of any revision; makes nothing. Blocks. Raises
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
    """Return an engine whose transactions write, for this process only. SQLite's file is made if need be.
    Raises StoreError."""
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
    """Upgrade the tables. Returns the revision before."""
    engine = writing_engine(url)
    try:
        with nullcontext() if is_sqlite(url) else _only_one(engine), engine.begin() as connection:
            before = _revision(connection)
            if before is None:
                _refuse_tables_of_others(connection)
            elif before < BASELINE:
                raise outdated(before)
            command.upgrade(_config(connection), "head")
            return before
    finally:
        engine.dispose()


@contextmanager
def _only_one(engine: Engine) -> Iterator[None]:
    """Let one process at a time migrate; the others wait outside any transaction."""
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

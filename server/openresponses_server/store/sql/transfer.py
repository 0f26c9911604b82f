"""`db import`: writes the lines of an export to a database.

Each record is imported whole or not at all, and some hundred are committed at once. Existing records are not
changed: a record whose id exists is left out. A record in progress is imported as interrupted, so that
nothing is made again.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, Protocol

from msgspec.structs import replace
from sqlalchemy import URL, Connection, NestedTransaction, bindparam, select
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError

from openresponses_bridge.protocol.codec import encode, encode_sse
from openresponses_bridge.protocol.response import Response
from openresponses_server.http.managed_keys import ManagedKey
from openresponses_server.settings import SettingsError
from openresponses_server.store.base import StoreError
from openresponses_server.store.endings import closing_events, interrupted
from openresponses_server.store.export_lines import (
    BadLine,
    ReadConversation,
    ReadFrames,
    ReadItems,
    ReadRecord,
    read_line,
)
from openresponses_server.store.frames import Frames
from openresponses_server.store.idempotency import KeyTaken
from openresponses_server.store.lookups import output_names
from openresponses_server.store.records import HIDDEN, Row, is_hidden
from openresponses_server.store.sql import queries
from openresponses_server.store.sql.conversation_rows import insert_conversation, insert_more
from openresponses_server.store.sql.database import revision_of
from openresponses_server.store.sql.failures import FAILURES, file_error, outdated, store_error
from openresponses_server.store.sql.key_rows import insert_key, record_changes
from openresponses_server.store.sql.locations import file_of, is_sqlite
from openresponses_server.store.sql.migrate import upgrade, writing_engine
from openresponses_server.store.sql.record_rows import use_key
from openresponses_server.store.sql.sqlite_file import REVISION
from openresponses_server.store.sql.tables import conversations
from openresponses_server.store.sql.writes import RunChanges, Write, execute

LONGEST_LINE: Final = 512 * 1024 * 1024
"""The limit of a line in bytes; a longer one is refused and skipped in pieces."""

_PIECE: Final = 1024 * 1024
_BATCH_RECORDS: Final = 200
_BATCH_SECONDS: Final = 0.5  # seconds for which other writers of a SQLite file wait
_REFUSALS: Final = (DataError, IntegrityError, sqlite3.DataError, sqlite3.IntegrityError)
_OWNER_OF_CONVERSATION: Final = select(conversations.c.owner).where(conversations.c.id == bindparam("of_id"))
_WORKER: Final = "import"
"""The holder of a record in an import's transaction while parts of it are still to come."""

Refused = Callable[[int, str], None]
"""Called with the number of a line, from 1, and the reason for which it is refused."""


class BinaryLines(Protocol):
    """The methods of a binary file that an import uses."""

    def readline(self, limit: int, /) -> bytes: ...

    def seekable(self) -> bool: ...


class Imported:
    """The counts of an import: responses, conversations and keys that were imported, those that already
    existed, and refused lines."""

    def __init__(self) -> None:
        self.new = 0
        self.conversations = 0
        self.keys = 0
        self.present = 0
        self.refused = 0


def import_lines(url: URL, source: BinaryLines, refused: Refused) -> Imported:
    """Import the lines; in an empty database, makes the tables. Blocks. May be repeated. Raises StoreError;
    everything that was counted until then is imported."""
    engine = writing_engine(url)
    try:
        with engine.connect() as connection:
            revision = revision_of(connection)
            connection.rollback()
        if revision is None:
            upgrade(url)
        elif revision != REVISION:
            raise outdated(revision)
        with engine.connect() as connection:
            return _Importer(connection, refused).run(source)
    except FAILURES as error:
        raise store_error(error) from error
    finally:
        engine.dispose()


def numbered_lines(source: BinaryLines, longest: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield the lines with their numbers, from 1; None for one that is too long."""
    number = 0
    while line := source.readline(longest + 1):
        number += 1
        if len(line) <= longest:
            yield number, line
            continue
        while line and not line.endswith(b"\n"):
            line = source.readline(_PIECE)
        yield number, None


class _Importer:
    """One import over a connection. `_open` is the record whose frames may follow, `_number` the number of
    its line and `_last` the number of its last event so far; `_point` is the savepoint before it."""

    def __init__(self, connection: Connection, refused: Refused) -> None:
        self._connection = connection
        self._report = refused
        self._done = Imported()
        self._open: ReadRecord | None = None
        self._number = 0
        self._last = -1
        self._point: NestedTransaction | None = None
        self._left_out = ""
        """The id of a record or conversation that was refused or exists already: its further lines are
        skipped."""
        self._conversation: ReadConversation | None = None
        """The conversation whose items may follow; the number of items to come is `_missing`."""
        self._missing = 0

    def run(self, source: BinaryLines) -> Imported:
        begun, records = time.monotonic(), 0
        # a pipe may be slow, and other writers must not wait for its lock
        most = _BATCH_RECORDS if source.seekable() else 1
        for number, line in numbered_lines(source, LONGEST_LINE):
            if line is not None and not line.strip():
                continue
            try:
                if line is None:
                    raise BadLine(f"is longer than {LONGEST_LINE} bytes")
                contents = read_line(line)
            except BadLine as error:
                self._end_record()
                self._refuse(number, str(error))
                continue
            if isinstance(contents, ReadFrames):
                self._add(number, contents)
                continue
            if isinstance(contents, ReadItems):
                self._add_items(number, contents)
                continue
            self._end_record()
            if isinstance(contents, ManagedKey):
                self._import_key(number, contents)
            elif isinstance(contents, ReadConversation):
                self._begin_conversation(number, contents)
            else:
                self._begin_record(number, contents)
            records += 1
            is_whole = self._open is None and self._conversation is None
            if is_whole and (records >= most or time.monotonic() - begun > _BATCH_SECONDS):
                self._connection.commit()
                begun, records = time.monotonic(), 0
        self._end_record()
        self._connection.commit()
        return self._done

    def _refuse(self, number: int, why: str) -> None:
        self._done.refused += 1
        self._report(number, why)

    def _begin_record(self, number: int, record: ReadRecord) -> None:
        row, last = record.row, -1 if record.frames is None else record.frames.last
        if last != row.last_sequence or row.lease_until is not None:
            row = replace(row, lease_worker=_WORKER, lease_until=0.0, last_sequence=last)
        output = [] if is_hidden(row.owner) else output_names(record.response)
        self._left_out = row.id
        self._point = self._connection.begin_nested()
        try:
            is_new = execute(self._connection, Write(row, record.frames, record.input, output))
        except _REFUSALS as error:
            self._fail(number, _refused_by_database(error))
            return
        if not is_new:
            self._go_back()
            self._there(number, row.id, row.owner)
            return
        self._left_out = ""
        if record.key is not None:
            with suppress(KeyTaken):  # a response that exists has the key
                use_key(self._connection, record.key, row, time.time())
        if row is record.row:
            self._keep()
            return
        self._open, self._number, self._last = record, number, last
        if last == record.row.last_sequence:
            self._end_record()

    def _there(self, number: int, response_id: str, owner: str) -> None:
        there = self._connection.scalar(queries.OWNER, {"of_id": response_id})
        if there is None or there.removeprefix(HIDDEN) != owner.removeprefix(HIDDEN):
            self._refuse(number, "a response with this id already exists and belongs to another owner")
        else:
            self._done.present += 1

    def _add(self, number: int, contents: ReadFrames) -> None:
        """Add the frames of a separate line."""
        if contents.response_id == self._left_out:
            return
        if self._open is None or contents.response_id != self._open.row.id:
            self._end_record()
            self._refuse(number, "frames do not follow their response")
        elif contents.frames.first != self._last + 1 or contents.frames.last > self._open.row.last_sequence:
            self._fail(number, "frames do not follow those before")
        else:
            self._change(self._open.row, 0.0, contents.frames)
            self._last = contents.frames.last

    def _change(
        self, row: Row, lease_until: float | None, frames: Frames | None = None, ended: Response | None = None
    ) -> None:
        changes = RunChanges(
            of_id=row.id,
            of_worker=_WORKER,
            updated_at=row.updated_at,
            lease_until=lease_until,
            response=None if ended is None else encode(ended),
            status=None if ended is None else ended.status,
        )
        execute(self._connection, Write(changes, frames))

    def _begin_conversation(self, number: int, contents: ReadConversation) -> None:
        conversation = contents.conversation
        self._left_out = conversation.id
        self._point = self._connection.begin_nested()
        try:
            is_new = insert_conversation(self._connection, conversation, [])
        except _REFUSALS as error:
            self._fail(number, _refused_by_database(error))
            return
        if not is_new:
            self._go_back()
            there = self._connection.scalar(_OWNER_OF_CONVERSATION, {"of_id": conversation.id})
            if there == conversation.owner:
                self._done.present += 1
            else:
                self._refuse(
                    number, "a conversation with this id already exists and belongs to another owner"
                )
            return
        self._left_out = ""
        self._conversation, self._number, self._missing = contents, number, contents.items
        if not contents.items:
            self._end_record()

    def _import_key(self, number: int, key: ManagedKey) -> None:
        self._point = self._connection.begin_nested()
        try:
            record_changes(self._connection, self._connection.dialect.name, [key.id])
            is_new = insert_key(self._connection, key)
        except _REFUSALS as error:
            self._fail(number, _refused_by_database(error))
            return
        self._point.commit()
        self._point = None
        if is_new:
            self._done.keys += 1
        else:  # one that was revoked here stays revoked
            self._done.present += 1

    def _add_items(self, number: int, contents: ReadItems) -> None:
        """Add the items of a separate line."""
        if contents.conversation_id == self._left_out:
            return
        if self._conversation is None or contents.conversation_id != self._conversation.conversation.id:
            self._end_record()
            self._refuse(number, "items do not follow their conversation")
            return
        self._missing -= len(contents.rows)
        if self._missing < 0:
            self._fail(number, "there are more items than the conversation has")
            return
        try:
            insert_more(self._connection, contents.conversation_id, contents.rows)
        except _REFUSALS as error:
            self._fail(number, _refused_by_database(error))

    def _end_record(self) -> None:
        """End the record or conversation, which was read completely."""
        if self._conversation is not None:
            if self._missing:
                self._fail(self._number, f"{self._missing} items are missing")
            else:
                self._keep()
            self._left_out = ""
            return
        record = self._open
        if record is None:
            self._left_out = ""
            return
        if self._last != record.row.last_sequence:
            self._fail(self._number, f"the frames after event {self._last} are missing")
            return
        if record.row.lease_until is None:
            self._change(record.row, None)
        else:
            ended = interrupted(record.response, whole=False)
            events = closing_events(ended, self._last)
            frames = Frames(self._last + 1, self._last + len(events), encode_sse(events))
            self._change(record.row, None, frames, ended)
        self._keep()

    def _keep(self) -> None:
        """Commit the record and count it as imported."""
        assert self._point is not None
        self._point.commit()
        if self._conversation is None:
            self._done.new += 1
        else:
            self._done.conversations += 1
        self._open = self._point = self._conversation = None

    def _fail(self, number: int, why: str) -> None:
        """Undo the import of this record."""
        record, conversation = self._open, self._conversation
        self._go_back()
        if record is not None:
            self._left_out = record.row.id
        if conversation is not None:
            self._left_out = conversation.conversation.id
        self._refuse(number, why)

    def _go_back(self) -> None:
        if self._point is not None:
            self._point.rollback()
        self._open = self._point = self._conversation = None


def _refused_by_database(error: Exception) -> str:
    cause = error.orig if isinstance(error, DBAPIError) else error
    return f"the database refuses it: {type(cause).__name__}"


_TIMEOUT: Final = 30.0  # seconds to wait for a lock


def back_up(url: URL, target: Path) -> int:
    """Copy a snapshot of the database, without deleted data, to a new file that only its owner can read.
    Returns its size in bytes. Blocks, but writers do not wait. Raises StoreError, and SettingsError if the
    target exists or the database is not SQLite.

    The file gets its name when it is complete, checked and on disk.
    """
    if not is_sqlite(url):
        raise SettingsError("a store in PostgreSQL is backed up by pg_dump: see docs/backup.md")
    if target.exists():
        raise SettingsError(f"{target} already exists")
    unfinished = target.with_name(f"{target.name}.unfinished")
    try:
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError as error:
        raise file_error(error) from error
    try:
        _copy(file_of(url), unfinished)
        size = unfinished.stat().st_size
        os.link(unfinished, target)  # unlike a renaming, does not replace a file made meanwhile
        _sync(target.parent)
        return size
    except sqlite3.Error as error:
        raise store_error(error) from error
    except OSError as error:
        raise file_error(error) from error
    finally:
        with suppress(OSError):
            unfinished.unlink()


def _copy(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source, timeout=_TIMEOUT, isolation_level=None)) as opened:
        opened.execute("VACUUM INTO ?", (str(target),))
    with closing(sqlite3.connect(target)) as copy:
        (result,) = copy.execute("PRAGMA quick_check(1)").fetchone()
    if result != "ok":
        raise StoreError(StoreError.UNUSABLE, "The session store's file is damaged.", str(result))
    _sync(target)


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)

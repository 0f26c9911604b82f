"""`db import`: lines of an export → a database.

Each record is imported whole or not at all, and some hundred are committed at once. What the database has is
never changed: a record whose id is there is left out. What was in progress is imported as interrupted, so
that an import starts nothing.
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
from sqlalchemy import URL, Connection, NestedTransaction, select
from sqlalchemy.exc import DataError, IntegrityError

from openresponses_bridge.protocol.codec import encode, encode_sse
from openresponses_server.settings import SettingsError
from openresponses_server.store.base import StoreError
from openresponses_server.store.endings import closing_events, interrupted
from openresponses_server.store.export_lines import (
    BadLine,
    ReadFrames,
    ReadRecord,
    read_line,
)
from openresponses_server.store.frames import Frames
from openresponses_server.store.records import HIDDEN, is_hidden
from openresponses_server.store.sql import queries
from openresponses_server.store.sql.database import revision_of
from openresponses_server.store.sql.failures import FAILURES, file_error, outdated, store_error
from openresponses_server.store.sql.locations import file_of, is_sqlite
from openresponses_server.store.sql.lookup_rows import put_output_names
from openresponses_server.store.sql.migrate import upgrade, writing_engine
from openresponses_server.store.sql.record_rows import put_frames, put_input, put_new
from openresponses_server.store.sql.sqlite_file import REVISION
from openresponses_server.store.sql.tables import responses

LONGEST_LINE: Final = 512 * 1024 * 1024
"""Bytes of one line; a longer one is refused and skipped in pieces."""

_PIECE: Final = 1024 * 1024
_BATCH_RECORDS: Final = 200
_BATCH_SECONDS: Final = 0.5  # other writers of a SQLite file wait for so long
_OWNER: Final = select(responses.c.owner)

Refused = Callable[[int, str], None]
"""Called with the number of a line, from 1, and what is wrong with it."""


class BinaryLines(Protocol):
    """The methods of a binary file that an import uses."""

    def readline(self, limit: int, /) -> bytes: ...

    def seekable(self) -> bool: ...


class Imported:
    """How many responses were imported, how many were present already, and how many lines were refused."""

    def __init__(self) -> None:
        self.new = 0
        self.present = 0
        self.refused = 0


def import_lines(url: URL, source: BinaryLines, refused: Refused) -> Imported:
    """Import the lines; makes the tables in an empty database. Blocks. May be repeated. Raises StoreError;
    everything counted until then is imported."""
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
            return _Importer(connection, url.get_backend_name(), refused).run(source)
    except FAILURES as error:
        raise store_error(error) from error
    finally:
        engine.dispose()


def numbered_lines(source: BinaryLines, longest: int) -> Iterator[tuple[int, bytes | None]]:
    """The lines with their numbers, from 1; None for one that is too long."""
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
    """One import over a connection. `_open` is the record whose frames may follow, with its line's number and
    the last of its events that is there; `_point` is what a failure of it goes back to."""

    def __init__(self, connection: Connection, dialect: str, refused: Refused) -> None:
        self._connection = connection
        self._dialect = dialect
        self._report = refused
        self._done = Imported()
        self._open: ReadRecord | None = None
        self._number = 0
        self._last = -1
        self._point: NestedTransaction | None = None
        self._left_out = ""
        """The id of a record that was refused or is present: its frames are read past."""

    def run(self, source: BinaryLines) -> Imported:
        begun, records = time.monotonic(), 0
        # what comes from a program may be long in coming, and nobody is to wait for a lock so long
        most = _BATCH_RECORDS if source.seekable() else 1
        for number, line in numbered_lines(source, LONGEST_LINE):
            if line is not None and not line.strip():
                continue
            try:
                if line is None:
                    raise BadLine(f"is longer than {LONGEST_LINE} bytes")
                found = read_line(line)
            except BadLine as error:
                self._end_record()
                self._refuse(number, str(error))
                continue
            if isinstance(found, ReadFrames):
                self._add(number, found)
                continue
            self._end_record()
            self._begin_record(number, found)
            records += 1
            if self._open is None and (records >= most or time.monotonic() - begun > _BATCH_SECONDS):
                self._connection.commit()
                begun, records = time.monotonic(), 0
        self._end_record()
        self._connection.commit()
        return self._done

    def _refuse(self, number: int, why: str) -> None:
        self._done.refused += 1
        self._report(number, why)

    def _begin_record(self, number: int, found: ReadRecord) -> None:
        row = found.row
        if row.lease_until is not None:
            ended = interrupted(found.response, whole=False)
            row = replace(
                row, status=ended.status, response=encode(ended), lease_worker=None, lease_until=None
            )
        self._left_out = row.id
        self._point = self._connection.begin_nested()
        try:
            if not put_new(self._connection, self._dialect, row):
                self._go_back()
                self._there(number, row.id, row.owner)
                return
            put_input(self._connection, self._dialect, row.id, found.input)
            if not is_hidden(row.owner):
                put_output_names(self._connection, self._dialect, row.id, found.response)
            self._left_out = ""
            self._open, self._number, self._last = found, number, -1
            self._put(found.frames)
            if self._last == row.last_sequence:
                self._end_record()
        except (DataError, IntegrityError) as error:
            self._fail(number, f"the database refuses it: {type(error.orig).__name__}")

    def _there(self, number: int, response_id: str, owner: str) -> None:
        there = self._connection.scalar(_OWNER.where(responses.c.id == response_id))
        if there is None or there.removeprefix(HIDDEN) != owner.removeprefix(HIDDEN):
            self._refuse(number, "a response with this id already exists and belongs to another owner")
        else:
            self._done.present += 1

    def _add(self, number: int, found: ReadFrames) -> None:
        """Frames in a line of their own."""
        if found.response_id == self._left_out:
            return
        if self._open is None or found.response_id != self._open.row.id:
            self._end_record()
            self._refuse(number, "frames do not follow their response")
        elif found.frames.first != self._last + 1 or found.frames.last > self._open.row.last_sequence:
            self._fail(number, "frames do not follow those before")
        else:
            self._put(found.frames)

    def _put(self, frames: Frames | None) -> None:
        assert self._open is not None
        put_frames(self._connection, self._dialect, self._open.row.id, frames)
        if frames is not None:
            self._last = frames.last

    def _end_record(self) -> None:
        """The record was read completely."""
        found = self._open
        if found is None or self._point is None:
            self._left_out = ""
            return
        if self._last != found.row.last_sequence:
            self._fail(self._number, f"the frames after event {self._last} are missing")
            return
        if found.row.lease_until is not None:
            events = closing_events(interrupted(found.response, whole=False), self._last)
            closing = Frames(self._last + 1, self._last + len(events), encode_sse(events))
            self._put(closing)
            self._connection.execute(queries.SET_LAST, {"of_id": found.row.id, "last_sequence": closing.last})
        self._point.commit()
        self._done.new += 1
        self._open = self._point = None

    def _fail(self, number: int, why: str) -> None:
        """Import nothing of this record."""
        found = self._open
        self._go_back()
        if found is not None:
            self._left_out = found.row.id
        self._refuse(number, why)

    def _go_back(self) -> None:
        if self._point is not None:
            self._point.rollback()
        self._open = self._point = None


_PATIENCE: Final = 30.0  # seconds to wait for a lock


def back_up(url: URL, target: Path) -> int:
    """Copy the database as it is at one moment, without what was deleted from it, to a file of the user's own
    that is not there yet; its size in bytes. Blocks; writers are not held up. Raises StoreError, and
    SettingsError for what can't be asked for.

    The file has its name when it is whole, checked and on disk, and not before.
    """
    if not is_sqlite(url):
        raise SettingsError("store postgresql: is backed up by pg_dump (see docs/backup.md)")
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
        os.link(unfinished, target)  # unlike a renaming, never over a file that has come meanwhile
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
    with closing(sqlite3.connect(source, timeout=_PATIENCE, isolation_level=None)) as opened:
        opened.execute("VACUUM INTO ?", (str(target),))
    with closing(sqlite3.connect(target)) as copy:
        (found,) = copy.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise StoreError(StoreError.UNUSABLE, "The session store's file is damaged.", str(found))
    _sync(target)


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)

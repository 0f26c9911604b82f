"""`db backup`: a copy of a SQLite file while servers write to it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from sqlalchemy import URL

from openresponses_server.settings import SettingsError
from openresponses_server.store.errors import StoreError
from openresponses_server.store.sql.failures import file_error, store_error
from openresponses_server.store.sql.locations import file_of, is_sqlite

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

"""SQLite's file without SQLAlchemy: its path, and whether it can be used without opening the store."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from openresponses_server.settings.data_folder import data_folder

# The revision of the tables, for code without SQLAlchemy.

REVISION: Final = "0013"
"""The newest migration of this code."""
BASELINE: Final = "0007"
"""The oldest revision that can be migrated."""

VERSION_TABLE: Final = "openresponses_bridge_version"
"""The table with the revision of a database. Its name is not Alembic's default, since databases are
shared."""


_FILE: Final = "sessions.sqlite3"
_DEFAULT: Final = "sqlite:"
_WITH_PATH: Final = "sqlite:///"
_OF_URLS: Final = frozenset("?#%:")  # characters with a meaning in URLs


def default_file() -> Path:
    """Return the path of the SQLite file that is used unless another is named."""
    return data_folder() / _FILE


def name_of_file(path: Path) -> str:
    """Return the name of the store in this file (`ResponseStore.name`)."""
    return f"sqlite-{hashlib.sha256(os.path.realpath(path).encode()).hexdigest()[:16]}"


def folder_beside(path: Path) -> Path:
    """Return the folder as `ResponseStore.folder` does, for the store in this file."""
    return path.with_name(f"{path.name}-workers")


def file_in_order(address: str) -> Path | None:
    """Return the path at a store's address, if the file can be written and has the tables of this code. None
    also in doubt, which is resolved when the store is opened."""
    path = file_at(address)
    if path is None or not os.access(path, os.R_OK | os.W_OK):
        return None
    try:
        with closing(sqlite3.connect(path, timeout=0.0)) as connection:
            ((mode,),) = connection.execute("PRAGMA journal_mode")
            ((revision,),) = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}")
    except (sqlite3.Error, ValueError):
        return None
    return path if (mode, revision) == ("wal", REVISION) else None


def file_at(address: str) -> Path | None:
    """Return the path in the address of a store, if it needs no decoding."""
    if address == _DEFAULT:
        return default_file()
    path = address.removeprefix(_WITH_PATH)
    return Path(path).absolute() if path not in ("", address) and not _OF_URLS & set(path) else None

"""SQLite's file, as far as it is known without SQLAlchemy: where it is, and whether it is usable as it is."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from openresponses_server.settings.data_folder import data_folder
from openresponses_server.store.presence import Presence, by_files

# Which migration the tables are at, for code that knows it without SQLAlchemy.

REVISION: Final = "0007"
"""The newest migration that this code knows, and the one that SQLite's file is brought to."""

VERSION_TABLE: Final = "openresponses_bridge_version"
"""Where a database says which migration it is at; not Alembic's own name, as databases are shared."""


_FILE: Final = "sessions.sqlite3"
_DEFAULT: Final = "sqlite:"
_WITH_PATH: Final = "sqlite:///"
_OF_URLS: Final = frozenset("?#%:")  # what may stand for something else than itself


def default_file() -> Path:
    """The SQLite file that is used unless another is named."""
    return data_folder() / _FILE


def name_of_file(path: Path) -> str:
    """A name for the store in this file, whoever opens it."""
    return f"sqlite-{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]}"


def presence_at(path: Path, process: str) -> Presence:
    """As `ResponseStore.presence`: by files beside this one."""
    return by_files(path.with_name(f"{path.name}-workers"), process)


def file_in_order(address: str) -> Path | None:
    """The file at a store's address, when there is one that can be written, with the tables of this code.
    None also for what needs a closer look: the store itself gives that when it is opened."""
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
    """The file that the address of a store names, where that is plain to see."""
    if address == _DEFAULT:
        return default_file()
    path = address.removeprefix(_WITH_PATH)
    return Path(path).absolute() if path not in ("", address) and not _OF_URLS & set(path) else None

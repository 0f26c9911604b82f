"""The address of a database as the user wrote it → SQLAlchemy's URL.

`sqlite:` alone is a file in the user's data folder; others are `sqlite:///relative`, `sqlite:////absolute`;
`postgresql+psycopg://user@host/name` (`+psycopg` may be left out, and `postgres` means the same).
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from openresponses_server.settings import SettingsError
from openresponses_server.settings.data_folder import make_private
from openresponses_server.settings.files import did_you_mean
from openresponses_server.store.sql.sqlite_file import default_file, name_of_file

_PORT: Final = 5432
_DRIVERS: Final = {
    "sqlite": "sqlite+pysqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}


def database_url(address: str) -> URL:
    """Return the URL with its driver. Raises SettingsError if it names no supported database; the message
    contains no password."""
    try:
        url = make_url("sqlite://" if address == "sqlite:" else address)
    except (ArgumentError, ValueError):
        raise SettingsError("it is not a URL like sqlite:///sessions.sqlite3", "$.store") from None
    if url.drivername not in _DRIVERS:
        known = f"{', '.join(_DRIVERS)}{did_you_mean(url.drivername, _DRIVERS)}"
        raise SettingsError(f"{url.drivername!r} is not one of: {known}", "$.store")
    url = url.set(drivername=_DRIVERS[url.drivername])
    if is_sqlite(url):
        return _with_file(url)
    _check_options(url)
    return url


def is_sqlite(url: URL) -> bool:
    """Return True if the database is a SQLite file."""
    return url.get_backend_name() == "sqlite"


def file_of(url: URL) -> Path:
    """Return the path of SQLite's file."""
    assert url.database is not None
    return Path(url.database)


def shown(url: URL) -> str:
    """Return the database's name for messages: the file, or the address without a password."""
    if is_sqlite(url):
        return str(file_of(url))
    return url.set(drivername="postgresql", query={}).render_as_string(hide_password=True)


def name_of(url: URL) -> str:
    """Return the name of the store in the database at this address (`ResponseStore.name`)."""
    if is_sqlite(url):
        return name_of_file(file_of(url))
    place = f"{url.host}:{url.port or _PORT}/{url.database}"
    return f"{url.get_backend_name()}-{hashlib.sha256(place.encode()).hexdigest()[:16]}"


def make_private_file(url: URL) -> None:
    """Make SQLite's file and its folders if they are missing, accessible only to this user, since it holds
    conversations. Raises OSError."""
    path = file_of(url)
    make_private(path.parent)
    path.touch(mode=0o600)


def _check_options(url: URL) -> None:
    """Check that the URL's query has options of libpq only. Raises SettingsError for others."""
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import make_conninfo
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"it needs {error.name}, which is not installed: pip install 'openresponses-server[postgres]'",
            "$.store",
        ) from error
    for name in url.query:
        try:
            make_conninfo("", **{name: ""})
        except ProgrammingError:
            raise SettingsError(f"{name!r} is not a connection option of PostgreSQL", "$.store") from None


def _with_file(url: URL) -> URL:
    if url.host or url.query:
        raise SettingsError(
            "an address of sqlite has only a path, as in sqlite:///sessions.sqlite3", "$.store"
        )
    if url.database == ":memory:":
        raise SettingsError("sqlite needs a file; for a store in memory use memory://", "$.store")
    return url.set(database=str(Path(url.database).absolute() if url.database else default_file()))

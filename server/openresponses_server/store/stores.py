"""A store by its URL."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Final

from openresponses_server.settings import Settings, SettingsError
from openresponses_server.settings.files import about
from openresponses_server.settings.suggestions import did_you_mean
from openresponses_server.store.base import ResponseStore
from openresponses_server.store.later import sqlite_later
from openresponses_server.store.memory import MemoryStore
from openresponses_server.store.sql.sqlite_file import file_at, file_in_order


def build_store(settings: Settings) -> ResponseStore:
    """The store that these settings name."""
    with about("$.store"):
        return open_store(settings.store, settings.stored_responses)


def serving_store(settings: Settings) -> ResponseStore:
    """The same for a server, which is not to wait for the code of a database that is in order."""
    # a library that is missing is said at once, by building
    path = file_in_order(settings.store) if find_spec("sqlalchemy") else None
    return build_store(settings) if path is None else sqlite_later(path, partial(build_store, settings))


def open_store(address: str, limit: int = 1000) -> ResponseStore:
    """`memory:` (which keeps `limit` responses), `sqlite:` (a file in the user's data folder),
    `sqlite:///path` or `postgresql+psycopg://…`. Nothing is connected yet.

    Raises SettingsError when the store is unknown or its driver is not installed.
    """
    scheme = address.partition(":")[0]
    build = _BUILDERS.get(scheme.partition("+")[0])
    if build is None:
        close = did_you_mean(scheme, _BUILDERS)
        raise SettingsError(f"store {scheme}: is not one of: {', '.join(_BUILDERS)}{close}")
    return build(address, limit)


def shown_store(address: str) -> str:
    """The store as messages name it: the file, or the address without a password."""
    if address.partition(":")[0] == "memory":
        return "memory until the server ends"
    path = file_at(address)
    if path is not None:
        return str(path)
    from openresponses_server.store.sql.locations import database_url, shown

    return shown(database_url(address))


def _memory(_address: str, limit: int) -> ResponseStore:
    return MemoryStore(limit)


def _database(address: str, _limit: int) -> ResponseStore:
    # SQLAlchemy takes a while to load: only who stores in a database waits for it
    from openresponses_server.store.sql.locations import database_url
    from openresponses_server.store.sql.store import SqlStore

    return SqlStore(database_url(address))


_BUILDERS: Final[dict[str, Callable[[str, int], ResponseStore]]] = {
    "memory": _memory,
    "sqlite": _database,
    "postgresql": _database,
    "postgres": _database,
}

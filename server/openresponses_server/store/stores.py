"""Opens the store at a URL."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

from openresponses_server.settings import Settings, SettingsError
from openresponses_server.settings.files import about, did_you_mean
from openresponses_server.store.base import ResponseStore
from openresponses_server.store.frames import Piece
from openresponses_server.store.logs.base import EventLog
from openresponses_server.store.logs.file import FileLog
from openresponses_server.store.logs.memory import MemoryLog
from openresponses_server.store.memory import MemoryStore
from openresponses_server.store.presence import Presence, file_presence
from openresponses_server.store.sql.sqlite_file import file_at, file_in_order, folder_beside, name_of_file

_PAUSE: Final = 0.1  # seconds in which the server that makes the first call begins to listen


def sqlite_later(path: Path, build: Callable[[], ResponseStore], pause: float = _PAUSE) -> ResponseStore:
    """A store in a valid file, built in a thread this many seconds after its first call, for which all other
    calls wait: loading SQLAlchemy is a third of the time of a start."""
    return cast(ResponseStore, _LaterStore(path, build, pause))


class _MeasuredCalls:
    """Measures the calls of the object that `there` returns."""

    def __init__(self, there: Callable[[], Awaitable[Any]]) -> None:
        self._there = there

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any, **named: Any) -> Any:
            return await getattr(await self._there(), name)(*args, **named)

        return call


class _LaterStore(_MeasuredCalls):
    is_loaded = False

    def __init__(self, path: Path, build: Callable[[], ResponseStore], pause: float) -> None:
        super().__init__(self._loaded)
        self.name = name_of_file(path)
        self.usage = _MeasuredCalls(self._usage)
        self.listing = _MeasuredCalls(self._listing)
        self.conversations = _MeasuredCalls(self._conversations)
        self.keys = _MeasuredCalls(self._keys)
        self._path = path
        self._build = build
        self._pause = pause
        self._loading: asyncio.Task[ResponseStore] | None = None

    @property
    def folder(self) -> Path:
        return folder_beside(self._path)

    def presence(self, process: str, lease: float) -> Presence:
        return file_presence(self.folder, process)

    async def frames(self, response_id: str, owner: str = "", after: int = -1) -> AsyncIterator[Piece]:
        async for piece in (await self._loaded()).frames(response_id, owner, after):
            yield piece

    async def export(self) -> AsyncIterator[bytes]:
        async for line in (await self._loaded()).export():
            yield line

    async def close(self) -> None:
        if self._loading is not None:
            await (await self._loading).close()

    async def _loaded(self) -> ResponseStore:
        if self._loading is None:
            self._loading = asyncio.create_task(self._load())
        # a caller that gives up waiting leaves the build to the others
        return await (self._loading if self._loading.done() else asyncio.shield(self._loading))

    async def _load(self) -> ResponseStore:
        await asyncio.sleep(self._pause)
        return await asyncio.to_thread(self._build)

    async def _usage(self) -> Any:
        return (await self._loaded()).usage

    async def _listing(self) -> Any:
        return (await self._loaded()).listing

    async def _conversations(self) -> Any:
        return (await self._loaded()).conversations

    async def _keys(self) -> Any:
        return (await self._loaded()).keys


def build_store(settings: Settings) -> ResponseStore:
    """Return the store of these settings."""
    return open_store(settings.store, settings.stored_responses)


def serving_store(settings: Settings) -> ResponseStore:
    """Return the store of these settings for a server, which should not wait for the code of a valid
    database."""
    # building now reports a missing library at once
    path = file_in_order(settings.store) if find_spec("sqlalchemy") else None
    return build_store(settings) if path is None else sqlite_later(path, partial(build_store, settings))


def open_store(address: str, limit: int = 1000) -> ResponseStore:
    """Return the store at `memory:` (which keeps `limit` responses), `sqlite:` (a file in the user's data
    folder), `sqlite:///path` or `postgresql+psycopg://…`. Nothing is connected yet.

    Raises SettingsError when the store is unknown or its driver is not installed.
    """
    scheme = address.partition(":")[0]
    build = _STORES.get(scheme.partition("+")[0])
    if build is None:
        close = did_you_mean(scheme, _STORES)
        raise SettingsError(f"{scheme!r} is not one of: {', '.join(_STORES)}{close}", "$.store")
    return build(address, limit)


def shown_store(address: str) -> str:
    """Return the store's name in messages: the file, or the address without a password."""
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
    # SQLAlchemy takes a while to load, so it is loaded only for a store in a database
    from openresponses_server.store.sql.locations import database_url
    from openresponses_server.store.sql.store import SqlStore

    return SqlStore(database_url(address))


_STORES: Final[dict[str, Callable[[str, int], ResponseStore]]] = {
    "memory": _memory,
    "sqlite": _database,
    "postgresql": _database,
    "postgres": _database,
}


def open_event_log(address: str | None, folder: Path | None, process: str | None = None) -> EventLog:
    """Return the log at `memory:`, `file:` (in `folder`, the store's), `file:///FOLDER`, either of these with
    `?fsync=SECONDS`, `redis://host/0` or `rediss://…`. An address of None means `file:` if there is a folder,
    else `memory:`. Other processes send messages to this one under the name `process`. Nothing is opened yet.

    Raises SettingsError when the log is unknown or its driver is not installed.
    """
    if address is None:
        return FileLog(folder, process) if folder is not None and _HAS_PIPES else MemoryLog()
    scheme = address.partition(":")[0]
    if scheme == "file":
        with about("$.event_log"):
            return _file(address, folder, process)
    build = _LOGS.get(scheme)
    if build is None:
        known = f"{', '.join(('file', *_LOGS))}{did_you_mean(scheme, ('file', *_LOGS))}"
        raise SettingsError(f"{scheme!r} is not one of: {known}", "$.event_log")
    with about("$.event_log"):
        return build(address)


def _file(address: str, folder: Path | None, process: str | None) -> EventLog:
    if not _HAS_PIPES:
        raise SettingsError("this system has no named pipes: memory: or redis://…")
    address, _, query = address.partition("?")
    fsync = _fsync_in(query)
    if address.strip("/") != "file:":
        path = address.removeprefix("file://")
        if not path.startswith("/"):
            raise SettingsError("it is not an address such as file: or file:///FOLDER")
        return FileLog(Path(path), process, fsync=fsync)
    if folder is None:
        raise SettingsError("the store is in memory and has no folder for it: name one, file:///FOLDER")
    return FileLog(folder, process, fsync=fsync)


def _fsync_in(query: str) -> float | None:
    """Return the seconds in `fsync=SECONDS`; None without a query."""
    if not query:
        return None
    name, _, number = query.partition("=")
    if name != "fsync":
        raise SettingsError(f"{name!r} is not an option of file:{did_you_mean(name, ('fsync',))}")
    try:
        seconds = float(number)
    except ValueError:
        seconds = 0.0
    if not 0.01 <= seconds <= 3600:
        raise SettingsError(f"fsync must be a number of seconds from 0.01 to 3600, not {number!r}")
    return seconds


def _redis(address: str) -> EventLog:
    try:
        from openresponses_server.store.logs.redis import RedisLog
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"it needs {error.name}, which is not installed: pip install 'openresponses-server[redis]'"
        ) from error
    try:
        database = urlsplit(address).path.strip("/")
        if database and not database.isdecimal():  # the client would use database 0
            raise ValueError(f"the path must be the number of a database, not {database!r}")
        return RedisLog(address)
    except ValueError as error:
        raise SettingsError(f"it is not an address such as redis://HOST:PORT/0: {error}") from error


_HAS_PIPES: Final = hasattr(os, "mkfifo")
_LOGS: Final[dict[str, Callable[[str], EventLog]]] = {
    "memory": lambda _address: MemoryLog(),
    "redis": _redis,
    "rediss": _redis,
}

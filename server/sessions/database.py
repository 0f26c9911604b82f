"""A database and the connections to it: opened at first use, one transaction a call, failures as
StoreError.

Work is written once, as a function of a connection. PostgreSQL runs it over psycopg's asynchronous
connections. SQLite runs it whole in a thread of its own: a driver that goes to its thread with every
statement, as aiosqlite does, costs several times as much.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.exc import DBAPIError

from server.sessions.clock import ServerClock
from server.sessions.errors import StoreError
from server.sessions.failures import FAILURES, file_error, store_error
from server.sessions.locations import file_of, is_sqlite, make_private_file
from server.sessions.tables import REVISION, VERSION_TABLE
from server.sessions.watched_file import WatchedFile

T = TypeVar("T")
Work = Callable[[Connection], T]

_PATIENCE: Final = 10.0  # seconds to wait for a connection or a lock
_CALL_SECONDS: Final = 60.0  # for one transaction, 10 MB records over a slow network included
_SQLITE_READERS: Final = 4
# Law S1: FULL makes a commit wait for the disk; in WAL mode that is one sync.
_PRAGMAS: Final = ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON")


class Database(ABC):
    """One per store. Nothing is connected before the first call."""

    def __init__(self) -> None:
        self._opened = False
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        """Connect and see to the tables. Raises StoreError."""
        async with self._opening:
            if not self._opened or self._has_moved():
                self._opened = False
                try:
                    await self._see_to_the_tables()
                except FAILURES as error:
                    raise store_error(error) from error
                self._opened = True

    async def now(self) -> float:
        """The time, the same for all that use this database. Raises StoreError."""
        return time.time()

    async def read(self, work: Work[T]) -> T:
        """Run single statements, each by itself."""
        return await self._run(self._reading, work)

    async def write(self, work: Work[T]) -> T:
        """Run one transaction: all of it is durable afterwards, or nothing is."""
        return await self._run(self._writing, work)

    def _has_moved(self) -> bool:
        """Whether the address stands for another database than the one that was opened."""
        return False

    @abstractmethod
    async def close(self) -> None:
        """Close the connections."""

    @abstractmethod
    async def _reading(self, work: Work[T]) -> T: ...

    @abstractmethod
    async def _writing(self, work: Work[T]) -> T: ...

    @abstractmethod
    async def _see_to_the_tables(self) -> None: ...

    async def _run(self, run: Callable[[Work[T]], Any], work: Work[T]) -> T:
        if not self._opened or self._has_moved():
            await self.open()
        try:
            return await self._once(run, work)
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise store_error(error) from error
        except FAILURES as error:
            raise store_error(error) from error
        try:  # the server went away since the last call, and may be back; every call can be made again
            return await self._once(run, work)
        except FAILURES as error:
            raise store_error(error) from error

    async def _once(self, run: Callable[[Work[T]], Any], work: Work[T]) -> T:
        async with asyncio.timeout(_CALL_SECONDS):
            done: T = await run(work)
            return done


class _Sqlite(Database):
    """A file of ours, brought up to date when it is opened. SQLite takes one writer at a time, so writes
    queue for one thread (waiting inside SQLite would be polling); reads have their own."""

    def __init__(self, url: URL) -> None:
        super().__init__()
        self._url = url
        self._file = WatchedFile(file_of(url))
        self._writer, self._reader = (
            _engine(url, 1),
            _engine(url, _SQLITE_READERS, isolation_level="AUTOCOMMIT"),
        )
        for engine in (self._writer, self._reader):
            self._file.watch(engine)
        self._writing_thread = ThreadPoolExecutor(1, "session-writer")
        self._reading_threads = ThreadPoolExecutor(_SQLITE_READERS, "session-reader")

    async def close(self) -> None:
        for engine, threads in (
            (self._writer, self._writing_thread),
            (self._reader, self._reading_threads),
        ):
            await asyncio.to_thread(threads.shutdown)
            engine.dispose()

    async def _reading(self, work: Work[T]) -> T:
        def run() -> T:
            with self._reader.connect() as connection:
                return work(connection)

        return await asyncio.get_running_loop().run_in_executor(self._reading_threads, run)

    async def _writing(self, work: Work[T]) -> T:
        def run() -> T:
            with self._writer.begin() as connection:
                done = work(connection)
                connected_to = connection.info
            self._file.check(connected_to)
            return done

        return await asyncio.get_running_loop().run_in_executor(self._writing_thread, run)

    def _has_moved(self) -> bool:
        return self._file.has_moved

    async def _see_to_the_tables(self) -> None:
        if not self._file.known:
            try:
                make_private_file(self._url)
            except OSError as error:
                raise file_error(error) from error
        self._file.know()
        revision = await self._reading(_revision)
        if revision is not None and revision > REVISION:
            raise _outdated(revision)
        if revision != REVISION:
            await asyncio.to_thread(_upgrade, self._url)


class _Postgres(Database):
    """Set up when it has none of our tables; else it must be at the right revision, as workers of another
    version may be at it."""

    def __init__(self, url: URL) -> None:
        from server.sessions import postgres

        super().__init__()
        self._url = url
        self._writer, self._reader = postgres.engines(url, _PATIENCE)
        self._clock = ServerClock()

    async def now(self) -> float:
        """The server's: a worker whose own clock is wrong must not end the leases of others."""
        if self._clock.doubtful:
            asked_at = time.monotonic()
            self._clock.set(await self.read(_server_time), asked_at)
        return self._clock.now()

    async def close(self) -> None:
        await self._writer.dispose()
        await self._reader.dispose()

    async def _reading(self, work: Work[T]) -> T:
        async with self._reader.connect() as connection:
            return await connection.run_sync(work)

    async def _writing(self, work: Work[T]) -> T:
        async with self._writer.begin() as connection:
            return await connection.run_sync(work)

    async def _see_to_the_tables(self) -> None:
        revision = await self._reading(_revision)
        if revision is None:
            await asyncio.to_thread(_upgrade, self._url)
        elif revision != REVISION:
            raise _outdated(revision)


def open_database(url: URL) -> Database:
    """The database at this URL (see `locations`), not connected yet."""
    return _Sqlite(url) if is_sqlite(url) else _Postgres(url)


def _server_time(connection: Connection) -> float:
    seconds: float = connection.scalar(text("SELECT extract(epoch FROM clock_timestamp())::float8"))
    return seconds


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    revision: str | None = connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}"))
    return revision


def _upgrade(url: URL) -> None:
    from server.sessions.migrate import upgrade  # Alembic takes a while to load, and is seldom needed

    upgrade(url)


def _outdated(revision: str) -> StoreError:
    return StoreError(
        StoreError.OUTDATED,
        f"The session store is at revision {revision} and this version needs {REVISION}: "
        "run `openresponses-bridge db upgrade` of the newest version.",
    )


def _engine(url: URL, connections: int, **options: Any) -> Engine:
    engine = create_engine(
        url,
        connect_args={"timeout": _PATIENCE},
        pool_size=connections,
        max_overflow=0,
        pool_reset_on_return=None,
        **options,
    )
    event.listen(engine, "connect", _set_pragmas)
    return engine


def _set_pragmas(dbapi_connection: Any, _record: Any) -> None:
    cursor = dbapi_connection.cursor()
    for pragma in _PRAGMAS:
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()

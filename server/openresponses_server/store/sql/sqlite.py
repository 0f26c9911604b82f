"""A SQLite file as a database, with threads of its own. A whole piece of work runs in one thread: a driver
that changes threads for every statement, like aiosqlite, costs several times as much."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Engine, create_engine, event
from sqlalchemy.exc import DisconnectionError

from openresponses_server.store.base import StoreError
from openresponses_server.store.presence import Presence, file_presence
from openresponses_server.store.sql.database import (
    CALL_SECONDS,
    TIMEOUT,
    Database,
    T,
    Work,
    check_usable,
    make_tables,
    revision_of,
)
from openresponses_server.store.sql.failures import file_error
from openresponses_server.store.sql.locations import file_of, make_private_file
from openresponses_server.store.sql.sqlite_file import BASELINE, REVISION, folder_beside
from openresponses_server.store.sql.writes import Write, execute_on_sqlite

# SQLite's file may be deleted, moved or replaced while it is open: SQLite continues with the open file, and
# nothing stored there can be found again.

_FILE: Final = "file"


class WatchedFile:
    """The file at `path`, identified by device and inode; a check takes about a microsecond. A missing file
    is not made again: it may be on an unmounted volume, or be restored from a backup."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._name = str(path)
        self._known: tuple[int, int] | None = None

    @property
    def known(self) -> bool:
        """True if the file has ever existed."""
        return self._known is not None

    @property
    def has_moved(self) -> bool:
        """True if the path now has another file, or none."""
        return self._identity() != self._known

    def know(self) -> None:
        """Store the identity of the present file. Raises StoreError if there is none."""
        identity = self._identity()
        if identity is None:
            raise self._gone()
        self._known = identity

    def check(self, connected_to: Mapping[Any, Any]) -> None:
        """Raise StoreError after a commit if the file of the connection with this `info` no longer exists, so
        that what was committed can't be found."""
        if connected_to.get(_FILE) != self._identity():
            raise self._gone()

    def watch(self, engine: Engine) -> None:
        """Replace connections to another file before they are used."""
        event.listen(engine, "do_connect", self._record_connection)
        event.listen(engine, "checkout", self._check_connection)

    def _record_connection(self, _dialect: Any, record: Any, _args: Any, _options: Any) -> None:
        if record is not None:
            # looked up before the connection is made, so that a change in between shows at its first use
            record.info[_FILE] = self._identity()

    def _check_connection(self, _connection: Any, record: Any, _proxy: Any) -> None:
        if record.info.get(_FILE) != self._identity():
            raise DisconnectionError

    def _identity(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._name)
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _gone(self) -> StoreError:
        return StoreError(
            StoreError.UNAVAILABLE,
            f"The session store's file {self._path.name} was deleted, moved or replaced.",
            f"put {self._path} back, or start again with an empty one",
        )


def free_bytes(folder: Path) -> int | None:
    """Return the free bytes of the disk with this folder; None if they can't be known."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


_READERS: Final = 4
# Law S1: FULL makes a commit wait for the disk; in WAL mode that is one sync.
_PRAGMAS: Final = ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON")


class _Caller:
    """A caller that waits for a transaction in another thread."""

    has_left = False

    def check(self) -> None:
        """Raises TimeoutError if nobody waits any more: a transaction is then given up before its commit,
        since its caller has reported it as not stored."""
        if self.has_left:
            raise TimeoutError


class Sqlite(Database):
    """A SQLite file; opening it makes its tables if there are none, and upgrades older ones. SQLite allows
    one writer at a time, so writes queue for one thread (waiting inside SQLite would be polling); reads have
    their own."""

    def __init__(self, url: URL) -> None:
        super().__init__(1)
        self._url = url
        self._file = WatchedFile(file_of(url))
        self._writer = _engine(url, 1, transactions=True)
        self._reader = _engine(url, _READERS, transactions=False)
        for engine in (self._writer, self._reader):
            self._file.watch(engine)
        self._writing_thread = ThreadPoolExecutor(1, "session-writer")
        self._reading_threads = ThreadPoolExecutor(_READERS, "session-reader")

    async def close(self) -> None:
        for engine, threads in (
            (self._writer, self._writing_thread),
            (self._reader, self._reading_threads),
        ):
            await asyncio.to_thread(threads.shutdown)
            engine.dispose()

    async def room(self) -> int | None:
        folder = file_of(self._url).parent
        return await asyncio.get_running_loop().run_in_executor(self._reading_threads, free_bytes, folder)

    def folder(self, name: str) -> Path:
        return folder_beside(file_of(self._url))

    def presence(self, process: str, lease: float, folder: Path) -> Presence:
        return file_presence(folder, process)

    async def _reading(self, work: Work[T]) -> T:
        def run() -> T:
            with self._reader.connect() as connection:
                return work(connection)

        return await asyncio.get_running_loop().run_in_executor(self._reading_threads, run)

    async def _writing(self, work: Work[T]) -> T:
        def run(caller: _Caller) -> T:
            with self._writer.begin() as connection:
                done = work(connection)
                caller.check()
                connected_to = connection.info
            self._file.check(connected_to)
            return done

        return await self._on_writing_thread(run)

    async def _executing(self, writes: Sequence[Write]) -> list[bool]:
        def run(caller: _Caller) -> list[bool]:
            connection = self._writer.raw_connection()
            try:
                driver: Any = connection.driver_connection
                with driver:  # one transaction
                    results = [execute_on_sqlite(driver, write) for write in writes]
                    caller.check()
                connected_to = connection.info
            finally:
                connection.close()
            self._file.check(connected_to)
            return results

        return await self._on_writing_thread(run)

    async def _on_writing_thread(self, run: Callable[[_Caller], T]) -> T:
        caller = _Caller()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._writing_thread, run, caller)
        except asyncio.CancelledError:
            caller.has_left = True
            raise

    async def _in_time(self, call: Coroutine[Any, Any, T]) -> T:
        async with asyncio.timeout(CALL_SECONDS):
            return await call  # a cancelled call does not wait for its thread

    def _has_moved(self) -> bool:
        return self._file.has_moved

    async def _see_to_the_tables(self) -> None:
        if not self._file.known:
            try:
                make_private_file(self._url)
            except OSError as error:
                raise file_error(error) from error
        self._file.know()
        revision = await self._reading(revision_of)
        if revision is None or BASELINE <= revision < REVISION:
            await asyncio.to_thread(make_tables, self._url)
        elif revision != REVISION:
            await self._reading(partial(check_usable, revision=revision))


def _engine(url: URL, connections: int, *, transactions: bool) -> Engine:
    single = {} if transactions else {"isolation_level": "AUTOCOMMIT"}
    engine = create_engine(
        url,
        connect_args={"timeout": TIMEOUT},
        pool_size=connections,
        max_overflow=0,
        pool_reset_on_return=None,
        **single,
    )
    event.listen(engine, "connect", _set_pragmas)
    return engine


def _set_pragmas(dbapi_connection: Any, _record: Any) -> None:
    cursor = dbapi_connection.cursor()
    for pragma in _PRAGMAS:
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()

"""A database and the connections to it: opened at first use, one transaction a call, failures as
StoreError.

SQLite takes one writer at a time, so writes share one connection and queue for it in this process
(waiting inside SQLite would be polling); reads have their own. PostgreSQL has one pool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import URL, event, inspect, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from server.sessions.errors import StoreError
from server.sessions.failures import FAILURES, store_error
from server.sessions.locations import is_sqlite, make_private_file
from server.sessions.tables import REVISION, VERSION_TABLE

T = TypeVar("T")
Work = Callable[[AsyncConnection], Awaitable[T]]

_PATIENCE: Final = 10.0  # seconds to wait for a connection or a lock
_CALL_SECONDS: Final = 60.0  # for one transaction, 10 MB records over a slow network included
_READERS: Final = 4
_POSTGRES_POOL: Final = 10
_POSTGRES_CONNECT: Final[dict[str, Any]] = {
    "connect_timeout": 5,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "openresponses-bridge",
}
# Law S1: FULL makes a commit wait for the disk; in WAL mode that is one sync.
_PRAGMAS: Final = ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON")


class Database:
    """One per store. Nothing is connected before the first call."""

    def __init__(self, url: URL) -> None:
        self.url = url
        self._opened = False
        self._opening = asyncio.Lock()
        self._writer, self._reader = _sqlite_engines(url) if is_sqlite(url) else _postgres_engines(url)

    async def open(self) -> None:
        """Connect, and see to the tables: a file of ours is brought up to date; a PostgreSQL database is
        set up when it has none of our tables, and else must be at the right revision.

        Raises StoreError, `store_outdated` when `db upgrade` is to be run.
        """
        async with self._opening:
            if not self._opened:
                await self._see_to_the_tables()
                self._opened = True

    async def read(self, work: Work[T]) -> T:
        """Run single statements, each by itself."""
        return await self._run(lambda: self._reader.connect(), work)

    async def write(self, work: Work[T]) -> T:
        """Run one transaction: all of it is durable afterwards, or nothing is."""
        return await self._run(lambda: self._writer.begin(), work)

    async def close(self) -> None:
        """Close the connections."""
        await self._writer.dispose()
        await self._reader.dispose()

    async def _run(self, connect: Callable[[], Any], work: Work[T]) -> T:
        if not self._opened:
            await self.open()
        try:
            return await self._once(connect, work)
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise store_error(error) from error
        except FAILURES as error:
            raise store_error(error) from error
        try:  # the server went away since the last call, and may be back; every call can be made again
            return await self._once(connect, work)
        except FAILURES as error:
            raise store_error(error) from error

    async def _once(self, connect: Callable[[], Any], work: Work[T]) -> T:
        async with asyncio.timeout(_CALL_SECONDS), connect() as connection:
            return await work(connection)

    async def _see_to_the_tables(self) -> None:
        try:
            if is_sqlite(self.url) and self.url.database:
                make_private_file(Path(self.url.database))
            async with self._reader.connect() as connection:
                revision = await _revision(connection)
            if revision != REVISION:
                await self._upgrade(revision)
        except FAILURES as error:
            raise store_error(error) from error

    async def _upgrade(self, revision: str | None) -> None:
        if revision is not None and (revision > REVISION or not is_sqlite(self.url)):
            raise StoreError(
                StoreError.OUTDATED,
                f"The session store is at revision {revision} and this version needs {REVISION}: "
                "run `openresponses-bridge db upgrade` with the newest version.",
            )
        from server.sessions.migrate import upgrade  # Alembic is loaded by who needs it

        await asyncio.to_thread(upgrade, self.url)


async def _revision(connection: AsyncConnection) -> str | None:
    if not await connection.run_sync(lambda blocking: inspect(blocking).has_table(VERSION_TABLE)):
        return None
    revision: str | None = await connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}"))
    return revision


def _sqlite_engines(url: URL) -> tuple[AsyncEngine, AsyncEngine]:
    shared: dict[str, Any] = {
        "connect_args": {"timeout": _PATIENCE},
        "pool_reset_on_return": None,
        "pool_timeout": _PATIENCE,
        "max_overflow": 0,
    }
    writer = create_async_engine(url, pool_size=1, **shared)
    reader = create_async_engine(url, pool_size=_READERS, isolation_level="AUTOCOMMIT", **shared)
    for engine in (writer, reader):
        event.listen(engine.sync_engine, "connect", _set_pragmas)
    return writer, reader


def _set_pragmas(dbapi_connection: Any, _record: Any) -> None:
    cursor = dbapi_connection.cursor()
    for pragma in _PRAGMAS:
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _postgres_engines(url: URL) -> tuple[AsyncEngine, AsyncEngine]:
    writer = create_async_engine(
        url,
        connect_args=_POSTGRES_CONNECT,
        pool_size=_POSTGRES_POOL,
        max_overflow=_POSTGRES_POOL,
        pool_timeout=_PATIENCE,
        pool_recycle=1800,
    )
    return writer, writer.execution_options(isolation_level="AUTOCOMMIT")

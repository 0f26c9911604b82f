"""PostgreSQL as a database, over psycopg's asynchronous connections. Loaded only where there is psycopg."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any, Final

import structlog
from psycopg import AsyncConnection, AsyncCursor, pq
from psycopg import Error as DriverError
from sqlalchemy import URL, Connection, NullPool, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.util import greenlet_spawn

from openresponses_server.store.presence import Presence, SeveralWays, by_files, shared_folder
from openresponses_server.store.sql.clock import ServerClock
from openresponses_server.store.sql.database import (
    PATIENCE,
    Database,
    T,
    Work,
    bring_up_to_date,
    check_usable,
    revision_of,
)
from openresponses_server.store.sql.process_connections import ProcessConnections
from openresponses_server.store.sql.revisions import REVISION
from openresponses_server.store.sql.usual_writes import UsualWrite, postgres_statement

_log = structlog.get_logger(__name__)
_CONNECTIONS: Final = 10  # to read, and as many to write, half of them for usual writes
_RECYCLED_AFTER: Final = 1800  # seconds


class _BinaryCursor(AsyncCursor[Any]):
    """Asks for results in binary: as text, bytes come in hexadecimal, which is twice as much to send and
    has to be read again."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.format = pq.Format.BINARY


_CONNECT: Final[dict[str, Any]] = {
    "connect_timeout": 5,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "openresponses-bridge",
    "cursor_factory": _BinaryCursor,
}


class Postgres(Database):
    """Set up when it has none of our tables; else it must be at a revision that this version can use, and
    stays there, as workers of another version may be at it."""

    def __init__(self, url: URL) -> None:
        super().__init__()
        self._url = url
        self._writer, self._reader, self._at_once = _engines(url)
        self._clock = ServerClock()

    async def now(self) -> float:
        """The server's: a worker whose own clock is wrong must not end the leases of others."""
        if self._clock.doubtful:
            asked_at = time.monotonic()
            self._clock.set(await self.read(_server_time), asked_at)
        return self._clock.now()

    async def close(self) -> None:
        for engine in (self._writer, self._reader, self._at_once):
            await engine.dispose()

    async def write_at_once(self, write: UsualWrite) -> bool:
        return await self._run(self._writing_at_once, write)

    def presence(self, process: str, lease: float, name: str) -> Presence:
        connected = ProcessConnections(partial(_one_connection, self._url), process, lease)
        return SeveralWays([by_files(shared_folder(name), process), connected])

    async def _reading(self, work: Work[T]) -> T:
        async with self._reader.connect() as connection:
            return await connection.run_sync(work)

    async def _writing(self, work: Work[T]) -> T:
        async with self._writer.begin() as connection:
            return await connection.run_sync(work)

    async def _writing_at_once(self, write: UsualWrite) -> bool:
        statement, values = postgres_statement(write)
        try:
            connection = await self._at_once.raw_connection()
        except DriverError:
            return False  # the general way says what is wrong, and connects again
        driver: AsyncConnection[Any] = connection.driver_connection  # type: ignore[assignment]
        try:
            return await (await driver.execute(statement, values)).fetchone() is not None
        except DriverError:
            return False
        finally:
            is_idle = driver.info.transaction_status == pq.TransactionStatus.IDLE
            await greenlet_spawn(connection.close if is_idle else connection.invalidate)

    async def _see_to_the_tables(self) -> None:
        revision = await self._reading(revision_of)
        if revision is None:
            await asyncio.to_thread(bring_up_to_date, self._url)
        elif revision != REVISION:
            await self._reading(partial(check_usable, revision=revision))
            hint = (
                "run `openresponses-bridge db upgrade`"
                if revision < REVISION
                else "this version is the older"
            )
            _log.warning("store.other_revision", at=revision, known=REVISION, hint=hint)


def _engines(url: URL) -> tuple[AsyncEngine, AsyncEngine, AsyncEngine]:
    """One to write with, in transactions; one to read with, and one for usual writes, each statement by
    itself."""

    def engine(connections: int, **options: Any) -> AsyncEngine:
        return create_async_engine(
            url,
            connect_args=_CONNECT,
            pool_size=connections,
            max_overflow=0,
            pool_timeout=PATIENCE,
            pool_recycle=_RECYCLED_AFTER,
            **options,
        )

    single: dict[str, Any] = {"isolation_level": "AUTOCOMMIT", "pool_reset_on_return": None}
    half = _CONNECTIONS // 2
    return engine(_CONNECTIONS - half), engine(_CONNECTIONS, **single), engine(half, **single)


def _one_connection(url: URL, name: str) -> AsyncEngine:
    options = {**_CONNECT, "application_name": name}
    return create_async_engine(url, connect_args=options, poolclass=NullPool, isolation_level="AUTOCOMMIT")


def _server_time(connection: Connection) -> float:
    seconds: float = connection.scalar(text("SELECT extract(epoch FROM clock_timestamp())::float8"))
    return seconds

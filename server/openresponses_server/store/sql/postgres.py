"""PostgreSQL as a database, over psycopg's asynchronous connections. Loaded only if psycopg is installed."""

from __future__ import annotations

import asyncio
import math
import struct
import time
from bisect import bisect
from collections.abc import Callable, Coroutine, Sequence
from contextlib import nullcontext, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import structlog
from msgspec import Struct
from psycopg import AsyncConnection, AsyncCursor, adapters, pq
from psycopg import Error as DriverError
from psycopg.adapt import AdaptersMap, Dumper
from psycopg.rows import namedtuple_row
from sqlalchemy import (
    URL,
    ClauseElement,
    CompoundSelect,
    Connection,
    NullPool,
    Select,
    TextClause,
    Update,
    event,
    text,
)
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection as EngineConnection
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.util import greenlet_spawn

from openresponses_server.store.base import no_answer
from openresponses_server.store.presence import CombinedPresence, Presence, file_presence, shared_folder
from openresponses_server.store.records import Row
from openresponses_server.store.sql import queries
from openresponses_server.store.sql.database import (
    CALL_SECONDS,
    TIMEOUT,
    Database,
    Record,
    T,
    Values,
    Work,
    check_usable,
    make_tables,
    revision_of,
)
from openresponses_server.store.sql.failures import FAILURES
from openresponses_server.store.sql.grouping import Grouped
from openresponses_server.store.sql.sqlite_file import REVISION
from openresponses_server.store.sql.writes import (
    Array,
    Blobs,
    Doubles,
    Integers,
    Texts,
    Write,
    postgres_statement,
)
from openresponses_server.tasks import in_time, jittered

# Each process has a connection to PostgreSQL that bears its name and is closed when the process ends. A
# connection may also be lost in other ways, so its end counts only if the process has not reconnected and has
# renewed no lease for longer than living processes need. Each look lists all connections of the database, and
# each check reads all running responses. So many processes look less often, and only a few of them check for
# one that has stopped; if these miss it, its leases expire.

NAME: Final = "openresponses-bridge process "
"""The beginning of the `application_name` of such a connection."""

_SHORTEST: Final = 3.0  # seconds for a process to reconnect
_OF_A_LEASE: Final = 0.4  # part of a lease; living processes renew it every quarter
_LEAVING: Final = 1.0  # seconds for closing
LOOKS: Final = 16
"""Looks per second of all processes together, at most."""
SUCCESSORS: Final = 3
"""The number of processes that check for one that has stopped."""
_log = structlog.get_logger(__name__)

_NAMES: Final = text(
    "SELECT application_name FROM pg_stat_activity"
    f" WHERE datname = current_database() AND application_name LIKE '{NAME}%'"
)
_ALIVE: Final = text("SELECT 1")


class _Missed(Struct):
    """A process whose connection is gone: the end of its last lease, and since when it is known."""

    since: float
    until: float | None


class ProcessConnections:
    """Keeps the connection of `process` and checks those of other processes. `connect` makes an engine for
    one connection with the given `application_name`."""

    def __init__(self, connect: Callable[[str], AsyncEngine], process: str, lease: float) -> None:
        self._engine = connect(NAME + process)
        self._timeout = max(_SHORTEST, lease * _OF_A_LEASE)
        self._connection: EngineConnection | None = None
        self._process = process
        self._next_at = -math.inf
        self._seen: set[str] = set()
        self._missed: dict[str, _Missed] = {}

    async def appear(self) -> None:
        await self._looked()

    async def departed(self) -> set[str]:
        now = time.monotonic()
        if now < self._next_at:
            await self._ask(_ALIVE)  # else the others would find a lost connection first
            return set()
        names = await self._looked()
        if names is None:
            return set()
        departed: set[str] = set()
        self._next_at = now + (jittered(len(names) / LOOKS) if len(names) > LOOKS else 0.0)
        order = sorted(names)
        gone = {name for name in self._seen - names if self._succeeds(name, order)}
        self._seen = names | gone
        self._missed = {name: missed for name, missed in self._missed.items() if name in gone}
        try:
            for name in gone:
                missed = self._missed.get(name)
                if missed is None or now - missed.since > self._timeout:
                    until = await self._last_lease(name)
                    if missed is not None and until == missed.until:
                        departed.add(name)
                    else:
                        # not `now`, since the answers may have taken long
                        self._missed[name] = _Missed(time.monotonic(), until)
        except FAILURES as error:
            await self._lost(error)
        if self._missed:
            self._next_at = min(self._next_at, now + self._timeout)
        return departed

    def _succeeds(self, name: str, order: Sequence[str]) -> bool:
        """Return True if this process is one of the next after `name` in the order of the living processes,
        which is circular."""
        place = bisect(order, name)
        return self._process in [*order[place : place + SUCCESSORS], *order][:SUCCESSORS]

    async def remove(self, process: str) -> None:
        self._seen.discard(process)
        self._missed.pop(process, None)

    async def leave(self) -> None:
        with suppress(*FAILURES):
            async with asyncio.timeout(_LEAVING):
                await self._disconnect()

    async def _looked(self) -> set[str] | None:
        """Return the names of the connected processes; None if they can't be known."""
        rows = await self._ask(_NAMES)
        return None if rows is None else {name.removeprefix(NAME) for (name,) in rows}

    async def _ask(self, statement: TextClause) -> Sequence[Any] | None:
        """Return the rows of a statement over the connection of this process, which is made anew if it was
        lost; None if it can't be."""
        try:
            if self._connection is None:
                self._connection = await self._engine.connect()
            return (await self._connection.execute(statement)).all()
        except FAILURES as error:
            await self._lost(error)
            return None

    async def _last_lease(self, process: str) -> float | None:
        assert self._connection is not None

        def work(connection: Connection) -> float | None:
            until: float | None = connection.scalar(queries.LAST_LEASE, {"of_process": f"{process}-"})
            return until

        return await self._connection.run_sync(work)

    async def _lost(self, error: Exception) -> None:
        """Discard what is known of the other processes: the failure that ended this connection may have ended
        theirs."""
        _log.warning("presence.failed", error=type(error).__name__)
        self._seen.clear()
        self._missed.clear()
        with suppress(*FAILURES):
            await self._disconnect()

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
        await self._engine.dispose()


_HOLDS: Final = 5.0  # seconds until the next request for the time
_DRIFT: Final = 0.001  # seconds of drift between two clocks until then


class ServerClock:
    """The clock of another machine, estimated from its answers. The quickest of several answers is the most
    exact: its error is at most half its round trip. One that contradicts the estimate is used even if it was
    slow: that clock was set."""

    def __init__(self) -> None:
        self._ahead = 0.0
        self._unsure = math.inf
        self._set_at = -math.inf

    @property
    def doubtful(self) -> bool:
        """True if the server's time should be requested (again)."""
        return time.monotonic() - self._set_at > _HOLDS

    def set(self, its_time: float, asked_at: float) -> None:
        """Add an answer: `its_time` (Unix seconds), asked at `asked_at` on this machine's monotonic clock."""
        answered_at = time.monotonic()
        unsure = (answered_at - asked_at) / 2
        self._set_at = answered_at
        self._unsure += _DRIFT
        ahead = its_time - (asked_at + answered_at) / 2
        if unsure < self._unsure or abs(ahead - self._ahead) > unsure + self._unsure:
            self._unsure = unsure
            self._ahead = ahead

    def now(self) -> float:
        return self._ahead + time.monotonic()


_TRANSACTION: Final = text("SELECT CAST(txid_current_if_assigned() AS text)")
"""Returns the number of the transaction; None if it has written nothing."""
_STATUS: Final = text("SELECT txid_status(CAST(:number AS bigint))")
_STATUS_PAUSE: Final = 0.1  # seconds
_READ_TOGETHER: Final = 16  # look-ups that share a round trip
_CONNECTIONS: Final = 10  # to read and to acquire, and as many to write, of which half are for `execute`
_RECYCLED_AFTER: Final = 1800  # seconds
IDLE_SECONDS: Final = 10.0
"""Seconds that a transaction may wait for its next statement. Then PostgreSQL rolls it back, closes its
connection and releases its locks: the process may be stopped, and others wait for the rows."""


class _BinaryCursor(AsyncCursor[Any]):
    """A cursor that requests results in binary: as text, bytes would be hexadecimal, which is twice as long
    and has to be decoded."""

    def __init__(self, connection: AsyncConnection[Any], *, row_factory: Any = None) -> None:
        super().__init__(connection, row_factory=row_factory)
        self.format = pq.Format.BINARY


def _array_dumper(kind: Array, encode: Callable[[Any], bytes]) -> type[Dumper]:
    """Return the class that dumps arrays in the binary format of PostgreSQL (`array_recv`): a head, then each
    value after its length."""
    info = adapters.types[kind.of]
    head, length, null = struct.Struct("!iiIii").pack, struct.Struct("!i").pack, b"\xff" * 4

    class ArrayDumper(Dumper):
        format = pq.Format.BINARY
        oid = info.array_oid

        def dump(self, values: Sequence[Any]) -> bytes:
            parts = [head(1, None in values, info.oid, len(values), 1)]
            for value in values:
                if value is None:
                    parts.append(null)
                else:
                    data = encode(value)
                    parts += (length(len(data)), data)
            return b"".join(parts)

    return ArrayDumper


class _Context:
    """The adapters of connections: the usual ones and our own."""

    adapters = AdaptersMap(adapters)
    connection = None


_ENCODERS: Final[dict[Array, Callable[[Any], bytes]]] = {
    Texts: str.encode,
    Blobs: bytes,
    Integers: struct.Struct("!q").pack,
    Doubles: struct.Struct("!d").pack,
}
for _kind, _encode in _ENCODERS.items():
    _Context.adapters.register_dumper(_kind, _array_dumper(_kind, _encode))

_CONNECT: Final[dict[str, Any]] = {
    "context": _Context,
    "connect_timeout": 5,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "openresponses-bridge",
    "cursor_factory": _BinaryCursor,
}


class Postgres(Database):
    """A PostgreSQL database; opening it makes its tables if there are none. Existing tables must be at a
    revision that this version can use. They are not upgraded, since workers of another version may use
    them."""

    def __init__(self, url: URL) -> None:
        super().__init__(_CONNECTIONS // 2)
        self._url = url
        self._writer, self._reader, self._direct = _engines(url)
        self._reads = Grouped(partial(self._directly, self._reader), _CONNECTIONS, _READ_TOGETHER)
        self._disposing = asyncio.Lock()
        self._clock = ServerClock()

    async def now(self) -> float:
        """Return the server's time: a worker whose own clock is wrong must not end the leases of others."""
        if self._clock.doubtful:
            asked_at = time.monotonic()
            self._clock.set(await self.read(_server_time), asked_at)
        return self._clock.now()

    async def close(self) -> None:
        for engine in (self._writer, self._reader, self._direct):
            await engine.dispose()

    def folder(self, name: str) -> Path:
        return shared_folder(name)

    def presence(self, process: str, lease: float, folder: Path) -> Presence:
        connected = ProcessConnections(partial(_one_connection, self._url), process, lease)
        return CombinedPresence([file_presence(folder, process), connected])

    async def _reading(self, work: Work[T]) -> T:
        async with self._reader.connect() as connection:
            return await connection.run_sync(work)

    async def _writing(self, work: Work[T]) -> T:
        async with self._writer.connect() as connection, connection.begin() as transaction:
            done = await connection.run_sync(work)
            number = await connection.scalar(_TRANSACTION)
            try:
                await transaction.commit()
            except DBAPIError as error:
                lost = error.connection_invalidated and number is not None
                if not (lost and await self._has_committed(number)):
                    raise
        return done

    async def _has_committed(self, number: str) -> bool:
        """Return True if the server has committed this transaction, whose commit it did not answer. Raises
        StoreError if that can't be known."""
        while True:
            try:
                async with self._reader.connect() as connection:
                    status = await connection.scalar(_STATUS, {"number": number})
            except FAILURES as error:
                raise no_answer() from error
            if status != "in progress":  # a commit may wait for a replica
                return bool(status == "committed")
            await asyncio.sleep(_STATUS_PAUSE)

    async def _executing(self, writes: Sequence[Write]) -> list[bool]:
        (rows,) = await self._directly(self._direct, [_Asked(*postgres_statement(writes))])
        ids = {row.id for row in rows}
        return [write.response_id in ids for write in writes]

    async def _selecting(self, statement: Select[Any] | CompoundSelect[Any], values: Values) -> list[Any]:
        if (plain := _plain(statement)) is None:
            return await super()._selecting(statement, values)
        return await self._reads.execute(_Asked(plain.text, {**plain.values, **values}))

    async def _recording(self, statement: Select[Any] | Update, values: Values) -> Record | None:
        plain = _plain(statement)
        assert plain is not None, "takes no lists"
        query = _Asked(_WITH_INPUT % plain.text, {**plain.values, **values})
        if isinstance(statement, Select):
            rows = await self._reads.execute(query)
        else:
            (rows,) = await self._directly(self._reader, [query])
        if not rows:
            return None
        (row,) = rows
        columns = row._asdict()
        input_items = columns.pop("input")
        return Row(**columns), input_items

    async def _directly(self, engine: AsyncEngine, statements: Sequence[_Asked]) -> list[list[Any]]:
        """Return the rows of each of these statements, in one round trip and one transaction. The driver runs
        them, since SQLAlchemy's own work for a statement takes twice as long as the driver's."""
        pool = engine.pool
        try:
            connection = await engine.raw_connection()
        except DriverError as error:
            raise _translated(error) from error
        driver: AsyncConnection[Any] = connection.driver_connection  # type: ignore[assignment]
        try:
            cursors = [driver.cursor(row_factory=namedtuple_row) for _ in statements]
            async with driver.pipeline() if len(statements) > 1 else nullcontext():
                for cursor, each in zip(cursors, statements, strict=True):
                    await cursor.execute(each.statement, each.values)
            return [await cursor.fetchall() for cursor in cursors]
        except DriverError as error:
            if driver.closed:
                async with self._disposing:
                    # the other connections were lost with it, but not those of a pool that was made since
                    # then
                    if engine.pool is pool:
                        await engine.dispose()
            raise _translated(error, lost=driver.closed) from error
        finally:
            is_idle = driver.info.transaction_status == pq.TransactionStatus.IDLE
            can_be_kept = is_idle and engine.pool is pool
            await greenlet_spawn(connection.close if can_be_kept else connection.invalidate)

    async def _in_time(self, call: Coroutine[Any, Any, T]) -> T:
        return await in_time(call, CALL_SECONDS)

    async def _see_to_the_tables(self) -> None:
        revision = await self._reading(revision_of)
        if revision is None:
            await asyncio.to_thread(make_tables, self._url)
        elif revision != REVISION:
            await self._reading(partial(check_usable, revision=revision))
            _log.warning(
                "store.other_revision", at=revision, known=REVISION, hint="this version is the older"
            )


def _engines(url: URL) -> tuple[AsyncEngine, AsyncEngine, AsyncEngine]:
    """Return three engines: one for writes, in transactions; one for reads and acquired runs, and one for
    `execute`, both with each statement by itself."""

    def engine(connections: int, *, transactions: bool) -> AsyncEngine:
        single = {} if transactions else {"isolation_level": "AUTOCOMMIT", "pool_reset_on_return": None}
        async_engine = create_async_engine(
            url,
            connect_args=_CONNECT,
            pool_size=connections,
            max_overflow=0,
            pool_timeout=TIMEOUT,
            pool_recycle=_RECYCLED_AFTER,
            **single,
        )
        if transactions:
            event.listen(async_engine.sync_engine, "connect", _limit_idle_transactions)
        return async_engine

    half = _CONNECTIONS // 2
    return (
        engine(_CONNECTIONS - half, transactions=True),
        engine(_CONNECTIONS, transactions=False),
        engine(half, transactions=False),
    )


def _limit_idle_transactions(connection: DBAPIConnection, _record: object) -> None:
    connection.autocommit = True
    cursor = connection.cursor()
    cursor.execute(f"SET idle_in_transaction_session_timeout = '{round(IDLE_SECONDS * 1000)}ms'")
    cursor.close()
    connection.autocommit = False


class _Asked(NamedTuple):
    """A statement for the driver, and its parameters."""

    statement: str
    values: Values


class _Plain(NamedTuple):
    """A statement's text for the driver, and those of its parameters that never change."""

    text: str
    values: dict[str, Any]


@cache
def _plain(statement: ClauseElement) -> _Plain | None:
    """Return the text of a statement and its constant parameters; None if the text depends on the number of
    values."""
    compiled = statement.compile(dialect=PGDialect_psycopg())  # type: ignore[no-untyped-call]
    assert isinstance(compiled, SQLCompiler)
    if compiled.post_compile_params:
        return None
    constant = {name: value for name, value in compiled.params.items() if not compiled.binds[name].required}
    return _Plain(str(compiled), constant)


_WITH_INPUT: Final = (
    "WITH found AS (%s) SELECT found.*, ARRAY(SELECT item FROM response_input"
    " WHERE response_id = found.id ORDER BY position) AS input FROM found"
)


def _translated(error: DriverError, *, lost: bool = False) -> Exception:
    """Return the failure as SQLAlchemy raises it. `lost`: the connection can't be used any more."""
    return DBAPIError.instance(None, None, error, DriverError, connection_invalidated=lost)


def _one_connection(url: URL, name: str) -> AsyncEngine:
    options = {**_CONNECT, "application_name": name}
    return create_async_engine(url, connect_args=options, poolclass=NullPool, isolation_level="AUTOCOMMIT")


def _server_time(connection: Connection) -> float:
    seconds: float = connection.scalar(text("SELECT extract(epoch FROM clock_timestamp())::float8"))
    return seconds

"""The interface of databases: opened at first use, one transaction per call, failures as StoreError. Work is
written once, as a function of a connection; each kind of database runs it in its own way."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import URL, CompoundSelect, Connection, Select, Update, inspect, select, text
from sqlalchemy.exc import DBAPIError

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_server.isolated import isolated_command
from openresponses_server.store.base import StoreError
from openresponses_server.store.presence import Presence
from openresponses_server.store.records import Row
from openresponses_server.store.sql.failures import FAILURES, outdated, store_error
from openresponses_server.store.sql.grouping import GroupedWrites
from openresponses_server.store.sql.record_rows import input_of, row_in
from openresponses_server.store.sql.sqlite_file import REVISION, VERSION_TABLE
from openresponses_server.store.sql.tables import usable
from openresponses_server.store.sql.writes import Write

T = TypeVar("T")
W = TypeVar("W")
Work = Callable[[Connection], T]
Values = Mapping[str, Any]
"""The parameters of a statement."""
Record = tuple[Row, Sequence[bytes]]
"""A response's row and the JSON of its input items."""

TIMEOUT: Final = 10.0
"""Seconds to wait for a connection or a lock."""

CALL_SECONDS: Final = 60.0
"""The limit in seconds of one transaction, even of 10 MB records over a slow network."""


class Database(ABC):
    """A database of one store. Nothing is connected before the first call."""

    def __init__(self, at_once: int) -> None:
        """`at_once` is the number of transactions of `execute` at a time."""
        self._opened = False
        self._groups = GroupedWrites(partial(self._run, self._executing), at_once)
        self._opening = asyncio.Lock()
        self.was_full = False
        """True if a call failed for lack of space, and `Probe` has not succeeded since."""

    async def open(self) -> None:
        """Connect and check or make the tables. Raises StoreError."""
        async with self._opening:
            if not self._opened or self._has_moved():
                self._opened = False
                try:
                    await self._see_to_the_tables()
                except FAILURES as error:
                    raise store_error(error) from error
                self._opened = True

    async def now(self) -> float:
        """Return the time in Unix seconds, the same for all that use this database. Raises StoreError."""
        return time.time()

    async def read(self, work: Work[T]) -> T:
        """Run single statements, each by itself."""
        return await self._run(self._reading, work)

    async def rows(self, statement: Select[Any] | CompoundSelect[Any], values: Values) -> list[Any]:
        """Return the rows of a statement that is built once, with the names of its columns. Raises
        StoreError."""
        return await self._run(partial(self._selecting, statement), values)

    async def record(self, statement: Select[Any] | Update, values: Values) -> Record | None:
        """Return the row of the response that a statement, built once, selects or changes, with the JSON of
        its input; None if there is no such row. Raises StoreError."""
        return await self._run(partial(self._recording, statement), values)

    async def room(self) -> int | None:
        """Return the free bytes of the database's disk; None if they can't be known."""
        return None

    async def write(self, work: Work[T]) -> T:
        """Run one transaction: afterwards all of it is durable, or nothing is. It is committed once, even if
        the database's answer is lost. Returns what `work` returned then."""
        return await self._run(self._writing, work)

    async def execute(self, write: Write) -> bool:
        """Run this write, in one transaction with others that wait; returns what `writes.execute` does.
        Raises StoreError."""
        return await self._groups.execute(write)

    @abstractmethod
    def folder(self, name: str) -> Path:
        """Return the folder as `ResponseStore.folder` does; `name` is that of the store."""

    @abstractmethod
    def presence(self, process: str, lease: float, folder: Path) -> Presence:
        """Return the presence as `ResponseStore.presence` does, with this folder."""

    def _has_moved(self) -> bool:
        """Return True if the address now names another database than the opened one."""
        return False

    @abstractmethod
    async def close(self) -> None:
        """Close the connections."""

    @abstractmethod
    async def _reading(self, work: Work[T]) -> T: ...

    @abstractmethod
    async def _writing(self, work: Work[T]) -> T: ...

    async def _selecting(self, statement: Select[Any] | CompoundSelect[Any], values: Values) -> list[Any]:
        return await self._reading(lambda connection: list(connection.execute(statement, values)))

    async def _recording(self, statement: Select[Any] | Update, values: Values) -> Record | None:
        def work(connection: Connection) -> Record | None:
            row = connection.execute(statement, values).one_or_none()
            return None if row is None else (row_in(row), input_of(connection, row.id))

        return await (self._reading(work) if isinstance(statement, Select) else self._writing(work))

    @abstractmethod
    async def _executing(self, writes: Sequence[Write]) -> list[bool]: ...

    @abstractmethod
    async def _see_to_the_tables(self) -> None: ...

    async def _run(self, run: Callable[[W], Coroutine[Any, Any, T]], work: W) -> T:
        if not self._opened or self._has_moved():
            await self.open()
        try:
            return await self._in_time(run(work))
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise self._failure(error) from error
        except FAILURES as error:
            raise self._failure(error) from error
        try:  # the server went away and may be back; a transaction that it has committed is not repeated
            return await self._in_time(run(work))
        except FAILURES as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> StoreError:
        failure = store_error(error)
        failure.uncertain = isinstance(error, TimeoutError) or (
            isinstance(error, DBAPIError) and error.connection_invalidated
        )
        self.was_full = self.was_full or failure.code == StoreError.FULL
        return failure

    @abstractmethod
    async def _in_time(self, call: Coroutine[Any, Any, T]) -> T:
        """Return the result of a call, which may take `CALL_SECONDS`. A caller that is cancelled, for a time
        limit of its own, does not wait for the driver. Raises TimeoutError."""


def revision_of(connection: Connection) -> str | None:
    """Return the revision of the database's tables; None if it has none of ours."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    revision: str | None = connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}"))
    return revision


def check_usable(connection: Connection, revision: str) -> None:
    """Raises StoreError if this code can't use tables of that revision."""
    if revision > REVISION:
        known = inspect(connection).has_table(usable.name)
        oldest = connection.scalar(select(usable.c.oldest)) if known else None
        if oldest is None or oldest > REVISION:
            raise outdated(revision)
    elif revision < REVISION:
        raise outdated(revision)


def make_tables(url: URL) -> None:
    """Run the missing migrations; in an empty database, all of them. Blocks. Raises StoreError.

    They run in a process of their own, unless this one has loaded Alembic already, since loading it takes 13
    MB for good.
    """
    if "alembic" in sys.modules:
        from openresponses_server.store.sql.migrate import upgrade

        upgrade(url)
        return
    done = subprocess.run(
        isolated_command("openresponses_server.store.sql.migrate"),
        input=encode(url._asdict()),  # a file's name that is not Unicode has no bytes in a URL
        capture_output=True,
        check=False,
    )
    if done.returncode == 0:
        return
    try:
        failure = decode_json(done.stdout)
        raise StoreError(failure["code"], failure["message"], failure["details"])
    except (WireError, KeyError, TypeError) as error:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise StoreError(StoreError.FAILED, "The session store's tables can't be made.", last) from error

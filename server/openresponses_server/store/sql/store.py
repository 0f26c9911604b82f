"""A store in a database: a SQLite file for one machine, PostgreSQL for many."""

from __future__ import annotations

import math
import os
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from sqlalchemy import URL, Connection

from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.input_items import InputItem
from openresponses_bridge.protocol.response import Response
from openresponses_server.store.base import (
    ANY_SIZE,
    NO_ID,
    InputPage,
    Lease,
    LeaseLost,
    Order,
    ResponseProgress,
    StoredResponse,
    StoredTurn,
)
from openresponses_server.store.frames import Frames, Piece
from openresponses_server.store.lookups import output_names
from openresponses_server.store.presence import Presence
from openresponses_server.store.records import HIDDEN, Row, can_be_id, input_rows, lease_of, row_of
from openresponses_server.store.sql import queries
from openresponses_server.store.sql.database import Database
from openresponses_server.store.sql.deletion import delete_expired, delete_response
from openresponses_server.store.sql.export_rows import exported
from openresponses_server.store.sql.locations import is_sqlite, name_of
from openresponses_server.store.sql.lookup_rows import (
    SqlListing,
    find_items,
    put_output_names,
    read_page,
    turns_of,
)
from openresponses_server.store.sql.record_rows import (
    acquire_run,
    claim_runs,
    end_held,
    put_frames,
    put_input,
    put_response,
    read_frames,
    read_record,
    renew_leases,
    row_in,
    update_held,
)
from openresponses_server.store.sql.usage_rows import SqlUsage
from openresponses_server.store.sql.usual_writes import UsualWrite, is_usual

_WRITTEN_EVERY: Final = 10.0  # seconds
_USUAL: Final = 16 * 1024  # bytes
_AFTER_FULL: Final = 1024 * 1024  # bytes; a few may fit into pages that are free, while responses do not
_OWNER: Final = "readiness"


class Probe:
    """Checks a database: reads each time; writes and deletes if the last write is long ago. A row that a
    crash leaves behind has expired already and is swept like others."""

    def __init__(self, database: Database, dialect: str) -> None:
        self._database = database
        self._dialect = dialect
        self._next_at = -math.inf

    async def look(self) -> None:
        """Raises StoreError."""
        if self._database.was_full:
            await self._write(_AFTER_FULL)
            self._database.was_full = False
        elif time.monotonic() >= self._next_at:
            await self._write(_USUAL)
        else:
            await self._database.read(_read)

    async def _write(self, size: int) -> None:
        row = _row(time.time())
        frames = Frames(0, 0, os.urandom(size))  # does not compress

        def put(connection: Connection) -> None:
            put_response(connection, self._dialect, row)
            put_frames(connection, self._dialect, row.id, frames)

        await self._database.write(put)
        delete = partial(delete_response, response_id=row.id, owner=row.owner, now=row.created_at)
        await self._database.write(delete)
        self._next_at = time.monotonic() + _WRITTEN_EVERY


def _read(connection: Connection) -> None:
    connection.execute(queries.STANDING, {"of_id": NO_ID, "of_owner": _OWNER, "at": 0.0}).all()


def _row(now: float) -> Row:
    return Row(
        id=f"probe_{secrets.token_hex(12)}",
        owner=_OWNER,
        previous_response_id=None,
        status="completed",
        created_at=now,
        updated_at=now,
        expires_at=now - 1,  # so that it is never found
        lease_worker=None,
        lease_until=None,
        last_sequence=0,
        request=None,
        response=b"{}",
    )


_HIGHEST: Final = 2**62  # what a column takes, and more than any sequence number
_SWEPT_AT_ONCE: Final = 100  # with what was kept for each alone


class SqlStore:
    """Responses in the database at `url` (see `locations`). It is opened by the first call."""

    is_loaded = True

    def __init__(self, url: URL, clock: Callable[[], float] = time.time) -> None:
        self.name = name_of(url)
        self._database = _database_at(url)
        self._dialect = url.get_backend_name()
        self._clock = clock
        self._probe = Probe(self._database, self._dialect)
        self.usage = SqlUsage(self._database, self._dialect)
        self.listing = SqlListing(self._database, clock)

    async def probe(self) -> None:
        await self._probe.look()

    async def close(self) -> None:
        await self._database.close()

    async def now(self) -> float:
        return await self._database.now()

    async def get(self, response_id: str, owner: str = "") -> StoredResponse | None:
        if not can_be_id(response_id):
            return None
        values = self._read_by(response_id, owner)

        def work(connection: Connection) -> StoredResponse | None:
            row = connection.execute(queries.GET, values).one_or_none()
            return None if row is None else read_record(connection, row_in(row))

        return await self._database.read(work)

    async def standing(self, response_id: str, owner: str = "") -> ResponseProgress | None:
        if not can_be_id(response_id):
            return None
        rows = await self._rows(queries.STANDING, self._read_by(response_id, owner))
        return next(
            (ResponseProgress(row.id, row.owner, lease_of(row), row.last_sequence) for row in rows), None
        )

    async def put(self, record: StoredResponse, frames: Frames | None = None) -> None:
        row = row_of(record, self._clock(), frames.last if frames else -1)
        items = input_rows(record)
        names = output_names(record.response) if record.lease is None else []
        if is_usual(frames) and await self._database.write_at_once(UsualWrite(row, {}, frames, items, names)):
            return

        def work(connection: Connection) -> None:
            put_response(connection, self._dialect, row)
            put_input(connection, self._dialect, row.id, items)
            if record.lease is None:
                put_output_names(connection, self._dialect, row.id, record.response)
            put_frames(connection, self._dialect, row.id, frames)

        await self._database.write(work)

    async def checkpoint(
        self,
        response_id: str,
        lease: Lease,
        response: Response | None = None,
        frames: Frames | None = None,
    ) -> None:
        changes = self._changes(response, frames, lease.until)

        def work(connection: Connection) -> None:
            update_held(connection, response_id, lease.worker, changes)
            put_frames(connection, self._dialect, response_id, frames)

        if not can_be_id(response_id):
            raise LeaseLost(response_id, lease.worker)
        if not await self._changed(response_id, lease.worker, changes, frames):
            await self._database.write(work)

    async def renew(self, held: Mapping[str, str], until: float) -> set[str]:
        renewed: set[str] = set()
        for some in queries.portions(held.items()):
            renewed.update(await self._database.write(partial(renew_leases, held=some, until=until)))
        return held.keys() - renewed

    async def finish(
        self, response_id: str, worker: str, response: Response, frames: Frames | None = None
    ) -> None:
        changes = self._changes(response, frames, None)

        def work(connection: Connection) -> None:
            if end_held(connection, response_id, worker, changes):
                put_frames(connection, self._dialect, response_id, frames)
                put_output_names(connection, self._dialect, response_id, response)

        if not can_be_id(response_id):
            raise LeaseLost(response_id, worker)
        if not await self._changed(response_id, worker, changes, frames, output_names(response)):
            await self._database.write(work)

    async def acquire(self, response_id: str, lease: Lease, now: float) -> StoredResponse | None:
        if not can_be_id(response_id):
            return None
        return await self._database.write(partial(acquire_run, response_id=response_id, lease=lease, now=now))

    async def claim_orphans(
        self, lease: Lease, now: float, limit: int = 100, *, waiting: bool = True
    ) -> list[StoredResponse]:
        claim = partial(claim_runs, statement=queries.CLAIM if waiting else queries.CLAIM_BEGUN)
        return await self._database.write(partial(claim, lease=lease, now=now, most=limit))

    async def claim_of(self, process: str, lease: Lease, limit: int = 100) -> list[StoredResponse]:
        claim = partial(claim_runs, statement=queries.CLAIM_OF, of_process=f"{process}-")
        return await self._database.write(partial(claim, lease=lease, most=limit))

    async def claim_waiting(
        self, lease: Lease, before: float, limit: int = 1, not_of: Collection[str] = ()
    ) -> list[StoredResponse]:
        claim = partial(claim_runs, statement=queries.CLAIM_WAITING, not_of=list(not_of))
        return await self._database.write(partial(claim, lease=lease, now=before, most=limit))

    async def release(self, held: Mapping[str, str], until: float) -> None:
        give_back = partial(renew_leases, statement=queries.GIVE_BACK, until=until)
        for some in queries.portions(held.items()):
            await self._database.write(partial(give_back, held=some))

    def presence(self, process: str, lease: float) -> Presence:
        return self._database.presence(process, lease, self.name)

    async def waiting(self, owner: str, most: int) -> tuple[int, int]:
        (found,) = await self._rows(queries.COUNT_WAITING, {"of_owner": owner, "most": most})
        return found.of_all, found.of_owner

    async def frames(self, response_id: str, owner: str = "", after: int = -1) -> AsyncIterator[Piece]:
        if can_be_id(response_id):
            whose = self._read_by(response_id, owner)
            async for piece in read_frames(self._rows, whose, min(after, _HIGHEST)):
                yield piece

    async def chain(self, response_id: str, owner: str = "") -> list[StoredTurn]:
        rows: Iterable[Any] = ()
        if can_be_id(response_id):
            rows = await self._rows(queries.CHAIN, self._read_by(response_id, owner))
        return turns_of(response_id, rows)

    async def size(self, response_id: str, owner: str = "") -> int:
        if not can_be_id(response_id):
            return 0
        ((size,),) = await self._rows(queries.SIZE, self._read_by(response_id, owner))
        return int(size)

    async def stock(self) -> dict[str, int]:
        held: Counter[str] = Counter()
        for owner, size in await self._rows(queries.STOCK, {}):
            held[owner.removeprefix(HIDDEN)] += int(size)
        return held

    async def missing(
        self, response_ids: Collection[str], owner: str = "", *, before: Collection[str] = ()
    ) -> set[str]:
        gone: set[str] = set()
        for statement, wanted in ((queries.FOUND, response_ids), (queries.FOUND_AS_CONTEXT, before)):
            found: set[str] = set()
            for some in queries.portions(filter(can_be_id, wanted)):
                values = {"of_ids": some, "of_owner": owner, "at": self._clock()}
                found.update(row.id for row in await self._rows(statement, values))
            gone |= set(wanted) - found
        return gone

    async def input_items(
        self,
        response_id: str,
        owner: str = "",
        *,
        after: str | None = None,
        before: str | None = None,
        limit: int = 20,
        order: Order = "desc",
    ) -> InputPage | None:
        if not can_be_id(response_id):
            return None
        whose = self._read_by(response_id, owner)
        return await self._database.read(
            partial(read_page, whose=whose, after=after, before=before, limit=limit, order=order)
        )

    async def items(
        self, item_ids: Collection[str], owner: str = "", *, most: int = ANY_SIZE
    ) -> dict[str, InputItem]:
        return await self._database.read(
            partial(find_items, item_ids=item_ids, owner=owner, now=self._clock(), most=most)
        )

    async def delete(self, response_id: str, owner: str = "") -> bool:
        if not can_be_id(response_id):
            return False
        now = self._clock()
        return await self._database.write(
            partial(delete_response, response_id=response_id, owner=owner, now=now)
        )

    async def sweep(self, now: float) -> int:
        total = 0
        while swept := await self._database.write(partial(delete_expired, now=now, most=_SWEPT_AT_ONCE)):
            total += swept
        return total

    def export(self) -> AsyncIterator[bytes]:
        return exported(self._rows)

    def _read_by(self, response_id: str, owner: str) -> dict[str, Any]:
        """The parameters of a look-up: the response, its owner, and the time."""
        return {"of_id": response_id, "of_owner": owner, "at": self._clock()}

    async def _rows(self, statement: Any, values: dict[str, Any]) -> list[Any]:
        def work(connection: Connection) -> list[Any]:
            return list(connection.execute(statement, values).all())

        return await self._database.read(work)

    async def _changed(
        self,
        response_id: str,
        worker: str,
        changes: dict[str, Any],
        frames: Frames | None,
        names: Sequence[bytes] = (),
    ) -> bool:
        """Change the row of a run and add to it, if that is a usual write; returns whether it was one."""
        if "response" not in changes or not is_usual(frames):
            return False
        named = {"of_id": response_id, "of_worker": worker, **changes}
        return await self._database.write_at_once(UsualWrite(None, named, frames, names=names))

    def _changes(
        self, response: Response | None, frames: Frames | None, lease_until: float | None
    ) -> dict[str, Any]:
        changes: dict[str, Any] = {"updated_at": self._clock(), "lease_until": lease_until}
        if response is not None:
            changes |= {"response": encode(response), "status": response.status}
        if frames is not None:
            changes["last_sequence"] = frames.last
        return changes


def _database_at(url: URL) -> Database:
    if is_sqlite(url):
        from openresponses_server.store.sql.sqlite import Sqlite

        return Sqlite(url)
    from openresponses_server.store.sql.postgres import Postgres

    return Postgres(url)

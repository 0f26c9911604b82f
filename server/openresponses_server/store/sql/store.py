"""A store in a database: a SQLite file for one machine, PostgreSQL for many."""

from __future__ import annotations

import math
import os
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
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
    StoreError,
    UnreadableRecord,
)
from openresponses_server.store.frames import Frames, Piece
from openresponses_server.store.idempotency import IdempotencyKey, KeyedResponse
from openresponses_server.store.lookups import output_names
from openresponses_server.store.presence import Presence
from openresponses_server.store.records import HIDDEN, Row, can_be_id, input_rows, lease_of, record_of, row_of
from openresponses_server.store.sql import queries
from openresponses_server.store.sql.conversation_rows import (
    SqlConversations,
    append_turn,
    end_in_conversation,
    remove_turn,
)
from openresponses_server.store.sql.database import Database
from openresponses_server.store.sql.deletion import delete_expired, delete_response
from openresponses_server.store.sql.export_rows import exported
from openresponses_server.store.sql.key_rows import SqlKeys
from openresponses_server.store.sql.locations import is_sqlite, name_of
from openresponses_server.store.sql.lookup_rows import SqlListing, find_items, read_page, turns_of
from openresponses_server.store.sql.record_rows import (
    claim_runs,
    give_up,
    read_frames,
    renew_leases,
    use_key,
)
from openresponses_server.store.sql.usage_rows import SqlUsage
from openresponses_server.store.sql.writes import RunChanges, Write, execute

_WRITTEN_EVERY: Final = 10.0  # seconds
_USUAL: Final = 16 * 1024  # bytes
_AFTER_FULL: Final = 1024 * 1024  # bytes; fewer may fit into free pages while responses do not
_OWNER: Final = "readiness"


class Probe:
    """Checks a database. Each check looks whether there is room, and reads; if the last write was long ago or
    failed, it writes a row and deletes it. The row is expired from the beginning, so that it is deleted even
    after a crash."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._next_at = -math.inf

    async def look(self) -> None:
        """Check the database. Raises StoreError."""
        room = await self._database.room()
        if room is not None and room < _AFTER_FULL:  # small writes still fit into what the database has
            raise StoreError(
                StoreError.FULL, "The session store is full.", f"{room} bytes of its disk are free"
            )
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
        await self._database.execute(Write(row, frames))
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


_HIGHEST: Final = 2**62  # fits a column, and is more than any sequence number
_SWEPT_AT_ONCE: Final = 100  # responses, besides turns that were kept only for them


class SqlStore:
    """Responses in the database at `url` (see `locations`). It is opened by the first call."""

    is_loaded = True

    def __init__(self, url: URL, clock: Callable[[], float] = time.time) -> None:
        self.name = name_of(url)
        self._database = _database_at(url)
        self._clock = clock
        self._probe = Probe(self._database)
        self.usage = SqlUsage(self._database, url.get_backend_name())
        self.listing = SqlListing(self._database, clock)
        self.conversations = SqlConversations(self._database, clock)
        self.keys = SqlKeys(self._database, url.get_backend_name())

    async def probe(self) -> None:
        await self._probe.look()

    async def close(self) -> None:
        await self._database.close()

    async def now(self) -> float:
        return await self._database.now()

    async def get(self, response_id: str, owner: str = "") -> StoredResponse | None:
        if not can_be_id(response_id):
            return None
        record = await self._database.record(queries.GET, self._read_by(response_id, owner))
        return None if record is None else record_of(*record)

    async def standing(self, response_id: str, owner: str = "") -> ResponseProgress | None:
        if not can_be_id(response_id):
            return None
        rows = await self._database.rows(queries.STANDING, self._read_by(response_id, owner))
        return next(
            (ResponseProgress(row.id, row.owner, lease_of(row), row.last_sequence) for row in rows), None
        )

    async def put(
        self, record: StoredResponse, frames: Frames | None = None, *, key: IdempotencyKey | None = None
    ) -> None:
        row = row_of(record, self._clock(), frames.last if frames else -1)
        output = output_names(record.response) if record.lease is None else []
        write = Write(row, frames, input_rows(record), output)

        conversation = record.conversation if record.lease is None else None

        def replace(connection: Connection) -> None:
            before: bytes | None = None  # how the response had ended
            while not execute(connection, write):  # again if others store it at the same time
                existing = connection.execute(queries.OWNER, {"of_id": row.id}).one_or_none()
                if existing is not None and existing.owner != row.owner:
                    raise StoreError(StoreError.CONFLICT, "A response with this id already exists.")
                before = existing.response if existing is not None and existing.lease_until is None else None
                connection.execute(queries.DELETE_OWN, {"of_id": row.id, "of_owner": row.owner})
            if conversation is not None and before != row.response:
                if before is not None:
                    remove_turn(connection, row.id, conversation)
                append_turn(connection, record.response, conversation, self._clock())

        def keyed(connection: Connection) -> None:
            replace(connection)
            assert key is not None
            use_key(connection, key, row, self._clock())

        if key is not None:
            await self._database.write(keyed)
        elif conversation is not None or not await self._database.execute(write):
            await self._database.write(replace)

    async def keyed(self, name: str, owner: str = "") -> KeyedResponse | None:
        values = {"of_name": name, "of_owner": owner, "at": self._clock()}
        return next((KeyedResponse(*row) for row in await self._database.rows(queries.KEYED, values)), None)

    async def checkpoint(
        self,
        response_id: str,
        lease: Lease,
        response: Response | None = None,
        frames: Frames | None = None,
    ) -> None:
        changes = self._changes(response_id, lease.worker, response, lease.until)
        if not (can_be_id(response_id) and await self._database.execute(Write(changes, frames))):
            raise LeaseLost(response_id, lease.worker)

    async def renew(self, held: Mapping[str, str], until: float) -> set[str]:
        renewed: set[str] = set()
        for some in queries.portions(held.items()):
            renewed.update(await self._database.write(partial(renew_leases, held=some, until=until)))
        return held.keys() - renewed

    async def finish(
        self,
        response_id: str,
        worker: str,
        response: Response,
        frames: Frames | None = None,
        *,
        conversation: str | None = None,
    ) -> None:
        changes = self._changes(response_id, worker, response, None)
        write = Write(changes, frames, output=output_names(response))
        if not can_be_id(response_id):
            raise LeaseLost(response_id, worker)
        if conversation is None:
            ended = await self._database.execute(write)
        else:
            work = partial(
                end_in_conversation,
                write=write,
                response=response,
                conversation_id=conversation,
                now=self._clock(),
            )
            ended = await self._database.write(work)
        if not (ended or await self._database.write(partial(self._end_again, write, response, conversation))):
            raise LeaseLost(response_id, worker)

    def _end_again(
        self, write: Write, response: Response, conversation: str | None, connection: Connection
    ) -> bool:
        """Store the end instead of another one that the worker has stored. Returns False if it has stored
        none."""
        changes = write.response
        assert isinstance(changes, RunChanges)
        values = {"of_id": changes.of_id, "of_worker": changes.of_worker}
        before = connection.execute(queries.ENDED, values).scalar_one_or_none()
        if before is None or before == changes.response:
            return before is not None
        connection.execute(queries.REOPEN, values)
        connection.execute(queries.FORGET_OUTPUT, values)
        execute(connection, write)
        if conversation is not None:
            remove_turn(connection, changes.of_id, conversation)
            append_turn(connection, response, conversation, self._clock())
        return True

    async def acquire(self, response_id: str, lease: Lease, now: float) -> StoredResponse | None:
        if not can_be_id(response_id):
            return None
        values = {"of_id": response_id, "now": now, "by_worker": lease.worker}
        values |= {"lease_worker": lease.worker, "lease_until": lease.until}
        record = await self._database.record(queries.ACQUIRE, values)
        try:
            return None if record is None else record_of(*record)
        except UnreadableRecord as error:
            await self._database.write(partial(give_up, error=error, response_id=response_id))
            return None

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
        return self._database.presence(process, lease, self.folder)

    @property
    def folder(self) -> Path:
        return self._database.folder(self.name)

    async def waiting(self, owner: str, most: int) -> tuple[int, int]:
        (counts,) = await self._database.rows(queries.COUNT_WAITING, {"of_owner": owner, "most": most})
        return counts.of_all, counts.of_owner

    async def frames(self, response_id: str, owner: str = "", after: int = -1) -> AsyncIterator[Piece]:
        if can_be_id(response_id):
            whose = self._read_by(response_id, owner)
            async for piece in read_frames(self._database.rows, whose, min(after, _HIGHEST)):
                yield piece

    async def chain(self, response_id: str, owner: str = "") -> list[StoredTurn]:
        rows: Iterable[Any] = ()
        if can_be_id(response_id):
            rows = await self._database.rows(queries.CHAIN, self._read_by(response_id, owner))
        return turns_of(response_id, rows)

    async def size(self, response_id: str, owner: str = "") -> int:
        if not can_be_id(response_id):
            return 0
        ((size,),) = await self._database.rows(queries.SIZE, self._read_by(response_id, owner))
        return int(size)

    async def stock(self) -> dict[str, int]:
        sizes: Counter[str] = Counter()
        for owner, size in await self._database.rows(queries.STOCK, {}):
            sizes[owner.removeprefix(HIDDEN)] += int(size)
        return sizes

    async def missing(
        self, response_ids: Collection[str], owner: str = "", *, before: Collection[str] = ()
    ) -> set[str]:
        gone: set[str] = set()
        for statement, ids in ((queries.FOUND, response_ids), (queries.FOUND_AS_CONTEXT, before)):
            present: set[str] = set()
            for some in queries.portions(filter(can_be_id, ids)):
                values = {"of_ids": some, "of_owner": owner, "at": self._clock()}
                present.update(row.id for row in await self._database.rows(statement, values))
            gone |= set(ids) - present
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

    async def use_once(self, name: str, until: float) -> bool:
        def work(connection: Connection) -> bool:
            return connection.execute(queries.USE_ONCE, {"name": name, "until": until}).rowcount == 1

        return await self._database.write(work)

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
        await self.conversations.sweep(now)
        await self._database.write(partial(_evict_used, now=now))
        await self.keys.sweep(now)
        return total

    def export(self) -> AsyncIterator[bytes]:
        return exported(self._database.rows)

    def _read_by(self, response_id: str, owner: str) -> dict[str, Any]:
        """Return the parameters of a look-up: the response, its owner, and the time."""
        return {"of_id": response_id, "of_owner": owner, "at": self._clock()}

    def _changes(
        self, response_id: str, worker: str, response: Response | None, lease_until: float | None
    ) -> RunChanges:
        return RunChanges(
            of_id=response_id,
            of_worker=worker,
            updated_at=self._clock(),
            lease_until=lease_until,
            response=None if response is None else encode(response),
            status=None if response is None else response.status,
        )


def _evict_used(connection: Connection, now: float) -> None:
    for statement in (queries.EVICT_USED, queries.EVICT_KEYS):
        connection.execute(statement, {"now": now})


def _database_at(url: URL) -> Database:
    if is_sqlite(url):
        from openresponses_server.store.sql.sqlite import Sqlite

        return Sqlite(url)
    from openresponses_server.store.sql.postgres import Postgres

    return Postgres(url)

"""The rows that make up a record, written and read over a connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
import structlog
from sqlalchemy import Connection, Update

from openresponses_server.store.base import Lease, LeaseLost, StoredResponse, StoreError, UnreadableRecord
from openresponses_server.store.frames import PIECE_BYTES, Frames, Piece, Skipping, sliced
from openresponses_server.store.records import InputRow, Row, record_of
from openresponses_server.store.sql import queries


def put_response(connection: Connection, dialect: str, row: Row) -> None:
    """Write the response's own row, replacing the owner's record of this id. Raises StoreError if the id is
    another owner's."""
    if not put_new(connection, dialect, row):
        _replace(connection, row, msgspec.structs.asdict(row))


def put_new(connection: Connection, dialect: str, row: Row) -> bool:
    """The same if the id is unused; returns whether it was."""
    return bool(connection.execute(queries.insert_response(dialect), msgspec.structs.asdict(row)).rowcount)


def _replace(connection: Connection, row: Row, fields: dict[str, Any]) -> None:
    changes = {name: value for name, value in fields.items() if name not in ("id", "owner")}
    replaced = connection.execute(queries.REPLACE, {"of_id": row.id, "of_owner": row.owner, **changes})
    if not replaced.rowcount:
        raise StoreError(StoreError.CONFLICT, "A response with this id already exists.")
    for statement in queries.DELETE_PARTS:
        connection.execute(statement, {"of_id": row.id})


def put_input(connection: Connection, dialect: str, response_id: str, items: list[InputRow]) -> None:
    """The items of its input, in order."""
    rows = [
        {"response_id": response_id, "position": position, "item_id": item.item_id, "item": item.item}
        for position, item in enumerate(items)
    ]
    if rows:
        connection.execute(queries.insert_input(dialect), rows)


def put_frames(connection: Connection, dialect: str, response_id: str, frames: Frames | None) -> None:
    """Write the frames since the last checkpoint, replacing those with the same first number."""
    if frames is None:
        return
    first, *more = (data for data, _ in sliced(frames.data))
    place = {"response_id": response_id, "first_sequence": frames.first}
    values = {**place, "last_sequence": frames.last, "data": first, "pieces": len(more)}
    connection.execute(queries.upsert_frames(dialect), values)
    if more:
        rows = [{**place, "piece": number, "data": data} for number, data in enumerate(more, 1)]
        connection.execute(queries.upsert_pieces(dialect), rows)


def row_in(found: Any) -> Row:
    """The columns that a query found."""
    return Row(**found._mapping)


def read_record(connection: Connection, row: Row) -> StoredResponse:
    """The record with its input. Raises UnreadableRecord."""
    found = connection.execute(queries.INPUT, {"of_id": row.id})
    return record_of(row, found.scalars().all())


_log = structlog.get_logger(__name__)


def update_held(connection: Connection, response_id: str, worker: str, changes: dict[str, Any]) -> None:
    """Change the row of a run. Raises LeaseLost if this worker does not hold it."""
    if not _update(connection, response_id, worker, changes):
        raise LeaseLost(response_id, worker)


def end_held(connection: Connection, response_id: str, worker: str, changes: dict[str, Any]) -> bool:
    """The same for its end; False if this worker has stored an end already, which stays. Raises LeaseLost."""
    if _update(connection, response_id, worker, changes):
        return True
    if connection.execute(queries.ENDED, {"of_id": response_id, "of_worker": worker}).first() is None:
        raise LeaseLost(response_id, worker)
    return False


def _update(connection: Connection, response_id: str, worker: str, changes: dict[str, Any]) -> bool:
    values = {"of_id": response_id, "of_worker": worker, **changes}
    return connection.execute(queries.UPDATE_HELD, values).rowcount > 0


def renew_leases(
    connection: Connection, held: Sequence[tuple[str, str]], until: float, statement: Update = queries.RENEW
) -> Sequence[str]:
    """Renew the leases of these runs, each (response id, worker); returns the ids of the renewed ones."""
    ids, workers = zip(*held, strict=True)
    values = {"of_ids": ids, "of_workers": workers, "lease_until": until}
    return connection.execute(statement, values).scalars().all()


def acquire_run(connection: Connection, response_id: str, lease: Lease, now: float) -> StoredResponse | None:
    """As `ResponseStore.acquire`."""
    values = {"of_id": response_id, "now": now, "lease_worker": lease.worker, "lease_until": lease.until}
    if not connection.execute(queries.ACQUIRE, values).rowcount:
        return None
    found = connection.execute(queries.GET_ANY, {"of_id": response_id})
    return next(iter(_claimed(connection, found)), None)


def claim_runs(
    connection: Connection, statement: Update, lease: Lease, most: int, **named: Any
) -> list[StoredResponse]:
    """Acquire the runs that the statement and `named` select."""
    values = {"most": most, "lease_worker": lease.worker, "lease_until": lease.until, **named}
    return _claimed(connection, connection.execute(statement, values).all())


def _claimed(connection: Connection, found: Iterable[Any]) -> list[StoredResponse]:
    """The records just acquired. An unreadable one is ended, so that it neither blocks the others nor is
    acquired again."""
    records = []
    for row in map(row_in, found):
        try:
            records.append(read_record(connection, row))
        except UnreadableRecord as error:
            connection.execute(queries.GIVE_UP, {"of_id": row.id})
            _log.error("store.unreadable", response_id=row.id, code=error.code, cause=str(error.__cause__))
    return records


# A row of frames is one checkpoint, possibly a whole record; the part beyond one piece has rows of its own.
# Rows stored before that rule are read in parts.

Rows = Callable[[Any, dict[str, Any]], Awaitable[list[Any]]]
"""Runs a query with these values."""

_ROWS_AT_ONCE: Final = 4
_READS: Final = 16  # of one long row: with each, the database goes through it from its front


async def read_frames(rows: Rows, whose: dict[str, Any], after: int) -> AsyncIterator[Piece]:
    """As `ResponseStore.frames`; `whose` names the response, its owner and the time."""
    while True:
        beginnings = {**whose, "after": after, "most": _ROWS_AT_ONCE, "start": 1, "bytes": PIECE_BYTES}
        found = await rows(queries.FRAMES, beginnings)
        for row in found:
            skipping = Skipping(after - row.first_sequence + 1)
            after, whole = row.last_sequence, row.pieces == 0 and len(row.data) >= row.size
            yield Piece(skipping.rest(row.data), after if whole else None)
            async for data, ends in _rest(rows, whose, row):
                whole = ends
                yield Piece(skipping.rest(data), after if ends else None)
            if not whole:
                return  # deleted, or stored again with what came since
        if len(found) < _ROWS_AT_ONCE:
            return


async def _rest(rows: Rows, whose: dict[str, Any], row: Any) -> AsyncIterator[tuple[bytes, bool]]:
    """What follows the beginning of a row, and whether it ends there."""
    place = {**whose, "first": row.first_sequence}
    read, step = len(row.data), max(PIECE_BYTES, row.size // _READS)
    while read < row.size:
        more = await rows(queries.MORE_FRAMES, {**place, "start": read + 1, "bytes": step})
        if not more or more[0].size != row.size:
            return
        read += len(more[0].data)
        yield more[0].data, read >= row.size and not row.pieces
    for number in range(1, row.pieces + 1):
        more = await rows(queries.PIECE, {**place, "piece": number})
        if not more or more[0].pieces != row.pieces:
            return
        yield more[0].data, number == row.pieces

"""Reads the rows of a record over a connection, and acquires and renews the leases of runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final

import structlog
from sqlalchemy import Connection, Update

from openresponses_server.store.base import Lease, StoredResponse, UnreadableRecord
from openresponses_server.store.frames import PIECE_BYTES, FrameSkipper, Piece
from openresponses_server.store.idempotency import IdempotencyKey, KeyedResponse, KeyTaken
from openresponses_server.store.records import Row, record_of
from openresponses_server.store.sql import queries


def row_in(row: Any) -> Row:
    """Return the columns that a query found."""
    return Row(**row._asdict())


def input_of(connection: Connection, response_id: str) -> Sequence[bytes]:
    """Return the JSON of a response's input items."""
    return connection.execute(queries.INPUT, {"of_id": response_id}).scalars().all()


_log = structlog.get_logger(__name__)


def renew_leases(
    connection: Connection, held: Sequence[tuple[str, str]], until: float, statement: Update = queries.RENEW
) -> Sequence[str]:
    """Renew the leases of these runs, each given by response id and worker. Returns the ids of the renewed
    ones."""
    ids, workers = zip(*held, strict=True)
    values = {"of_ids": ids, "of_workers": workers, "lease_until": until}
    return connection.execute(statement, values).scalars().all()


def claim_runs(
    connection: Connection, statement: Update, lease: Lease, most: int, **named: Any
) -> list[StoredResponse]:
    """Acquire the runs that `statement` selects, with the parameters `named`."""
    values = {"most": most, "lease_worker": lease.worker, "lease_until": lease.until, **named}
    records = []
    for row in map(row_in, connection.execute(statement, values).all()):
        try:
            records.append(record_of(row, input_of(connection, row.id)))
        except UnreadableRecord as error:
            give_up(connection, error, row.id)
    return records


def give_up(connection: Connection, error: UnreadableRecord, response_id: str) -> None:
    """End a run that was acquired and can't be read, so that it neither blocks others nor is acquired
    again."""
    connection.execute(queries.GIVE_UP, {"of_id": response_id})
    _log.error("store.unreadable", response_id=response_id, code=error.code, reason=str(error.__cause__))


def use_key(connection: Connection, key: IdempotencyKey, row: Row, now: float) -> None:
    """Bind the idempotency key to this response, which is stored. Raises KeyTaken if it stands for
    another."""
    values = {"name": key.name, "response_id": row.id, "request": key.request, "until": key.until}
    while connection.execute(queries.USE_KEY, values).rowcount != 1:
        named = {"of_name": key.name, "of_owner": row.owner, "of_id": row.id, "at": now}
        taken = connection.execute(queries.KEY_TAKEN, named).one_or_none()
        if taken is not None:
            raise KeyTaken(KeyedResponse(*taken))
        connection.execute(queries.FREE_KEY, named)


# A row of frames is one checkpoint, possibly a whole record; the part beyond one piece has rows of its own.
# Rows stored before that rule are read in parts.

Rows = Callable[[Any, dict[str, Any]], Awaitable[list[Any]]]
"""Runs a query with these values."""

_ROWS_AT_ONCE: Final = 4
_READS: Final = 16  # of one long row: the database reads it from its beginning each time


async def read_frames(rows: Rows, whose: dict[str, Any], after: int) -> AsyncIterator[Piece]:
    """Yield pieces as `ResponseStore.frames` does; `whose` names the response, its owner and the time."""
    while True:
        beginnings = {**whose, "after": after, "most": _ROWS_AT_ONCE, "start": 1, "bytes": PIECE_BYTES}
        batch = await rows(queries.FRAMES, beginnings)
        for row in batch:
            skipping = FrameSkipper(after - row.first_sequence + 1)
            after, whole = row.last_sequence, row.pieces == 0 and len(row.data) >= row.size
            yield Piece(skipping.rest(row.data), after if whole else None)
            async for data, ends in _rest(rows, whose, row):
                whole = ends
                yield Piece(skipping.rest(data), after if ends else None)
            if not whole:
                return  # deleted, or stored again with later frames
        if len(batch) < _ROWS_AT_ONCE:
            return


async def _rest(rows: Rows, whose: dict[str, Any], row: Any) -> AsyncIterator[tuple[bytes, bool]]:
    """Yield the bytes of a row after its beginning, each with True if they are the last."""
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

"""The rows that make up a record, written and read over a connection."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Connection

from openresponses_server.store.base import StoredResponse
from openresponses_server.store.errors import StoreError
from openresponses_server.store.frames import Frames, sliced
from openresponses_server.store.records import InputRow, Row, record_of
from openresponses_server.store.sql import queries


def put_response(connection: Connection, dialect: str, row: Row) -> None:
    """The response's own row, in the place of all that the owner has under this id. Raises StoreError when
    it is another's."""
    if not put_new(connection, dialect, row):
        _replace(connection, row, msgspec.structs.asdict(row))


def put_new(connection: Connection, dialect: str, row: Row) -> bool:
    """The same where nothing is under this id; whether it was so."""
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
    """Frames since the last checkpoint, in the place of those that began where they do."""
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

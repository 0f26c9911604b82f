"""What is written for every response, its beginning, a checkpoint and its end, each in its usual case and at
once: on PostgreSQL one statement, which is one way to the server and back; on SQLite its few statements over
the driver. What an SQL toolkit does for each statement was most of what such a write took.

A write here inserts or changes the response's row, and everything else only where there was such a row. If
there was none, nothing is written, and the general way (`store`) finds out why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct
from sqlalchemy import Connection

from openresponses_server.store.frames import PIECE_BYTES, Frames
from openresponses_server.store.records import InputRow, Row

_COLUMNS: Final = Row.__struct_fields__


class UsualWrite(Struct, frozen=True):
    """`row` holds the columns of a response that is new, or is None; then `changes` names a run (`of_id`,
    `of_worker`) and what changes in its row. `names` are those of the items of an output that has ended."""

    row: Row | None
    changes: dict[str, Any]
    frames: Frames | None
    items: Sequence[InputRow] = ()
    names: Sequence[bytes] = ()

    @property
    def values(self) -> dict[str, Any]:
        """The parameters of the statement for the response's row."""
        return self.changes if self.row is None else msgspec.structs.asdict(self.row)


def is_usual(frames: Frames | None) -> bool:
    """Whether frames go into one row."""
    return frames is None or len(frames.data) <= PIECE_BYTES


_CHANGED: Final = ("response", "status", "updated_at", "lease_until")


def _insert(parameter: str) -> str:
    """`parameter` is how this database's driver writes one, a format of its name."""
    values = ", ".join(map(parameter.format, _COLUMNS))
    return f"INSERT INTO responses ({', '.join(_COLUMNS)}) VALUES ({values}) ON CONFLICT (id) DO NOTHING"


def _update(parameter: str) -> str:
    changed = "".join(f"{name} = {parameter.format(name)}, " for name in _CHANGED)
    last = f"coalesce(CAST({parameter.format('last')} AS bigint), last_sequence)"
    held = f"id = {parameter.format('of_id')} AND lease_worker = {parameter.format('of_worker')}"
    return f"UPDATE responses SET {changed}last_sequence = {last} WHERE {held} AND lease_until IS NOT NULL"


_INTO_INPUT: Final = "INSERT INTO response_input (response_id, position, item_id, item)"
_INTO_FRAMES: Final = "INSERT INTO response_frames (response_id, first_sequence, last_sequence, data, pieces)"
_INTO_OUTPUT: Final = "INSERT INTO response_output (response_id, item_id)"
_FRAMES_AGAIN: Final = (
    " ON CONFLICT (response_id, first_sequence) DO UPDATE"
    " SET last_sequence = excluded.last_sequence, data = excluded.data, pieces = excluded.pieces"
)

# --- SQLite ----------------------------------------------------------------------------------------------

_SQLITE_INSERT: Final = _insert(":{}")
_SQLITE_UPDATE: Final = _update(":{}")


def write_to_sqlite(connection: Connection, write: UsualWrite) -> bool:
    """In the transaction that is open; whether it was written."""
    driver: Any = connection.connection.driver_connection
    frames, values = write.frames, write.values
    if write.row is None:
        response_id, statement = values["of_id"], _SQLITE_UPDATE
        values["last"] = None if frames is None else frames.last
    else:
        response_id, statement = write.row.id, _SQLITE_INSERT
    if not driver.execute(statement, values).rowcount:
        return False
    for position, item in enumerate(write.items):
        driver.execute(f"{_INTO_INPUT} VALUES (?, ?, ?, ?)", (response_id, position, item.item_id, item.item))
    if frames is not None:
        of_frames = (response_id, frames.first, frames.last, frames.data)
        driver.execute(f"{_INTO_FRAMES} VALUES (?, ?, ?, ?, 0){_FRAMES_AGAIN}", of_frames)
    for name in write.names:
        driver.execute(f"{_INTO_OUTPUT} VALUES (?, ?) ON CONFLICT DO NOTHING", (response_id, name))
    return True


# --- PostgreSQL ------------------------------------------------------------------------------------------

_REST: Final = f"""
 RETURNING id), of_input AS (
  {_INTO_INPUT} SELECT held.id, given.position - 1, given.item_id, given.item FROM held,
   unnest(%(item_ids)s::bytea[], %(items)s::bytea[]) WITH ORDINALITY AS given (item_id, item, position)
), of_frames AS (
  {_INTO_FRAMES} SELECT held.id, %(first)s::bigint, %(last)s::bigint, %(data)s::bytea, 0 FROM held
   WHERE %(first)s::bigint IS NOT NULL{_FRAMES_AGAIN}
), of_output AS (
  {_INTO_OUTPUT} SELECT held.id, name FROM held, unnest(%(names)s::bytea[]) AS name ON CONFLICT DO NOTHING
) SELECT id FROM held"""
_POSTGRES_INSERT: Final = f"WITH held AS ({_insert('%({})s')}{_REST}"
_POSTGRES_UPDATE: Final = f"WITH held AS ({_update('%({})s')}{_REST}"


def postgres_statement(write: UsualWrite) -> tuple[str, dict[str, Any]]:
    """The statement, which has a row where it was written, and its values."""
    frames = write.frames
    first, last, data = (None, None, None) if frames is None else (frames.first, frames.last, frames.data)
    values = {
        **write.values,
        "item_ids": [item.item_id for item in write.items],
        "items": [item.item for item in write.items],
        "first": first,
        "last": last,
        "data": data,
        "names": list(write.names),
    }
    return _POSTGRES_UPDATE if write.row is None else _POSTGRES_INSERT, values

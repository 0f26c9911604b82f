"""The only way in which responses, their input, frames and ends are written: one statement on PostgreSQL,
which is one round trip, and a few on SQLite. The driver runs them, since what an SQL toolkit does for each
statement is most of what such a write costs.

A write inserts or updates the response's row, and writes everything else only if that row was found: without
one, nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct
from sqlalchemy import Connection

from openresponses_server.store.frames import Frames, sliced
from openresponses_server.store.records import InputRow, Row


class RunChanges(Struct, frozen=True, kw_only=True):
    """Changes to the row of the run `of_id` while `of_worker` holds it. What is None stays as it is, except
    `lease_until`: None ends the run."""

    of_id: str
    of_worker: str
    updated_at: float
    lease_until: float | None
    response: bytes | None = None
    status: str | None = None


class Write(Struct, frozen=True):
    """The rows of one write: the row of a new response or the changes to a run's, and what is added to it.
    Frames replace those with the same first number. `output` has the ids of an ended response's items."""

    response: Row | RunChanges
    frames: Frames | None = None
    input: Sequence[InputRow] = ()
    output: Sequence[bytes] = ()


def execute(connection: Connection, write: Write) -> bool:
    """Write in the transaction that is open. Returns whether the row was found: False if the id of a new
    response is in use, or if no such run is held by this worker."""
    if connection.dialect.name == "sqlite":
        return execute_on_sqlite(connection.connection.driver_connection, write)
    return connection.exec_driver_sql(*postgres_statement(write)).first() is not None


_COLUMNS: Final = Row.__struct_fields__
_INTO_INPUT: Final = "INSERT INTO response_input (response_id, position, item_id, item)"
_INTO_FRAMES: Final = "INSERT INTO response_frames (response_id, first_sequence, last_sequence, data, pieces)"
_INTO_PIECES: Final = "INSERT INTO response_pieces (response_id, first_sequence, piece, data)"
_INTO_OUTPUT: Final = "INSERT INTO response_output (response_id, item_id)"
_OR_REPLACE_FRAMES: Final = (
    " ON CONFLICT (response_id, first_sequence) DO UPDATE"
    " SET last_sequence = excluded.last_sequence, data = excluded.data, pieces = excluded.pieces"
)
_OR_REPLACE_PIECES: Final = (
    " ON CONFLICT (response_id, first_sequence, piece) DO UPDATE SET data = excluded.data"
)


def _insert(parameter: str) -> str:
    """`parameter` is how the database's driver writes one, a format of its name."""
    values = ", ".join(map(parameter.format, _COLUMNS))
    return f"INSERT INTO responses ({', '.join(_COLUMNS)}) VALUES ({values}) ON CONFLICT (id) DO NOTHING"


def _update(parameter: str) -> str:
    kept = "".join(
        f"{name} = coalesce({parameter.format(name)}, {name}), " for name in ("response", "status")
    )
    changed = "".join(f"{name} = {parameter.format(name)}, " for name in ("updated_at", "lease_until"))
    last = f"coalesce(CAST({parameter.format('last')} AS bigint), last_sequence)"
    held = f"id = {parameter.format('of_id')} AND lease_worker = {parameter.format('of_worker')}"
    return (
        f"UPDATE responses SET {kept}{changed}last_sequence = {last} WHERE {held} AND lease_until IS NOT NULL"
    )


# --- SQLite ----------------------------------------------------------------------------------------------

_SQLITE_INSERT: Final = _insert(":{}")
_SQLITE_UPDATE: Final = _update(":{}")


def execute_on_sqlite(driver: Any, write: Write) -> bool:
    """As `execute`, over a connection of `sqlite3`."""
    frames, values = write.frames, msgspec.structs.asdict(write.response)
    if isinstance(write.response, Row):
        response_id, statement = write.response.id, _SQLITE_INSERT
    else:
        response_id, statement = write.response.of_id, _SQLITE_UPDATE
        values["last"] = None if frames is None else frames.last
    if not driver.execute(statement, values).rowcount:
        return False
    for position, item in enumerate(write.input):
        driver.execute(f"{_INTO_INPUT} VALUES (?, ?, ?, ?)", (response_id, position, item.item_id, item.item))
    if frames is not None:
        first, *more = (data for data, _ in sliced(frames.data))
        of_frames = (response_id, frames.first, frames.last, first, len(more))
        driver.execute(f"{_INTO_FRAMES} VALUES (?, ?, ?, ?, ?){_OR_REPLACE_FRAMES}", of_frames)
        for number, data in enumerate(more, 1):
            of_piece = (response_id, frames.first, number, data)
            driver.execute(f"{_INTO_PIECES} VALUES (?, ?, ?, ?){_OR_REPLACE_PIECES}", of_piece)
    for item_id in write.output:
        driver.execute(f"{_INTO_OUTPUT} VALUES (?, ?) ON CONFLICT DO NOTHING", (response_id, item_id))
    return True


# --- PostgreSQL ------------------------------------------------------------------------------------------

_REST: Final = f"""
 RETURNING id), of_input AS (
  {_INTO_INPUT} SELECT held.id, given.position - 1, given.item_id, given.item FROM held,
   unnest(%(item_ids)s::bytea[], %(items)s::bytea[]) WITH ORDINALITY AS given (item_id, item, position)
), of_frames AS (
  {_INTO_FRAMES} SELECT held.id, %(first)s::bigint, %(last)s::bigint, %(data)s::bytea,
   cardinality(%(more)s::bytea[]) FROM held WHERE %(first)s::bigint IS NOT NULL{_OR_REPLACE_FRAMES}
), of_pieces AS (
  {_INTO_PIECES} SELECT held.id, %(first)s::bigint, given.piece, given.data FROM held,
   unnest(%(more)s::bytea[]) WITH ORDINALITY AS given (data, piece){_OR_REPLACE_PIECES}
), of_output AS (
  {_INTO_OUTPUT} SELECT held.id, item_id FROM held, unnest(%(output)s::bytea[]) AS item_id
   ON CONFLICT DO NOTHING
) SELECT id FROM held"""
_POSTGRES_INSERT: Final = f"WITH held AS ({_insert('%({})s')}{_REST}"
_POSTGRES_UPDATE: Final = f"WITH held AS ({_update('%({})s')}{_REST}"


def postgres_statement(write: Write) -> tuple[str, dict[str, Any]]:
    """The statement, which returns a row if it found one, and its parameters."""
    frames = write.frames
    values = {
        **msgspec.structs.asdict(write.response),
        "item_ids": [item.item_id for item in write.input],
        "items": [item.item for item in write.input],
        "first": None,
        "last": None,
        "data": None,
        "more": [],
        "output": list(write.output),
    }
    if frames is not None:
        data, *more = (data for data, _ in sliced(frames.data))
        values |= {"first": frames.first, "last": frames.last, "data": data, "more": more}
    return _POSTGRES_INSERT if isinstance(write.response, Row) else _POSTGRES_UPDATE, values

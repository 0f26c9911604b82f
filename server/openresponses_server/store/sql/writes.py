"""The only way in which responses, their input, frames and ends are written: one statement on PostgreSQL,
which is one round trip, and a few on SQLite. The driver runs them, since an SQL toolkit's work for each
statement is most of the cost of such a write.

A write inserts or updates the response's row, and writes everything else only if that row was found: without
one, nothing is written. A write does not find a run's row that has more frames than the write: such a write
was given up, arrives late and would undo what its repetition has stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import Struct
from sqlalchemy import BigInteger, Connection, Double, LargeBinary, Text

from openresponses_server.store.frames import Frames, sliced
from openresponses_server.store.records import InputRow, Row
from openresponses_server.store.sql.tables import responses


class RunChanges(Struct, frozen=True, kw_only=True):
    """Changes to the row of the run `of_id` while `of_worker` holds it. A value of None changes nothing,
    except in `lease_until`: None ends the run."""

    of_id: str
    of_worker: str
    updated_at: float
    lease_until: float | None
    response: bytes | None = None
    status: str | None = None


class Write(Struct, frozen=True):
    """The rows of one write: the row of a new response, or the changes to that of a run, and the rows to add
    to it. Frames replace those with the same first number. `output` has the ids of an ended response's
    items."""

    response: Row | RunChanges
    frames: Frames | None = None
    input: Sequence[InputRow] = ()
    output: Sequence[bytes] = ()

    @property
    def response_id(self) -> str:
        """The id of the response to write."""
        return self.response.id if isinstance(self.response, Row) else self.response.of_id

    @property
    def size(self) -> int:
        """The size in bytes, about."""
        of_frames = 0 if self.frames is None else len(self.frames.data)
        return len(self.response.response or b"") + of_frames + sum(len(each.item) for each in self.input)


def execute(connection: Connection, write: Write) -> bool:
    """Write in the open transaction. Returns whether the row was found: False if the id of a new response is
    in use, or if this worker does not hold such a run."""
    if connection.dialect.name == "sqlite":
        return execute_on_sqlite(connection.connection.driver_connection, write)
    return connection.exec_driver_sql(*postgres_statement([write])).first() is not None


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
    """Return the statement that inserts a response. `parameter` is the driver's format of a named
    parameter."""
    values = ", ".join(map(parameter.format, _COLUMNS))
    return f"INSERT INTO responses ({', '.join(_COLUMNS)}) VALUES ({values}) ON CONFLICT (id) DO NOTHING"


def _update(parameter: str) -> str:
    optional = "".join(
        f"{name} = coalesce({parameter.format(name)}, {name}), " for name in ("response", "status")
    )
    changed = "".join(f"{name} = {parameter.format(name)}, " for name in ("updated_at", "lease_until"))
    last = f"coalesce(CAST({parameter.format('last')} AS bigint), last_sequence)"
    condition = f"id = {parameter.format('of_id')} AND lease_worker = {parameter.format('of_worker')}"
    return (
        f"UPDATE responses SET {optional}{changed}last_sequence = {last}"
        f" WHERE {condition} AND lease_until IS NOT NULL AND last_sequence <= {last}"
    )


# --- SQLite ----------------------------------------------------------------------------------------------

_SQLITE_INSERT: Final = _insert(":{}")
_SQLITE_UPDATE: Final = _update(":{}")


def execute_on_sqlite(driver: Any, write: Write) -> bool:
    """Write as `execute` does, over a connection of `sqlite3`."""
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
        first, *more = _pieces(frames)
        of_frames = (response_id, frames.first, frames.last, first, len(more))
        driver.execute(f"{_INTO_FRAMES} VALUES (?, ?, ?, ?, ?){_OR_REPLACE_FRAMES}", of_frames)
        for number, data in enumerate(more, 1):
            of_piece = (response_id, frames.first, number, data)
            driver.execute(f"{_INTO_PIECES} VALUES (?, ?, ?, ?){_OR_REPLACE_PIECES}", of_piece)
    for item_id in write.output:
        driver.execute(f"{_INTO_OUTPUT} VALUES (?, ?) ON CONFLICT DO NOTHING", (response_id, item_id))
    return True


# --- PostgreSQL ------------------------------------------------------------------------------------------


# Each array has its type, so that the driver need not look for it in the elements, which took longer than all
# the rest of a write (`postgres`). The casts are for connections that do not know these classes.


class Texts(list[str | None]):
    """An array of `text`."""

    of = "text"


class Blobs(list[bytes | None]):
    """An array of `bytea`."""

    of = "bytea"


class Integers(list[int | None]):
    """An array of `int8`."""

    of = "int8"


class Doubles(list[float | None]):
    """An array of `float8`."""

    of = "float8"


Array = type[Texts] | type[Blobs] | type[Integers] | type[Doubles]
_ARRAYS: Final[dict[type, Array]] = {Text: Texts, Double: Doubles, BigInteger: Integers, LargeBinary: Blobs}
_OF: Final = {name: _ARRAYS[type(column.type)] for name, column in responses.c.items()}


def _array(parameter: str, column: str) -> str:
    return f"%({parameter})s::{_OF[column].of}[]"


_CHANGES: Final = ("response", "status", "updated_at", "last_sequence", "lease_until")
_HELD: Final = (
    "responses.id = given.id AND lease_worker = given.worker AND responses.lease_until IS NOT NULL"
    " AND responses.last_sequence <= coalesce(given.last_sequence, responses.last_sequence)"
)

# `held` is the row that was found, or the rows of several writes. Rows are locked in the order of their ids,
# as they are when leases are renewed, so that neither waits for the other. Every part has the condition that
# selects a row, since another transaction may have changed it meanwhile.
_ONE_ADDED: Final = f"held AS ({_insert('%({})s')} RETURNING id)"
_ONE_CHANGED: Final = f"held AS ({_update('%({})s')} RETURNING id)"
_ADDED: Final = f"""added AS (
  INSERT INTO responses ({", ".join(_COLUMNS)})
   SELECT * FROM unnest({", ".join(_array(name, name) for name in _COLUMNS)})
   ON CONFLICT (id) DO NOTHING RETURNING id
)"""
_CHANGED: Final = f"""given AS (
  SELECT * FROM unnest(%(of_id)s::text[], %(of_worker)s::text[],
   {", ".join(_array(f"new_{name}", name) for name in _CHANGES)})
   AS given (id, worker, {", ".join(_CHANGES)})
), locked AS (
  SELECT responses.id FROM responses JOIN given ON {_HELD} ORDER BY responses.id FOR UPDATE OF responses
), changed AS (
  UPDATE responses SET
   {", ".join(f"{name} = coalesce(given.{name}, responses.{name})" for name in _CHANGES[:-1])},
   lease_until = given.lease_until
   FROM given JOIN locked USING (id) WHERE {_HELD} RETURNING responses.id
)"""
_INPUT: Final = f"""of_input AS (
  {_INTO_INPUT} SELECT id, given.position, given.item_id, given.item FROM held JOIN
   unnest(%(input_of)s::text[], %(positions)s::int8[], %(item_ids)s::bytea[], %(items)s::bytea[])
   AS given (id, position, item_id, item) USING (id)
)"""
_FRAMES: Final = f"""of_frames AS (
  {_INTO_FRAMES} SELECT id, given.first, given.last, given.data, given.pieces FROM held JOIN
   unnest(%(frames_of)s::text[], %(firsts)s::int8[], %(lasts)s::int8[], %(datas)s::bytea[],
    %(pieces)s::int8[]) AS given (id, first, last, data, pieces) USING (id){_OR_REPLACE_FRAMES}
)"""
_PIECES: Final = f"""of_pieces AS (
  {_INTO_PIECES} SELECT id, given.first, given.piece, given.data FROM held JOIN
   unnest(%(more_of)s::text[], %(more_after)s::int8[], %(numbers)s::int8[], %(more)s::bytea[])
   AS given (id, first, piece, data) USING (id){_OR_REPLACE_PIECES}
)"""
_OUTPUT: Final = f"""of_output AS (
  {_INTO_OUTPUT} SELECT id, given.item_id FROM held JOIN
   unnest(%(output_of)s::text[], %(output)s::bytea[]) AS given (id, item_id) USING (id)
   ON CONFLICT DO NOTHING
)"""


@cache
def _joined(*parts: str) -> str:
    return f"WITH {', '.join(parts)} SELECT id FROM held"


def postgres_statement(writes: Sequence[Write]) -> tuple[str, dict[str, Any]]:
    """Return the statement of writes of different responses, which returns the ids of the rows that it found,
    and its parameters. It has only the parts that these writes need, since a part costs about as much if it
    adds no row. One write has a statement of its own, since that for several costs twice as much."""
    parts, values = _of_several(writes) if len(writes) > 1 else _of_one(writes[0])
    for part, more in _parts(writes):
        parts.append(part)
        values |= more
    return _joined(*parts), values


def _of_one(write: Write) -> tuple[list[str], dict[str, Any]]:
    values = msgspec.structs.asdict(write.response)
    if isinstance(write.response, Row):
        return [_ONE_ADDED], values
    values["last"] = None if write.frames is None else write.frames.last
    return [_ONE_CHANGED], values


def _of_several(writes: Sequence[Write]) -> tuple[list[str], dict[str, Any]]:
    added = [write.response for write in writes if isinstance(write.response, Row)]
    changed = [(write.response, write) for write in writes if isinstance(write.response, RunChanges)]
    parts, id_queries, values = list[str](), list[str](), dict[str, Any]()
    if added:
        parts.append(_ADDED)
        id_queries.append("SELECT id FROM added")
        values |= {name: _OF[name](getattr(row, name) for row in added) for name in _COLUMNS}
    if changed:
        parts.append(_CHANGED)
        id_queries.append("SELECT id FROM changed")
        values |= {
            "of_id": Texts(run.of_id for run, _ in changed),
            "of_worker": Texts(run.of_worker for run, _ in changed),
            "new_response": Blobs(run.response for run, _ in changed),
            "new_status": Texts(run.status for run, _ in changed),
            "new_updated_at": Doubles(run.updated_at for run, _ in changed),
            "new_lease_until": Doubles(run.lease_until for run, _ in changed),
            "new_last_sequence": Integers(
                None if write.frames is None else write.frames.last for _, write in changed
            ),
        }
    return [*parts, f"held AS ({' UNION ALL '.join(id_queries)})"], values


def _parts(writes: Sequence[Write]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the parts of the statement that add to rows, each with its parameters; each list is one
    column."""
    if items := [(write.response_id, *each) for write in writes for each in enumerate(write.input)]:
        yield (
            _INPUT,
            {
                "input_of": Texts(of for of, _, _ in items),
                "positions": Integers(position for _, position, _ in items),
                "item_ids": Blobs(item.item_id for _, _, item in items),
                "items": Blobs(item.item for _, _, item in items),
            },
        )
    frames = [(w.response_id, w.frames, _pieces(w.frames)) for w in writes if w.frames is not None]
    if frames:
        yield (
            _FRAMES,
            {
                "frames_of": Texts(of for of, _, _ in frames),
                "firsts": Integers(each.first for _, each, _ in frames),
                "lasts": Integers(each.last for _, each, _ in frames),
                "datas": Blobs(pieces[0] for _, _, pieces in frames),
                "pieces": Integers(len(pieces) - 1 for _, _, pieces in frames),
            },
        )
    if more := [(of, each.first, *piece) for of, each, all_ in frames for piece in enumerate(all_[1:], 1)]:
        yield (
            _PIECES,
            {
                "more_of": Texts(of for of, _, _, _ in more),
                "more_after": Integers(first for _, first, _, _ in more),
                "numbers": Integers(number for _, _, number, _ in more),
                "more": Blobs(data for _, _, _, data in more),
            },
        )
    if output := [(write.response_id, item_id) for write in writes for item_id in write.output]:
        yield (
            _OUTPUT,
            {"output_of": Texts(of for of, _ in output), "output": Blobs(item_id for _, item_id in output)},
        )


def _pieces(frames: Frames) -> list[bytes]:
    return [data for data, _ in sliced(frames.data)]

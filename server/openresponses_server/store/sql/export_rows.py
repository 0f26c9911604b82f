"""All records of a database as lines: one record at a time, and of long frames those of one checkpoint.

Not in `transfer`, which loads Alembic.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from sqlalchemy import bindparam, func, literal, select, union_all

from openresponses_server.store.export_lines import (
    FRAMES_IN_LINE,
    frames_line,
    record_line,
)
from openresponses_server.store.frames import Frames, joined
from openresponses_server.store.sql import queries
from openresponses_server.store.sql.record_rows import Rows, row_in
from openresponses_server.store.sql.tables import response_frames as frames
from openresponses_server.store.sql.tables import response_pieces as pieces
from openresponses_server.store.sql.tables import responses

_ROWS_AT_ONCE: Final = 10
_SOME: Final = (
    select(*responses.c)
    .where(responses.c.id > bindparam("after"))
    .order_by(responses.c.id)
    .limit(bindparam("most"))
)
_PARTS: Final = (
    select(
        frames.c.first_sequence,
        frames.c.last_sequence,
        (
            func.length(frames.c.data)
            + func.coalesce(
                select(func.sum(func.length(pieces.c.data)))
                .where(
                    pieces.c.response_id == frames.c.response_id,
                    pieces.c.first_sequence == frames.c.first_sequence,
                    pieces.c.piece <= frames.c.pieces,
                )
                .scalar_subquery(),
                0,
            )
        ).label("bytes"),
    )
    .where(frames.c.response_id == bindparam("of_id"))
    .order_by(frames.c.first_sequence)
)
"""The frames of each checkpoint of a response, with their size."""
_THIS_ROW: Final = (frames.c.response_id == bindparam("of_id")) & (
    frames.c.first_sequence == bindparam("first")
)
_PIECES: Final = union_all(
    select(literal(0).label("piece"), frames.c.data).where(_THIS_ROW),
    select(pieces.c.piece, pieces.c.data)
    .join(
        frames,
        (frames.c.response_id == pieces.c.response_id) & (frames.c.first_sequence == pieces.c.first_sequence),
    )
    .where(_THIS_ROW, pieces.c.piece <= frames.c.pieces),
).subquery()
_DATA: Final = select(_PIECES.c.data).order_by(_PIECES.c.piece)
"""The data of one checkpoint's frames."""


async def exported(rows: Rows) -> AsyncIterator[bytes]:
    """As `ResponseStore.export`."""
    after = ""
    while found := await rows(_SOME, {"after": after, "most": _ROWS_AT_ONCE}):
        for each in found:
            row = row_in(each)
            items = [item for (item,) in await rows(queries.INPUT, {"of_id": row.id})]
            parts = await rows(_PARTS, {"of_id": row.id})
            if sum(part.bytes for part in parts) <= FRAMES_IN_LINE:
                yield record_line(row, items, joined([await _stored(rows, row.id, part) for part in parts]))
            else:
                yield record_line(row, items, None)
                for part in parts:
                    yield frames_line(row.id, await _stored(rows, row.id, part))
            after = row.id


async def _stored(rows: Rows, response_id: str, part: Any) -> Frames:
    """The frames of one checkpoint."""
    found = await rows(_DATA, {"of_id": response_id, "first": part.first_sequence})
    return Frames(part.first_sequence, part.last_sequence, b"".join([data for (data,) in found]))

"""Stored frames, read in pieces. A row is what one checkpoint stored, which may be a whole record; what of it
goes beyond one piece has rows of its own. Rows that were stored before that was so are read in parts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from openresponses_server.store.frames import PIECE_BYTES, Piece, Skipping
from openresponses_server.store.sql import queries

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

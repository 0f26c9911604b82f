"""Stored frames, read in pieces: a row is what one checkpoint stored, and may hold a whole record."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from server.frames import PIECE_BYTES, Piece, Skipping
from server.sessions.sql import queries

Rows = Callable[[Any, dict[str, Any]], Awaitable[list[Any]]]
"""Runs a query with these values."""

_ROWS_AT_ONCE: Final = 8
_FIRST_BYTES: Final = 64 * 1024  # read of each row at first; most are smaller
_READS: Final = 16  # of one long row: with each, the database goes through it from its front


async def read_frames(rows: Rows, whose: dict[str, Any], after: int) -> AsyncIterator[Piece]:
    """As `ResponseStore.frames` tells; `whose` names the response, its owner and the time."""
    while True:
        beginnings = {**whose, "after": after, "most": _ROWS_AT_ONCE, "start": 1, "bytes": _FIRST_BYTES}
        found = await rows(queries.FRAMES, beginnings)
        for row in found:
            skipping = Skipping(after - row.first_sequence + 1)
            after, size, read = row.last_sequence, row.size, len(row.data)
            yield Piece(skipping.rest(row.data), after if read >= size else None)
            step = max(PIECE_BYTES, size // _READS)
            while read < size:
                place = {"first": row.first_sequence, "start": read + 1, "bytes": step}
                more = await rows(queries.MORE_FRAMES, {**whose, **place})
                if not more or more[0].size != size:
                    return  # deleted, or stored again with what came since
                read += len(more[0].data)
                yield Piece(skipping.rest(more[0].data), after if read >= size else None)
        if len(found) < _ROWS_AT_ONCE:
            return

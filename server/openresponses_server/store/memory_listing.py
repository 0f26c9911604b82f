"""Lists of what is stored in this process."""

from __future__ import annotations

from collections.abc import Callable, Collection

from openresponses_server.store.listing import HEAD_BYTES, Head, Wanted
from openresponses_server.store.memory_records import Kept, MemoryRecords
from openresponses_server.store.records import Row


class MemoryListing:
    """A `ListingStore` over the records of a `MemoryStore`."""

    def __init__(self, records: MemoryRecords, clock: Callable[[], float]) -> None:
        self._records = records
        self._clock = clock

    async def heads(
        self, owner: str, wanted: Wanted, after: str | None, limit: int, only: Collection[str] | None = None
    ) -> list[Head]:
        now = self._clock()
        there = [
            kept
            for kept in self._records.all()
            if kept.row.owner == owner and kept.is_there(now) and (only is None or kept.row.id in only)
        ]
        before = None
        if after is not None:
            before = next((_place(kept.row) for kept in there if kept.row.id == after), None)
            if before is None:
                return []
        fitting = [
            kept
            for kept in there
            if (before is None or _place(kept.row) < before) and _is_wanted(kept.row, wanted)
        ]
        fitting.sort(key=lambda kept: _place(kept.row), reverse=True)
        return [_head(kept) for kept in fitting[:limit]]


def _place(row: Row) -> tuple[float, str]:
    return row.created_at, row.id


def _is_wanted(row: Row, wanted: Wanted) -> bool:
    return (
        (not wanted.status or row.status == wanted.status)
        and (wanted.since is None or row.created_at >= wanted.since)
        and (wanted.until is None or row.created_at < wanted.until)
    )


def _head(kept: Kept) -> Head:
    row = kept.row
    item = kept.input[-1].item[:HEAD_BYTES] if kept.input else None
    response = row.response[:HEAD_BYTES]
    return Head(
        row.id, row.status, row.created_at, row.previous_response_id, row.last_sequence, response, item
    )

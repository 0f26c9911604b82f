"""A store in this process: nothing survives it, and no other process sees it."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import Final

from msgspec.structs import replace

from bridge.protocol.codec import encode
from bridge.protocol.input_items import InputItem
from bridge.protocol.response import Response
from server.frames import Frames, Piece, pieces
from server.sessions.base import ANY_SIZE, NOBODY, InputPage, Lease, Order, Standing, StoredResponse, Turn
from server.sessions.errors import CursorError, LeaseLost, StoreError, TooLarge
from server.sessions.item_locations import items_at, output_names
from server.sessions.links import in_order
from server.sessions.memory_records import Kept, MemoryRecords
from server.sessions.paging import window
from server.sessions.records import (
    Row,
    export_line,
    id_bytes,
    input_rows,
    lease_of,
    listed_item,
    record_of,
    row_of,
    turn_of,
)

_MAX_BYTES: Final = 256 * 1024 * 1024


class MemoryStore:
    """Keeps the `limit` turns that were stored last, and fewer when they are more than `max_bytes`
    together. Runs in progress are never forgotten."""

    def __init__(
        self, limit: int = 1000, max_bytes: int = _MAX_BYTES, clock: Callable[[], float] = time.time
    ) -> None:
        self.name = f"memory-{secrets.token_hex(8)}"
        self._records = MemoryRecords(limit, max_bytes)
        self._clock = clock

    async def now(self) -> float:
        return self._clock()

    async def get(self, response_id: str, owner: str = "") -> StoredResponse | None:
        kept = self._of(response_id, owner)
        return None if kept is None else _record(kept)

    async def standing(self, response_id: str, owner: str = "") -> Standing | None:
        kept = self._of(response_id, owner)
        if kept is None:
            return None
        return Standing(response_id, owner, lease_of(kept.row), kept.row.last_sequence)

    async def put(self, record: StoredResponse, frames: Frames | None = None) -> None:
        row = row_of(record, self._clock(), frames.last if frames else -1)
        there = self._records.get(row.id)
        if there is not None and there.row.owner != row.owner:
            raise StoreError(StoreError.CONFLICT, "A response under this id is there already.")
        output = [] if record.lease else output_names(record.response)
        self._records.add(Kept(row, input_rows(record), {frames.first: frames} if frames else {}, output))

    async def checkpoint(
        self,
        response_id: str,
        lease: Lease,
        response: Response | None = None,
        frames: Frames | None = None,
    ) -> None:
        kept = self._held_by(response_id, lease.worker)
        if kept.row.lease_until is None:
            raise LeaseLost(response_id, lease.worker)
        self._update(kept, response, frames, lease.until)

    async def renew(self, held: Mapping[str, str], until: float) -> set[str]:
        lost = set()
        for response_id, worker in held.items():
            kept = self._records.get(response_id)
            if kept is None or kept.row.lease_worker != worker or kept.row.lease_until is None:
                lost.add(response_id)
            else:
                kept.row = replace(kept.row, lease_until=until)
        return lost

    async def finish(
        self, response_id: str, worker: str, response: Response, frames: Frames | None = None
    ) -> None:
        kept = self._held_by(response_id, worker)
        if kept.row.lease_until is not None:
            self._records.name_output(kept, output_names(response))
            self._update(kept, response, frames, None)

    async def acquire(self, response_id: str, lease: Lease, now: float) -> StoredResponse | None:
        kept = self._records.get(response_id)
        if kept is None or not (_is_over(kept.row, now) or _waits(kept.row)):
            return None
        return self._hand_over(kept, lease)

    async def claim_orphans(self, lease: Lease, now: float, limit: int = 100) -> list[StoredResponse]:
        orphans = [kept for kept in self._records.all() if _is_over(kept.row, now)]
        return [self._hand_over(kept, lease) for kept in orphans[:limit]]

    async def claim_waiting(
        self, lease: Lease, before: float, limit: int = 1, not_of: Collection[str] = ()
    ) -> list[StoredResponse]:
        waiting = [
            kept
            for kept in self._records.all()
            if _waits(kept.row) and _is_over(kept.row, before) and kept.row.owner not in not_of
        ]
        return [self._hand_over(kept, lease) for kept in waiting[:limit]]

    async def waiting(self, owner: str, most: int) -> tuple[int, int]:
        owners = [kept.row.owner for kept in self._records.all() if _waits(kept.row)]
        return min(len(owners), most), min(owners.count(owner), most)

    async def frames(self, response_id: str, owner: str = "", after: int = -1) -> AsyncIterator[Piece]:
        kept = self._of(response_id, owner)
        for first in list(kept.frames) if kept is not None else ():
            # looked up each time, since a slow reader must not keep what was let go
            kept = self._of(response_id, owner)
            if kept is None or first not in kept.frames:
                return
            for piece in pieces(kept.frames[first], after):
                yield piece

    async def chain(self, response_id: str, owner: str = "") -> list[Turn]:
        turns = self._linked(response_id, owner)
        links = {each: kept.row.previous_response_id for each, kept in turns.items()}
        return [_turn(turns[each]) for each in in_order(response_id, links)]

    async def size(self, response_id: str, owner: str = "") -> int:
        return sum(
            len(kept.row.response) + sum(len(row.item) for row in kept.input)
            for kept in self._linked(response_id, owner).values()
        )

    async def missing(self, response_ids: Collection[str], owner: str = "") -> set[str]:
        return {each for each in response_ids if self._of(each, owner) is None}

    async def input_items(
        self,
        response_id: str,
        owner: str = "",
        *,
        after: str | None = None,
        before: str | None = None,
        limit: int = 20,
        order: Order = "desc",
    ) -> InputPage | None:
        kept = self._of(response_id, owner)
        if kept is None:
            return None
        ids = [row.item_id for row in kept.input]
        bounds = window(_position(ids, "after", after), _position(ids, "before", before), order)
        low = 0 if bounds.low is None else bounds.low + 1
        high = len(ids) if bounds.high is None else bounds.high
        rows = kept.input[low:high]
        if bounds.downwards:
            rows.reverse()
        page = [listed_item(response_id, row.item_id, row.item) for row in rows[:limit]]
        if bounds.reverse:
            page.reverse()
        return InputPage(page, len(rows) > limit)

    async def items(
        self, item_ids: Collection[str], owner: str = "", *, most: int = ANY_SIZE
    ) -> dict[str, InputItem]:
        now = self._clock()
        names = map(id_bytes, item_ids)
        locations = {name: at for name in names if (at := self._records.locate(owner, name, now)) is not None}
        made = {at.response_id for at in locations.values() if at.item is None}
        bodies = {each: kept.row.response for each in made if (kept := self._records.get(each)) is not None}
        size = sum(map(len, bodies.values()))
        size += sum(len(at.item) for at in locations.values() if at.item is not None)
        if size > most:
            raise TooLarge(TooLarge.REFERENCES, size, most)
        return items_at(locations, bodies)

    async def delete(self, response_id: str, owner: str = "") -> bool:
        kept = self._records.get(response_id)
        if kept is None or kept.row.owner != owner:
            return False
        self._records.drop(kept)
        return True

    async def sweep(self, now: float) -> int:
        expired = [kept for kept in self._records.all() if not kept.is_there(now)]
        for kept in expired:
            self._records.drop(kept)
        return len(expired)

    async def export(self) -> AsyncIterator[bytes]:
        for kept in self._records.all():
            yield export_line(
                kept.row, [row.item for row in kept.input], [each.data for each in kept.frames.values()]
            )

    async def close(self) -> None:
        self._records.clear()

    def _of(self, response_id: str, owner: str) -> Kept | None:
        kept = self._records.get(response_id)
        mine = kept is not None and kept.row.owner == owner and kept.is_there(self._clock())
        return kept if mine else None

    def _linked(self, response_id: str, owner: str) -> dict[str, Kept]:
        """The turns of a chain that are there, the newest first."""
        turns: dict[str, Kept] = {}
        link: str | None = response_id
        while link is not None and link not in turns and (kept := self._of(link, owner)) is not None:
            turns[link] = kept
            link = kept.row.previous_response_id
        return turns

    def _held_by(self, response_id: str, worker: str) -> Kept:
        kept = self._records.get(response_id)
        if kept is None or kept.row.lease_worker != worker:
            raise LeaseLost(response_id, worker)
        return kept

    def _hand_over(self, kept: Kept, lease: Lease) -> StoredResponse:
        kept.row = replace(kept.row, lease_worker=lease.worker, lease_until=lease.until)
        return _record(kept)

    def _update(
        self, kept: Kept, response: Response | None, frames: Frames | None, lease_until: float | None
    ) -> None:
        more = 0
        changes: dict[str, object] = {"updated_at": self._clock(), "lease_until": lease_until}
        if response is not None:
            body = encode(response)
            more += len(body) - len(kept.row.response)
            changes |= {"response": body, "status": response.status}
        if frames is not None:
            there = kept.frames.get(frames.first)
            more += len(frames.data) - (len(there.data) if there else 0)
            kept.frames[frames.first] = frames
            changes["last_sequence"] = frames.last
        kept.row = replace(kept.row, **changes)
        self._records.grown(kept, more)


def _record(kept: Kept) -> StoredResponse:
    return record_of(kept.row, [row.item for row in kept.input])


def _turn(kept: Kept) -> Turn:
    return turn_of(kept.row.id, kept.row.response, (row.item for row in kept.input))


def _is_over(row: Row, now: float) -> bool:
    return row.lease_until is not None and row.lease_until < now


def _waits(row: Row) -> bool:
    return row.lease_until is not None and row.lease_worker == NOBODY


def _position(ids: list[bytes], param: str, item_id: str | None) -> int | None:
    if item_id is None:
        return None
    try:
        return ids.index(id_bytes(item_id))
    except ValueError:
        raise CursorError(param, item_id) from None

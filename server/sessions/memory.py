"""A store in this process: nothing survives it, and no other process sees it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from bridge.protocol.codec import decode_response, encode
from bridge.protocol.input_items import InputItem
from bridge.protocol.response import Response
from server.frames import Frames
from server.sessions.base import NOBODY, InputPage, Lease, Order, StoredResponse, Turn
from server.sessions.errors import CursorError, LeaseLost, StoreError
from server.sessions.item_index import ItemIndex
from server.sessions.links import in_order
from server.sessions.places import Place, items_at, output_names
from server.sessions.records import (
    InputRow,
    Row,
    decode_input,
    export_line,
    id_bytes,
    input_rows,
    listed_item,
    record_of,
    row_of,
    window,
)

_MAX_BYTES: Final = 256 * 1024 * 1024


class _Kept(Struct):
    """A record, its frames by the number of their first event, the ids of its output once it has ended,
    and how many bytes it holds."""

    row: Row
    input: list[InputRow]
    frames: dict[int, Frames]
    output: list[bytes]
    size: int = 0

    @property
    def input_names(self) -> list[bytes]:
        return [row.item_id for row in self.input]


class MemoryStore:
    """Keeps the `limit` turns that were stored last, and fewer when they are more than `max_bytes`
    together. Runs in progress are never forgotten."""

    def __init__(
        self, limit: int = 1000, max_bytes: int = _MAX_BYTES, clock: Callable[[], float] = time.time
    ) -> None:
        self._limit = limit
        self._max_bytes = max_bytes
        self._clock = clock
        self._records: dict[str, _Kept] = {}
        self._inputs = ItemIndex()
        self._outputs = ItemIndex()
        self._bytes = 0

    async def now(self) -> float:
        return self._clock()

    async def get(self, response_id: str, owner: str = "") -> StoredResponse | None:
        kept = self._of(response_id, owner)
        return None if kept is None else _record(kept)

    async def put(self, record: StoredResponse, frames: Frames | None = None) -> None:
        row = row_of(record, self._clock(), frames.last if frames else -1)
        there = self._records.get(row.id)
        if there is not None and there.row.owner != row.owner:
            raise StoreError(StoreError.CONFLICT, "A response under this id is there already.")
        output = [] if record.lease else output_names(record.response)
        self._keep(_Kept(row, input_rows(record), {frames.first: frames} if frames else {}, output))

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
        self._outputs.drop(kept.row.owner, kept.output, response_id)
        kept.output = output_names(response)
        self._outputs.add(kept.row.owner, kept.output, response_id)
        self._update(kept, response, frames, None)

    async def acquire(self, response_id: str, lease: Lease, now: float) -> StoredResponse | None:
        kept = self._records.get(response_id)
        if kept is None or not (_is_over(kept.row, now) or _waits(kept.row)):
            return None
        return self._hand_over(kept, lease)

    async def claim_orphans(self, lease: Lease, now: float, limit: int = 100) -> list[StoredResponse]:
        orphans = [kept for kept in self._records.values() if _is_over(kept.row, now)]
        return [self._hand_over(kept, lease) for kept in orphans[:limit]]

    async def frames(self, response_id: str, owner: str = "", after: int = -1) -> AsyncIterator[Frames]:
        kept = self._of(response_id, owner)
        if kept is not None:
            for frames in list(kept.frames.values()):
                if (rest := frames.after(after)) is not None:
                    yield rest

    async def chain(self, response_id: str, owner: str = "") -> list[Turn]:
        links: dict[str, str | None] = {}
        link: str | None = response_id
        while link is not None and link not in links:
            kept = self._of(link, owner)
            if kept is None:
                break
            links[link] = kept.row.previous_response_id
            link = kept.row.previous_response_id
        turns = [self._records[each] for each in in_order(response_id, links)]
        return [Turn(decode_response(kept.row.response), _input(kept)) for kept in turns]

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
        page = [listed_item(row.item_id, row.item) for row in rows[:limit]]
        if bounds.reverse:
            page.reverse()
        return InputPage(page, len(rows) > limit)

    async def items(self, item_ids: Collection[str], owner: str = "") -> dict[str, InputItem]:
        names = map(id_bytes, item_ids)
        places = {name: place for name in names if (place := self._place(owner, name)) is not None}
        made = {place.response_id for place in places.values() if place.item is None}
        return items_at(places, {each: self._records[each].row.response for each in made})

    async def delete(self, response_id: str, owner: str = "") -> bool:
        kept = self._of(response_id, owner)
        if kept is None:
            return False
        self._forget(kept)
        return True

    async def sweep(self, now: float) -> int:
        expired = [
            kept
            for kept in self._records.values()
            if kept.row.expires_at is not None and kept.row.expires_at <= now and kept.row.lease_until is None
        ]
        for kept in expired:
            self._forget(kept)
        return len(expired)

    async def export(self) -> AsyncIterator[bytes]:
        for kept in list(self._records.values()):
            yield export_line(
                kept.row, [row.item for row in kept.input], [each.data for each in kept.frames.values()]
            )

    async def close(self) -> None:
        self._records.clear()
        self._inputs.clear()
        self._outputs.clear()
        self._bytes = 0

    def _of(self, response_id: str, owner: str) -> _Kept | None:
        kept = self._records.get(response_id)
        return kept if kept is not None and kept.row.owner == owner else None

    def _held_by(self, response_id: str, worker: str) -> _Kept:
        kept = self._records.get(response_id)
        if kept is None or kept.row.lease_worker != worker:
            raise LeaseLost(response_id, worker)
        return kept

    def _hand_over(self, kept: _Kept, lease: Lease) -> StoredResponse:
        kept.row = replace(kept.row, lease_worker=lease.worker, lease_until=lease.until)
        return _record(kept)

    def _update(
        self, kept: _Kept, response: Response | None, frames: Frames | None, lease_until: float | None
    ) -> None:
        before = kept.size
        changes: dict[str, object] = {"updated_at": self._clock(), "lease_until": lease_until}
        if response is not None:
            body = encode(response)
            kept.size += len(body) - len(kept.row.response)
            changes |= {"response": body, "status": response.status}
        if frames is not None:
            there = kept.frames.get(frames.first)
            kept.size += len(frames.data) - (len(there.data) if there else 0)
            kept.frames[frames.first] = frames
            changes["last_sequence"] = frames.last
        kept.row = replace(kept.row, **changes)
        self._bytes += kept.size - before
        self._make_room(kept)

    def _keep(self, kept: _Kept) -> None:
        there = self._records.get(kept.row.id)
        if there is not None:
            self._forget(there)
        held = [kept.row.response, kept.row.request or b""]
        held += [row.item for row in kept.input] + [each.data for each in kept.frames.values()]
        kept.size = sum(map(len, held))
        self._records[kept.row.id] = kept
        self._inputs.add(kept.row.owner, kept.input_names, kept.row.id)
        self._outputs.add(kept.row.owner, kept.output, kept.row.id)
        self._bytes += kept.size
        self._make_room(kept)

    def _make_room(self, newest: _Kept) -> None:
        if len(self._records) <= self._limit and self._bytes <= self._max_bytes:
            return
        for kept in list(self._records.values()):
            if kept is not newest and kept.row.lease_until is None:
                self._forget(kept)
                if len(self._records) <= self._limit and self._bytes <= self._max_bytes:
                    return

    def _forget(self, kept: _Kept) -> None:
        del self._records[kept.row.id]
        self._inputs.drop(kept.row.owner, kept.input_names, kept.row.id)
        self._outputs.drop(kept.row.owner, kept.output, kept.row.id)
        self._bytes -= kept.size

    def _place(self, owner: str, name: bytes) -> Place | None:
        made = self._outputs.holders(owner, name)
        holders = made or self._inputs.holders(owner, name)
        if not holders:
            return None
        kept = max(
            (self._records[each] for each in holders), key=lambda kept: (kept.row.created_at, kept.row.id)
        )
        item = None if made else next(row.item for row in reversed(kept.input) if row.item_id == name)
        return Place(kept.row.id, item)


def _record(kept: _Kept) -> StoredResponse:
    return record_of(kept.row, [row.item for row in kept.input])


def _input(kept: _Kept) -> list[InputItem]:
    return decode_input(row.item for row in kept.input)


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

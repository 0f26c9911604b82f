"""A store in the memory of this process, which no other process sees."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.input_items import InputItem
from openresponses_bridge.protocol.response import Response
from openresponses_server.store.base import (
    ANY_SIZE,
    NOBODY,
    InputPage,
    Lease,
    LeaseLost,
    Order,
    ResponseProgress,
    StoredResponse,
    StoredTurn,
    StoreError,
    TooLarge,
)
from openresponses_server.store.export_lines import conversation_line, export_lines, in_lines, items_line
from openresponses_server.store.frames import Frames, Piece, pieces
from openresponses_server.store.idempotency import IdempotencyKey, KeyedResponse, KeyTaken
from openresponses_server.store.listing import HEAD_BYTES, ListFilter, ResponseRow
from openresponses_server.store.lookups import (
    ItemIndex,
    ItemLocation,
    in_order,
    items_at,
    output_names,
    position,
    window,
)
from openresponses_server.store.memory_conversations import MemoryConversations
from openresponses_server.store.presence import Presence, SingleProcess
from openresponses_server.store.records import (
    HIDDEN,
    InputRow,
    Row,
    hidden_row,
    id_bytes,
    input_rows,
    is_hidden,
    lease_of,
    listed_item,
    record_of,
    row_of,
    turn_of,
)
from openresponses_server.store.usage import MemoryUsage


class MemoryRecord(Struct):
    """A record. The keys of `frames` are the numbers of their first events; `output` has the ids of the
    output's items once the response has ended; `size` is in bytes."""

    row: Row
    input: list[InputRow]
    frames: dict[int, Frames]
    output: list[bytes]
    size: int = 0

    @property
    def input_names(self) -> list[bytes]:
        return [row.item_id for row in self.input]

    def is_readable(self, now: float) -> bool:
        """Return True if the record may be read: False if it has ended and expired, deleted or not."""
        expires_at = self.row.expires_at
        return expires_at is None or expires_at > now or self.row.lease_until is not None


class MemoryRecords:
    """Holds the `limit` newest records, or fewer if together they have more than `max_bytes`. Runs in
    progress are never dropped."""

    def __init__(self, limit: int, max_bytes: int) -> None:
        self._limit = limit
        self._max_bytes = max_bytes
        self._records: dict[str, MemoryRecord] = {}
        self._inputs = ItemIndex()
        self._outputs = ItemIndex()
        self._later: dict[str, set[str]] = {}
        """Response id → the ids of the turns that continue it."""
        self._bytes = 0

    def get(self, response_id: str) -> MemoryRecord | None:
        """Return the record with this id, of any owner."""
        return self._records.get(response_id)

    def all(self) -> list[MemoryRecord]:
        """Return every record, oldest first."""
        return list(self._records.values())

    def add(self, kept: MemoryRecord) -> None:
        """Store this record, replacing the one with its id."""
        there = self._records.get(kept.row.id)
        if there is not None:
            self._drop(there)
        held = [kept.row.response, kept.row.request or b""]
        held += [row.item for row in kept.input] + [each.data for each in kept.frames.values()]
        kept.size = sum(map(len, held))
        self._records[kept.row.id] = kept
        self._inputs.add(kept.row.owner, kept.input_names, kept.row.id)
        self._outputs.add(kept.row.owner, kept.output, kept.row.id)
        if kept.row.previous_response_id is not None:
            self._later.setdefault(kept.row.previous_response_id, set()).add(kept.row.id)
        self._bytes += kept.size
        self._make_room(kept)

    def remove(self, kept: MemoryRecord) -> None:
        """Delete the record, or hide it if later turns continue it."""
        if self._is_continued(kept):
            self._hide(kept)
        else:
            self._drop_with_context(kept)

    def _is_continued(self, kept: MemoryRecord) -> bool:
        """Return True if a later turn of the same owner continues it."""
        later = self._later.get(kept.row.id, set()) - {kept.row.id}
        return any(owner_of(self._records[each]) == owner_of(kept) for each in later)

    def _hide(self, kept: MemoryRecord) -> None:
        self._inputs.drop(kept.row.owner, kept.input_names, kept.row.id)
        self._outputs.drop(kept.row.owner, kept.output, kept.row.id)
        kept.row = hidden_row(kept.row)
        kept.frames, kept.output = {}, []
        size = len(kept.row.response) + sum(len(row.item) for row in kept.input)
        self.grown(kept, size - kept.size)

    def _drop_with_context(self, kept: MemoryRecord) -> None:
        """Remove the record, and the turns that were kept only for it."""
        leaf: MemoryRecord | None = kept
        while leaf is not None:
            self._drop(leaf)
            before = self._records.get(leaf.row.previous_response_id or "")
            unneeded = before is not None and is_hidden(before.row.owner) and not self._is_continued(before)
            leaf = before if unneeded else None

    def _drop(self, kept: MemoryRecord) -> None:
        del self._records[kept.row.id]
        self._inputs.drop(kept.row.owner, kept.input_names, kept.row.id)
        self._outputs.drop(kept.row.owner, kept.output, kept.row.id)
        self._bytes -= kept.size
        link = kept.row.previous_response_id
        if link is not None:
            later = self._later[link]
            later.discard(kept.row.id)
            if not later:
                del self._later[link]

    def grown(self, kept: MemoryRecord, by: int) -> None:
        """Add to the size of the record."""
        kept.size += by
        self._bytes += by
        self._make_room(kept)

    def name_output(self, kept: MemoryRecord, names: list[bytes]) -> None:
        """Index the items of an ended response's output by these ids."""
        self._outputs.drop(kept.row.owner, kept.output, kept.row.id)
        kept.output = names
        self._outputs.add(kept.row.owner, names, kept.row.id)

    def locate(self, owner: str, name: bytes, now: float) -> ItemLocation | None:
        """Return the location of the owner's item with this id: the newest output, else the newest input."""
        made = self._readable(self._outputs.holders(owner, name), now)
        holders = made or self._readable(self._inputs.holders(owner, name), now)
        if not holders:
            return None
        kept = max(holders, key=lambda kept: (kept.row.created_at, kept.row.id))
        item = None if made else next(row.item for row in reversed(kept.input) if row.item_id == name)
        return ItemLocation(kept.row.id, item)

    def clear(self) -> None:
        """Remove everything."""
        self._records.clear()
        self._inputs.clear()
        self._outputs.clear()
        self._later.clear()
        self._bytes = 0

    def _readable(self, ids: Iterable[str], now: float) -> list[MemoryRecord]:
        return [kept for each in ids if (kept := self._records[each]).is_readable(now)]

    def _make_room(self, newest: MemoryRecord) -> None:
        if len(self._records) <= self._limit and self._bytes <= self._max_bytes:
            return
        for kept in self.all():
            if kept is not newest and kept.row.lease_until is None and kept.row.id in self._records:
                self._drop_with_context(kept)
                if len(self._records) <= self._limit and self._bytes <= self._max_bytes:
                    return


def owner_of(kept: MemoryRecord) -> str:
    """Return the record's owner, also of a hidden record."""
    return kept.row.owner.removeprefix(HIDDEN)


def is_over(row: Row, now: float) -> bool:
    """Return True if the run is in progress and its lease had expired at `now`."""
    return row.lease_until is not None and row.lease_until < now


def is_made_by(row: Row, process: str) -> bool:
    """Return True if the run is in progress and its worker belongs to this process."""
    return row.lease_until is not None and (row.lease_worker or NOBODY).startswith(f"{process}-")


def waits(row: Row) -> bool:
    """Return True if the run is queued for any worker."""
    return row.lease_until is not None and row.lease_worker == NOBODY


class MemoryListing:
    """A `ListingStore` over the records of a `MemoryStore`."""

    def __init__(self, records: MemoryRecords, clock: Callable[[], float]) -> None:
        self._records = records
        self._clock = clock

    async def heads(
        self,
        owner: str,
        wanted: ListFilter,
        after: str | None,
        limit: int,
        only: Collection[str] | None = None,
    ) -> list[ResponseRow]:
        now = self._clock()
        there = [
            kept
            for kept in self._records.all()
            if kept.row.owner == owner and kept.is_readable(now) and (only is None or kept.row.id in only)
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


def _is_wanted(row: Row, wanted: ListFilter) -> bool:
    return (
        (not wanted.status or row.status == wanted.status)
        and (wanted.since is None or row.created_at >= wanted.since)
        and (wanted.until is None or row.created_at < wanted.until)
    )


def _head(kept: MemoryRecord) -> ResponseRow:
    row = kept.row
    item = kept.input[-1].item[:HEAD_BYTES] if kept.input else None
    response = row.response[:HEAD_BYTES]
    return ResponseRow(
        row.id, row.status, row.created_at, row.previous_response_id, row.last_sequence, response, item
    )


_MAX_BYTES: Final = 256 * 1024 * 1024
_MOST_USED: Final = 100_000  # names that were used; some megabytes


class MemoryStore:
    """A `ResponseStore` of the `limit` newest turns, or fewer if together they have more than `max_bytes`.
    Runs in progress are never dropped."""

    is_loaded = True

    def __init__(
        self, limit: int = 1000, max_bytes: int = _MAX_BYTES, clock: Callable[[], float] = time.time
    ) -> None:
        self.name = f"memory-{secrets.token_hex(8)}"
        self._records = MemoryRecords(limit, max_bytes)
        self._used: dict[str, float] = {}
        self._keys: dict[str, tuple[str, IdempotencyKey]] = {}
        self._clock = clock
        self.usage = MemoryUsage()
        self.listing = MemoryListing(self._records, clock)
        self.conversations = MemoryConversations(limit, clock)
        self.keys = None

    async def now(self) -> float:
        return self._clock()

    async def get(self, response_id: str, owner: str = "") -> StoredResponse | None:
        kept = self._of(response_id, owner)
        return None if kept is None else _record(kept)

    async def standing(self, response_id: str, owner: str = "") -> ResponseProgress | None:
        kept = self._of(response_id, owner)
        if kept is None:
            return None
        return ResponseProgress(response_id, owner, lease_of(kept.row), kept.row.last_sequence)

    async def put(
        self, record: StoredResponse, frames: Frames | None = None, *, key: IdempotencyKey | None = None
    ) -> None:
        row = row_of(record, self._clock(), frames.last if frames else -1)
        there = self._records.get(row.id)
        if there is not None and there.row.owner != row.owner:
            raise StoreError(StoreError.CONFLICT, "A response with this id already exists.")
        if key is not None:
            taken = await self.keyed(key.name, record.owner)
            if taken is not None and taken.response_id != row.id:
                raise KeyTaken(taken)
            self._keys[key.name] = row.id, key
        output = [] if record.lease else output_names(record.response)
        before = there.row.response if there is not None and there.row.lease_until is None else None
        kept = MemoryRecord(row, input_rows(record), {frames.first: frames} if frames else {}, output)
        self._records.add(kept)
        if record.lease is None and before != row.response:
            self._append_turn(kept, record.response, record.conversation)

    async def keyed(self, name: str, owner: str = "") -> KeyedResponse | None:
        response_id, key = self._keys.get(name, ("", None))
        kept = self._of(response_id, owner)
        if key is None or kept is None or key.until <= self._clock():
            return None
        failed = kept.row.status == "failed" and kept.row.lease_until is None
        return None if failed else KeyedResponse(response_id, key.request)

    async def checkpoint(
        self,
        response_id: str,
        lease: Lease,
        response: Response | None = None,
        frames: Frames | None = None,
    ) -> None:
        kept = self._held_by(response_id, lease.worker)
        is_late = frames is not None and frames.last < kept.row.last_sequence
        if kept.row.lease_until is None or is_late:
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
        self,
        response_id: str,
        worker: str,
        response: Response,
        frames: Frames | None = None,
        *,
        conversation: str | None = None,
    ) -> None:
        kept = self._held_by(response_id, worker)
        if kept.row.lease_until is not None or kept.row.response != encode(response):
            self._records.name_output(kept, output_names(response))
            self._update(kept, response, frames, None)
            self._append_turn(kept, response, conversation)

    async def acquire(self, response_id: str, lease: Lease, now: float) -> StoredResponse | None:
        kept = self._records.get(response_id)
        if kept is None or kept.row.lease_until is None:
            return None
        if not (is_over(kept.row, now) or waits(kept.row) or kept.row.lease_worker == lease.worker):
            return None
        return self._claim(kept, lease)

    async def claim_orphans(
        self, lease: Lease, now: float, limit: int = 100, *, waiting: bool = True
    ) -> list[StoredResponse]:
        over = [kept for kept in self._records.all() if is_over(kept.row, now)]
        orphans = [kept for kept in over if waiting or not waits(kept.row)]
        return [self._claim(kept, lease) for kept in orphans[:limit]]

    async def claim_of(self, process: str, lease: Lease, limit: int = 100) -> list[StoredResponse]:
        left = [kept for kept in self._records.all() if is_made_by(kept.row, process)]
        return [self._claim(kept, lease) for kept in left[:limit]]

    async def release(self, held: Mapping[str, str], until: float) -> None:
        lost = await self.renew(held, until)
        for response_id in held.keys() - lost:
            kept = self._records.get(response_id)
            assert kept is not None
            kept.row = replace(kept.row, lease_worker=NOBODY)

    @property
    def folder(self) -> None:
        return None

    def presence(self, process: str, lease: float) -> Presence:
        return SingleProcess()

    async def claim_waiting(
        self, lease: Lease, before: float, limit: int = 1, not_of: Collection[str] = ()
    ) -> list[StoredResponse]:
        waiting = [
            kept
            for kept in self._records.all()
            if waits(kept.row) and is_over(kept.row, before) and kept.row.owner not in not_of
        ]
        return [self._claim(kept, lease) for kept in waiting[:limit]]

    async def waiting(self, owner: str, most: int) -> tuple[int, int]:
        owners = [kept.row.owner for kept in self._records.all() if waits(kept.row)]
        return min(len(owners), most), min(owners.count(owner), most)

    async def frames(self, response_id: str, owner: str = "", after: int = -1) -> AsyncIterator[Piece]:
        kept = self._of(response_id, owner)
        for first in list(kept.frames) if kept is not None else ():
            # looked up each time, so that a slow reader does not keep frames that were dropped
            kept = self._of(response_id, owner)
            if kept is None or first not in kept.frames:
                return
            for piece in pieces(kept.frames[first], after):
                yield piece

    async def chain(self, response_id: str, owner: str = "") -> list[StoredTurn]:
        turns = self._linked(response_id, owner)
        links = {each: kept.row.previous_response_id for each, kept in turns.items()}
        return [_turn(turns[each]) for each in in_order(response_id, links)]

    async def size(self, response_id: str, owner: str = "") -> int:
        return sum(
            len(kept.row.response) + sum(len(row.item) for row in kept.input)
            for kept in self._linked(response_id, owner).values()
        )

    async def stock(self) -> dict[str, int]:
        held: Counter[str] = Counter()
        for kept in self._records.all():
            held[owner_of(kept)] += kept.size
        for owner, size in self.conversations.stock():
            held[owner] += size
        return held

    async def missing(
        self, response_ids: Collection[str], owner: str = "", *, before: Collection[str] = ()
    ) -> set[str]:
        gone = {each for each in response_ids if self._of(each, owner) is None}
        return gone | {each for each in before if self._context(each, owner) is None}

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
        bounds = window(position(ids, "after", after), position(ids, "before", before), order)
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
        self._records.remove(kept)
        return True

    async def use_once(self, name: str, until: float) -> bool:
        if name in self._used:
            return False
        while self._used:
            oldest = next(iter(self._used))
            if len(self._used) < _MOST_USED and self._used[oldest] > self._clock():
                break
            del self._used[oldest]
        self._used[name] = until
        return True

    async def sweep(self, now: float) -> int:
        expired = [kept for kept in self._records.all() if not kept.is_readable(now)]
        for kept in reversed(expired):  # newest first, since turns before it may be kept only for it
            self._records.remove(kept)
        self._used = {name: until for name, until in self._used.items() if until > now}
        self._keys = {
            name: (of, key)
            for name, (of, key) in self._keys.items()
            if key.until > now and self._records.get(of) is not None
        }
        await self.conversations.sweep(now)
        return len(expired)

    async def export(self) -> AsyncIterator[bytes]:
        keys = dict(self._keys.values())
        for kept in self._records.all():
            frames = [kept.frames[first] for first in sorted(kept.frames)]
            items = [row.item for row in kept.input]
            for line in export_lines(kept.row, items, frames, keys.get(kept.row.id)):
                yield line
        for conversation, rows in self.conversations.all():
            yield conversation_line(conversation, len(rows))
            for some in in_lines(rows):
                yield items_line(conversation.id, some)

    async def probe(self) -> None:
        return None

    async def close(self) -> None:
        self._records.clear()
        self._used.clear()
        self._keys.clear()
        self.conversations.clear()

    def _of(self, response_id: str, owner: str) -> MemoryRecord | None:
        kept = self._records.get(response_id)
        mine = kept is not None and kept.row.owner == owner and kept.is_readable(self._clock())
        return kept if mine else None

    def _context(self, response_id: str, owner: str) -> MemoryRecord | None:
        """Return the turn as the context of a later one, also if it was deleted or has expired."""
        kept = self._records.get(response_id)
        return kept if kept is not None and owner_of(kept) == owner else None

    def _linked(self, response_id: str, owner: str) -> dict[str, MemoryRecord]:
        """Return the turns of a chain as far back as they exist, newest first."""
        turns: dict[str, MemoryRecord] = {}
        kept = self._of(response_id, owner)
        while kept is not None and kept.row.id not in turns:
            turns[kept.row.id] = kept
            kept = self._context(kept.row.previous_response_id or "", owner)
        return turns

    def _append_turn(self, kept: MemoryRecord, response: Response, conversation: str | None) -> None:
        if conversation is not None:
            row = kept.row
            self.conversations.append_turn(conversation, row.owner, response, kept.input, row.expires_at)

    def _held_by(self, response_id: str, worker: str) -> MemoryRecord:
        kept = self._records.get(response_id)
        if kept is None or kept.row.lease_worker != worker:
            raise LeaseLost(response_id, worker)
        return kept

    def _claim(self, kept: MemoryRecord, lease: Lease) -> StoredResponse:
        kept.row = replace(kept.row, lease_worker=lease.worker, lease_until=lease.until)
        return _record(kept)

    def _update(
        self, kept: MemoryRecord, response: Response | None, frames: Frames | None, lease_until: float | None
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


def _record(kept: MemoryRecord) -> StoredResponse:
    return record_of(kept.row, [row.item for row in kept.input])


def _turn(kept: MemoryRecord) -> StoredTurn:
    items = (row.item for row in kept.input)
    return turn_of(kept.row.id, kept.row.response, items, kept.row.conversation_id)

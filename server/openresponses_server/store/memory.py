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

    def add(self, record: MemoryRecord) -> None:
        """Store this record, replacing the one with its id."""
        there = self._records.get(record.row.id)
        if there is not None:
            self._drop(there)
        contents = [record.row.response, record.row.request or b""]
        contents += [row.item for row in record.input] + [each.data for each in record.frames.values()]
        record.size = sum(map(len, contents))
        self._records[record.row.id] = record
        self._inputs.add(record.row.owner, record.input_names, record.row.id)
        self._outputs.add(record.row.owner, record.output, record.row.id)
        if record.row.previous_response_id is not None:
            self._later.setdefault(record.row.previous_response_id, set()).add(record.row.id)
        self._bytes += record.size
        self._make_room(record)

    def remove(self, record: MemoryRecord) -> None:
        """Delete the record, or hide it if later turns continue it."""
        if self._is_continued(record):
            self._hide(record)
        else:
            self._drop_with_context(record)

    def _is_continued(self, record: MemoryRecord) -> bool:
        """Return True if a later turn of the same owner continues it."""
        later = self._later.get(record.row.id, set()) - {record.row.id}
        return any(owner_of(self._records[each]) == owner_of(record) for each in later)

    def _hide(self, record: MemoryRecord) -> None:
        self._inputs.drop(record.row.owner, record.input_names, record.row.id)
        self._outputs.drop(record.row.owner, record.output, record.row.id)
        record.row = hidden_row(record.row)
        record.frames, record.output = {}, []
        size = len(record.row.response) + sum(len(row.item) for row in record.input)
        self.grown(record, size - record.size)

    def _drop_with_context(self, record: MemoryRecord) -> None:
        """Remove the record, and the turns that were kept only for it."""
        leaf: MemoryRecord | None = record
        while leaf is not None:
            self._drop(leaf)
            before = self._records.get(leaf.row.previous_response_id or "")
            unneeded = before is not None and is_hidden(before.row.owner) and not self._is_continued(before)
            leaf = before if unneeded else None

    def _drop(self, record: MemoryRecord) -> None:
        del self._records[record.row.id]
        self._inputs.drop(record.row.owner, record.input_names, record.row.id)
        self._outputs.drop(record.row.owner, record.output, record.row.id)
        self._bytes -= record.size
        link = record.row.previous_response_id
        if link is not None:
            later = self._later[link]
            later.discard(record.row.id)
            if not later:
                del self._later[link]

    def grown(self, record: MemoryRecord, by: int) -> None:
        """Add to the size of the record."""
        record.size += by
        self._bytes += by
        self._make_room(record)

    def name_output(self, record: MemoryRecord, names: list[bytes]) -> None:
        """Index the items of an ended response's output by these ids."""
        self._outputs.drop(record.row.owner, record.output, record.row.id)
        record.output = names
        self._outputs.add(record.row.owner, names, record.row.id)

    def locate(self, owner: str, name: bytes, now: float) -> ItemLocation | None:
        """Return the location of the owner's item with this id: the newest output, else the newest input."""
        producers = self._readable(self._outputs.holders(owner, name), now)
        holders = producers or self._readable(self._inputs.holders(owner, name), now)
        if not holders:
            return None
        record = max(holders, key=lambda record: (record.row.created_at, record.row.id))
        item = None if producers else next(row.item for row in reversed(record.input) if row.item_id == name)
        return ItemLocation(record.row.id, item)

    def clear(self) -> None:
        """Remove everything."""
        self._records.clear()
        self._inputs.clear()
        self._outputs.clear()
        self._later.clear()
        self._bytes = 0

    def _readable(self, ids: Iterable[str], now: float) -> list[MemoryRecord]:
        return [record for each in ids if (record := self._records[each]).is_readable(now)]

    def _make_room(self, newest: MemoryRecord) -> None:
        if len(self._records) <= self._limit and self._bytes <= self._max_bytes:
            return
        for record in self.all():
            if record is not newest and record.row.lease_until is None and record.row.id in self._records:
                self._drop_with_context(record)
                if len(self._records) <= self._limit and self._bytes <= self._max_bytes:
                    return


def owner_of(record: MemoryRecord) -> str:
    """Return the record's owner, also of a hidden record."""
    return record.row.owner.removeprefix(HIDDEN)


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
        list_filter: ListFilter,
        after: str | None,
        limit: int,
        only: Collection[str] | None = None,
    ) -> list[ResponseRow]:
        now = self._clock()
        there = [
            record
            for record in self._records.all()
            if record.row.owner == owner
            and record.is_readable(now)
            and (only is None or record.row.id in only)
        ]
        before = None
        if after is not None:
            before = next((_place(record.row) for record in there if record.row.id == after), None)
            if before is None:
                return []
        fitting = [
            record
            for record in there
            if (before is None or _place(record.row) < before) and _is_wanted(record.row, list_filter)
        ]
        fitting.sort(key=lambda record: _place(record.row), reverse=True)
        return [_head(record) for record in fitting[:limit]]


def _place(row: Row) -> tuple[float, str]:
    return row.created_at, row.id


def _is_wanted(row: Row, list_filter: ListFilter) -> bool:
    return (
        (not list_filter.status or row.status == list_filter.status)
        and (list_filter.since is None or row.created_at >= list_filter.since)
        and (list_filter.until is None or row.created_at < list_filter.until)
    )


def _head(record: MemoryRecord) -> ResponseRow:
    row = record.row
    item = record.input[-1].item[:HEAD_BYTES] if record.input else None
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
        record = self._of(response_id, owner)
        return None if record is None else _record(record)

    async def standing(self, response_id: str, owner: str = "") -> ResponseProgress | None:
        record = self._of(response_id, owner)
        if record is None:
            return None
        return ResponseProgress(response_id, owner, lease_of(record.row), record.row.last_sequence)

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
        memory_record = MemoryRecord(
            row, input_rows(record), {frames.first: frames} if frames else {}, output
        )
        self._records.add(memory_record)
        if record.lease is None and before != row.response:
            self._append_turn(memory_record, record.response, record.conversation)

    async def keyed(self, name: str, owner: str = "") -> KeyedResponse | None:
        response_id, key = self._keys.get(name, ("", None))
        record = self._of(response_id, owner)
        if key is None or record is None or key.until <= self._clock():
            return None
        failed = record.row.status == "failed" and record.row.lease_until is None
        return None if failed else KeyedResponse(response_id, key.request)

    async def checkpoint(
        self,
        response_id: str,
        lease: Lease,
        response: Response | None = None,
        frames: Frames | None = None,
    ) -> None:
        record = self._held_by(response_id, lease.worker)
        is_late = frames is not None and frames.last < record.row.last_sequence
        if record.row.lease_until is None or is_late:
            raise LeaseLost(response_id, lease.worker)
        self._update(record, response, frames, lease.until)

    async def renew(self, held: Mapping[str, str], until: float) -> set[str]:
        lost = set()
        for response_id, worker in held.items():
            record = self._records.get(response_id)
            if record is None or record.row.lease_worker != worker or record.row.lease_until is None:
                lost.add(response_id)
            else:
                record.row = replace(record.row, lease_until=until)
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
        record = self._held_by(response_id, worker)
        if record.row.lease_until is not None or record.row.response != encode(response):
            self._records.name_output(record, output_names(response))
            self._update(record, response, frames, None)
            self._append_turn(record, response, conversation)

    async def acquire(self, response_id: str, lease: Lease, now: float) -> StoredResponse | None:
        record = self._records.get(response_id)
        if record is None or record.row.lease_until is None:
            return None
        if not (is_over(record.row, now) or waits(record.row) or record.row.lease_worker == lease.worker):
            return None
        return self._claim(record, lease)

    async def claim_orphans(
        self, lease: Lease, now: float, limit: int = 100, *, waiting: bool = True
    ) -> list[StoredResponse]:
        over = [record for record in self._records.all() if is_over(record.row, now)]
        orphans = [record for record in over if waiting or not waits(record.row)]
        return [self._claim(record, lease) for record in orphans[:limit]]

    async def claim_of(self, process: str, lease: Lease, limit: int = 100) -> list[StoredResponse]:
        left = [record for record in self._records.all() if is_made_by(record.row, process)]
        return [self._claim(record, lease) for record in left[:limit]]

    async def release(self, held: Mapping[str, str], until: float) -> None:
        lost = await self.renew(held, until)
        for response_id in held.keys() - lost:
            record = self._records.get(response_id)
            assert record is not None
            record.row = replace(record.row, lease_worker=NOBODY)

    @property
    def folder(self) -> None:
        return None

    def presence(self, process: str, lease: float) -> Presence:
        return SingleProcess()

    async def claim_waiting(
        self, lease: Lease, before: float, limit: int = 1, not_of: Collection[str] = ()
    ) -> list[StoredResponse]:
        waiting = [
            record
            for record in self._records.all()
            if waits(record.row) and is_over(record.row, before) and record.row.owner not in not_of
        ]
        return [self._claim(record, lease) for record in waiting[:limit]]

    async def waiting(self, owner: str, most: int) -> tuple[int, int]:
        owners = [record.row.owner for record in self._records.all() if waits(record.row)]
        return min(len(owners), most), min(owners.count(owner), most)

    async def frames(self, response_id: str, owner: str = "", after: int = -1) -> AsyncIterator[Piece]:
        record = self._of(response_id, owner)
        for first in list(record.frames) if record is not None else ():
            # looked up each time, so that a slow reader does not keep frames that were dropped
            record = self._of(response_id, owner)
            if record is None or first not in record.frames:
                return
            for piece in pieces(record.frames[first], after):
                yield piece

    async def chain(self, response_id: str, owner: str = "") -> list[StoredTurn]:
        turns = self._linked(response_id, owner)
        links = {each: turn.row.previous_response_id for each, turn in turns.items()}
        return [_turn(turns[each]) for each in in_order(response_id, links)]

    async def size(self, response_id: str, owner: str = "") -> int:
        return sum(
            len(turn.row.response) + sum(len(row.item) for row in turn.input)
            for turn in self._linked(response_id, owner).values()
        )

    async def stock(self) -> dict[str, int]:
        totals: Counter[str] = Counter()
        for record in self._records.all():
            totals[owner_of(record)] += record.size
        for owner, size in self.conversations.stock():
            totals[owner] += size
        return totals

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
        record = self._of(response_id, owner)
        if record is None:
            return None
        ids = [row.item_id for row in record.input]
        bounds = window(position(ids, "after", after), position(ids, "before", before), order)
        low = 0 if bounds.low is None else bounds.low + 1
        high = len(ids) if bounds.high is None else bounds.high
        rows = record.input[low:high]
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
        ids = {at.response_id for at in locations.values() if at.item is None}
        bodies = {
            each: record.row.response for each in ids if (record := self._records.get(each)) is not None
        }
        size = sum(map(len, bodies.values()))
        size += sum(len(at.item) for at in locations.values() if at.item is not None)
        if size > most:
            raise TooLarge(TooLarge.REFERENCES, size, most)
        return items_at(locations, bodies)

    async def delete(self, response_id: str, owner: str = "") -> bool:
        record = self._records.get(response_id)
        if record is None or record.row.owner != owner:
            return False
        self._records.remove(record)
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
        expired = [record for record in self._records.all() if not record.is_readable(now)]
        for record in reversed(expired):  # newest first, since turns before it may be kept only for it
            self._records.remove(record)
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
        for record in self._records.all():
            frames = [record.frames[first] for first in sorted(record.frames)]
            items = [row.item for row in record.input]
            for line in export_lines(record.row, items, frames, keys.get(record.row.id)):
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
        record = self._records.get(response_id)
        mine = record is not None and record.row.owner == owner and record.is_readable(self._clock())
        return record if mine else None

    def _context(self, response_id: str, owner: str) -> MemoryRecord | None:
        """Return the turn as the context of a later one, also if it was deleted or has expired."""
        turn = self._records.get(response_id)
        return turn if turn is not None and owner_of(turn) == owner else None

    def _linked(self, response_id: str, owner: str) -> dict[str, MemoryRecord]:
        """Return the turns of a chain as far back as they exist, newest first."""
        turns: dict[str, MemoryRecord] = {}
        turn = self._of(response_id, owner)
        while turn is not None and turn.row.id not in turns:
            turns[turn.row.id] = turn
            turn = self._context(turn.row.previous_response_id or "", owner)
        return turns

    def _append_turn(self, record: MemoryRecord, response: Response, conversation: str | None) -> None:
        if conversation is not None:
            row = record.row
            self.conversations.append_turn(conversation, row.owner, response, record.input, row.expires_at)

    def _held_by(self, response_id: str, worker: str) -> MemoryRecord:
        record = self._records.get(response_id)
        if record is None or record.row.lease_worker != worker:
            raise LeaseLost(response_id, worker)
        return record

    def _claim(self, record: MemoryRecord, lease: Lease) -> StoredResponse:
        record.row = replace(record.row, lease_worker=lease.worker, lease_until=lease.until)
        return _record(record)

    def _update(
        self,
        record: MemoryRecord,
        response: Response | None,
        frames: Frames | None,
        lease_until: float | None,
    ) -> None:
        more = 0
        changes: dict[str, object] = {"updated_at": self._clock(), "lease_until": lease_until}
        if response is not None:
            body = encode(response)
            more += len(body) - len(record.row.response)
            changes |= {"response": body, "status": response.status}
        if frames is not None:
            there = record.frames.get(frames.first)
            more += len(frames.data) - (len(there.data) if there else 0)
            record.frames[frames.first] = frames
            changes["last_sequence"] = frames.last
        record.row = replace(record.row, **changes)
        self._records.grown(record, more)


def _record(record: MemoryRecord) -> StoredResponse:
    return record_of(record.row, [row.item for row in record.input])


def _turn(record: MemoryRecord) -> StoredTurn:
    items = (row.item for row in record.input)
    return turn_of(record.row.id, record.row.response, items, record.row.conversation_id)

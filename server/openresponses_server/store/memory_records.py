"""Records in this process: bounded, and their items to be found by id."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from openresponses_server.store.base import NOBODY
from openresponses_server.store.frames import Frames
from openresponses_server.store.item_index import ItemIndex
from openresponses_server.store.lookups import ItemLocation
from openresponses_server.store.records import HIDDEN, InputRow, Row, hidden_row, is_hidden


class Kept(Struct):
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

    def is_there(self, now: float) -> bool:
        """Whether it may be read: what has expired and ended is gone, swept or not."""
        expires_at = self.row.expires_at
        return expires_at is None or expires_at > now or self.row.lease_until is not None


class MemoryRecords:
    """Holds the `limit` records that came last, and fewer when they are more than `max_bytes` together. Runs
    in progress are never dropped."""

    def __init__(self, limit: int, max_bytes: int) -> None:
        self._limit = limit
        self._max_bytes = max_bytes
        self._records: dict[str, Kept] = {}
        self._inputs = ItemIndex()
        self._outputs = ItemIndex()
        self._later: dict[str, set[str]] = {}
        """The ids of the turns that stand on each."""
        self._bytes = 0

    def get(self, response_id: str) -> Kept | None:
        """The record with this id, of any owner."""
        return self._records.get(response_id)

    def all(self) -> list[Kept]:
        """Every record, the oldest first."""
        return list(self._records.values())

    def add(self, kept: Kept) -> None:
        """Hold this one, in the place of what was there under its id."""
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

    def forget(self, kept: Kept) -> None:
        """Show it no more. What later turns stand on is held for them."""
        if self._stands(kept):
            self._hide(kept)
        else:
            self._drop_with_context(kept)

    def _stands(self, kept: Kept) -> bool:
        """Whether a later turn of the same owner stands on it."""
        later = self._later.get(kept.row.id, set()) - {kept.row.id}
        return any(owner_of(self._records[each]) == owner_of(kept) for each in later)

    def _hide(self, kept: Kept) -> None:
        self._inputs.drop(kept.row.owner, kept.input_names, kept.row.id)
        self._outputs.drop(kept.row.owner, kept.output, kept.row.id)
        kept.row = hidden_row(kept.row)
        kept.frames, kept.output = {}, []
        size = len(kept.row.response) + sum(len(row.item) for row in kept.input)
        self.grown(kept, size - kept.size)

    def _drop_with_context(self, kept: Kept) -> None:
        """It, and what was held for it alone."""
        leaf: Kept | None = kept
        while leaf is not None:
            self._drop(leaf)
            before = self._records.get(leaf.row.previous_response_id or "")
            unneeded = before is not None and is_hidden(before.row.owner) and not self._stands(before)
            leaf = before if unneeded else None

    def _drop(self, kept: Kept) -> None:
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

    def grown(self, kept: Kept, by: int) -> None:
        """It holds so many bytes more."""
        kept.size += by
        self._bytes += by
        self._make_room(kept)

    def name_output(self, kept: Kept, names: list[bytes]) -> None:
        """It has ended, and its output has items with these ids."""
        self._outputs.drop(kept.row.owner, kept.output, kept.row.id)
        kept.output = names
        self._outputs.add(kept.row.owner, names, kept.row.id)

    def locate(self, owner: str, name: bytes, now: float) -> ItemLocation | None:
        """Where the owner's item with this id is: the newest output, else the newest input."""
        made = self._there(self._outputs.holders(owner, name), now)
        holders = made or self._there(self._inputs.holders(owner, name), now)
        if not holders:
            return None
        kept = max(holders, key=lambda kept: (kept.row.created_at, kept.row.id))
        item = None if made else next(row.item for row in reversed(kept.input) if row.item_id == name)
        return ItemLocation(kept.row.id, item)

    def clear(self) -> None:
        """Hold nothing."""
        self._records.clear()
        self._inputs.clear()
        self._outputs.clear()
        self._later.clear()
        self._bytes = 0

    def _there(self, ids: Iterable[str], now: float) -> list[Kept]:
        return [kept for each in ids if (kept := self._records[each]).is_there(now)]

    def _make_room(self, newest: Kept) -> None:
        if len(self._records) <= self._limit and self._bytes <= self._max_bytes:
            return
        for kept in self.all():
            if kept is not newest and kept.row.lease_until is None and kept.row.id in self._records:
                self._drop_with_context(kept)
                if len(self._records) <= self._limit and self._bytes <= self._max_bytes:
                    return


def owner_of(kept: Kept) -> str:
    """Whose it is, or was before it was deleted."""
    return kept.row.owner.removeprefix(HIDDEN)


def is_over(row: Row, now: float) -> bool:
    """Whether it runs and its lease was over at `now`."""
    return row.lease_until is not None and row.lease_until < now


def is_made_by(row: Row, process: str) -> bool:
    """Whether it runs and its worker is this process'."""
    return row.lease_until is not None and (row.lease_worker or NOBODY).startswith(f"{process}-")


def waits(row: Row) -> bool:
    """Whether it waits for any worker."""
    return row.lease_until is not None and row.lease_worker == NOBODY

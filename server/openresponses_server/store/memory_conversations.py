"""Conversations in the memory of this process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from openresponses_bridge.protocol.response import Response
from openresponses_server.store.base import (
    ConversationSize,
    CursorError,
    InputPage,
    ListedItem,
    Order,
    StoredConversation,
    StoreError,
)
from openresponses_server.store.conversations import full, item_exists, rows_of, total_size, turn_rows
from openresponses_server.store.records import InputRow, id_bytes, listed_item

_MAX_BYTES: Final = 64 * 1024 * 1024


class _Kept(Struct):
    conversation: StoredConversation
    items: dict[bytes, InputRow]
    """Items by their ids, in order."""
    size: int
    turns: dict[str, list[bytes]]
    """Response id → the ids of the items that the response has appended at its end."""


class MemoryConversations:
    """A `ConversationStore` of the `limit` conversations that were changed last, or fewer if together they
    have more than `max_bytes`."""

    def __init__(self, limit: int, clock: Callable[[], float], max_bytes: int = _MAX_BYTES) -> None:
        self._limit = limit
        self._max_bytes = max_bytes
        self._clock = clock
        self._kept: dict[str, _Kept] = {}
        """Conversations by their ids; the latest change is last."""
        self._bytes = 0

    async def create(self, conversation: StoredConversation, items: Sequence[ListedItem]) -> None:
        if conversation.id in self._kept:
            raise StoreError(StoreError.CONFLICT, "A conversation with this id already exists.")
        self.load(conversation, rows_of(items))

    def load(self, conversation: StoredConversation, rows: Sequence[InputRow]) -> None:
        """Keep a new conversation with these items."""
        entry = self._kept[conversation.id] = _Kept(conversation, {}, len(conversation.metadata), {})
        self._bytes += entry.size
        self._append(entry, rows, conversation.expires_at)

    async def get(self, conversation_id: str, owner: str) -> StoredConversation | None:
        entry = self._of(conversation_id, owner)
        return None if entry is None else entry.conversation

    async def count(self, owner: str, most: int) -> int:
        now = self._clock()
        return min(sum(_is_of(entry, owner, now) for entry in self._kept.values()), most)

    async def update(
        self, conversation_id: str, owner: str, metadata: bytes, expires_at: float | None
    ) -> StoredConversation | None:
        entry = self._of(conversation_id, owner)
        if entry is None:
            return None
        self._grow(entry, len(metadata) - len(entry.conversation.metadata))
        entry.conversation = replace(entry.conversation, metadata=metadata)
        self._changed(entry, expires_at)
        return entry.conversation

    async def delete(self, conversation_id: str, owner: str) -> bool:
        entry = self._of(conversation_id, owner)
        if entry is None:
            return False
        self._drop(entry)
        return True

    async def add(
        self,
        conversation_id: str,
        owner: str,
        items: Sequence[ListedItem],
        most: ConversationSize,
        expires_at: float | None,
    ) -> bool:
        entry = self._of(conversation_id, owner)
        if entry is None:
            return False
        rows = rows_of(items)
        for index, row in enumerate(rows):
            if row.item_id in entry.items:
                raise item_exists(items[index].id, index)
        there, more = total_size(entry.items.values()), total_size(rows)
        sum_ = ConversationSize(there.items + more.items, there.bytes + more.bytes)
        if sum_.items > most.items or sum_.bytes > most.bytes:
            raise full(sum_, most)
        self._append(entry, rows, expires_at)
        return True

    def append_turn(
        self,
        conversation_id: str,
        owner: str,
        response: Response,
        input_rows: Sequence[InputRow],
        expires_at: float | None,
    ) -> None:
        """Append the items of an ended response to the conversation, if that still exists, instead of those
        that the response has appended before."""
        entry = self._of(conversation_id, owner)
        if entry is not None:
            items = entry.items
            for name in entry.turns.pop(response.id, ()):
                if (before := items.pop(name, None)) is not None:
                    self._grow(entry, -len(before.item))

            def taken(names: Collection[bytes]) -> set[bytes]:
                return items.keys() & names

            rows = turn_rows(response, input_rows, taken)
            entry.turns[response.id] = [row.item_id for row in rows]
            self._append(entry, rows, expires_at)

    async def page(
        self,
        conversation_id: str,
        owner: str,
        *,
        after: str | None = None,
        limit: int = 20,
        order: Order = "desc",
    ) -> InputPage | None:
        entry = self._of(conversation_id, owner)
        if entry is None:
            return None
        names = list(entry.items)
        if order == "desc":
            names.reverse()
        first = 0
        if after is not None:
            if id_bytes(after) not in entry.items:
                raise CursorError("after", after)
            first = names.index(id_bytes(after)) + 1
        shown = names[first : first + limit]
        page = [listed_item(conversation_id, name, entry.items[name].item) for name in shown]
        return InputPage(page, len(names) > first + limit)

    async def item(self, conversation_id: str, item_id: str, owner: str) -> ListedItem | None:
        entry = self._of(conversation_id, owner)
        row = None if entry is None else entry.items.get(id_bytes(item_id))
        return None if row is None else listed_item(conversation_id, row.item_id, row.item)

    async def remove(
        self, conversation_id: str, item_id: str, owner: str, expires_at: float | None
    ) -> StoredConversation | None:
        entry = self._of(conversation_id, owner)
        row = None if entry is None else entry.items.pop(id_bytes(item_id), None)
        if entry is None or row is None:
            return None
        self._grow(entry, -len(row.item))
        self._changed(entry, expires_at)
        return entry.conversation

    async def size(self, conversation_id: str, owner: str) -> ConversationSize | None:
        entry = self._of(conversation_id, owner)
        return None if entry is None else total_size(entry.items.values())

    async def items(self, conversation_id: str, owner: str) -> list[ListedItem] | None:
        entry = self._of(conversation_id, owner)
        if entry is None:
            return None
        return [listed_item(conversation_id, row.item_id, row.item) for row in entry.items.values()]

    async def sweep(self, now: float) -> int:
        over = [entry for entry in self._kept.values() if not _is_readable(entry, now)]
        for entry in over:
            self._drop(entry)
        return len(over)

    def stock(self) -> list[tuple[str, int]]:
        """Return (owner, bytes) of each conversation."""
        return [(entry.conversation.owner, entry.size) for entry in self._kept.values()]

    def all(self) -> list[tuple[StoredConversation, list[InputRow]]]:
        """Return every conversation with its items."""
        return [(entry.conversation, list(entry.items.values())) for entry in self._kept.values()]

    def clear(self) -> None:
        """Remove everything."""
        self._kept.clear()
        self._bytes = 0

    def _of(self, conversation_id: str, owner: str) -> _Kept | None:
        entry = self._kept.get(conversation_id)
        return entry if entry is not None and _is_of(entry, owner, self._clock()) else None

    def _append(self, entry: _Kept, rows: Sequence[InputRow], expires_at: float | None) -> None:
        entry.items.update((row.item_id, row) for row in rows)
        self._grow(entry, total_size(rows).bytes)
        self._changed(entry, expires_at)

    def _grow(self, entry: _Kept, by: int) -> None:
        entry.size += by
        self._bytes += by

    def _changed(self, entry: _Kept, expires_at: float | None) -> None:
        entry.conversation = replace(entry.conversation, expires_at=expires_at)
        del self._kept[entry.conversation.id]
        self._kept[entry.conversation.id] = entry
        for oldest in list(self._kept.values()):
            if oldest is entry or (len(self._kept) <= self._limit and self._bytes <= self._max_bytes):
                return
            self._drop(oldest)

    def _drop(self, entry: _Kept) -> None:
        del self._kept[entry.conversation.id]
        self._bytes -= entry.size


def _is_of(entry: _Kept, owner: str, now: float) -> bool:
    return entry.conversation.owner == owner and _is_readable(entry, now)


def _is_readable(entry: _Kept, now: float) -> bool:
    expires_at = entry.conversation.expires_at
    return expires_at is None or expires_at > now

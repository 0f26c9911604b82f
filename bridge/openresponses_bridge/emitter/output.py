"""The ordered output of one response: output indexes, open blocks, and the ids in use. Indexes are dense, in
order of first appearance, and never reused (law E4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, cast

from msgspec import UNSET, Struct

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.protocol.events import Event, OutputItemAdded, OutputItemDone
from openresponses_bridge.protocol.ids import (
    LONGEST_ID,
    TOO_LONG,
    accepted_call_id,
    digest,
    free_id,
    id_of_kind,
)
from openresponses_bridge.protocol.items import Item, ItemStatus, with_status
from openresponses_bridge.protocol.unknown import Extra
from openresponses_bridge.state import ITEM, BlockState
from openresponses_bridge.text import repair_surrogates

IdFactory = Callable[[str], str]
Number = Callable[[], int]
"""Gives the next sequence number."""


class Closing(NamedTuple):
    """The result of closing a block: the done events of its open parts, the finished item, and whether the
    item was cut off."""

    events: list[Event]
    item: Item
    cut: bool


class Block(Protocol):
    """An open item."""

    output_index: int
    state: BlockState

    def item(self, status: ItemStatus) -> Item:
        """Return the item as it is now, with this status."""
        ...

    def close(self, stopped: bool, abandoned: bool) -> Closing:
        """End the item. `stopped`: the upstream ended by itself, not at a limit. `abandoned`: the item counts
        as cut off even if it looks whole."""
        ...


class Output(Struct, eq=False):
    """Items in output_index order, finished ones as items and open ones as blocks."""

    ids: IdFactory
    number: Number
    items: list[Item | None] = []
    """The items by index; None for an open one."""
    blocks: dict[int, Block] = {}
    taken: dict[str, int] = {}
    """Id in use → the last number that `free_id` appended to it, 1 at first."""
    call_ids: dict[str, int] = {}
    """The same for call_ids, which may equal ids of items."""
    given: dict[str, str] = {}
    """Wanted call_id → the call_id that the last call wanting it got instead."""
    summarised: set[str] = set()
    """The ids of the reasoning items whose summary came before their raw reasoning."""
    expect: str = ""
    """The id of the next item to open; "" for a new one."""
    expect_extra: Extra = UNSET
    """The unknown fields with which the next item is announced."""
    explicit_end: bool = False

    def new_id(self, prefix: str, item_id: str | None = None) -> str:
        """Return an id that is unique in this response: `item_id` (by default the expected id) if it is free,
        otherwise a new one. A wanted id with the prefix of another kind of item gets `prefix` instead, and
        its lone surrogates are replaced."""
        if item_id is None:
            item_id, self.expect, self.explicit_end = self.expect, "", False
        new = id_of_kind(repair_surrogates(item_id), prefix) if item_id else self.ids(prefix)
        if new in self.taken:
            new = free_id(self.taken, new)
        self.taken[new] = 1
        return new

    def unique_call_id(self, call_id: str, diagnostics: Diagnostics) -> str:
        """Return a call_id that is unique in this response: `call_id` if it is free and has at most 64
        characters, all printable and none a space, so that clients can send it back; otherwise one that is
        derived from it, or a new one."""
        if not call_id.isprintable():  # it may have half a surrogate pair
            call_id = repair_surrogates(call_id)
        printed = call_id.isprintable() and " " not in call_id
        unique = call_id if printed and len(call_id) <= LONGEST_ID else f"call_{digest(call_id)}"
        unique = unique or self.ids("call")
        if unique in self.call_ids:
            unique = free_id(self.call_ids, unique)
            if len(unique) > LONGEST_ID:
                unique = free_id(self.call_ids, accepted_call_id(unique))
        self.call_ids[unique] = 1
        if call_id and unique != call_id:
            why = "given to two calls, made unique"
            if not printed:
                why = "has characters that can't be printed, replaced"
            elif len(call_id) > LONGEST_ID:
                why = TOO_LONG
            diagnostics.repair("tool_call.id", why)
            self.given[call_id] = unique
        return unique

    def call_id_given(self, call_id: str) -> str:
        """Return the call_id of the last call that wanted this one, for the output of that call."""
        return self.given.get(call_id, call_id)

    def begin(self, block: Block) -> Event:
        """Announce a block, which gets the next index."""
        block.output_index = len(self.items)
        self.items.append(None)
        self.blocks[block.output_index] = block
        block.state = ITEM[block.state]["added"]
        return OutputItemAdded(self.number(), block.output_index, block.item("in_progress"))

    def whole(self, block: Block, item: Item) -> list[Event]:
        """Announce and close a block at once, as this item."""
        block.output_index = len(self.items)
        self.items.append(item)
        block.state = ITEM[ITEM[block.state]["added"]]["closed"]
        added = OutputItemAdded(self.number(), block.output_index, with_status(item, "in_progress"))
        return [added, OutputItemDone(self.number(), block.output_index, item)]

    def close(self, block: Block, stopped: bool, abandoned: bool = False) -> tuple[list[Event], bool]:
        """Return (done events, cut) of a block that ends here."""
        events, item, cut = block.close(stopped, abandoned)
        block.state = ITEM[block.state]["closed"]
        events.append(OutputItemDone(self.number(), block.output_index, item))
        self.items[block.output_index] = item
        del self.blocks[block.output_index]
        return events, cut

    def live(self, status: ItemStatus = "in_progress") -> list[Item]:
        """Return all items as they are now, open ones with this status."""
        items = self.items.copy()
        for index, block in self.blocks.items():
            items[index] = block.item(status)
        return cast(list[Item], items)

"""The ordered output of one response: output indexes, open blocks, and the ids in use. Indexes are dense, in
order of first appearance, and never reused (law E4)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple, Protocol

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.emitter.parts import Number
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.items import Item, ItemStatus
from openresponses_bridge.text import repair_surrogates

IdFactory = Callable[[str], str]
MAX_CALL_ID = 64  # schema FunctionCallItemParam


class Closing(NamedTuple):
    """The result of closing a block: its done events, its finished item, and whether it was cut."""

    events: list[Event]
    item: Item
    cut: bool


class Block(Protocol):
    """An open item."""

    output_index: int

    def item(self, status: ItemStatus) -> Item:
        """The item as it stands."""
        ...

    def close(self, stopped: bool, abandoned: bool) -> Closing:
        """`stopped`: upstream ended by itself, not by a limit. `abandoned`: what is open counts as
        cut, whatever it looks like."""
        ...


class Output:
    """Items in output_index order, finished ones as items and open ones as blocks."""

    __slots__ = (
        "_call_ids",
        "_given",
        "_ids",
        "_items",
        "_taken",
        "blocks",
        "expect",
        "explicit_end",
        "number",
        "summarised",
    )

    def __init__(self, ids: IdFactory, number: Number) -> None:
        self._ids = ids
        self._items: list[Item | None] = []
        self._taken: dict[str, int] = {}  # id → how many have asked for it
        self._call_ids: dict[str, int] = {}  # the same of call_ids, which may equal ids of items
        self._given: dict[str, str] = {}  # wanted call_id → what the last call got in its place
        self.blocks: dict[int, Block] = {}
        self.summarised: set[str] = set()
        """Ids of the reasoning items of which a summary came before the reasoning itself."""
        self.number = number
        self.expect = ""
        self.explicit_end = False

    def next_index(self) -> int:
        return len(self._items)

    def unique(self, prefix: str, wanted: str = "") -> str:
        """An id that is unique here: the wanted one if it is free, else a fresh one, of whole characters."""
        return _free(self._taken, repair_surrogates(wanted) if wanted else self._ids(prefix))

    def unique_call_id(self, wanted: str, diagnostics: Diagnostics) -> str:
        """The same for a call_id, which clients must be able to send back: at most 64 characters, that can be
        printed."""
        wanted = repair_surrogates(wanted)
        printed = wanted.isprintable() and " " not in wanted
        base = (wanted if printed and len(wanted) <= MAX_CALL_ID else _digest(wanted)) or self._ids("call")
        unique = _free(self._call_ids, base)
        if len(unique) > MAX_CALL_ID:
            unique = _free(self._call_ids, _digest(unique))
        if wanted and unique != wanted:
            why = "given to two calls, made unique"
            if not printed:
                why = "has characters that can't be printed, replaced"
            elif len(wanted) > MAX_CALL_ID:
                why = f"longer than {MAX_CALL_ID} characters, shortened"
            diagnostics.repair("tool_call.id", why)
            self._given[wanted] = unique
        return unique

    def call_id_given(self, wanted: str) -> str:
        """The call_id of the call that was last to ask for this one: its output repeats it."""
        return self._given.get(wanted, wanted)

    def expected(self, prefix: str) -> str:
        """The id that was said to come next if one was, else a fresh one."""
        wanted, self.expect, self.explicit_end = self.expect, "", False
        return self.unique(prefix, wanted)

    def begin(self, block: Block) -> None:
        """Give the next index to a block, which must already carry it."""
        self._items.append(None)
        self.blocks[block.output_index] = block

    def whole(self, item: Item) -> None:
        """Give the next index to a finished item."""
        self._items.append(item)

    def close(self, block: Block, stopped: bool, abandoned: bool = False) -> tuple[list[Event], bool]:
        """(done events, cut) of a block that ends here."""
        events, item, cut = block.close(stopped, abandoned)
        self._items[block.output_index] = item
        del self.blocks[block.output_index]
        return events, cut

    def live(self, status: ItemStatus = "in_progress") -> list[Item]:
        """All items as they stand, open ones with this status."""
        return [
            self.blocks[index].item(status) if item is None else item
            for index, item in enumerate(self._items)
        ]


def _free(taken: dict[str, int], base: str) -> str:
    """The base if it is unused, else the base with the first unused number. The result is marked as used."""
    candidate = base
    while candidate in taken:
        taken[base] += 1
        candidate = f"{base}_{taken[base]}"
    taken[candidate] = 1
    return candidate


def _digest(call_id: str) -> str:
    return "call_" + hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]

"""What one item of the upstream's stream has brought so far."""

from __future__ import annotations

from zlib import crc32

from openresponses_bridge.protocol.items import CustomToolCall, FunctionCall, Item

_UTF_16 = "utf-16-le"
MANY = 64  # deltas that wait to be counted
CALLS = (FunctionCall, CustomToolCall)

# kind of text → the items that can hold them
HOLDERS: dict[str, frozenset[str]] = {
    "text": frozenset({"message"}),
    "refusal": frozenset({"message"}),
    "reasoning": frozenset({"reasoning"}),
    "summary": frozenset({"reasoning"}),
    "call": frozenset({"function_call", "custom_tool_call"}),
}


class Said:
    """How much of a part has been sent on: its length and checksum, so that the text is kept once.

    Counted in UTF-16, where half a surrogate pair is a unit of its own: servers split them. Deltas
    are counted by the dozen, which costs less.
    """

    __slots__ = ("_check", "_size", "citations", "recent")

    def __init__(self) -> None:
        self._size = 0
        self._check = 0
        self.recent: list[str] = []
        self.citations = 0

    def add(self, delta: str) -> None:
        recent = self.recent
        recent.append(delta)
        if len(recent) >= MANY:
            self.count()

    def count(self) -> None:
        """Count the recent deltas."""
        data = "".join(self.recent).encode(_UTF_16, "surrogatepass")
        self.recent.clear()
        self._size += len(data)
        self._check = crc32(data, self._check)

    @property
    def size(self) -> int:
        """Bytes so far."""
        self.count()
        return self._size

    def rest(self, whole: str) -> str | None:
        """What `whole` has beyond what was said; None when it does not begin with that."""
        self.count()
        data = whole.encode(_UTF_16, "surrogatepass")
        if crc32(data[: self._size]) != self._check:
            return None
        return data[self._size :].decode(_UTF_16, "surrogatepass")


class Track:
    """One upstream item. `slot` is its number here and the machine's index of a call; `item` is None
    until an event has brought it; `pending` is a payload that stood in a call's `added` already."""

    __slots__ = (
        "announced",
        "closed",
        "content",
        "item",
        "item_id",
        "kind",
        "named",
        "opened",
        "payload",
        "pending",
        "said",
        "sealed",
        "slot",
        "summary",
    )

    def __init__(self, slot: int, item_id: str, item: Item | None = None) -> None:
        self.slot = slot
        self.item_id = item_id
        self.item = item
        self.kind = "" if item is None else item.type
        self.said: dict[tuple[str, int], Said] = {}
        # what the machine has open of it: a part of its content, which may be `sealed`, and of its summary
        self.content: tuple[str, int] | None = None
        self.summary: int | None = None
        self.sealed = False
        self.pending = ""
        self.payload: Said | None = None  # of a call, once some of its arguments or input were sent on
        self.named = False  # its call was opened in the machine
        self.opened = False  # its reasoning item was, before it had text
        self.announced = False  # its item was, which a server fills by itself
        self.closed = False

    @property
    def silent(self) -> bool:
        """Whether nothing of the item has been sent on."""
        return not (self.said or self.named or self.opened or self.announced)

    def differs(self, kind: str, texts: list[str]) -> bool:
        """Whether these texts of one kind, in order, are others than those that were sent on. Indexes don't
        count: servers number parts in more than one way."""
        sent = [said for (each, _), said in sorted(self.said.items()) if each == kind and said.size]
        given = [text for text in texts if text]
        if len(given) != len(sent):
            return True
        return any(said.rest(text) != "" for said, text in zip(sent, given, strict=True))

    def holds(self, kind: str) -> bool:
        return not self.kind or self.kind in HOLDERS[kind]

    def holds_item(self, item: Item) -> bool:
        """Whether `item` can be this one: of its kind, or text of its kind came before it."""
        if self.kind:
            return self.kind == item.type
        return all(item.type in HOLDERS[kind] for kind, _ in self.said)

    def leave_parts(self) -> None:
        """The machine has closed what was open within."""
        self.content = self.summary = None
        self.sealed = False

    def part(self, kind: str, index: int) -> Said:
        """What was said of one part, begun when it is the first piece of it."""
        said = self.said.get((kind, index))
        if said is None:
            said = self.said[kind, index] = Said()
        return said

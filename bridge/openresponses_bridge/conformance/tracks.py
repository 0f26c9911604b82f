"""What a reader of a stream remembers: where the stream stands, its items, their parts and arguments.

A text is kept once: as deltas until it is done, then as the done text, and once its item is closed only
within that item.
"""

from __future__ import annotations

from io import StringIO
from typing import Any

from openresponses_bridge.state import PAYLOADS, BlockState, StreamState


class BlockTrack:
    """A part, a summary part or a call's arguments. `kind` is a part's type, None while unknown."""

    __slots__ = ("_deltas", "_text", "annotations", "kind", "state", "write")

    def __init__(self, kind: str | None = None, state: BlockState = BlockState.ABSENT) -> None:
        self.kind = kind
        self.state = state
        self.annotations: list[Any] = []
        self._deltas = StringIO()
        self.write = self._deltas.write
        self._text: str | None = None

    @property
    def text(self) -> str:
        """What was streamed, or the done text once there was one."""
        return self._deltas.getvalue() if self._text is None else self._text

    def seal(self, text: str) -> None:
        """The done text stands for the deltas from here on."""
        self._text = text
        self._deltas = StringIO()
        self.write = self._deltas.write


class ItemTrack:
    """An output item. `added` and `done` are the JSON objects it came as, None when it did not."""

    __slots__ = ("added", "blocks", "call", "done", "id", "index", "state", "type")

    def __init__(self, index: int, item: dict[str, Any] | None) -> None:
        self.index = index
        self.added = item
        self.done: dict[str, Any] | None = None
        self.state = BlockState.OPEN
        self.type: str | None = _text(item, "type")
        self.id: str | None = _text(item, "id")
        self.blocks: dict[str, dict[int, BlockTrack]] = {"part": {}, "summary": {}}
        self.call = BlockTrack()

    def close(self, item: dict[str, Any] | None) -> None:
        """The item is done; its texts live on in it alone."""
        self.state = BlockState.CLOSED
        self.done = item
        self.added = None
        self.blocks = {"part": {}, "summary": {}}
        self.call = BlockTrack(state=BlockState.CLOSED)

    def differences(self, item: dict[str, Any]) -> list[tuple[str, str, str]]:
        """(subject, field, what) for each payload of `item` that is not what was streamed. A payload
        that is absent counts as empty; one of a wrong type is left to the schema."""
        found = []
        for subject, field in PAYLOADS.get(self.type or "", {}).items():
            payload = item.get(field)
            if subject == "call":
                if isinstance(payload, str) and payload != self.call.text:
                    found.append((subject, field, "it is not what the deltas add up to"))
            elif isinstance(payload, list) or field not in item:
                found += self._parts_differ(subject, field, payload or [])
        return found

    def _parts_differ(self, subject: str, field: str, parts: list[Any]) -> list[tuple[str, str, str]]:
        streamed = [block for _, block in sorted(self.blocks[subject].items())]
        if len(streamed) != len(parts):
            return [(subject, field, f"it has {len(parts)} parts, {len(streamed)} were streamed")]
        return [
            (subject, f"{field}[{index}]", f"it is not the {block.kind} part that was streamed")
            for index, (block, part) in enumerate(zip(streamed, parts, strict=True))
            if isinstance(part, dict) and (part.get("type"), text_of(part)) != (block.kind, block.text)
        ]


class StreamTrack:
    """A response's stream as far as it was read."""

    def __init__(self) -> None:
        self.state = StreamState.EXPECTING
        self.events = 0  # how many were read
        self.number: int | None = None  # the last sequence number
        self.in_progress = False  # response.in_progress was seen
        self.response_id: str | None = None
        self.first: dict[
            str, Any
        ] = {}  # the response of the first event that had one, where it must not change
        self.items: dict[int, ItemTrack] = {}
        self.next_index = 0  # one past the highest so far
        self.by_id: dict[str, ItemTrack] = {}
        self.call_ids: set[str] = set()
        self.cut: ItemTrack | None = None  # the first item that was closed as incomplete
        self.framed = False  # events came in SSE frames
        self.marked = False  # [DONE] was seen

    def begin(self, item: ItemTrack) -> None:
        """Keep the item, unless there is one at its index."""
        self.items.setdefault(item.index, item)
        self.next_index = max(self.next_index, item.index + 1)

    def find(self, index: Any, item_id: Any) -> ItemTrack | None:
        """The item an event is about: by output index, else by id."""
        found = self.items.get(index) if isinstance(index, int) else None
        if found is None and isinstance(item_id, str):
            found = self.by_id.get(item_id)
        return found


def text_of(part: dict[str, Any]) -> str:
    """The text of a part, whichever field holds it."""
    text = part.get("refusal" if part.get("type") == "refusal" else "text")
    return text if isinstance(text, str) else ""


def _text(item: dict[str, Any] | None, field: str) -> str | None:
    value = None if item is None else item.get(field)
    return value if isinstance(value, str) else None

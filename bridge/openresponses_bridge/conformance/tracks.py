"""The state of a stream after the events so far: its items, their parts and arguments. A text is kept once:
as deltas until it is done, then as the done text, and after its item is closed only in that item."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from typing import Any

from openresponses_bridge.protocol.lenient import Repair
from openresponses_bridge.state import INDEX_OF_SUBJECT, PAYLOADS, ROLES, BlockState, EventRole, StreamState


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
        """The deltas so far, or the text of the done event."""
        return self._deltas.getvalue() if self._text is None else self._text

    def seal(self, text: str) -> None:
        """Replace the deltas by the text of the done event."""
        self._text = text
        self._deltas = StringIO()
        self.write = self._deltas.write


class ItemTrack:
    """An output item. `added` and `done` are the JSON objects of these events, None before them."""

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
        """Close the item; its texts are kept only in it."""
        self.state = BlockState.CLOSED
        self.done = item
        self.added = None
        self.blocks = {"part": {}, "summary": {}}
        self.call = BlockTrack(state=BlockState.CLOSED)

    def differences(self, item: dict[str, Any]) -> list[tuple[str, str, str]]:
        """Return (subject, field, what) for each payload of `item` that differs from the streamed one. An
        absent payload counts as empty; one of a wrong type is left to the schema."""
        mismatches = []
        for subject, field in PAYLOADS.get(self.type or "", {}).items():
            payload = item.get(field)
            if subject == "call":
                if isinstance(payload, str) and payload != self.call.text:
                    mismatches.append((subject, field, "it is not what the deltas add up to"))
            elif isinstance(payload, list) or field not in item:
                mismatches += self._parts_differ(subject, field, payload or [])
        return mismatches

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
    """The state of a response's stream after the events so far."""

    def __init__(self) -> None:
        self.state = StreamState.EXPECTING
        self.events = 0  # how many were read
        self.number: int | None = None  # the last sequence number
        self.in_progress = False  # response.in_progress was seen
        self.response_id: str | None = None
        self.first: dict[str, Any] = {}  # fields of the first response that must not change
        self.items: dict[int, ItemTrack] = {}
        self.next_index = 0  # one past the highest index so far
        self.by_id: dict[str, ItemTrack] = {}
        self.call_ids: set[str] = set()
        self.cut: ItemTrack | None = None  # the first item that was done as incomplete
        self.framed = False  # events came in SSE frames
        self.marked = False  # [DONE] was seen

    def begin(self, item: ItemTrack) -> None:
        """Add the item, unless its index is in use."""
        self.items.setdefault(item.index, item)
        self.next_index = max(self.next_index, item.index + 1)

    def find(self, index: Any, item_id: Any) -> ItemTrack | None:
        """Return the item of an event: by output index, otherwise by id; None if there is none."""
        track = self.items.get(index) if isinstance(index, int) else None
        if track is None and isinstance(item_id, str):
            track = self.by_id.get(item_id)
        return track


def text_of(part: dict[str, Any]) -> str:
    """Return the text of a part, in whichever field it is."""
    text = part.get("refusal" if part.get("type") == "refusal" else "text")
    return text if isinstance(text, str) else ""


def _text(item: dict[str, Any] | None, field: str) -> str | None:
    value = None if item is None else item.get(field)
    return value if isinstance(value, str) else None


_HOSTED = EventRole("item", "within")
_NOTHING: dict[str, Any] = {}
# the field of a done event with the whole text, if it is not `text`
_DONE_FIELDS = {
    "response.refusal": "refusal",
    "response.function_call_arguments": "arguments",
    "response.custom_tool_call_input": "input",
}


class EventContext:
    """The argument of every rule: an event, the item and the block that it is about, and the stream before
    it.

    `raw` is the event as JSON. Rules read it with `text`, `number` and `object`, which return None for a
    field that is absent or of a wrong type: the schema rule reports that, and no other rule repeats it.
    """

    __slots__ = (
        "block",
        "block_index",
        "deviations",
        "frame",
        "item",
        "raw",
        "role",
        "stream",
        "type",
        "unreadable",
        "wire",
    )

    def __init__(
        self,
        stream: StreamTrack,
        wire: str,
        raw: dict[str, Any] | None = None,
        deviations: Sequence[Repair] = (),
        frame: str | None = None,
        unreadable: str = "",
    ) -> None:
        self.stream = stream
        self.wire = wire
        self.raw = _NOTHING if raw is None else raw
        self.deviations = deviations  # from the schema
        self.frame = frame  # the name of its SSE frame, None without a frame
        self.unreadable = unreadable  # why the data is not a JSON object
        self.type = self.text("type") or ""
        self.role = ROLES.get(self.type) or self._hosted_role()
        self.item: ItemTrack | None = None
        self.block: BlockTrack | None = None
        self.block_index = 0
        if self.role is not None:
            self._resolve(self.role.subject)

    def _hosted_role(self) -> EventRole | None:
        """Return the role of a progress event of a hosted tool, which must come while its item is open."""
        about_an_item = "item_id" in self.raw or "output_index" in self.raw
        return _HOSTED if about_an_item and self.type.startswith("response.") else None

    def _resolve(self, subject: str) -> None:
        item = self.object("item")
        item_id = self.text("item_id") if item is None else item.get("id")
        self.item = self.stream.find(self.number("output_index"), item_id)
        index_field = INDEX_OF_SUBJECT.get(subject)
        if index_field is not None:
            self.block_index = self.number(index_field) or 0
            if self.item is not None:
                self.block = self.item.blocks[subject].get(self.block_index)
        elif subject == "call" and self.item is not None:
            self.block = self.item.call

    @property
    def item_state(self) -> BlockState:
        return BlockState.ABSENT if self.item is None else self.item.state

    @property
    def block_state(self) -> BlockState:
        return BlockState.ABSENT if self.block is None else self.block.state

    @property
    def payload(self) -> str | None:
        """The text of a delta or done event."""
        delta = self.role is not None and self.role.verb == "delta"
        return self.text("delta" if delta else _DONE_FIELDS.get(self.stem, "text"))

    @property
    def stem(self) -> str:
        """The type without its verb: `response.output_text` of `response.output_text.delta`."""
        return self.type.rpartition(".")[0]

    def text(self, field: str) -> str | None:
        value = self.raw.get(field)
        return value if isinstance(value, str) else None

    def number(self, field: str) -> int | None:
        value = self.raw.get(field)
        return value if type(value) is int else None

    def object(self, field: str) -> dict[str, Any] | None:
        value = self.raw.get(field)
        return value if isinstance(value, dict) else None

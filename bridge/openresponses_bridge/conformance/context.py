"""One event with the state of the stream before it: what every rule is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from openresponses_bridge.conformance.tracks import BlockTrack, ItemTrack, StreamTrack
from openresponses_bridge.protocol.lenient import Repair
from openresponses_bridge.state import INDEX_OF_SUBJECT, ROLES, BlockState, EventRole

_HOSTED = EventRole("item", "within")
_NOTHING: dict[str, Any] = {}
# the field of a done event that holds the whole text, where it is not `text`
_DONE_FIELDS = {
    "response.refusal": "refusal",
    "response.function_call_arguments": "arguments",
    "response.custom_tool_call_input": "input",
}


class EventContext:
    """An event, the item and the block that it is about.

    `raw` is the event as JSON. Rules read it with `text`, `number` and `object`, which give None for a
    field that is absent or of a wrong type: the schema rule has reported it, and no other rule repeats it.
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
        self.frame = frame  # the name of the SSE frame it came in, None without a frame
        self.unreadable = unreadable  # why the data is not a JSON object
        self.type = self.text("type") or ""
        self.role = ROLES.get(self.type) or self._hosted_role()
        self.item: ItemTrack | None = None
        self.block: BlockTrack | None = None
        self.block_index = 0
        if self.role is not None:
            self._resolve(self.role.subject)

    def _hosted_role(self) -> EventRole | None:
        """Progress of a hosted tool happens within its item."""
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
        """The text that a delta or done event carries."""
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

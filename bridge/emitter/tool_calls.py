"""One tool call, from its first fragment to its item.

A call waits (absent) until it can be announced truthfully: a function or custom call until its name
is known (law E4), a shell or patch call until its arguments are whole, because only then is it known
whether it can be restored (law E11).
"""

from __future__ import annotations

from bridge.emitter.call_shapes import SHAPES, JsonShape, Shape
from bridge.emitter.output import Closing
from bridge.emitter.parts import Number
from bridge.emitter.restore import RESTORED_KINDS, restore
from bridge.emitter.text_buffer import TextBuffer
from bridge.protocol.events import Event, FunctionCallArgumentsDelta, OutputItemAdded, OutputItemDone
from bridge.protocol.items import Item, ItemStatus
from bridge.state import BlockState, Wire
from bridge.tools.identity import ToolIdentity, ToolKind
from bridge.tools.json_text import JsonState, json_state


class ToolCallBlock:
    """The accumulator of one call. `index` is the upstream's, `output_index` ours once announced."""

    __slots__ = (
        "_checked",
        "_number",
        "_plain",
        "_shape",
        "buffer",
        "call_id",
        "free_text",
        "identity",
        "index",
        "item_id",
        "name",
        "namespace",
        "output_index",
        "state",
        "upstream_id",
        "upstream_name",
        "waiting",
    )

    def __init__(self, number: Number, index: int) -> None:
        self._number = number
        self._shape: Shape = JsonShape()
        self._checked = -1
        self._plain = False
        self.index = index
        self.call_id = ""
        self.upstream_id = ""
        self.upstream_name = ""
        self.name = ""
        self.namespace: str | None = None
        self.free_text = False
        self.identity: ToolIdentity | None = None
        self.waiting: list[str] = []
        self.state = BlockState.ABSENT
        self.item_id = ""
        self.output_index = -1
        self.buffer = TextBuffer()

    @property
    def held(self) -> bool:
        """Named, but its item can't be told before its arguments are whole."""
        return bool(self.upstream_name) and self.state is BlockState.ABSENT

    def identify(self, name: str, identity: ToolIdentity | None, wire: Wire) -> bool:
        """Take the name. True when the call can be announced at once."""
        self.upstream_name = self.name = name
        # a namespaced name has no published spelling: there the model's own name stands
        if identity is not None and (wire.openai_items or identity.namespace is None):
            self.identity = identity
            self.name = identity.name
        declared = self.identity is not None and self.identity.kind is ToolKind.CUSTOM
        self._shape = SHAPES[declared, self.free_text, wire.openai_items]()
        return not (wire.openai_items and self._restorable)

    @property
    def _restorable(self) -> bool:
        return self.identity is not None and self.identity.kind in RESTORED_KINDS

    def open(self, item_id: str, output_index: int) -> list[Event]:
        """Announce the call, and give what came before its name."""
        self.item_id = item_id
        self.output_index = output_index
        self.state = BlockState.OPEN
        self._plain = type(self._shape) is JsonShape
        events: list[Event] = [OutputItemAdded(self._number(), output_index, self._item("", "in_progress"))]
        waiting, self.waiting = "".join(self.waiting), []
        return events + self.delta(waiting) if waiting else events

    def delta(self, fragment: str) -> list[Event]:
        """The next piece of the arguments; nothing while the call waits or the piece shows nothing."""
        if self._plain and fragment.isascii() and not self.buffer.held:
            # the common piece: JSON passes as it is and nothing is held back
            self.buffer.write(fragment)
            return [FunctionCallArgumentsDelta(self._number(), self.item_id, self.output_index, fragment)]
        if self.state is BlockState.ABSENT:
            self.waiting.append(fragment)
            return []
        return self._show(self._shape.feed(self.buffer.admit(fragment)))

    def _show(self, shown: str) -> list[Event]:
        if not shown:
            return []
        self.buffer.write(shown)
        return [self._shape.delta(self._number(), self.item_id, self.output_index, shown)]

    def is_whole(self) -> bool:
        """Whether the arguments are already complete JSON. Asked again only after they grew."""
        size = len(self.buffer) + len(self.waiting)
        if size == self._checked:
            return False
        self._checked = size
        text = "".join(self.waiting) if self.state is BlockState.ABSENT else self.buffer.text
        return isinstance(self._shape, JsonShape) and json_state(text) is JsonState.COMPLETE

    def close(self, stopped: bool, abandoned: bool = False) -> Closing:
        rest = self.buffer.settle()
        events = self._show(self._shape.feed(rest)) if rest else []
        rest, cut = self._shape.end(self.buffer.text, stopped and not abandoned)
        events += self._show(rest)
        cut = cut or abandoned
        payload = self.buffer.text
        if not cut:
            # a cut call gets no arguments.done: clients run calls on that event (field case 25)
            events.append(self._shape.done(self._number(), self.item_id, self.output_index, payload))
        item = self._item(payload, "incomplete" if cut else "completed")
        events.append(OutputItemDone(self._number(), self.output_index, item))
        self.state = BlockState.CLOSED
        return Closing(events, item, cut)

    def restored(self, item_id: str, stopped: bool) -> Item | None:
        """The shell or patch item that a held call is; None when it can't be one."""
        if self.identity is None or not stopped:
            return None
        return restore(self.identity.kind, item_id, self.call_id, "".join(self.waiting), "completed")

    def item(self, status: ItemStatus) -> Item:
        """The call as it stands."""
        return self._item(self.buffer.text, status)

    def _item(self, payload: str, status: ItemStatus) -> Item:
        namespace = self.identity.namespace if self.identity is not None else None
        return self._shape.item(self.item_id, self.call_id, self.name, namespace, payload, status)

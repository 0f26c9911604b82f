"""One tool call, from its first fragment to its item.

A call waits (absent) until it can be announced as what it is: a function or custom call until its name
is known (law E4), a shell or patch call until its arguments are whole, because only then is it known
whether it can be restored (law E11).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from openresponses_bridge.calls.identity import ToolIdentity, ToolKind
from openresponses_bridge.calls.json_text import JsonState, json_state
from openresponses_bridge.emitter.blocks import OpenItem
from openresponses_bridge.emitter.call_shapes import SHAPES, JsonShape, Shape
from openresponses_bridge.emitter.output import Closing
from openresponses_bridge.emitter.parts import Number
from openresponses_bridge.emitter.restore import RESTORED_KINDS, restore
from openresponses_bridge.emitter.text_buffer import TextBuffer
from openresponses_bridge.errors import StreamStateError
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.items import Item, ItemStatus, with_status
from openresponses_bridge.state import ARGUMENTS, BlockState, Wire

_MOST_READINGS: Final = 64


def nameless(call: str, index: int) -> StreamStateError:
    """The error for a call that ends before it got a name: it can't be shown at all (law E7)."""
    return StreamStateError(
        StreamStateError.INCOMPLETE_TOOL_CALL,
        f"{call}: the tool call at index {index} never got a name",
        call=call,
        index=index,
    )


class ToolCallBlock(OpenItem):
    """The accumulator of one call. `index` is the upstream's, `output_index` ours once announced. `state` is
    where its item stands in `state.ITEM`, `arguments` where its arguments stand in `state.ARGUMENTS`.
    `number_begun` counts the calls of the response. `explicit_end`: upstream says when it ends, whatever its
    arguments look like before. `plain`: it is open and active, and its arguments pass as
    they are. It is inactive once it was asked whether it is whole, and `grew` is called when the next piece
    makes it active."""

    __slots__ = (
        "_grew",
        "_inactive",
        "_read",
        "_restorable",
        "_shape",
        "arguments",
        "buffer",
        "call_id",
        "explicit_end",
        "free_text",
        "identity",
        "index",
        "name",
        "namespace",
        "number_begun",
        "plain",
        "upstream_id",
        "upstream_name",
        "waiting",
        "write",
    )

    def __init__(
        self,
        number: Number,
        index: int,
        number_begun: int = 0,
        grew: Callable[[ToolCallBlock], None] | None = None,
    ) -> None:
        super().__init__(number, "", -1)
        self.number_begun = number_begun
        self._grew = grew
        self._inactive = True
        self._read = 0
        self._shape: Shape = JsonShape()
        self.plain = False
        self._restorable = False
        self.index = index
        self.call_id = ""
        self.explicit_end = False
        self.upstream_id = ""
        self.upstream_name = ""
        self.name = ""
        self.namespace: str | None = None
        self.free_text = False
        self.identity: ToolIdentity | None = None
        self.waiting: list[str] = []
        self.arguments = BlockState.ABSENT
        self.buffer = TextBuffer()
        self.write = self.buffer.write

    @property
    def held(self) -> bool:
        """Named, but its item can't be announced before its arguments are whole."""
        return bool(self.upstream_name) and self.state is BlockState.ABSENT

    @property
    def announceable(self) -> bool:
        """Named, and its item can be announced at once."""
        return self.held and not self._restorable

    def identify(self, name: str, identity: ToolIdentity | None, wire: Wire) -> None:
        """Take the name, and with it what the client declared the tool as."""
        self.upstream_name = self.name = name
        # the published wire can't spell a namespaced name: there the model's own name is used
        if identity is not None and (wire.openai_items or identity.namespace is None):
            self.identity = identity
            self.name = identity.name
        declared = self.identity is not None and self.identity.kind is ToolKind.CUSTOM
        self._shape = SHAPES[declared, self.free_text, wire.openai_items]()
        kind = None if self.identity is None else self.identity.kind
        self._restorable = wire.openai_items and kind in RESTORED_KINDS

    def open(self, item_id: str, output_index: int) -> list[Event]:
        """Announce the call, and give what came before its name."""
        self.item_id = item_id
        self.output_index = output_index
        events = [self._announced(self._item("", "in_progress"))]
        self.wake()
        waiting, self.waiting = "".join(self.waiting), []
        return events + self.delta(waiting) if waiting else events

    def delta(self, fragment: str) -> list[Event]:
        """The next piece of the arguments; nothing while the call waits or the piece shows nothing."""
        if self._inactive:
            self.wake()
        if self.state is BlockState.ABSENT:
            self.waiting.append(fragment)
            return []
        return self._show(self._shape.feed(self.buffer.admit(fragment)))

    def _show(self, shown: str) -> list[Event]:
        if not shown:
            return []
        self.arguments = ARGUMENTS[self.arguments]["delta"]
        self.write(shown)
        return [self._shape.delta(self._number(), self.item_id, self.output_index, shown)]

    def wake(self) -> None:
        """More arguments have come, so that it may be whole now."""
        self._inactive = False
        self.plain = self.state is BlockState.OPEN and type(self._shape) is JsonShape
        if self._grew is not None:
            self._grew(self)

    def is_whole(self) -> bool:
        """Whether the arguments are already complete JSON. A call that grows a little before each of many
        others is not read anew for all of them: each character is read a bounded number of times."""
        self._inactive, self.plain = True, False
        if not isinstance(self._shape, JsonShape):
            return False
        text = "".join(self.waiting) if self.state is BlockState.ABSENT else self.buffer.text
        if self._read > _MOST_READINGS * len(text):
            return False
        self._read += len(text)
        return json_state(text) is JsonState.COMPLETE

    @property
    def ended(self) -> bool:
        """Whether nothing more can come."""
        return self.arguments is BlockState.SEALED

    def seal(self, stopped: bool, abandoned: bool = False) -> list[Event]:
        """End the arguments; `cut` then says whether they stopped before they were whole."""
        rest = self.buffer.settle()
        events = self._show(self._shape.feed(rest)) if rest else []
        rest, cut = self._shape.end(self.buffer.text, stopped and not abandoned)
        events += self._show(rest)
        self.cut = cut or abandoned
        self.arguments = ARGUMENTS[self.arguments]["cut" if self.cut else "done"]
        if not self.cut:
            # a cut call gets no arguments.done: clients run calls on that event (field case 25)
            text = self.buffer.text
            events.append(self._shape.done(self._number(), self.item_id, self.output_index, text))
        self.plain = False
        return events

    def close(self, stopped: bool, abandoned: bool = False) -> Closing:
        events = [] if self.ended else self.seal(stopped, abandoned)
        item = self.item("incomplete" if self.cut else "completed")
        events.append(self._done(item))
        self._release()
        return Closing(events, item, self.cut)

    def whole(self, item: Item, output_index: int) -> list[Event]:
        """Announce and close the call at once, as the item that it was restored to."""
        self.output_index = output_index
        self.arguments = ARGUMENTS[self.arguments]["done"]
        events = [self._announced(with_status(item, "in_progress")), self._done(item)]
        self._release()
        return events

    def _release(self) -> None:
        """The item holds the text from now on, so that it is kept once (law E12)."""
        self.buffer = TextBuffer()
        self.write = self.buffer.write
        self.waiting = []

    def ends_cut(self, stopped: bool, abandoned: bool) -> bool:
        """Whether this held call, if it ended now, would have ended before it was whole."""
        return abandoned or self._shape.end("".join(self.waiting), stopped)[1]

    def restored(self, item_id: str) -> Item | None:
        """The shell or patch item that a held call is; None when it can't be one."""
        if self.identity is None:
            return None
        arguments = self.buffer.admit("".join(self.waiting)) + self.buffer.settle()
        return restore(self.identity.kind, item_id, self.call_id, arguments, "completed")

    def item(self, status: ItemStatus) -> Item:
        """The call as it stands."""
        return self._item(self.buffer.text, status)

    def _item(self, payload: str, status: ItemStatus) -> Item:
        namespace = self.identity.namespace if self.identity is not None else None
        return self._shape.item(self.item_id, self.call_id, self.name, namespace, payload, status)

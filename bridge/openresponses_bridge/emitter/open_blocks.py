"""What is open in one response, and what closes what (law E5).

Of text, refusal and reasoning one is open at a time, and starting another closes it, as does announcing a
tool call. Tool calls stay open beside it, by index.
"""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.emitter.blocks import MessageBlock, ReasoningBlock
from openresponses_bridge.emitter.finish_reasons import INCOMPLETE_ITEM, INCOMPLETE_TOOL_CALL
from openresponses_bridge.emitter.output import Output
from openresponses_bridge.emitter.parts import TEXT, OpenPart, PartKind
from openresponses_bridge.emitter.tool_call import ToolCallBlock
from openresponses_bridge.emitter.tool_calls import ToolCalls
from openresponses_bridge.emitter.whole_items import ItemEmitter
from openresponses_bridge.protocol.content import LogProb
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.items import Item, MessagePhase, ReasoningItem
from openresponses_bridge.state import Wire


class OpenBlocks:
    """The open message or reasoning item, and the open calls. `text_part` is the text part that
    takes plain deltas at once: open, with nothing held back. `cut` says, once all is closed, what ended
    before it was whole, as a reason for an incomplete response."""

    __slots__ = ("_output", "_wire", "calls", "cut", "items", "open", "phase", "raw_part", "text_part")

    def __init__(
        self, output: Output, wire: Wire, identities: ToolIdentityMap, diagnostics: Diagnostics
    ) -> None:
        self._output = output
        self._wire = wire
        self.items = ItemEmitter(output, wire, diagnostics)
        self.cut: str | None = None
        self.calls = ToolCalls(output, wire, identities, diagnostics)
        self.open: MessageBlock | ReasoningBlock | None = None
        self.text_part: OpenPart | None = None
        self.raw_part: OpenPart | None = None
        self.phase: MessagePhase | UnsetType = UNSET

    def say(self, kind: PartKind, delta: str, logprobs: list[LogProb]) -> list[Event]:
        """The next piece of text or refusal."""
        events, part = self.message_part(kind)
        events += part.delta(delta, logprobs)
        self.text_part = part if kind is TEXT and not part.buffer.held else None
        return events

    def message_part(self, kind: PartKind) -> tuple[list[Event], OpenPart]:
        """The open part of this kind, begun when there is none."""
        events: list[Event] = []
        block = self.open
        if not isinstance(block, MessageBlock):
            events = self._make_room()
            item_id, index = self._output.expected("msg"), self._output.next_index()
            block = MessageBlock(self._output.number, item_id, index, self.phase)
            self.phase = UNSET
            events.append(self._begin(block))
        part = block.part
        if part is None or part.kind is not kind:
            self.text_part = None
            opened, part = block.open_part(kind)
            events += opened
        return events, part

    def reasoning(self) -> tuple[list[Event], ReasoningBlock]:
        """The open reasoning item, begun when there is none."""
        if isinstance(self.open, ReasoningBlock):
            return [], self.open
        events = self._make_room()
        item_id = self._output.expected("rs")
        output = self._output
        block = ReasoningBlock(
            output.number, item_id, output.next_index(), self._wire.name, output.summarised
        )
        events.append(self._begin(block))
        return events, block

    def think(self, delta: str) -> list[Event]:
        """The next piece of raw reasoning."""
        events, block = self.reasoning()
        opened, part = block.open_raw()
        events += opened + part.delta(delta)
        self.raw_part = None if part.buffer.held else part
        return events

    def encrypt(self, content: str) -> list[Event]:
        """Encrypted content for the open reasoning item; a second one belongs to another item."""
        events: list[Event] = []
        if isinstance(self.open, ReasoningBlock) and self.open.encrypted is not None:
            events = self.close_open()
        opened, block = self.reasoning()
        block.encrypted = content
        return events + opened

    def call(
        self,
        index: int,
        call_id: str,
        name: str,
        arguments: str,
        free_text: bool,
        namespace: str | None,
    ) -> list[Event]:
        """One fragment of a tool call."""
        return self.calls.apply(index, call_id, name, arguments, free_text, namespace, self.close_open)

    def expect(self, item_id: str, phase: MessagePhase | UnsetType, explicit_end: bool) -> None:
        """The next item to open is upstream's `item_id`; a message carries this phase."""
        self._output.expect, self._output.explicit_end = item_id, explicit_end
        self.phase = phase

    def announce(self, item: Item) -> list[Event]:
        """Begin an item that is completed later, or a reasoning item that may get text."""
        self.items.check("item_added", item)
        closed = self.close_open()
        if isinstance(item, ReasoningItem):
            self._output.expect = item.id
            return closed + self.reasoning()[0]
        return closed + self.items.announce(item)

    def item(self, item: Item) -> list[Event]:
        """A whole item at once. Raises `bridge.stream.invalid_argument` before anything is done."""
        self.items.check("item", item)
        events = self.close_open() + self.calls.release()
        return events + self.items.emit(item)

    def close_part(self) -> list[Event]:
        """Close the open text, refusal or summary part; its item stays open."""
        self.text_part = self.raw_part = None
        return [] if self.open is None else self.open.close_part()

    def close_open(self, cut: bool = False) -> list[Event]:
        """Close the open message or reasoning item: something else begins, so it is whole. One that is `cut`
        ends with the response, since nothing may be added after it."""
        block, self.open, self.text_part, self.raw_part = self.open, None, None, None
        if block is not None and cut:
            block.cut = True
            return block.close_part()
        return [] if block is None else self._output.close(block, stopped=True)[0]

    def close_all(self, stopped: bool, abandoned: bool) -> list[Event]:
        """Close everything in output_index order. `stopped`: upstream ended by itself, not by a
        limit; `abandoned`: whatever is open counts as cut."""
        events = self.calls.end_waiting(stopped, abandoned, self.close_open)
        for _, block in sorted(self._output.blocks.items()):
            closed, cut = self._output.close(block, stopped, abandoned)
            events += closed
            if cut and self.cut != INCOMPLETE_TOOL_CALL:
                self.cut = INCOMPLETE_TOOL_CALL if isinstance(block, ToolCallBlock) else INCOMPLETE_ITEM
        self.open = self.text_part = self.raw_part = None
        return events

    def _make_room(self) -> list[Event]:
        # a call that waits to be whole keeps its place before what comes after it
        closed = [] if self.open is None else self.close_open()
        return closed + self.calls.release(waiting_only=True)

    def _begin(self, block: MessageBlock | ReasoningBlock) -> Event:
        self._output.begin(block)
        self.open = block
        return block.added()

"""The open blocks of one response, and which block closes which (law E5).

At most one block of text, refusal or reasoning is open. Starting another one, or announcing a tool call,
closes it. Several tool calls may be open, each under the upstream's index. Dialects assign irregular
fragments to an index first; here the index decides, except that another id at the index of an open call is
another call (field case 1).
"""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from msgspec import UNSET, Struct, UnsetType

from openresponses_bridge.calls.identity import ToolIdentity, ToolIdentityMap, ToolKind
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.emitter.blocks import TEXT, MessageBlock, OpenPart, PartKind, ReasoningBlock
from openresponses_bridge.emitter.failures import INCOMPLETE_ITEM, INCOMPLETE_TOOL_CALL
from openresponses_bridge.emitter.output import Output
from openresponses_bridge.emitter.tool_call import ToolCallBlock, is_another, nameless
from openresponses_bridge.emitter.whole_items import ItemEmitter
from openresponses_bridge.protocol.content import LogProb
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.ids import prefix_of
from openresponses_bridge.protocol.items import Item, MessagePhase, ReasoningItem, with_id
from openresponses_bridge.protocol.unknown import Extra
from openresponses_bridge.state import BlockState, Wire
from openresponses_bridge.text import repair_surrogates

NAMELESS: Final = "never got a name"


class OpenBlocks(Struct, eq=False):
    """The open message or reasoning item, and the calls by index."""

    output: Output
    wire: Wire
    identities: ToolIdentityMap
    diagnostics: Diagnostics
    open: MessageBlock | ReasoningBlock | None = None
    text_part: OpenPart | None = None
    """The open text part, if it accepts deltas without a check: none of its text is buffered."""
    raw_part: OpenPart | None = None
    """The same for raw reasoning."""
    phase: MessagePhase | UnsetType = UNSET
    calls: dict[int, ToolCallBlock] = {}
    waiting: dict[int, ToolCallBlock] = {}
    """The calls that are not announced yet."""
    cut: str | None = None
    """After everything is closed, the reason for an incomplete response, or None."""
    begun: int = 0
    """The number of calls that have begun."""
    # indexes of the calls that received something after `release` last checked whether they are whole: it
    # checks no others
    grown_open: dict[int, None] = {}
    grown_waiting: dict[int, None] = {}
    emitter: ItemEmitter | None = None

    @property
    def items(self) -> ItemEmitter:
        """Emits whole items; created when the first one comes."""
        if self.emitter is None:
            self.emitter = ItemEmitter(self.output, self.wire, self.diagnostics)
        return self.emitter

    def append_text(self, kind: PartKind, delta: str, logprobs: list[LogProb]) -> list[Event]:
        """Append the next piece of text or refusal."""
        events, part = self.open_message_part(kind)
        events += part.delta(delta, logprobs)
        self.text_part = part if kind is TEXT and not part.joiner.pending else None
        return events

    def open_message_part(self, kind: PartKind) -> tuple[list[Event], OpenPart]:
        """Return the open part of this kind; one is begun if there is none."""
        events: list[Event] = []
        block = self.open
        if not isinstance(block, MessageBlock):
            events = self._close_others()
            output = self.output
            block = MessageBlock(output.number, output.new_id("msg"), self.phase, output.expect_extra)
            self.phase = output.expect_extra = UNSET
            self.open = block
            events.append(self.output.begin(block))
        part = block.part
        if part is None or part.kind is not kind:
            self.text_part = None
            opened, part = block.open_part(kind)
            events += opened
        return events, part

    def reasoning(self) -> tuple[list[Event], ReasoningBlock]:
        """Return the open reasoning item; one is begun if there is none."""
        if isinstance(self.open, ReasoningBlock):
            return [], self.open
        events = self._close_others()
        output = self.output
        block = ReasoningBlock(
            output.number, output.new_id("rs"), self.wire.name, output.summarised, output.expect_extra
        )
        output.expect_extra = UNSET
        self.open = block
        events.append(output.begin(block))
        return events, block

    def append_reasoning(self, delta: str) -> list[Event]:
        """Append the next piece of raw reasoning."""
        events, block = self.reasoning()
        opened, part = block.open_raw()
        events += opened + part.delta(delta)
        self.raw_part = None if part.joiner.pending else part
        return events

    def encrypt(self, content: str) -> list[Event]:
        """Set the encrypted content of the open reasoning item; a second one begins another item."""
        events: list[Event] = []
        if isinstance(self.open, ReasoningBlock) and self.open.encrypted is not None:
            events = self.close_open()
        opened, block = self.reasoning()
        block.encrypted = content
        return events + opened

    def call(
        self, index: int, call_id: str, name: str, arguments: str, free_text: bool, namespace: str | None
    ) -> list[Event]:
        """Append a fragment of a tool call."""
        events: list[Event] = []
        block = self.calls.get(index)
        if block is None or is_another(block.upstream_id, block.upstream_name, block.ended, call_id, name):
            if block is not None and not (block.upstream_name or block.ended):
                raise nameless("tool_call", index)
            if self.grown_open or self.grown_waiting:
                events += self.release()
            if block is not None and not block.ended:
                self.diagnostics.repair("tool_call.index", "another id on a busy index opened another call")
                events += self._end_call(block, stopped=True)
            self.begun += 1
            block = ToolCallBlock(self.output.number, index, self.diagnostics, self.begun, self.grown_waiting)
            self.calls[index] = self.waiting[index] = block
            block.explicit_end, self.output.explicit_end = self.output.explicit_end, False
            block.extra, self.output.expect_extra = self.output.expect_extra, UNSET
        elif block.ended:
            if arguments.strip():
                self.diagnostics.loss("tool_call.arguments", "came after the call had ended")
            return events
        block.free_text = block.free_text or free_text
        if namespace:
            block.namespace = repair_surrogates(namespace)
        if call_id and not block.upstream_id:
            block.upstream_id = call_id
            if block.state is BlockState.OPEN:
                self.diagnostics.ignored("tool_call.id", "came after the call was announced")
        if name and not block.upstream_name:
            if not name.isascii():
                name = repair_surrogates(name)
            identity = self.identities.resolve(name)
            if identity is not None and name != identity.upstream_name:
                name = self._spelled(name, identity)
            elif identity is None and self.identities.has_tools:
                self.diagnostics.warning("tool_call.name", "not a tool of the request")
            if identity is None and block.namespace:
                identity = ToolIdentity(ToolKind.FUNCTION, name, block.namespace, name)
            can_be_announced = block.identify(name, identity, self.wire)
            events += self.close_open()
            if can_be_announced:
                return events + self._announce(block, arguments)
            block.mark_grown()
        return events + block.delta(arguments) if arguments else events

    def _spelled(self, name: str, identity: ToolIdentity) -> str:
        """Return the tool's name in the request for one that the model wrote with tokens of its own."""
        if self.identities.is_spelled(name):
            return name
        self.diagnostics.repair("tool_call.name", "came with tokens of the model's own, taken as the tool's")
        return identity.upstream_name

    def extend(self, extra: Extra, index: int | None) -> None:
        """Add unknown fields to the open message or reasoning item, or to the call at this index."""
        block = self.open if index is None else self.calls.get(index)
        fields = self.items.kept(extra, "output_item")
        if block is not None and block.state is not BlockState.CLOSED:
            block.extra_at_end = fields
        elif fields:
            self.diagnostics.loss("output_item", "unknown fields that came after its end")

    def extend_part(self, extra: Extra, summary: bool) -> None:
        """Add unknown fields to the open part."""
        block = self.open
        part = block.summary if summary and isinstance(block, ReasoningBlock) else block and block.part
        fields = self.items.kept(extra, "output_item.content")
        if part is not None:
            part.extra = fields
        elif fields:
            self.diagnostics.loss("output_item.content", "unknown fields that came after its end")

    def end_call(self, index: int, cut: bool) -> list[Event]:
        """End this call, since the upstream says that it is whole, or `cut`."""
        block = self.calls[index]
        if block.ended:
            return []
        if not block.upstream_name:
            self._end_nameless(block)
            return []
        return self._end_call(block, stopped=not cut, abandoned=cut)

    def end_nameless(self) -> None:
        """End the calls that have no name."""
        for block in [each for each in self.waiting.values() if not each.waits]:
            self._end_nameless(block)

    def _end_nameless(self, block: ToolCallBlock) -> None:
        """End a call that was cut off before it had a name: it is left out, and the response is
        incomplete."""
        del self.waiting[block.index]
        block.end_whole()
        self.cut = INCOMPLETE_TOOL_CALL
        self.diagnostics.loss("tool_call", NAMELESS)

    def release(self, *, waiting_only: bool = False) -> list[Event]:
        """End the calls that are whole, in order; with `waiting_only`, only those that are not announced yet.
        Calls with an explicit end stay open, since arguments that look whole may be cut."""
        if not self.grown_open and not self.grown_waiting:
            return []
        ready = [] if waiting_only else self._whole_ones(self.grown_open, BlockState.OPEN)
        ready.sort(key=attrgetter("output_index"))
        unannounced = self._whole_ones(self.grown_waiting, BlockState.ABSENT)
        waiting = [block for block in unannounced if block.waits]
        ready += sorted(waiting, key=attrgetter("number_begun"))
        return [event for block in ready for event in self._end_call(block, stopped=True)]

    def _whole_ones(self, grown: dict[int, None], state: BlockState) -> list[ToolCallBlock]:
        # a call in another state has followed at the same index
        blocks = [block for block in map(self.calls.__getitem__, grown) if block.state is state]
        grown.clear()
        return [block for block in blocks if not block.ended and block.may_end()]

    def check_named(self) -> None:
        """Raises `bridge.stream.incomplete_tool_call` when a call never got a name (law E7)."""
        for block in self.waiting.values():
            if not block.waits:
                raise nameless("finish", block.index)

    def expect(self, item_id: str, phase: MessagePhase | UnsetType, explicit_end: bool, extra: Extra) -> None:
        """Give the upstream's `item_id` to the next item that opens; a message also gets this phase."""
        self.output.expect, self.output.explicit_end = item_id, explicit_end
        self.output.expect_extra = self.items.kept(extra, "output_item")
        self.phase = phase

    def announce(self, item: Item) -> list[Event]:
        """Announce an item that is completed later, or a reasoning item that may get text."""
        self.items.check("item_added", item)
        closed = self.close_open()
        if isinstance(item, ReasoningItem):
            self.output.expect = item.id
            self.output.expect_extra = self.items.kept(item.extra, item.type)
            return closed + self.reasoning()[0]
        return closed + self.items.announce(item)

    def item(self, item: Item) -> list[Event]:
        """Add a whole item at once. Raises `bridge.stream.invalid_argument` before anything is done."""
        self.items.check("item", item)
        events = self.close_open() + self.release()
        return events + self.items.emit(item)

    def close_part(self) -> list[Event]:
        """Close the open text, refusal or summary part; its item stays open."""
        self.text_part = self.raw_part = None
        return [] if self.open is None else self.open.close_part()

    def close_open(self, cut: bool = False) -> list[Event]:
        """Close the open message or reasoning item, which is whole because another block starts. `cut`: it is
        incomplete, and ends with the response, since no item may follow it."""
        block, self.open, self.text_part, self.raw_part = self.open, None, None, None
        if block is not None and cut:
            block.cut = True
            return block.close_part()
        return [] if block is None else self.output.close(block, stopped=True)[0]

    def close_all(self, stopped: bool, abandoned: bool) -> list[Event]:
        """Close everything in output_index order. `stopped`: the upstream ended by itself, not at a limit;
        `abandoned`: everything that is open counts as cut off."""
        events = self._end_waiting(stopped, abandoned) if self.waiting else []
        for _, block in sorted(self.output.blocks.items()):
            closed, cut = self.output.close(block, stopped, abandoned)
            events += closed
            if cut and self.cut != INCOMPLETE_TOOL_CALL:
                self.cut = INCOMPLETE_TOOL_CALL if isinstance(block, ToolCallBlock) else INCOMPLETE_ITEM
        self.open = self.text_part = self.raw_part = None
        return events

    def _close_others(self) -> list[Event]:
        # a call that waits to be whole keeps its place before what comes after it
        closed = [] if self.open is None else self.close_open()
        for index in self.grown_open:  # so does a call that holds back arguments
            closed += self.calls[index].release()
        return closed + self.release(waiting_only=True) if self.grown_waiting else closed

    def _announce(self, block: ToolCallBlock, arguments: str = "") -> list[Event]:
        del self.waiting[block.index]
        self.grown_waiting.pop(block.index, None)
        block.grown = self.grown_open
        block.item_id = self.output.new_id(block.prefix)
        block.call_id = block.call_id or self.output.unique_call_id(block.upstream_id, self.diagnostics)
        return [self.output.begin(block), *block.begin(arguments)]

    def _end_call(self, block: ToolCallBlock, stopped: bool, abandoned: bool = False) -> list[Event]:
        events: list[Event] = []
        if block.state is BlockState.ABSENT:
            block.call_id = self.output.unique_call_id(block.upstream_id, self.diagnostics)
            item = None if block.ends_cut(stopped, abandoned) else block.restored()
            if item is not None:
                del self.waiting[block.index]
                block.end_whole()
                item_id = self.output.new_id(prefix_of(item.type))
                return self.output.whole(block, with_id(item, item_id))
            self.diagnostics.repair(f"tool_call.{block.name}", "not restorable, left as function_call")
            events = self._announce(block)
        events += block.seal(stopped, abandoned)
        if block.cut:
            return events  # nothing may be added after an incomplete item: it ends with the response
        return events + self.output.close(block, stopped, abandoned)[0]

    def _end_waiting(self, stopped: bool, abandoned: bool) -> list[Event]:
        """End the calls that were never announced, first whole ones, then those that were cut off. Calls
        without a name are left out."""
        named = sorted((each for each in self.waiting.values() if each.waits), key=attrgetter("number_begun"))
        if len(named) < len(self.waiting):
            self.diagnostics.loss("tool_call", NAMELESS)
        whole = [block for block in named if not block.ends_cut(stopped, abandoned)]
        cut = [block for block in named if block.ends_cut(stopped, abandoned)]
        events = self.close_open() if whole or (named and stopped) else []
        for block in whole + cut:
            events += self._end_call(block, stopped, abandoned)
        self.waiting.clear()
        return events

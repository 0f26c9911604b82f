"""The open blocks of one response, and which block closes which (law E5).

At most one block of text, refusal or reasoning is open. Starting another one, or announcing a tool call,
closes it. Tool calls may be open beside it, by index.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from openresponses_bridge.calls.identity import ToolIdentity, ToolIdentityMap, ToolKind
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.emitter.arguments import extension_type, kept_annotations, wrong_argument
from openresponses_bridge.emitter.blocks import MessageBlock, OpenItem, ReasoningBlock, WholeBlock
from openresponses_bridge.emitter.failures import INCOMPLETE_ITEM, INCOMPLETE_TOOL_CALL
from openresponses_bridge.emitter.output import Output
from openresponses_bridge.emitter.parts import REFUSAL, TEXT, OpenPart, PartKind
from openresponses_bridge.emitter.tool_call import ToolCallBlock
from openresponses_bridge.emitter.tool_calls import ToolCalls
from openresponses_bridge.protocol import content as ct
from openresponses_bridge.protocol import items as it
from openresponses_bridge.protocol.codec import with_whole_characters
from openresponses_bridge.protocol.content import LogProb
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.items import Item, MessagePhase, ReasoningItem
from openresponses_bridge.protocol.unknown import UnknownItem
from openresponses_bridge.state import PUBLISHED_ITEMS, Wire
from openresponses_bridge.text import repair_surrogates


class ItemEmitter:
    """Emits `item()` calls on one output. Ids are kept when they are free."""

    def __init__(self, output: Output, wire: Wire, diagnostics: Diagnostics) -> None:
        self._output = output
        self._wire = wire
        self._diagnostics = diagnostics
        self._announced: dict[str, WholeBlock] = {}

    def check(self, call: str, item: it.Item) -> None:
        """Raises `bridge.stream.invalid_argument` for an item that no response may hold."""
        if not isinstance(item, it.KnownItem | UnknownItem):
            raise wrong_argument(call, f"expected an output item, got {type(item).__name__}")
        if call == "item_added" and type(item) in _EMITTERS and type(item) is not it.ReasoningItem:
            raise wrong_argument(call, f"a {item.type} streams, it is not announced")
        if isinstance(item, it.Message):
            if item.role != "assistant":
                raise wrong_argument(call, f"a message of a response is the assistant's, got {item.role}")
            for part in item.content:
                if not isinstance(part, ct.OutputTextContent | ct.RefusalContent):
                    raise wrong_argument(call, f"a message can't hold a part of type {part.type}")
        if isinstance(item, it.FunctionCall | it.CustomToolCall) and not item.name:
            raise wrong_argument(call, "a tool call needs a name")
        if isinstance(item, UnknownItem) and not item.type:
            raise wrong_argument(call, "an item needs a type")

    def emit(self, item: it.Item) -> list[Event]:
        """The events of one checked item; one that is incomplete ends with the response."""
        return _EMITTERS.get(type(item), ItemEmitter._plain)(self, with_whole_characters(item))

    def _message(self, item: it.Message) -> list[Event]:
        output = self._output
        block = MessageBlock(output.number, output.unique("msg", item.id), output.next_index(), item.phase)
        events = [block.added()]
        output.begin(block)
        for content in item.content:
            if not isinstance(content, ct.OutputTextContent):
                opened, part = block.open_part(REFUSAL)
                events += opened + part.whole(_refusal(content))
            else:
                opened, part = block.open_part(TEXT)
                events += opened + part.whole(content.text, content.logprobs or None)
                cited = kept_annotations(self._wire, content.annotations, self._diagnostics)
                events += [part.annotate(annotation) for annotation in cited]
        return self._ended(events, block, item.status)

    def _reasoning(self, item: it.ReasoningItem) -> list[Event]:
        output = self._output
        block = ReasoningBlock(
            output.number,
            output.unique("rs", item.id),
            output.next_index(),
            self._wire.name,
            output.summarised,
        )
        events = [block.added()]
        output.begin(block)
        text = "".join(_text(part) for part in item.content or ())
        if text:
            opened, part = block.open_raw()
            events += opened + part.whole(text)
        for key, summary in enumerate(item.summary):
            opened, part = block.open_summary(key)
            events += opened + part.whole(_text(summary))
        block.encrypted = item.encrypted_content or None
        return self._ended(events, block, item.status)

    def _function_call(self, item: it.FunctionCall) -> list[Event]:
        return self._call(item, item.arguments, free_text=False)

    def _custom_call(self, item: it.CustomToolCall) -> list[Event]:
        return self._call(item, item.input, free_text=True)

    def _call(self, item: it.FunctionCall | it.CustomToolCall, payload: str, free_text: bool) -> list[Event]:
        output = self._output
        block = ToolCallBlock(output.number, index=-1)
        block.call_id = output.unique_call_id(item.call_id, self._diagnostics)
        block.free_text = free_text
        name, namespace = repair_surrogates(item.name), repair_surrogates(item.namespace or "") or None
        block.identify(name, ToolIdentity(ToolKind.FUNCTION, name, namespace, name), self._wire)
        events = block.open(output.unique("fc", item.id), output.next_index())
        output.begin(block)
        events += block.delta(payload) if payload else []
        events += block.seal(stopped=True, abandoned=item.status == "incomplete")
        return self._ended(events, block, item.status)

    def announce(self, item: it.Item) -> list[Event]:
        """Begin an item that is completed later, by `emit` with the same id."""
        return [self._begin(with_whole_characters(item)).added()]

    def announced(self, item_id: str) -> WholeBlock | None:
        """The item that was announced under this id and is still open."""
        return self._announced.get(repair_surrogates(item_id))

    def _plain(self, item: it.Item) -> list[Event]:
        block = self._announced.pop(item.id, None)
        events = []
        if block is None:
            block = self._begin(item)
            del self._announced[item.id or block.item_id]
            events = [block.added()]
        joined = self._merged(item, block.call_id)
        block.complete(it.with_id(self._for_wire(joined), block.item_id))
        return self._ended(events, block, getattr(item, "status", None))

    def _ended(self, events: list[Event], block: OpenItem, status: object) -> list[Event]:
        """Append the events of the item's end, if it may end now. An incomplete item ends with the response,
        since no item may follow it (specification, Items)."""
        block.cut = block.cut or status == "incomplete"
        if block.cut:
            return events + block.close_part()
        return events + self._output.close(block, stopped=True)[0]

    def _begin(self, item: it.Item) -> WholeBlock:
        identified = it.with_id(self._merged(item), self._output.unique(item.type, item.id))
        block = WholeBlock(self._output.number, self._for_wire(identified), self._output.next_index())
        self._output.begin(block)
        self._announced[item.id or block.item_id] = block
        return block

    def _merged(self, item: it.Item, announced: str | None = None) -> it.Item:
        """The call under a unique call_id, or the output under the call_id of its call. An item that was
        announced keeps the call_id it was announced with."""
        wanted = it.call_id_of(item)
        if wanted is None:
            return item
        if not announced and item.type.endswith("_output"):
            announced = self._output.call_id_given(wanted)
        return it.with_call_id(item, announced or self._output.unique_call_id(wanted, self._diagnostics))

    def _for_wire(self, item: it.Item) -> it.Item:
        """The item as this wire spells it: types that are not published get a slug where only published ones
        are known (law E10), and every item gets a status."""
        if self._wire.openai_items or item.type in PUBLISHED_ITEMS:
            return item
        raw = item.raw if isinstance(item, UnknownItem) else msgspec.to_builtins(item)
        return UnknownItem({"status": "completed", **raw, "type": extension_type(item.type)})


def _refusal(part: ct.ContentPart) -> str:
    """The text of the only other part that `check` lets into a message."""
    return str(getattr(part, "refusal", ""))


def _text(part: ct.ContentPart) -> str:
    """The text of a part of a reasoning item, whatever kind of part a server used for it."""
    text = getattr(part, "text", "")
    return text if isinstance(text, str) else ""


# Not in the instances: a table of bound methods would keep each, and its output, until garbage is looked for.
_EMITTERS: Final[dict[type[Any], Callable[[ItemEmitter, Any], list[Event]]]] = {
    it.Message: ItemEmitter._message,
    it.ReasoningItem: ItemEmitter._reasoning,
    it.FunctionCall: ItemEmitter._function_call,
    it.CustomToolCall: ItemEmitter._custom_call,
}


class OpenBlocks:
    """The open message or reasoning item and the open calls. `text_part` is the open text part if it accepts
    deltas without a check: nothing of it is buffered. After all is closed, `cut` is the reason for an
    incomplete response, or None."""

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

    def append_text(self, kind: PartKind, delta: str, logprobs: list[LogProb]) -> list[Event]:
        """The next piece of text or refusal."""
        events, part = self.open_message_part(kind)
        events += part.delta(delta, logprobs)
        self.text_part = part if kind is TEXT and not part.buffer.pending else None
        return events

    def open_message_part(self, kind: PartKind) -> tuple[list[Event], OpenPart]:
        """The open part of this kind, begun when there is none."""
        events: list[Event] = []
        block = self.open
        if not isinstance(block, MessageBlock):
            events = self._close_others()
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
        events = self._close_others()
        item_id = self._output.expected("rs")
        output = self._output
        block = ReasoningBlock(
            output.number, item_id, output.next_index(), self._wire.name, output.summarised
        )
        events.append(self._begin(block))
        return events, block

    def append_reasoning(self, delta: str) -> list[Event]:
        """The next piece of raw reasoning."""
        events, block = self.reasoning()
        opened, part = block.open_raw()
        events += opened + part.delta(delta)
        self.raw_part = None if part.buffer.pending else part
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
        """Close the open message or reasoning item, which is whole because another block starts. `cut`: it is
        incomplete, and ends with the response, since no item may follow it."""
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

    def _close_others(self) -> list[Event]:
        # a call that waits to be whole keeps its place before what comes after it
        closed = [] if self.open is None else self.close_open()
        return closed + self.calls.release(waiting_only=True)

    def _begin(self, block: MessageBlock | ReasoningBlock) -> Event:
        self._output.begin(block)
        self.open = block
        return block.added()

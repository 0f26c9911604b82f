"""Emits items that are given whole, or announced and completed later, with the events that streaming them
gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
from msgspec import UNSET

from openresponses_bridge.calls.identity import ToolIdentity, ToolKind
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.emitter.arguments import (
    extension_type,
    for_wire,
    kept_annotations,
    report_unknown,
    wrong_argument,
)
from openresponses_bridge.emitter.blocks import (
    REFUSAL,
    TEXT,
    MessageBlock,
    OpenItem,
    ReasoningBlock,
    WholeBlock,
)
from openresponses_bridge.emitter.output import Output
from openresponses_bridge.emitter.tool_call import ToolCallBlock
from openresponses_bridge.protocol import content as ct
from openresponses_bridge.protocol import items as it
from openresponses_bridge.protocol.codec import with_whole_characters
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.ids import prefix_of
from openresponses_bridge.protocol.response import NATIVE
from openresponses_bridge.protocol.unknown import Extra, UnknownItem, UnknownPart
from openresponses_bridge.state import PUBLISHED_ITEMS, Wire
from openresponses_bridge.text import repair_surrogates


class ItemEmitter:
    """Emits the whole items of one response. An item keeps its id if that is free."""

    def __init__(self, output: Output, wire: Wire, diagnostics: Diagnostics) -> None:
        self._output = output
        self._wire = wire
        self._diagnostics = diagnostics
        self._announced: dict[str, WholeBlock] = {}

    def check(self, call: str, item: it.Item) -> None:
        """Raises `bridge.stream.invalid_argument` for an item that no response may contain."""
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
        """Return the events of one checked item; an incomplete one ends with the response."""
        return _EMITTERS.get(type(item), ItemEmitter._plain)(self, self._readable(item))

    def kept(self, extra: Extra, where: str) -> Extra:
        """Return these unknown fields of an object if the wire has such fields; otherwise report them as
        losses."""
        if extra and not self._wire.unknown_fields:
            report_unknown(where, [name for name in extra if name != NATIVE], self._diagnostics)
            return {NATIVE: extra[NATIVE]} if NATIVE in extra else UNSET
        return extra

    def _readable(self, item: it.Item) -> it.Item:
        return for_wire(self._wire, with_whole_characters(item), item.type, self._diagnostics)

    def _message(self, item: it.Message) -> list[Event]:
        output = self._output
        block = MessageBlock(output.number, output.new_id("msg", item.id), item.phase, item.extra)
        events = [output.begin(block)]
        for content in item.content:
            if not isinstance(content, ct.OutputTextContent):
                opened, part = block.open_part(REFUSAL)
                events += opened + part.whole(_refusal(content))
                part.extra = _extra_of(content)
            else:
                opened, part = block.open_part(TEXT)
                events += opened + part.whole(content.text, content.logprobs or None)
                part.extra = content.extra
                cited = kept_annotations(self._wire, content.annotations, self._diagnostics)
                events += [part.annotate(annotation) for annotation in cited]
        return self._ended(events, block, item.status)

    def _reasoning(self, item: it.ReasoningItem) -> list[Event]:
        output = self._output
        item_id = output.new_id("rs", item.id)
        block = ReasoningBlock(output.number, item_id, self._wire.name, output.summarised, item.extra)
        events = [output.begin(block)]
        text = "".join(_text(part) for part in item.content or ())
        self._report_parts(item.content or (), ct.ReasoningTextContent)
        self._report_parts(item.summary, ct.SummaryTextContent)
        if text:
            opened, part = block.open_raw()
            events += opened + part.whole(text)
            part.extra = next((each for each in map(_extra_of, item.content or ()) if each), UNSET)
        for key, summary in enumerate(item.summary):
            opened, part = block.open_summary(key)
            events += opened + part.whole(_text(summary))
            part.extra = _extra_of(summary)
        block.encrypted = item.encrypted_content or None
        return self._ended(events, block, item.status)

    def _report_parts(self, parts: Iterable[ct.ContentPart], own: type[ct.ContentPart]) -> None:
        """Report the parts of a reasoning item that are not of the type `own`: only their text is used."""
        for part in parts:
            if isinstance(part, own):
                continue
            if not _text(part):
                self._diagnostics.loss("output_item.reasoning", f"a part of type {part.type}")
                continue
            self._diagnostics.repair("output_item.reasoning", f"the text of a part of type {part.type}, read")
            if isinstance(part, ct.OutputTextContent) and (part.annotations or part.logprobs):
                self._diagnostics.loss("output_item.reasoning", "citations and log probabilities in it")

    def _function_call(self, item: it.FunctionCall) -> list[Event]:
        return self._call(item, item.arguments, free_text=False)

    def _custom_call(self, item: it.CustomToolCall) -> list[Event]:
        return self._call(item, item.input, free_text=True)

    def _call(self, item: it.FunctionCall | it.CustomToolCall, payload: str, free_text: bool) -> list[Event]:
        output = self._output
        block = ToolCallBlock(output.number, -1, self._diagnostics)
        block.call_id = output.unique_call_id(item.call_id, self._diagnostics)
        block.free_text, block.extra = free_text, item.extra
        name, namespace = repair_surrogates(item.name), repair_surrogates(item.namespace or "") or None
        block.identify(name, ToolIdentity(ToolKind.FUNCTION, name, namespace, name), self._wire)
        block.item_id = output.new_id(block.prefix, item.id)
        events = [output.begin(block), *block.begin(payload)]
        events += block.seal(stopped=True, abandoned=item.status == "incomplete")
        return self._ended(events, block, item.status)

    def announce(self, item: it.Item) -> list[Event]:
        """Announce an item that is completed later, by `emit` with the same id."""
        return [self._begin(self._readable(item))[0]]

    def announced(self, item_id: str) -> WholeBlock | None:
        """Return the open item that was announced with this id; None if there is none."""
        return self._announced.get(repair_surrogates(item_id))

    def _plain(self, item: it.Item) -> list[Event]:
        block = self._announced.pop(item.id, None)
        events = []
        if block is None:
            added, block = self._begin(item)
            del self._announced[item.id or block.item_id]
            events = [added]
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

    def _begin(self, item: it.Item) -> tuple[Event, WholeBlock]:
        identified = it.with_id(self._merged(item), self._output.new_id(prefix_of(item.type), item.id))
        block = WholeBlock(self._output.number, self._for_wire(identified))
        self._announced[item.id or block.item_id] = block
        return self._output.begin(block), block

    def _merged(self, item: it.Item, announced: str | None = None) -> it.Item:
        """Return a call with a unique call_id, or an output with the call_id of its call. An item that was
        announced keeps the call_id with which it was announced."""
        call_id = it.call_id_of(item)
        if call_id is None:
            return item
        if not announced and item.type.endswith("_output"):
            announced = self._output.call_id_given(call_id)
        return it.with_call_id(item, announced or self._output.unique_call_id(call_id, self._diagnostics))

    def _for_wire(self, item: it.Item) -> it.Item:
        """Return the item as this wire spells it: on `openresponses`, a type that is not published gets a
        slug (law E10), and an item of such a type a status if it has none."""
        if self._wire.openai_items or item.type in PUBLISHED_ITEMS:
            return item
        raw = item.raw if isinstance(item, UnknownItem) else msgspec.to_builtins(item)
        return UnknownItem({"status": "completed", **raw, "type": extension_type(item.type)})


def _refusal(part: ct.ContentPart) -> str:
    """Return the text of a refusal, the only other part that `check` allows in a message."""
    return str(getattr(part, "refusal", ""))


def _extra_of(part: ct.ContentPart) -> Extra:
    return UNSET if isinstance(part, UnknownPart) else part.extra


def _text(part: ct.ContentPart) -> str:
    """Return the text of a part of a reasoning item, whatever kind of part a server used for it."""
    text = getattr(part, "text", "")
    return text if isinstance(text, str) else ""


# Not an attribute of the instances: a table of bound methods would refer to its instance, which, with its
# output, would be freed only by the garbage collector.
_EMITTERS: Final[dict[type[Any], Callable[[ItemEmitter, Any], list[Event]]]] = {
    it.Message: ItemEmitter._message,
    it.ReasoningItem: ItemEmitter._reasoning,
    it.FunctionCall: ItemEmitter._function_call,
    it.CustomToolCall: ItemEmitter._custom_call,
}

"""A whole item at once → the same events as if it had been streamed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from bridge.emitter.arguments import wrong_argument
from bridge.emitter.blocks import MessageBlock, ReasoningBlock, WholeBlock
from bridge.emitter.output import Output
from bridge.emitter.parts import REFUSAL, TEXT
from bridge.emitter.tool_calls import ToolCallBlock
from bridge.protocol import content as ct
from bridge.protocol import items as it
from bridge.protocol.events import Event
from bridge.protocol.unknown import UnknownItem
from bridge.state import PUBLISHED_ITEMS, Wire
from bridge.tools.identity import ToolIdentity, ToolKind


class ItemEmitter:
    """Emits `item()` calls on one output. Ids are kept when they are free."""

    def __init__(self, output: Output, wire: Wire) -> None:
        self._output = output
        self._wire = wire
        self._announced: dict[str, WholeBlock] = {}
        self._emitters: dict[type[Any], Callable[[Any], tuple[list[Event], bool]]] = {
            it.Message: self._message,
            it.ReasoningItem: self._reasoning,
            it.FunctionCall: self._function_call,
            it.CustomToolCall: self._custom_call,
        }

    def check(self, item: it.Item) -> None:
        """Raises `bridge.stream.invalid_argument` for an item that no response may hold."""
        if not isinstance(item, it.KnownItem | UnknownItem):
            raise wrong_argument("item", f"expected an output item, got {type(item).__name__}")
        if isinstance(item, it.Message):
            if item.role != "assistant":
                raise wrong_argument("item", f"a message of a response is the assistant's, got {item.role}")
            for part in item.content:
                if not isinstance(part, ct.OutputTextContent | ct.RefusalContent):
                    raise wrong_argument("item", f"a message can't hold a part of type {part.type}")
        if isinstance(item, UnknownItem) and not item.type:
            raise wrong_argument("item", "an item needs a type")

    def emit(self, item: it.Item) -> tuple[list[Event], bool]:
        """(events, cut) of one checked item."""
        return self._emitters.get(type(item), self._plain)(item)

    def _message(self, item: it.Message) -> tuple[list[Event], bool]:
        output = self._output
        block = MessageBlock(output.number, output.unique("msg", item.id), output.next_index(), item.phase)
        events = [block.added()]
        output.begin(block)
        for content in item.content:
            if isinstance(content, ct.RefusalContent):
                opened, part = block.open_part(REFUSAL)
                events += opened + part.whole(content.refusal)
            elif isinstance(content, ct.OutputTextContent):
                opened, part = block.open_part(TEXT)
                events += opened + part.whole(content.text, content.logprobs or None)
                events += [part.annotate(annotation) for annotation in content.annotations]
        closed, cut = output.close(block, stopped=item.status != "incomplete")
        return events + closed, cut

    def _reasoning(self, item: it.ReasoningItem) -> tuple[list[Event], bool]:
        output = self._output
        block = ReasoningBlock(
            output.number, output.unique("rs", item.id), output.next_index(), self._wire.name
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
        closed, cut = output.close(block, stopped=item.status != "incomplete")
        return events + closed, cut

    def _function_call(self, item: it.FunctionCall) -> tuple[list[Event], bool]:
        return self._call(item, item.arguments, free_text=False)

    def _custom_call(self, item: it.CustomToolCall) -> tuple[list[Event], bool]:
        return self._call(item, item.input, free_text=True)

    def _call(
        self, item: it.FunctionCall | it.CustomToolCall, payload: str, free_text: bool
    ) -> tuple[list[Event], bool]:
        output = self._output
        block = ToolCallBlock(output.number, index=-1)
        block.call_id = output.unique("call", item.call_id)
        block.free_text = free_text
        namespace = item.namespace or None
        identity = ToolIdentity(ToolKind.FUNCTION, item.name, namespace, item.name)
        block.identify(item.name, identity, self._wire)
        events = block.open(output.unique("fc", item.id), output.next_index())
        output.begin(block)
        events += block.delta(payload) if payload else []
        whole = item.status != "incomplete"
        closed, cut = output.close(block, stopped=whole, abandoned=not whole)
        return events + closed, cut

    def announce(self, item: it.Item) -> list[Event]:
        """Begin an item that is told whole later, by `emit` with the same id."""
        block = WholeBlock(
            self._output.number, self._spelled(self._identified(item)), self._output.next_index()
        )
        self._output.begin(block)
        self._announced[item.id] = block
        return [block.added()]

    def announced(self, item_id: str) -> WholeBlock | None:
        """The item that was announced under this id and is still open."""
        return self._announced.get(item_id)

    def _plain(self, item: it.Item) -> tuple[list[Event], bool]:
        events = [] if item.id in self._announced else self.announce(item)
        block = self._announced.pop(item.id)
        finished = self._spelled(item)
        block.complete(it.with_id(finished, block.item_id))
        closed, cut = self._output.close(block, stopped=getattr(item, "status", None) != "incomplete")
        return events + closed, cut

    def _identified(self, item: it.Item) -> it.Item:
        return it.with_id(item, self._output.unique(item.type, item.id))

    def _spelled(self, item: it.Item) -> it.Item:
        """Types that are not published carry a slug where only published ones are known (law E10)."""
        if self._wire.openai_items or item.type in PUBLISHED_ITEMS or ":" in item.type:
            return item
        raw = item.raw if isinstance(item, UnknownItem) else msgspec.to_builtins(item)
        return UnknownItem({**raw, "type": self._wire.slug + item.type})


def _text(part: ct.ContentPart) -> str:
    """The text of a part of a reasoning item, whatever kind of part a server used for it."""
    text = getattr(part, "text", "")
    return text if isinstance(text, str) else ""

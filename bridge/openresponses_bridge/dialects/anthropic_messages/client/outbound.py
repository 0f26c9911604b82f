"""Converts events to an Anthropic message stream.

Anthropic's blocks come one after another: an item has its turn when the items before it have ended.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final, get_args

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.calls.json_input import INPUT_KEY
from openresponses_bridge.calls.presentation import called_name
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.anthropic_messages import search
from openresponses_bridge.dialects.anthropic_messages import types as t
from openresponses_bridge.dialects.anthropic_messages.client.blocks import BlockWriter, ItemWriter
from openresponses_bridge.dialects.anthropic_messages.client.ending import MessageBounds, Reported
from openresponses_bridge.dialects.anthropic_messages.types import DIALECT, SLUG
from openresponses_bridge.dialects.base import SEARCH_CALL, ItemTurns, native_of, object_in
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.content import UrlCitation
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.items import (
    CompactionItem,
    CustomToolCall,
    FunctionCall,
    Message,
    ReasoningItem,
)
from openresponses_bridge.protocol.unknown import UnknownAnnotation, UnknownEvent, UnknownItem
from openresponses_bridge.seal import Sealer

_THINKING = {"type": "thinking", "thinking": "", "signature": ""}
_PARAGRAPH = "\n\n"

_PREFIXES = {
    member: f"event: {member.__struct_config__.tag}\ndata: ".encode() for member in get_args(t.Chunk)
}


class Outbound:
    """Translates one response into one message. `sealer` opens the envelopes of thinking; `tool_identities`
    has the names of namespaced tools. `message_start` comes before the usage: it has the usage that was
    `reported` before the answer began, or else `input_tokens`, an estimate."""

    def __init__(
        self,
        sealer: Sealer | None = None,
        tool_identities: ToolIdentityMap | None = None,
        input_tokens: int = 0,
        reported: Reported = lambda: None,
    ) -> None:
        self.diagnostics = Diagnostics()
        self._identities = tool_identities or ToolIdentityMap()
        self._blocks = BlockWriter()
        self._items = ItemWriter(self._blocks, sealer or Sealer(), self._identities, self.diagnostics)
        self._bounds = MessageBounds(self._blocks, self.diagnostics, input_tokens, reported)
        self._turns = ItemTurns(self.diagnostics)
        self._shown = ""  # the form of the open reasoning item that is shown
        self._summary = 0
        self._hidden = ""
        self._length = self._begins = 0  # code points of the open text, and of its part before the open block
        self._cited = False  # whether the open block has a citation

    def feed(self, event: Event) -> list[t.Chunk]:
        """Return the chunks of this event."""
        handler = _WITHIN.get(type(event))
        if handler is None:
            about = _ABOUT.get(type(event))
            return [] if about is None else about(self, event)
        turns = self._turns
        if event.output_index != turns.current and turns.waits(event):  # type: ignore[union-attr]
            return []
        return handler(self, event)

    def close(self) -> list[t.Chunk]:
        """Handle the end of the events, which is an error without a terminal event before."""
        return self._bounds.close()

    def _advance(self) -> list[t.Chunk]:
        """Handle the end of an item: read the waiting events of the next items, up to one that is still
        open."""
        chunks: list[t.Chunk] = []
        while events := self._turns.following():
            for event in events:
                chunks += _WITHIN[type(event)](self, event)
        return chunks

    def _text(self, event: ev.OutputTextDelta) -> list[t.Chunk]:
        if event.logprobs:
            self.diagnostics.loss("logprobs", "Anthropic has none")
        if not event.delta:
            return []
        opened = self._blocks.stop() if self._cited else []
        if not self._blocks.kind:
            self._begins = self._length
            opened += self._blocks.start({"type": "text", "text": ""})
        self._cited = False
        self._length += len(event.delta)
        return [*opened, t.ContentBlockDelta(self._blocks.index, t.TextDelta(event.delta))]

    def _annotation(self, event: ev.OutputTextAnnotationAdded) -> list[t.Chunk]:
        cited = event.annotation
        cites: tuple[dict[str, Any], Any, Any] | None = None
        if isinstance(cited, UrlCitation):
            there = {"type": search.CITATION, "url": cited.url, "title": cited.title}
            citation = self._items.citation(cited) or {**there, "cited_text": "", "encrypted_index": ""}
            cites = citation, cited.start_index, cited.end_index
        elif isinstance(cited, UnknownAnnotation) and cited.type.startswith(SLUG):
            cites = object_in(cited.raw, "citation"), cited.raw.get("start_index"), cited.raw.get("end_index")
        if cites is None or not self._blocks.kind:
            self.diagnostics.loss("annotation", "not a web address, or without text")
            return []
        citation, *cited_range = cites
        if cited_range != [self._begins, self._length]:
            self.diagnostics.loss("annotation.range", "a citation belongs to its whole block")
        self._cited = True  # the next piece begins another block
        return [self._blocks.delta(t.CitationsDelta(citation))]

    def _refusal(self, event: ev.RefusalDelta) -> list[t.Chunk]:
        self._bounds.refusal.append(event.delta)
        return []

    def _reasoning(self, event: Any) -> list[t.Chunk]:
        return self._reasoning_delta("content", event.delta)

    def _summary_delta(self, event: ev.ReasoningSummaryTextDelta) -> list[t.Chunk]:
        fresh, self._summary = event.summary_index != self._summary, event.summary_index
        return self._reasoning_delta("summary", _PARAGRAPH + event.delta if fresh else event.delta)

    def _reasoning_delta(self, form: str, delta: str) -> list[t.Chunk]:
        self._shown = self._shown or form
        if form != self._shown:
            self._hidden = form
            return []
        opened = [] if self._blocks.kind else self._blocks.start(dict(_THINKING))
        return [*opened, self._blocks.delta(t.ThinkingDelta(delta))]

    def _arguments(self, event: ev.FunctionCallArgumentsDelta) -> list[t.Chunk]:
        return [t.ContentBlockDelta(self._blocks.index, t.InputJsonDelta(event.delta))]

    def _custom_input(self, event: ev.CustomToolCallInputDelta) -> list[t.Chunk]:
        return [self._blocks.delta(t.InputJsonDelta(json.dumps(event.delta, ensure_ascii=False)[1:-1]))]

    def _part_done(self, _event: ev.ContentPartDone) -> list[t.Chunk]:
        # a thinking block stays open until its item ends, with which its signature comes
        self._begins = self._length = 0
        self._cited = False
        return self._blocks.stop() if self._blocks.kind == "text" else []

    def _added(self, event: ev.OutputItemAdded) -> list[t.Chunk]:
        item = event.item
        self._shown, self._summary = "", 0
        if not isinstance(item, FunctionCall | CustomToolCall):
            return []
        name = called_name(item.name, item.namespace or None, self._identities)
        block = {"type": "tool_use", "id": item.call_id, "name": name, "input": {}}
        chunks = self._blocks.start({**native_of(item, DIALECT), **block})
        if isinstance(item, CustomToolCall):
            chunks.append(self._blocks.delta(t.InputJsonDelta(f'{{"{INPUT_KEY}":"')))
        return chunks

    def _finished(self, event: ev.OutputItemDone) -> list[t.Chunk]:
        item = event.item
        finish = _FINISHERS.get(type(item), Outbound._whole_call)
        chunks = finish(self, item)
        self._turns.end()
        return chunks + self._advance() if self._turns.waiting else chunks

    def _function_call(self, item: FunctionCall) -> list[t.Chunk]:
        self._bounds.calls = self._bounds.calls or item.status == "completed"
        return self._blocks.stop()

    def _reasoning_done(self, item: ReasoningItem) -> list[t.Chunk]:
        chunks = self._items.reasoning(item)
        if self._items.sealed_summary and self._hidden == "summary":
            self._hidden = ""  # the sealed form contains it
        self._report_hidden()
        return chunks

    def _report_hidden(self) -> None:
        if self._hidden:
            self.diagnostics.loss(f"reasoning.{self._hidden}", "beside another form of the same reasoning")
            self._hidden = ""

    def _custom_call(self, item: CustomToolCall) -> list[t.Chunk]:
        if item.status == "incomplete":
            return self._blocks.stop()
        self._bounds.calls = True
        return [self._blocks.delta(t.InputJsonDelta('"}')), *self._blocks.stop()]

    def _whole_call(self, item: Any) -> list[t.Chunk]:
        chunks = self._items.call(item)
        if chunks is None:
            self.diagnostics.loss(f"item.{getattr(item, 'type', None)}", "Anthropic has no such block")
            return []
        self._bounds.calls = True
        return chunks

    def _extension(self, event: UnknownEvent) -> list[t.Chunk]:
        if SEARCH_CALL in event.type:
            return []  # of the call's progress, which blocks do not show
        self.diagnostics.ignored(f"event.{event.type}", "not Anthropic's")
        return []

    def _end(self, event: Any) -> list[t.Chunk]:
        chunks: list[t.Chunk] = []
        while self._turns.waiting:
            self._turns.end()
            chunks += self._advance()
        self._report_hidden()
        return chunks + self._bounds.terminal(event.response)


_Handler = Callable[[Outbound, Any], list[t.Chunk]]

_WITHIN: Final[dict[type, _Handler]] = {
    ev.OutputTextDelta: Outbound._text,
    ev.FunctionCallArgumentsDelta: Outbound._arguments,
    ev.ReasoningDelta: Outbound._reasoning,
    ev.ReasoningTextDelta: Outbound._reasoning,
    ev.ReasoningSummaryTextDelta: Outbound._summary_delta,
    ev.CustomToolCallInputDelta: Outbound._custom_input,
    ev.RefusalDelta: Outbound._refusal,
    ev.OutputTextAnnotationAdded: Outbound._annotation,
    ev.ContentPartDone: Outbound._part_done,
    ev.OutputItemAdded: Outbound._added,
    ev.OutputItemDone: Outbound._finished,
}


_ABOUT: Final[dict[type, _Handler]] = {
    ev.ResponseCreated: lambda outbound, event: outbound._bounds.begin(event),
    ev.ErrorEvent: lambda outbound, event: outbound._bounds.error(event),
    ev.ResponseCompleted: Outbound._end,
    ev.ResponseIncomplete: Outbound._end,
    ev.ResponseFailed: Outbound._end,
    UnknownEvent: Outbound._extension,
}


_FINISHERS: Final[dict[type, _Handler]] = {
    Message: lambda outbound, _item: outbound._blocks.stop(),
    ReasoningItem: Outbound._reasoning_done,
    FunctionCall: Outbound._function_call,
    CustomToolCall: Outbound._custom_call,
    CompactionItem: lambda outbound, item: outbound._items.compaction(item),
    UnknownItem: lambda outbound, item: outbound._items.hosted(item),
    type(None): lambda outbound, _item: outbound._blocks.stop(),  # the finished item may be missing
}


def encode_sse(chunks: Iterable[t.Chunk]) -> bytes:
    """Encode chunks as SSE frames with `event:` lines, as Anthropic's clients require."""
    return b"".join([_PREFIXES[type(chunk)] + encode(chunk) + b"\n\n" for chunk in chunks])

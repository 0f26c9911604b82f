"""Converts events to those of `converse-stream`. Blocks come one after another: an item has its turn when the
items before it have ended."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.calls.json_input import INPUT_KEY
from openresponses_bridge.calls.presentation import call_view, called_name
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import (
    CANCELLED,
    CUT,
    ItemTurns,
    ShownThoughts,
    native_of,
    object_in,
    report_native,
    seal_reasoning,
)
from openresponses_bridge.dialects.bedrock_converse.client import ending
from openresponses_bridge.dialects.bedrock_converse.client.blocks import BlockWriter
from openresponses_bridge.dialects.bedrock_converse.client.errors import exception
from openresponses_bridge.dialects.bedrock_converse.event_stream import (
    FramesOfMessages,
    encode_event,
)
from openresponses_bridge.dialects.bedrock_converse.reasoning import open_citation, open_reasoning
from openresponses_bridge.dialects.bedrock_converse.types import (
    DIALECT,
    REASONING,
    REASONING_TEXT,
    REDACTED,
    SLUG,
    kind_of,
)
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.content import UrlCitation
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.items import CustomToolCall, FunctionCall, Message, ReasoningItem
from openresponses_bridge.protocol.response import ErrorPayload, Response
from openresponses_bridge.protocol.unknown import UnknownAnnotation, UnknownEvent, UnknownItem
from openresponses_bridge.seal import Sealer

Json = dict[str, Any]
_TEXT, _TOOL_USE = "text", "toolUse"
_EXCEPTION: Final = "Exception"
_LONGEST_PAYLOAD: Final = 8 * 1024 * 1024
"""The most bytes of one event: SDKs refuse events of little more than twice that."""


class Outbound:
    """Converts one response to one message. `sealer` opens and seals reasoning; `tool_identities` has the
    names of namespaced tools."""

    def __init__(self, sealer: Sealer | None = None, tool_identities: ToolIdentityMap | None = None) -> None:
        self.diagnostics = Diagnostics()
        self._sealer = sealer or Sealer()
        self._identities = tool_identities or ToolIdentityMap()
        self._turns = ItemTurns(self.diagnostics)
        self._blocks = BlockWriter()
        self._shown = ShownThoughts(self.diagnostics)
        self._begun = self._ended = False
        self._error: ErrorPayload | None = None
        self._calls = self._refused = False
        self._length = self._begins = 0  # code points of the open part, and of its text before the open block
        self._cited = False  # True if the open block has a citation

    def feed(self, event: Event) -> list[Json]:
        """Return the events that this event causes."""
        handler = _WITHIN.get(type(event))
        if handler is None:
            about = _ABOUT.get(type(event))
            return [] if about is None or self._ended else about(self, event)
        turns = self._turns
        if event.output_index != turns.current and turns.waits(event):  # type: ignore[union-attr]
            return []
        return handler(self, event)

    def close(self) -> list[Json]:
        """Handle the end of the events, which is an error without a terminal event before."""
        if self._ended:
            return []
        self._ended = True
        error = self._error
        if error is not None:
            return [exception(error.code, error.message, error.type)]
        return [exception(CUT, "the response ended early")]

    def _advance(self) -> list[Json]:
        """Handle the end of an item: read the waiting events of the next items, up to one that is still
        open."""
        output: list[Json] = []
        while events := self._turns.following():
            for event in events:
                output += _WITHIN[type(event)](self, event)
        return output

    # texts

    def _text(self, event: ev.OutputTextDelta) -> list[Json]:
        if event.logprobs:
            self.diagnostics.loss("logprobs", "Converse has none")
        return self._append_text(event.delta)

    def _refusal(self, event: ev.RefusalDelta) -> list[Json]:
        if event.delta:
            self._refused = True
            self.diagnostics.loss("refusal", "sent as text")
        return self._append_text(event.delta)

    def _append_text(self, text: str) -> list[Json]:
        if not text:
            return []
        blocks = self._blocks
        opened: list[Json] = []
        if self._cited or blocks.kind != _TEXT:
            self._begins, self._cited = self._length, False
            opened = blocks.start(_TEXT)
        self._length += len(text)
        return [*opened, blocks.delta({_TEXT: text})]

    def _annotation(self, event: ev.OutputTextAnnotationAdded) -> list[Json]:
        cited = event.annotation
        citation: Json = {}
        place: list[Any] = []
        if isinstance(cited, UrlCitation):
            own = open_citation(self._sealer, cited.encrypted_content) if cited.encrypted_content else None
            citation = own or {"title": cited.title, "location": {"web": {"url": cited.url}}}
            place = [cited.start_index, cited.end_index]
        elif isinstance(cited, UnknownAnnotation) and cited.type.startswith(SLUG):
            citation = object_in(cited.raw, "citation")
            place = [cited.raw.get("start_index"), cited.raw.get("end_index")]
        if not citation or self._blocks.kind != _TEXT:
            self.diagnostics.loss("annotation", "not a citation of Converse, or without text")
            return []
        if place != [self._begins, self._length]:
            self.diagnostics.loss("annotation.range", "a citation belongs to its whole block")
        self._cited = True  # the next piece begins another block
        return [self._blocks.delta({"citation": citation})]

    def _part_done(self, _event: ev.ContentPartDone) -> list[Json]:
        # reasoning stays open until its item ends, with which its signature comes
        self._begins = self._length = 0
        self._cited = False
        return self._blocks.stop() if self._blocks.kind == _TEXT else []

    # reasoning

    def _content(self, event: Any) -> list[Json]:
        return self._think(self._shown.content(event))

    def _summary(self, event: ev.ReasoningSummaryTextDelta) -> list[Json]:
        return self._think(self._shown.summary(event))

    def _think(self, text: str) -> list[Json]:
        if not text:
            return []
        opened = [] if self._blocks.kind == REASONING else self._blocks.start(REASONING)
        return [*opened, self._blocks.delta({REASONING: {_TEXT: text}})]

    def _reasoning_done(self, item: ReasoningItem) -> list[Json]:
        """Return the end of a block of reasoning with its signature, or a whole block if its text was not
        sent."""
        blocks, encrypted = self._blocks, item.encrypted_content
        if not encrypted:
            return blocks.stop()
        own = open_reasoning(self._sealer, encrypted)
        if own is None:
            return self._foreign(item, encrypted)
        if isinstance(own.get(REDACTED), str):
            return blocks.whole(REASONING, None, {REASONING: {REDACTED: own[REDACTED]}})
        thought = object_in(own, REASONING_TEXT)
        text = thought.get(_TEXT) if blocks.kind != REASONING else None
        signed = blocks.delta({REASONING: {"signature": thought.get("signature")}})
        return [*self._think(text or ""), signed, *blocks.stop()]

    def _foreign(self, item: ReasoningItem, encrypted: str) -> list[Json]:
        """Return another upstream's opaque reasoning, sealed into the field that Converse uses for its
        own."""
        summary = [getattr(part, "text", "") for part in item.summary]
        fields = {"id": item.id, "summary": summary, "encrypted_content": encrypted}
        sealed = seal_reasoning(self._sealer, [fields])
        blocks = self._blocks
        if blocks.kind == REASONING:
            return [blocks.delta({REASONING: {"signature": sealed}}), *blocks.stop()]
        released = blocks.release()
        blocks.held = {REASONING: {REDACTED: sealed}}
        return released

    # calls

    def _added(self, event: ev.OutputItemAdded) -> list[Json]:
        item = event.item
        if not isinstance(item, FunctionCall | CustomToolCall):
            return []
        name = called_name(item.name, item.namespace or None, self._identities)
        begun = self._blocks.start(_TOOL_USE, {"toolUseId": item.call_id, "name": name})
        return begun + self._input(f'{{"{INPUT_KEY}":"') if isinstance(item, CustomToolCall) else begun

    def _input(self, text: str) -> list[Json]:
        return [self._blocks.delta({_TOOL_USE: {"input": text}})]

    def _arguments(self, event: ev.FunctionCallArgumentsDelta) -> list[Json]:
        return self._input(event.delta) if event.delta else []

    def _custom_input(self, event: ev.CustomToolCallInputDelta) -> list[Json]:
        return self._input(json.dumps(event.delta, ensure_ascii=False)[1:-1])

    def _function_call(self, item: FunctionCall) -> list[Json]:
        self._calls = self._calls or item.status == "completed"
        return self._blocks.stop()

    def _custom_call(self, item: CustomToolCall) -> list[Json]:
        if item.status == "incomplete":
            return self._blocks.stop()
        self._calls = True
        return self._input('"}') + self._blocks.stop()

    def _whole_call(self, item: Any) -> list[Json]:
        """Return a call whose arguments were not streamed (shell, patch)."""
        view = None if item is None else call_view(item, self._identities)
        if view is None:
            self.diagnostics.loss(f"item.{getattr(item, 'type', None)}", "Converse has no such block")
            return []
        self._calls = True
        start = {"toolUseId": view.call_id, "name": view.name}
        return self._blocks.whole(_TOOL_USE, start, {_TOOL_USE: {"input": view.arguments}})

    def _hosted(self, item: UnknownItem) -> list[Json]:
        """Return a block of Bedrock's own, which an extension item has unchanged."""
        block = object_in(item.raw, "block")
        if not item.type.startswith(SLUG) or not object_in(block, kind_of(block)):
            self.diagnostics.loss(f"item.{item.type[:64]}", "Converse has no such block")
            return []
        return self._blocks.own(block)

    def _finished(self, event: ev.OutputItemDone) -> list[Json]:
        item = event.item
        output = _FINISHERS.get(type(item), Outbound._whole_call)(self, item)
        self._turns.end()
        return output + self._advance() if self._turns.waiting else output

    # beginning and end

    def _created(self, _event: ev.ResponseCreated) -> list[Json]:
        return self._start()

    def _start(self) -> list[Json]:
        if self._begun:
            return []
        self._begun = True
        return [{"messageStart": {"role": "assistant"}}]

    def _keep_error(self, event: ev.ErrorEvent) -> list[Json]:
        """Record the error: `response.failed` follows and ends the message."""
        self._error = event.payload
        return []

    def _extension(self, event: UnknownEvent) -> list[Json]:
        self.diagnostics.ignored(f"event.{event.type[:64]}", "not of Converse")
        return []

    def _end(self, event: Any) -> list[Json]:
        response: Response = event.response
        output = self._start()
        while self._turns.waiting:
            self._turns.end()
            output += self._advance()
        self._ended = True
        report_native(response, DIALECT, self.diagnostics)
        about = {"metadata": ending.metadata(response, self.diagnostics)}
        failed = self._failure(response)
        if failed is None:
            reason = ending.stop_reason(response, self.diagnostics, calls=self._calls, refused=self._refused)
            if reason is not None:
                stop = {"messageStop": ending.stop_fields(response, reason)}
                return [*output, *self._blocks.stop(), *self._held(), stop, about]
            failed = exception(CANCELLED.code, CANCELLED.message)
        paid = [] if response.usage is None else [about]  # the usage comes before the error
        return [*output, *paid, failed]

    def _failure(self, response: Response) -> Json | None:
        error = response.error
        if response.status != "failed":
            return None
        if error is None:
            return exception(None, "the response failed")
        kind = self._error.type if self._error is not None else None
        return exception(error.code, error.message, kind, native_of(error, DIALECT))

    def _held(self) -> list[Json]:
        """Return the events of the data that were sealed last; after a text, clients would take them for the
        answer."""
        if self._blocks.last != _TEXT:
            return self._blocks.release()
        if self._blocks.held is not None:
            self.diagnostics.loss("item.reasoning", "sealed behind the text, left out")
        return []


_Handler = Callable[[Outbound, Any], list[Json]]

_WITHIN: Final[dict[type, _Handler]] = {
    ev.OutputTextDelta: Outbound._text,
    ev.FunctionCallArgumentsDelta: Outbound._arguments,
    ev.ReasoningDelta: Outbound._content,
    ev.ReasoningTextDelta: Outbound._content,
    ev.ReasoningSummaryTextDelta: Outbound._summary,
    ev.CustomToolCallInputDelta: Outbound._custom_input,
    ev.RefusalDelta: Outbound._refusal,
    ev.OutputTextAnnotationAdded: Outbound._annotation,
    ev.ContentPartDone: Outbound._part_done,
    ev.OutputItemAdded: Outbound._added,
    ev.OutputItemDone: Outbound._finished,
}


_ABOUT: Final[dict[type, _Handler]] = {
    ev.ResponseCreated: Outbound._created,
    ev.ErrorEvent: Outbound._keep_error,
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
    UnknownItem: Outbound._hosted,
    type(None): lambda outbound, _item: outbound._blocks.stop(),  # the finished item may be missing
}


def encode_events(events: Iterable[Json]) -> bytes:
    """Encode events as messages of an event stream, as Converse's clients require."""
    return b"".join(map(_message, events))


def encode_sse(events: Iterable[Json]) -> bytes:
    """Encode events as server-sent events, as in a capture."""
    return FramesOfMessages().feed(encode_events(events))


def _message(event: Json) -> bytes:
    ((kind, fields),) = event.items()
    payload = encode(fields)
    if len(payload) > _LONGEST_PAYLOAD and (halves := _halves(kind, fields)):
        return encode_events(halves)
    return encode_event(kind, payload, message="exception" if kind.endswith(_EXCEPTION) else "event")


def _halves(kind: str, fields: Json) -> list[Json]:
    """Return a delta as two deltas with half of its text each; [] for a delta without text."""
    ((name, value),) = fields.get("delta", {"": None}).items()
    inner, text = next(iter(value.items())) if isinstance(value, dict) and value else ("", value)
    if not isinstance(text, str) or inner == REDACTED:
        return []
    half = len(text) // 2
    pieces = [{inner: each} if inner else each for each in (text[:half], text[half:])]
    return [{kind: fields | {"delta": {name: each}}} for each in pieces]

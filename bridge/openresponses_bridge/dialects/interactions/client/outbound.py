"""Converts events to those of an interaction.

An answer is a list of steps. Consecutive messages and images are contents of one step of output; reasoning is
a thought; several calls may be open at once. Reasoning that another upstream wants back is the signature of
its thought.

Each event has an id: the number of the event that caused it, and its place among the events with that cause.
Ids are the same for all readers of the stream, so that it can be resumed after any event.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.calls.presentation import CallView, call_view
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import (
    CUT,
    RUN_CALL,
    RUN_OUTPUTS,
    SEARCH_CALL,
    TIER,
    RunCode,
    ShownThoughts,
    code_run,
    invalid,
    native_of,
    object_in,
    other_fields,
    report_native,
    seal_reasoning,
    tier_for,
)
from openresponses_bridge.dialects.interactions import types as t
from openresponses_bridge.dialects.interactions.annotations import annotation_of, bytes_before
from openresponses_bridge.dialects.interactions.client import ending
from openresponses_bridge.dialects.interactions.hosted import steps_of
from openresponses_bridge.dialects.interactions.signatures import CALL, open_signature
from openresponses_bridge.emitter.finished import is_cut_call
from openresponses_bridge.protocol import content as ct
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol import items as it
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.response import ErrorPayload, Response
from openresponses_bridge.protocol.unknown import UnknownEvent, UnknownItem
from openresponses_bridge.seal import Sealer

Json = t.Json
_EVENT_ID: Final = re.compile(r"([0-9]{1,15})\.([0-9]{1,6})")
_IMAGE: Final = "image_generation_call"
_OF_ANSWER: Final = ("id", "object", "status", "model", "created", "updated", "usage", "steps", TIER)

EventPlace = tuple[int, int]
"""The number of the event that caused an event, and the place among all events that it caused."""


def event_place(event_id: str) -> EventPlace:
    """Return the place that an id names. Raises InvalidRequestError for any other text."""
    match = _EVENT_ID.fullmatch(event_id)
    if match is None:
        raise invalid("last_event_id", "it must be the event_id of an event")
    return int(match[1]), int(match[2])


class Outbound:
    """One answer as a stream. `sealer` opens and seals signatures, `tool_identities` has the names of
    namespaced tools. `thoughts` is True to send the text of thoughts; None to send it if the request asked
    for it. Events up to the place `after` are left out, since the client has them."""

    def __init__(
        self,
        sealer: Sealer | None = None,
        tool_identities: ToolIdentityMap | None = None,
        *,
        thoughts: bool | None = None,
        after: EventPlace = (-1, 0),
    ) -> None:
        self.diagnostics = Diagnostics()
        self._sealer = sealer or Sealer()
        self._identities = tool_identities or ToolIdentityMap()
        self._thoughts = thoughts
        self._after = after
        self._number = -1  # of the last event
        self._ended = False
        self._error: ErrorPayload | None = None
        self._id = ""
        self._steps = 0
        self._at: dict[int, int] = {}  # index of an item → its open step
        self._output: int | None = None  # the open step of output
        self._whole_part = False  # its last content is whole, so that another may follow it
        self._said: set[int] = set()  # indexes of calls whose arguments have begun
        self._shown = ShownThoughts(self.diagnostics)
        self._signature = ""  # of the next call
        self._carried: Json = {}  # index of an item → deltas that the protocol can't express

    def feed(self, event: Event) -> list[Json]:
        """Return the events that this event causes."""
        self._number = event.sequence_number
        handler = _HANDLERS.get(type(event))
        return self._numbered([] if handler is None or self._ended else handler(self, event))

    def close(self) -> list[Json]:
        """Handle the end of the events, which is an error without a terminal event before."""
        if self._ended:
            return []
        error, self._number = self._error, self._number + 1
        code, message = (error.code, error.message) if error else (CUT, "ended early")
        return self._numbered(self._failed(ending.error_fields(code, message)))

    def _numbered(self, events: list[Json]) -> list[Json]:
        number = self._number
        for place, each in enumerate(events):
            each["event_id"] = f"{number}.{place}"
        if number > self._after[0]:
            return events
        return events[self._after[1] + 1 :] if number == self._after[0] else []

    # the interaction itself

    def _created(self, event: ev.ResponseCreated) -> list[Json]:
        self._identify(event.response)
        head = interaction_head(event.response, self.diagnostics)
        return [{"event_type": t.CREATED, "interaction": head}]

    def _status(self, event: Any) -> list[Json]:
        self._identify(event.response)
        status = ending.status_of(event.response, {}, self.diagnostics)
        return [{"event_type": t.STATUS, "interaction_id": self._id, "status": status}]

    def _identify(self, response: Response) -> None:
        self._id = response.id
        self._carried |= object_in(native_of(response, t.DIALECT), t.DELTAS)
        if self._thoughts is None:
            self._thoughts = response.reasoning is not None and bool(response.reasoning.summary)

    def _keep_error(self, event: ev.ErrorEvent) -> list[Json]:
        """Record the error: `response.failed` follows and ends the answer."""
        self._error = event.payload
        return []

    def _end(self, event: Any) -> list[Json]:
        response: Response = event.response
        self._identify(response)
        report_native(response, t.DIALECT, self.diagnostics)
        events = self._end_output()
        if response.error is not None:
            error = response.error
            fields = ending.error_fields(error.code, error.message, native_of(error, t.DIALECT))
            events += self._failed(fields)
        self._ended = True
        if response.stop_sequence:
            self.diagnostics.loss("stop_sequence", "can't be expressed")
        done = interaction_head(response, self.diagnostics) | interaction_end(response, self.diagnostics)
        return [*events, {"event_type": t.COMPLETED, "interaction": done}]

    def _failed(self, error: Json) -> list[Json]:
        self._ended = True
        return [{"event_type": t.ERROR, "error": error}]

    # steps

    def _start(self, step: Json) -> tuple[int, list[Json]]:
        """Return the index of a step, and its first event."""
        index, self._steps = self._steps, self._steps + 1
        return index, [{"event_type": t.START, "index": index, "step": step}]

    def _stop(self, index: int) -> list[Json]:
        return [{"event_type": t.STOP, "index": index}]

    def _delta(self, index: int, delta: Json) -> list[Json]:
        return [{"event_type": t.DELTA, "index": index, "delta": delta}]

    def _begin(self, output_index: int, step: Json) -> list[Json]:
        """Begin a step of its own for an item."""
        before = self._end_output()
        self._at[output_index], started = self._start(step)
        return before + started

    def _end_output(self) -> list[Json]:
        index, self._output = self._output, None
        return [] if index is None else self._stop(index)

    def _to_output(self, *, joins: bool) -> tuple[int, list[Json]]:
        """Return the step for the next content of the output. `joins` is True if it may follow others
        there."""
        if self._output is not None and joins:
            return self._output, []
        before = self._end_output()
        self._output, started = self._start({"type": t.MODEL})
        return self._output, before + started

    def _added(self, event: ev.OutputItemAdded) -> list[Json]:
        item = event.item
        if isinstance(item, it.Message):
            self._at[event.output_index], started = self._to_output(joins=self._whole_part)
            self._whole_part = False
            return started
        view = call_view(item, self._identities) if isinstance(item, it.FunctionCall) else None
        return [] if view is None else self._call(event.output_index, view)

    def _call(self, output_index: int, view: CallView) -> list[Json]:
        step: Json = {"type": t.CALL, "id": view.call_id, "name": view.name, "arguments": {}}
        signature, self._signature = self._signature, ""
        return self._begin(output_index, step | ({"signature": signature} if signature else {}))

    def _finished(self, event: ev.OutputItemDone) -> list[Json]:
        item, index = event.item, self._at.pop(event.output_index, None)
        if isinstance(item, it.ReasoningItem) and index is None:
            signature = open_signature(self._sealer, item.encrypted_content, CALL)
            if signature is not None:
                self._signature = signature
                return []
            begun = self._begin(event.output_index, {"type": t.THOUGHT})
            return begun + self._finished(event)
        if item is None or isinstance(item, it.Message | it.ReasoningItem):
            if index is None:
                return []
            deltas = self._carried.get(str(event.output_index))
            carried = [delta for each in deltas or () for delta in self._delta(index, dict(each))]
            if not isinstance(item, it.ReasoningItem):
                return carried
            return [*carried, *self._signed(item, index), *self._stop(index)]
        if is_cut_call(item):
            self.diagnostics.loss(f"item.{item.type}", "cut off, its step does not end")
            return []
        if isinstance(item, UnknownItem):
            return self._unknown(item)
        view = call_view(item, self._identities)
        if view is None:
            self.diagnostics.loss(f"item.{item.type}", "Interactions has no such step")
            return []
        events: list[Json] = []
        if index is None:
            events = self._call(event.output_index, view)
            index = self._at.pop(event.output_index)
        if event.output_index not in self._said:
            events += self._delta(index, {"type": "arguments_delta", "arguments": view.arguments})
        return events + self._stop(index)

    def _signed(self, item: it.ReasoningItem, index: int) -> list[Json]:
        if not item.encrypted_content:
            return []
        signature = open_signature(self._sealer, item.encrypted_content)
        if signature is None:
            summary = [text for part in item.summary if (text := getattr(part, "text", ""))]
            reasoning = {"id": item.id, "summary": summary, "encrypted_content": item.encrypted_content}
            signature = seal_reasoning(self._sealer, [reasoning])
        return self._delta(index, {"type": "thought_signature", "signature": signature}) if signature else []

    def _unknown(self, item: UnknownItem) -> list[Json]:
        kind, result = item.type.removeprefix("openai:"), item.raw.get("result")
        if kind == _IMAGE and isinstance(result, str) and result:
            form = item.raw.get("output_format") or "png"
            own = object_in(item.raw, t.STEPS)
            return self._content({**own, "type": "image", "mime_type": f"image/{form}", "data": result})
        steps = steps_of(item)
        if steps is None:
            self.diagnostics.loss(f"item.{item.type[:64]}", "Interactions has no such step")
            return []
        if t.STEPS not in item.raw and (ran := code_run(item)) is not None:
            self._report_run(ran)
        events: list[Json] = []
        for step in steps:
            contents = step.get("content")
            if step.get("type") == t.MODEL and isinstance(contents, list):
                events += [
                    event for each in contents if isinstance(each, dict) for event in self._content(each)
                ]
            else:
                events += self._end_output()
                index, started = self._start(step)
                events += [*started, *self._stop(index)]
        return events

    def _report_run(self, ran: RunCode) -> None:
        """Report what steps can't express of code that another API ran."""
        if ran.others:
            self.diagnostics.loss(f"item.{RUN_OUTPUTS}", "only text of the output of code can be expressed")
        if ran.container:
            self.diagnostics.loss(f"item.{RUN_CALL}.container_id", "Interactions names no container")

    def _content(self, content: Json) -> list[Json]:
        """Return the events of a content other than text."""
        index, started = self._to_output(joins=True)
        self._whole_part = True
        return started + self._delta(index, content)

    # contents

    def _text(self, event: ev.OutputTextDelta) -> list[Json]:
        if event.logprobs:
            self.diagnostics.loss("logprobs", "Interactions has none")
        index = self._at.get(event.output_index)
        if index is None or not event.delta:
            return []
        return self._delta(index, {"type": "text", "text": event.delta})

    def _refused(self, event: ev.RefusalDelta) -> list[Json]:
        index = self._at.get(event.output_index)
        if index is None or not event.delta:
            return []
        self.diagnostics.loss("refusal", "sent as text")
        return self._delta(index, {"type": "text", "text": event.delta})

    def _part_done(self, event: ev.ContentPartDone) -> list[Json]:
        """Return the citations of a text, whose places are bytes of it."""
        part, index = event.part, self._at.get(event.output_index)
        if not isinstance(part, ct.OutputTextContent) or not part.annotations or index is None:
            return []
        places = {place for each in part.annotations for place in _places(each)}
        at = bytes_before(part.text, places)
        candidates = [annotation_of(each, at, self.diagnostics) for each in part.annotations]
        citations = [each for each in candidates if each is not None]
        return (
            self._delta(index, {"type": "text_annotation_delta", "annotations": citations})
            if citations
            else []
        )

    def _reasoning(self, event: Any) -> list[Json]:
        return self._think(event.output_index, self._shown.content(event)) if self._thoughts else []

    def _summarised(self, event: ev.ReasoningSummaryTextDelta) -> list[Json]:
        return self._think(event.output_index, self._shown.summary(event)) if self._thoughts else []

    def _think(self, output_index: int, delta: str) -> list[Json]:
        if not delta:
            return []
        begun = [] if output_index in self._at else self._begin(output_index, {"type": t.THOUGHT})
        content = {"type": "text", "text": delta}
        return begun + self._delta(self._at[output_index], {"type": "thought_summary", "content": content})

    def _arguments(self, event: ev.FunctionCallArgumentsDelta) -> list[Json]:
        index = self._at.get(event.output_index)
        if index is None or not event.delta:
            return []
        self._said.add(event.output_index)
        return self._delta(index, {"type": "arguments_delta", "arguments": event.delta})

    def _extension(self, event: UnknownEvent) -> list[Json]:
        if event.type == t.STEP:
            self._carried |= object_in(event.raw, t.DELTAS)
            return []
        if SEARCH_CALL not in event.type and RUN_CALL not in event.type:  # for the calls' progress
            self.diagnostics.ignored(event.type or "event", "not of the Interactions API")
        return []


_HANDLERS: Final[dict[type[Any], Callable[[Outbound, Any], list[Json]]]] = {
    ev.ResponseCreated: Outbound._created,
    ev.ResponseQueued: Outbound._status,
    ev.ResponseInProgress: Outbound._status,
    ev.OutputItemAdded: Outbound._added,
    ev.OutputItemDone: Outbound._finished,
    ev.OutputTextDelta: Outbound._text,
    ev.ContentPartDone: Outbound._part_done,
    ev.RefusalDelta: Outbound._refused,
    ev.ReasoningDelta: Outbound._reasoning,
    ev.ReasoningTextDelta: Outbound._reasoning,
    ev.ReasoningSummaryTextDelta: Outbound._summarised,
    ev.FunctionCallArgumentsDelta: Outbound._arguments,
    ev.ErrorEvent: Outbound._keep_error,
    ev.ResponseCompleted: Outbound._end,
    ev.ResponseIncomplete: Outbound._end,
    ev.ResponseFailed: Outbound._end,
    UnknownEvent: Outbound._extension,
}


def _places(annotation: Any) -> Iterable[int]:
    if isinstance(annotation, ct.UrlCitation):
        yield annotation.start_index
        yield annotation.end_index


def interaction_head(response: Response, diagnostics: Diagnostics) -> Json:
    """Return the fields of an interaction that its events also have."""
    native = object_in(native_of(response, t.DIALECT), t.ANSWER)
    return {
        "id": response.id,
        "object": "interaction",
        "status": ending.status_of(response, native, diagnostics),
        "model": response.upstream_model or response.model,
        "created": ending.time_of(response.created_at),
        "updated": ending.time_of(response.completed_at or response.created_at),
    }


def interaction_end(response: Response, diagnostics: Diagnostics) -> Json:
    """Return the fields that an interaction has at its end, with Google's further fields."""
    native = object_in(native_of(response, t.DIALECT), t.ANSWER)
    fields = other_fields(native, _OF_ANSWER)
    usage = object_in(native, "usage")
    if response.usage is not None:
        usage = ending.usage_of(response.usage, usage, diagnostics)
    fields |= {"usage": usage} if usage else {}
    tier = tier_for(response, t.DIALECT, diagnostics, t.TIERS)
    if tier is not None:
        fields[TIER] = tier
    return fields

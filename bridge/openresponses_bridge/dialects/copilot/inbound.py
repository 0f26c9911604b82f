"""Copilot's callback chunks, bare deltas and completions → machine calls.

A frame is one JSON line: `{"text", "index", "delta"}`, an `IResponseDelta` by itself, or a completion
(`{"reason", "solution", "usage", …}`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openresponses_bridge.dialects.base import CUT, INVALID_JSON, INVALID_SHAPE, counts_of, failure
from openresponses_bridge.dialects.copilot.incoming_calls import IncomingCalls
from openresponses_bridge.dialects.copilot.reading import (
    failure_of,
    logprobs_of,
    objects,
    plain_text,
    text_of,
    url_citation_of,
)
from openresponses_bridge.dialects.copilot.types import EVENT_OF_FIELD, REFERENCES, FinishedCompletionReason
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_frame
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.state import ResponseStreamPhase

_IDLE, _IN_PROGRESS = ResponseStreamPhase.IDLE, ResponseStreamPhase.IN_PROGRESS

_CUT = failure(CUT, "the upstream ended its stream without saying how it finished")
# fields read together with another one
_READ_WITH_TEXT = frozenset({"logprobs", "text", "index", "delta"})


class Inbound:
    """Feeds one choice to the machine: `index`, where each choice has an inbound and a machine of its own;
    without it the first one, and any other is a loss.

    Deltas alone don't say that they are all. When no completion came, `close` takes calls that were
    handed over or `implied_end` (the producer returned as it should) for the end, and fails otherwise
    (field case 26).
    """

    def __init__(self, machine: ResponseStream, index: int | None = None, implied_end: bool = False) -> None:
        self.diagnostics = machine.diagnostics
        self._machine = machine
        self._index = index or 0
        self._is_one_of_several = index is not None
        self._whole = implied_end
        self._spoke = False
        self._calls = IncomingCalls(machine)
        self._thinking_id: str | None = None
        # in the order in which one delta's fields are read; an error ends the stream, so it is last
        self._fields: dict[str, Callable[[dict[str, Any]], list[Event]]] = {
            "usage": self._on_usage,
            "thinking": self._on_thinking,
            "text": self._on_text,
            "copilotReferences": self._on_references,
            **{name: self._extension(name) for name in EVENT_OF_FIELD},
            "beginToolCalls": self._each("beginToolCalls", self._calls.begin),
            "copilotToolCallStreamUpdates": self._each("copilotToolCallStreamUpdates", self._calls.grow),
            "copilotToolCalls": self._on_calls,
            "_deprecatedCopilotFunctionCalls": self._on_functions,
            "copilotErrors": self._on_errors,
        }

    def feed(self, data: bytes, event: str = "") -> list[Event]:
        """One JSON line. One that can't be read ends the response as failed."""
        phase = self._machine.phase
        if phase is _IN_PROGRESS:
            text = plain_text(data, self._index) if self._spoke else None
            return self._read(data) if text is None else self._machine.text(text)
        if phase is _IDLE:
            return self._machine.start() + self._read(data)
        self.diagnostics.ignored("frame", "came after the end")
        return []

    def close(self) -> list[Event]:
        """The upstream has ended."""
        events = self._machine.start() if self._machine.phase is _IDLE else []
        if self._machine.phase is not _IN_PROGRESS:
            return events
        return events + (self._machine.finish("stop") if self._whole else self._machine.fail(_CUT))

    def _read(self, data: bytes) -> list[Event]:
        try:
            frame = decode_frame(data)
        except WireError as error:
            return self._machine.fail(failure(INVALID_JSON, error.message))
        if isinstance(frame, dict):
            return self._on_frame(frame)
        return self._machine.fail(failure(INVALID_SHAPE, "a frame is not a JSON object"))

    def _on_frame(self, frame: dict[str, Any]) -> list[Event]:
        index = frame.get("index")
        if isinstance(index, int) and index != self._index:
            if not self._is_one_of_several:
                self.diagnostics.loss("choices", f"only choice {self._index} is translated")
            return []
        if "reason" in frame:
            return self._on_completion(frame)
        delta = frame.get("delta")
        return self._on_delta(delta if isinstance(delta, dict) else frame)

    def _on_delta(self, delta: dict[str, Any]) -> list[Event]:
        if len(delta) == 1:
            return self._on_text(delta)
        events: list[Event] = []
        for name, handler in self._fields.items():
            if delta.get(name) is not None:
                events += handler(delta)
        for name in delta.keys() - self._fields.keys() - _READ_WITH_TEXT:
            self.diagnostics.ignored(f"delta.{name}", "unknown field")
        return events

    def _extension(self, name: str) -> Callable[[dict[str, Any]], list[Event]]:
        kind = EVENT_OF_FIELD[name]
        return lambda delta: self._machine.extension_event(kind, {"value": delta[name]})

    def _each(
        self, name: str, call: Callable[[dict[str, Any]], list[Event]]
    ) -> Callable[[dict[str, Any]], list[Event]]:
        return lambda delta: [event for each in objects(delta[name]) for event in call(each)]

    def _on_text(self, delta: dict[str, Any]) -> list[Event]:
        text = text_of(delta.get("text"))
        # the blank before the first call is Copilot's own, for its renderer
        if not text or (text == " " and delta.get("beginToolCalls")):
            return []
        self._spoke = True
        return self._machine.text(text, logprobs_of(delta.get("logprobs")))

    def _on_thinking(self, delta: dict[str, Any]) -> list[Event]:
        value = delta["thinking"]
        thinking = value if isinstance(value, dict) else {"text": value}
        events: list[Event] = []
        block = text_of(thinking.get("id")) or self._thinking_id
        text, encrypted = text_of(thinking.get("text")), text_of(thinking.get("encrypted"))
        if block != self._thinking_id and (text or encrypted):
            events = self._machine.block_done() + self._machine.expect_item(block or "")
            self._thinking_id = block
        return events + self._machine.reasoning(text) + self._machine.reasoning_encrypted(encrypted)

    def _on_references(self, delta: dict[str, Any]) -> list[Event]:
        events: list[Event] = []
        others: list[Any] = []
        for reference in objects(delta["copilotReferences"]):
            cited = url_citation_of(reference)
            if cited is None:
                others.append(reference)
            else:
                events += self._machine.annotation(cited)
        if others:
            events += self._machine.extension_event(REFERENCES, {"value": others})
        return events

    def _on_calls(self, delta: dict[str, Any]) -> list[Event]:
        self._whole = True
        return [event for each in objects(delta["copilotToolCalls"]) for event in self._calls.settle(each)]

    def _on_functions(self, delta: dict[str, Any]) -> list[Event]:
        self._whole = True
        functions = objects(delta["_deprecatedCopilotFunctionCalls"])
        return [event for each in functions for event in self._calls.settle(each)]

    def _on_usage(self, delta: dict[str, Any]) -> list[Event]:
        given = delta["usage"]
        usage = counts_of(given, self.diagnostics) if isinstance(given, dict) else None
        return [] if usage is None else self._machine.usage(usage)

    def _on_errors(self, delta: dict[str, Any]) -> list[Event]:
        errors = objects(delta["copilotErrors"])
        for _ in errors[1:]:
            self.diagnostics.loss("copilotErrors", "only the first error is reported")
        return self._machine.fail(failure_of(errors[0])) if errors else []

    def _on_completion(self, frame: dict[str, Any]) -> list[Event]:
        events = self._on_usage(frame) if frame.get("usage") is not None else []
        if not self._spoke:
            solution = frame.get("solution")
            untold = text_of(solution.get("text")) if isinstance(solution, dict) else ""
            events += self._machine.text(untold)
        handed_over = [*objects(frame.get("toolCalls")), *objects([frame.get("functionCall")])]
        for call in () if self._calls.settled else handed_over:
            events += self._calls.settle(call)
        return events + self._end(text_of(frame.get("reason")), frame)

    def _end(self, reason: str, frame: dict[str, Any]) -> list[Event]:
        if reason == FinishedCompletionReason.CLIENT_TRIMMED:
            return self._machine.cancel()
        if reason == FinishedCompletionReason.CLIENT_ITERATION_DONE:
            return self._machine.fail(_CUT)
        if reason == FinishedCompletionReason.SERVER_ERROR:
            return self._machine.fail(failure_of(frame.get("error")))
        return self._machine.finish("stop" if reason == FinishedCompletionReason.CLIENT_DONE else reason)

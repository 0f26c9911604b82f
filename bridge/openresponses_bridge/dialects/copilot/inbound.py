"""Converts Copilot's callback chunks, bare deltas and completions to calls of the machine.

A frame is one JSON line: `{"text", "index", "delta"}`, an `IResponseDelta` by itself, or a completion
(`{"reason", "solution", "usage", …}`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from openresponses_bridge.calls.argument_names import name_of_arguments, without_function
from openresponses_bridge.dialects.base import (
    CUT,
    INVALID_JSON,
    INVALID_SHAPE,
    BaseInbound,
    counts_of,
    failure,
    number_of,
    payload_of,
)
from openresponses_bridge.dialects.copilot.types import EVENT_OF_FIELD, REFERENCES, FinishedCompletionReason
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.errors import BridgeError, WireError
from openresponses_bridge.protocol.codec import decode_frame, encode
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.state import ResponseStreamPhase


class _PlainDelta(Struct, forbid_unknown_fields=True):
    text: str


class _PlainChunk(Struct, forbid_unknown_fields=True):
    text: str
    index: int
    delta: _PlainDelta


_decode_plain = msgspec.json.Decoder(_PlainChunk).decode


def plain_text(data: bytes, index: int) -> str | None:
    """Return the text of the common chunk, which has nothing else; None for any other."""
    try:
        chunk = _decode_plain(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return chunk.delta.text if chunk.index == index else None


def text_of(value: Any) -> str:
    """Return a string or a list of strings as one string; "" for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(piece for piece in value if isinstance(piece, str))
    return ""


def objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects in a list; anything else is left out."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def logprobs_of(value: Any) -> list[dict[str, Any]]:
    """Return `{content: [{token, logprob, bytes, top_logprobs}]}` with missing fields filled in."""
    tokens = objects(value.get("content")) if isinstance(value, dict) else []
    return [{**_probability(each), "top_logprobs": _alternatives(each)} for each in tokens]


def _alternatives(each: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [_probability(top) for top in objects(each.get("top_logprobs"))]


def _probability(each: Mapping[str, Any]) -> dict[str, Any]:
    token, logprob = text_of(each.get("token")), each.get("logprob")
    return {
        "token": token,
        "logprob": (number_of(logprob) or 0.0),
        "bytes": list(token.encode("utf-8", "replace")),
    }


def _count(value: Mapping[str, Any], *names: str) -> int | None:
    counts = [value[name] for name in names if type(value.get(name)) is int]
    return max(counts[0], 0) if counts else None


def failure_of(value: Any) -> dict[str, Any]:
    """Return one error of Copilot (`{type, code, message, agent, identifier}`) or of the API."""
    error = value if isinstance(value, dict) else {"message": value}
    payload = payload_of({"code": "server_error", **error, "type": None})
    return {
        "code": payload.code,
        "message": payload.message,
        "param": text_of(error.get("identifier")) or payload.param,
    }


def url_citation_of(reference: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the citation in a reference with a URL; None for any other reference."""
    raw = reference.get("data")
    data = raw if isinstance(raw, dict) else {}
    metadata = reference.get("metadata")
    shown = metadata if isinstance(metadata, dict) else {}
    url = text_of(data.get("url") or shown.get("display_url"))
    if not url:
        return None
    return {
        "type": "url_citation",
        "url": url,
        "title": text_of(data.get("title") or shown.get("display_name")),
        "start_index": _count(data, "start_index") or 0,
        "end_index": _count(data, "end_index") or 0,
    }


# Copilot's tool calls for the machine: announced, repeated as they grow, then whole.


class _Call:
    __slots__ = ("call_id", "done", "index", "name", "sent")

    def __init__(self, index: int, call_id: str, name: str) -> None:
        self.index = index
        self.call_id = call_id
        self.name = name
        self.sent = ""
        self.done = False


class IncomingCalls:
    """Calls in order of first appearance, identified by their call id, or by their name while they have
    none."""

    __slots__ = ("_calls", "_diagnostics", "_machine")

    def __init__(self, machine: ResponseStream) -> None:
        self._machine = machine
        self._diagnostics = machine.diagnostics
        self._calls: list[_Call] = []

    @property
    def any_finished(self) -> bool:
        """True if a whole call has come."""
        return any(call.done for call in self._calls)

    def begin(self, facts: dict[str, Any]) -> list[Event]:
        """Announce a call. A call with a name waits for its id, which may still come."""
        call = self._find(without_function(facts, self._diagnostics))
        waits = call.name and not call.call_id
        return [] if waits else self._machine.tool_call(call.index, call.call_id, call.name)

    def update(self, facts: dict[str, Any]) -> list[Event]:
        """Accept all arguments so far; the new part of them is sent."""
        facts = without_function(facts, self._diagnostics)
        call = self._find(facts)
        return [] if call.done else self._emit_rest(call, self._arguments(facts))

    def finish(self, facts: dict[str, Any]) -> list[Event]:
        """Finish a whole call; a repeated one is ignored."""
        facts = without_function(facts, self._diagnostics)
        call = self._find(facts)
        if call.done:
            return []
        call.done = True
        events = self._emit_rest(call, self._arguments(facts))
        return events + self._machine.tool_call_done(call.index, cut=not call.name)

    def _find(self, facts: dict[str, Any]) -> _Call:
        call_id, name = _text(facts.get("id")), _text(facts.get("name"))
        for call in self._calls:
            same = call.call_id == call_id if call.call_id and call_id else call.name == name
            if same and not (call.done and not call_id):
                call.call_id, call.name = call.call_id or call_id, call.name or name
                return call
        call = _Call(len(self._calls), call_id, name)
        self._calls.append(call)
        return call

    def _arguments(self, facts: dict[str, Any]) -> str:
        """Return the arguments of a call, which may be an object."""
        arguments = facts.get(name_of_arguments(facts, "arguments", self._diagnostics))
        return encode(arguments).decode() if isinstance(arguments, dict) else _text(arguments)

    def _emit_rest(self, call: _Call, arguments: str) -> list[Event]:
        rest = ""
        if arguments.startswith(call.sent):
            rest = arguments[len(call.sent) :]
            call.sent = arguments
        elif arguments:
            self._diagnostics.loss("tool_calls.arguments", "differ from the streamed ones, which are kept")
        return self._machine.tool_call(call.index, call.call_id, call.name, rest)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


_IDLE, _IN_PROGRESS = ResponseStreamPhase.IDLE, ResponseStreamPhase.IN_PROGRESS

_CUT = failure(CUT, "the upstream ended its stream without saying how it finished")
# fields read together with another one
_READ_WITH_TEXT = frozenset({"logprobs", "text", "index", "delta"})


class Inbound(BaseInbound):
    """Feeds one choice to the machine. `index` is its number, where each choice has its own inbound and
    machine; without it the first choice is read and any other is a loss.

    Deltas do not say whether they are complete. Without a completion, `close` treats whole calls, or
    `implied_end` (the producer returned normally), as the end, and fails otherwise (field case 26).
    """

    def __init__(self, machine: ResponseStream, index: int | None = None, implied_end: bool = False) -> None:
        self.diagnostics = machine.diagnostics
        self._machine = machine
        self._index = index or 0
        self._is_one_of_several = index is not None
        self._whole = implied_end
        self._has_text = False
        self._calls = IncomingCalls(machine)
        self._thinking_id: str | None = None

    def feed(self, data: bytes, event: str = "") -> list[Event]:
        """Read one JSON line. A line that can't be read ends the response as failed."""
        phase = self._machine.phase
        if phase is _IN_PROGRESS:
            text = plain_text(data, self._index) if self._has_text else None
            return self._read(data) if text is None else self._machine.text(text)
        if phase is _IDLE:
            return self._machine.start() + self._read(data)
        self.diagnostics.ignored("frame", "came after the end")
        return []

    def close(self) -> list[Event]:
        """Handle the end of the upstream."""
        events = self._machine.start() if self._machine.phase is _IDLE else []
        if self._machine.phase is not _IN_PROGRESS:
            return events
        return events + (self._finish("stop") if self._whole else self._machine.fail(_CUT))

    def _read(self, data: bytes) -> list[Event]:
        try:
            frame = decode_frame(data)
        except WireError as error:
            return self._machine.fail(failure(INVALID_JSON, error.message))
        if isinstance(frame, dict):
            try:
                return self._on_frame(frame)
            except BridgeError as error:  # the machine refused what the frame contains
                return self._machine.fail(failure(INVALID_SHAPE, error.message))
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
        for name, handler in _FIELDS.items():
            if delta.get(name) is not None:
                events += handler(self, delta)
        for name in delta.keys() - _FIELDS.keys() - _READ_WITH_TEXT:
            self.diagnostics.ignored(f"delta.{name}", "unknown field")
        return events

    def _on_text(self, delta: dict[str, Any]) -> list[Event]:
        text = text_of(delta.get("text"))
        # the blank before the first call is Copilot's own, for its view
        if not text or (text == " " and delta.get("beginToolCalls")):
            return []
        self._has_text = True
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

    def _on_begun_calls(self, delta: dict[str, Any]) -> list[Event]:
        return [event for each in objects(delta["beginToolCalls"]) for event in self._calls.begin(each)]

    def _on_updates(self, delta: dict[str, Any]) -> list[Event]:
        updates = objects(delta["copilotToolCallStreamUpdates"])
        return [event for each in updates for event in self._calls.update(each)]

    def _on_calls(self, delta: dict[str, Any]) -> list[Event]:
        self._whole = True
        return [event for each in objects(delta["copilotToolCalls"]) for event in self._calls.finish(each)]

    def _on_functions(self, delta: dict[str, Any]) -> list[Event]:
        self._whole = True
        functions = objects(delta["_deprecatedCopilotFunctionCalls"])
        return [event for each in functions for event in self._calls.finish(each)]

    def _on_usage(self, delta: dict[str, Any]) -> list[Event]:
        counts = delta["usage"]
        usage = counts_of(counts, self.diagnostics) if isinstance(counts, dict) else None
        return [] if usage is None else self._machine.usage(usage)

    def _on_errors(self, delta: dict[str, Any]) -> list[Event]:
        errors = objects(delta["copilotErrors"])
        for _ in errors[1:]:
            self.diagnostics.loss("copilotErrors", "only the first error is reported")
        return self._machine.fail(failure_of(errors[0])) if errors else []

    def _on_completion(self, frame: dict[str, Any]) -> list[Event]:
        events = self._on_usage(frame) if frame.get("usage") is not None else []
        if not self._has_text:
            solution = frame.get("solution")
            untold = text_of(solution.get("text")) if isinstance(solution, dict) else ""
            events += self._machine.text(untold)
        handed_over = [*objects(frame.get("toolCalls")), *objects([frame.get("functionCall")])]
        for call in () if self._calls.any_finished else handed_over:
            events += self._calls.finish(call)
        return events + self._end(text_of(frame.get("reason")), frame)

    def _end(self, reason: str, frame: dict[str, Any]) -> list[Event]:
        if reason == FinishedCompletionReason.CLIENT_TRIMMED:
            return self._machine.cancel()
        if reason == FinishedCompletionReason.CLIENT_ITERATION_DONE:
            return self._machine.fail(_CUT)
        if reason == FinishedCompletionReason.SERVER_ERROR:
            return self._machine.fail(failure_of(frame.get("error")))
        return self._finish("stop" if reason == FinishedCompletionReason.CLIENT_DONE else reason)

    def _finish(self, reason: str) -> list[Event]:
        return self._machine.end_nameless() + self._machine.finish(reason)


_FieldReader = Callable[[Inbound, dict[str, Any]], list[Event]]


def _extension(name: str) -> _FieldReader:
    kind = EVENT_OF_FIELD[name]
    return lambda inbound, delta: inbound._machine.extension_event(kind, {"value": delta[name]})


# in the order in which one delta's fields are read; an error ends the stream, so it is last
_FIELDS: Final[dict[str, _FieldReader]] = {
    "usage": Inbound._on_usage,
    "thinking": Inbound._on_thinking,
    "text": Inbound._on_text,
    "copilotReferences": Inbound._on_references,
    **{name: _extension(name) for name in EVENT_OF_FIELD},
    "beginToolCalls": Inbound._on_begun_calls,
    "copilotToolCallStreamUpdates": Inbound._on_updates,
    "copilotToolCalls": Inbound._on_calls,
    "_deprecatedCopilotFunctionCalls": Inbound._on_functions,
    "copilotErrors": Inbound._on_errors,
}

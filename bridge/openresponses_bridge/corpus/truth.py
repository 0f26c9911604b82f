"""The expected result of a script: its texts, calls and end, derived from its steps without the machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal

from msgspec import Struct

from openresponses_bridge.calls.json_text import JsonState, json_state
from openresponses_bridge.corpus.scripts import USAGE, Step

Status = Literal["completed", "incomplete", "failed", "cancelled", "cut"]
"""How a stream ended; `cut`: without a terminal event."""


class ExpectedCall(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool call that is whole. `arguments` are those of a function, or a custom tool's input. `optional`: a
    reader may leave it out, because its response did not end well or its arguments are not JSON."""

    call_id: str
    name: str
    arguments: str
    custom: bool = False
    optional: bool = False


class ExpectedCitation(Struct, frozen=True):
    """A citation of a page."""

    url: str
    title: str
    start_index: int
    end_index: int


class ExpectedUsage(Struct, frozen=True):
    """Counts of tokens."""

    input_tokens: int
    output_tokens: int
    total_tokens: int


class ExpectedError(Struct, frozen=True):
    """The error of a failed response."""

    code: str
    message: str


class Expected(Struct, frozen=True, kw_only=True):
    """The expected result of reading a stream. Texts are those of all items, in the order of the output."""

    status: Status
    text: str = ""
    refusal: str = ""
    reasoning: str = ""
    summary: str = ""
    calls: tuple[ExpectedCall, ...] = ()
    citations: tuple[ExpectedCitation, ...] = ()
    usage: ExpectedUsage | None = None
    incomplete_reason: str | None = None
    error: ExpectedError | None = None


_STOPPED: Final = frozenset({None, "stop", "tool_calls", "end_turn"})
_REASONS: Final = {
    "length": "max_output_tokens",
    "content_filter": "content_filter",
    "cancelled": "cancelled",
}
_State = Literal["whole", "truncated", "malformed"]
_STATES: Final[dict[JsonState, _State]] = {
    JsonState.COMPLETE: "whole",
    JsonState.TRUNCATED: "truncated",
    JsonState.EMPTY: "truncated",
}
_CUT_CALL: Final = "incomplete_tool_call"
_CUT_ITEM: Final = "incomplete_item"


class _Call:
    """A call while its script is read."""

    def __init__(self, call_id: str, name: str | None, custom: bool) -> None:
        self.call_id = call_id
        self.name = name
        self.custom = custom
        self.arguments = ""
        self.ended = False

    def end(self) -> None:
        """End a call that was sent completely; a function without arguments gets an empty object (law E6)."""
        if not self.ended and not self.custom and not self.arguments.strip():
            self.arguments = "{}"
        self.ended = True

    @property
    def state(self) -> _State:
        if self.custom:
            return "whole"
        return _STATES.get(json_state(self.arguments), "malformed")


class _Reading:
    """Reads a script step by step."""

    def __init__(self, wire: str) -> None:
        self.wire = wire
        self.texts: dict[str, list[str]] = {"text": [], "refusal": [], "reasoning": [], "summary": []}
        self.citations: list[ExpectedCitation] = []
        self.open: dict[int, _Call] = {}
        self.calls: list[_Call] = []
        self.announced: set[str] = set()
        self.cut_item = False
        self.deferred: str | None = None
        self.usage: ExpectedUsage | None = None
        self.ending: dict[str, Any] = {}

    def append_to(self, kind: str) -> Callable[..., None]:
        return lambda delta, *_: self.texts[kind].append(delta)

    def annotate(self, url: str, title: str, start: int, end: int) -> None:
        self.citations.append(ExpectedCitation(url, title, start, end))

    def call(self, index: int, id: str, name: str | None, custom: bool = False) -> None:
        self._end_whole()
        self.open[index] = _Call(id, None, custom)
        if name is not None:
            self.name(index, name)

    def name(self, index: int, name: str) -> None:
        self.open[index].name = name
        self.calls.append(self.open[index])

    def arguments(self, index: int, delta: str) -> None:
        self.open[index].arguments += delta

    def call_end(self, index: int) -> None:
        self.open[index].end()

    def item(self, item: Mapping[str, Any]) -> None:
        self._end_whole()
        self.announced.discard(item.get("id", ""))
        self.cut_item = self.cut_item or item.get("status") == "incomplete"
        for part in item.get("content") or ():
            kind = {"output_text": "text", "reasoning_text": "reasoning"}.get(part["type"], part["type"])
            self.texts[kind].append(part.get("text") or part.get("refusal", ""))
        self.texts["summary"] += [part["text"] for part in item.get("summary") or ()]
        if item["type"] in ("function_call", "custom_tool_call"):
            call = _Call(item["call_id"], item["name"], item["type"] == "custom_tool_call")
            call.arguments = item["input" if call.custom else "arguments"]
            call.end()
            self.calls.append(call)

    def announce(self, item: Mapping[str, Any]) -> None:
        self.announced.add(item["id"])

    def call_machine(self, method: str, *facts: Any) -> None:
        if method == "usage":
            counts = (facts[0]["input_tokens"], facts[0]["output_tokens"])
            self.usage = ExpectedUsage(*counts, sum(counts))

    def defer(self, reason: str | None) -> None:
        self.deferred = reason

    def end(self, reason: str | None, usage: Mapping[str, Any] | None = USAGE) -> None:
        reason = reason or self.deferred
        for call in self.open.values():
            if reason in _STOPPED or (reason != "cancelled" and call.arguments.strip()):
                call.end()
        if usage is not None:
            self.call_machine("usage", usage)
        if reason in _STOPPED and not self._cut_by:
            self.ending["status"] = "completed"
        elif reason == "cancelled":
            self.cancel()
        else:
            why = self._cut_by if reason in _STOPPED else _REASONS[str(reason)]
            self.ending |= {"status": "incomplete", "incomplete_reason": why}

    def fail(self, code: str, message: str) -> None:
        self.ending = {"status": "failed", "error": ExpectedError(code, message)}

    def cancel(self) -> None:
        if self.wire == "openai":
            self.ending["status"] = "cancelled"
        else:
            self.ending |= {"status": "incomplete", "incomplete_reason": "cancelled"}

    @property
    def expected(self) -> Expected:
        failed = self.ending["status"] == "failed"
        calls = [self._call(each, failed) for each in self.calls if each.ended and each.state != "truncated"]
        facts = (
            self.ending
            | {"usage": self.usage}
            | {kind: "".join(pieces) for kind, pieces in self.texts.items()}
        )
        return Expected(**facts, calls=tuple(calls), citations=tuple(self.citations))

    @property
    def _cut_by(self) -> str | None:
        if any(call.ended and call.state == "truncated" for call in self.calls):
            return _CUT_CALL
        return _CUT_ITEM if self.announced or self.cut_item else None

    def _call(self, call: _Call, failed: bool) -> ExpectedCall:
        custom = call.custom and self.wire == "openai"
        wrapped = call.custom and not custom
        arguments = json.dumps({"input": call.arguments}, ensure_ascii=False) if wrapped else call.arguments
        return ExpectedCall(
            call_id=call.call_id,
            name=str(call.name),
            arguments=arguments,
            custom=custom,
            optional=failed or call.state == "malformed",
        )

    def _end_whole(self) -> None:
        """End the calls whose arguments are whole JSON, since another call or item begins."""
        for call in self.open.values():
            if call.name is not None and not call.custom and call.state == "whole":
                call.end()


def expected_of(steps: Iterable[Step], wire: str = "openresponses") -> Expected:
    """Return the expected result of reading the stream of these steps on a wire."""
    reading = _Reading(wire)
    ways: dict[str, Callable[..., None]] = {
        **{kind: reading.append_to(kind) for kind in reading.texts},
        "cite": reading.annotate,
        "call": reading.call,
        "custom": lambda index, id, name: reading.call(index, id, name, custom=True),
        "name": reading.name,
        "arguments": reading.arguments,
        "call_end": reading.call_end,
        "item": reading.item,
        "announce": reading.announce,
        "machine": reading.call_machine,
        "defer": reading.defer,
        "end": reading.end,
        "fail": reading.fail,
        "cancel": reading.cancel,
        "cut": lambda: reading.end("stop", None),
    }
    for verb, *facts in steps:
        if verb in ways:
            ways[verb](*facts)
    return reading.expected


def cut_after(events: Iterable[Mapping[str, Any]]) -> Expected:
    """Return the expected result of reading a stream that ends after its first events."""
    texts: dict[str, list[str]] = {"text": [], "refusal": [], "reasoning": [], "summary": []}
    items: dict[int, Mapping[str, Any]] = {}
    calls: dict[int, ExpectedCall] = {}
    for event in events:
        kind, at = event["type"], event.get("output_index", 0)
        if kind in _TEXTS:
            texts[_TEXTS[kind]].append(event["delta"])
        elif kind == "response.output_item.added":
            items[at] = event["item"]
        elif kind in _WHOLE:
            calls[at] = ExpectedCall(
                call_id=items[at]["call_id"],
                name=items[at]["name"],
                arguments=event.get("arguments", event.get("input", "")),
                custom=kind in _CUSTOM,
                optional=True,
            )
    joined: dict[str, Any] = {kind: "".join(pieces) for kind, pieces in texts.items()}
    return Expected(status="cut", calls=tuple(calls.values()), **joined)


_TEXTS: Final = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.reasoning.delta": "reasoning",
    "response.reasoning_text.delta": "reasoning",
    "response.reasoning_summary_text.delta": "summary",
}
_CUSTOM: Final = frozenset({"response.custom_tool_call_input.done"})
_WHOLE: Final = frozenset({"response.function_call_arguments.done"}) | _CUSTOM

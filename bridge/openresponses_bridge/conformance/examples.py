"""Examples of the rules: for each a stream that violates it, a valid stream with one change.

The violations are computed when an example is shown, so that they can't differ from what the rules do.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from openresponses_bridge.conformance.judging import validate_envelope
from openresponses_bridge.conformance.registry import Violation
from openresponses_bridge.conformance.rules import RULES
from openresponses_bridge.conformance.validator import StreamValidator
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.response import RESPONSE_DEFAULTS
from openresponses_bridge.sse import Frame

# A short valid stream with every kind of output, as JSON objects; each example changes it.

Json = dict[str, Any]

_RESPONSE: Final[Json] = {
    **msgspec.to_builtins(RESPONSE_DEFAULTS),
    "id": "resp_1",
    "object": "response",
    "created_at": 1_767_225_600,
    "status": "in_progress",
    "model": "m",
}
_USAGE: Final[Json] = {
    "input_tokens": 3,
    "output_tokens": 5,
    "total_tokens": 8,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 2},
}
CITATION: Final[Json] = {
    "type": "url_citation",
    "url": "https://example.org/",
    "start_index": 0,
    "end_index": 5,
    "title": "An example",
}
ERROR: Final[Json] = {"code": "server_error", "message": "it broke"}


class _Script:
    """Writes events in order."""

    def __init__(self) -> None:
        self.events: list[Json] = []
        self.output: list[Json] = []
        self.emit("response.created", response=self.response())
        self.emit("response.in_progress", response=self.response())

    def emit(self, kind: str, **fields: Any) -> None:
        self.events.append({"type": kind, "sequence_number": len(self.events)} | deepcopy(fields))

    def response(self, **changes: Any) -> Json:
        return {**_RESPONSE, "output": self.output, **changes}

    def item(self, kind: str, **fields: Any) -> tuple[int, Json]:
        index = len(self.output)
        item = {"type": kind, "id": f"item_{index}", "status": "in_progress", **fields}
        self.output.append(item)
        self.emit("response.output_item.added", output_index=index, item=item)
        return index, item

    def done(self, index: int, **fields: Any) -> None:
        item = self.output[index]
        item |= {"status": "completed", **fields}
        self.emit("response.output_item.done", output_index=index, item=item)

    def reasoning(self, *deltas: str) -> None:
        index, item = self.item("reasoning", summary=[])
        at = {"item_id": item["id"], "output_index": index, "summary_index": 0}
        part = {"type": "summary_text", "text": "".join(deltas)}
        self.emit("response.reasoning_summary_part.added", **at, part=part | {"text": ""})
        for delta in deltas:
            self.emit("response.reasoning_summary_text.delta", **at, delta=delta)
        self.emit("response.reasoning_summary_text.done", **at, text=part["text"])
        self.emit("response.reasoning_summary_part.done", **at, part=part)
        self.done(index, summary=[part])

    def message(self, *deltas: str, closed: bool = True) -> None:
        index, item = self.item("message", role="assistant", content=[])
        at = {"item_id": item["id"], "output_index": index, "content_index": 0}
        part: Json = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        self.emit("response.content_part.added", **at, part=part)
        for delta in deltas:
            self.emit("response.output_text.delta", **at, delta=delta, logprobs=[])
        part |= {"text": "".join(deltas)}
        if not closed:
            item |= {"status": "incomplete", "content": [part]}
            return
        part |= {"annotations": [CITATION]}
        added = {"annotation_index": 0, "annotation": CITATION}
        self.emit("response.output_text.annotation.added", **at, **added)
        self.emit("response.output_text.done", **at, text=part["text"], logprobs=[])
        self.emit("response.content_part.done", **at, part=part)
        self.done(index, content=[part])

    def call(self, *deltas: str) -> None:
        index = len(self.output)
        _, item = self.item("function_call", call_id=f"call_{index}", name="look", arguments="")
        at = {"item_id": item["id"], "output_index": index}
        for delta in deltas:
            self.emit("response.function_call_arguments.delta", **at, delta=delta)
        self.emit("response.function_call_arguments.done", **at, arguments="".join(deltas))
        self.done(index, arguments="".join(deltas))


def completed() -> list[Json]:
    """Return the events of a completed response: reasoning, a message with a citation, two calls, an item of
    an extension."""
    script = _Script()
    script.reasoning("Look ", "it up.")
    script.message("Hel", "lo")
    script.call('{"a"', ":1}")
    script.call("{}")
    index, _ = script.item("acme:look")
    script.done(index)
    end = {"status": "completed", "completed_at": 1_767_225_601, "usage": _USAGE}
    script.emit("response.completed", response=script.response(**end))
    return script.events


def failed() -> list[Json]:
    """Return the events of a response that failed within a message."""
    script = _Script()
    script.message("Hel", "lo", closed=False)
    script.emit("error", error={"type": "server_error", "param": None, **ERROR})
    script.emit("response.failed", response=script.response(status="failed", error=ERROR))
    return script.events


Edit = Callable[[list[Any]], list[Any]]


class Example(NamedTuple):
    """An example. `says` describes the change, `found` returns the validator's violations."""

    says: str
    found: Callable[[], list[Violation]]


_MARKER: Final = Frame("", b"[DONE]")


def _judged(edit: Edit, stream: Callable[[], list[Json]], marked: bool) -> list[Violation]:
    validator = StreamValidator("openresponses")
    for each in [*edit(stream()), *([_MARKER] if marked else [])]:
        validator.feed_frame(each if isinstance(each, Frame) else Frame(each["type"], encode(each)))
    validator.close()
    return validator.violations


def _of(
    says: str, edit: Edit, stream: Callable[[], list[Json]] = completed, *, marked: bool = True
) -> Example:
    return Example(says, partial(_judged, edit, stream, marked))


def _numbered(events: list[Any]) -> list[Any]:
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _place(events: list[Any], kind: str, nth: int) -> int:
    return [index for index, event in enumerate(events) if event["type"].removeprefix("response.") == kind][
        nth
    ]


def _without(kind: str, nth: int = 0) -> Example:
    def edit(events: list[Any]) -> list[Any]:
        del events[_place(events, kind, nth)]
        return _numbered(events)

    return _of(f"`{kind}` left out", edit)


def _twice(kind: str, nth: int = 0) -> Example:
    def edit(events: list[Any]) -> list[Any]:
        index = _place(events, kind, nth)
        return _numbered([*events[: index + 1], *events[index:]])

    return _of(f"`{kind}` sent twice", edit)


def _later(kind: str, nth: int = 0) -> Example:
    def edit(events: list[Any]) -> list[Any]:
        index = _place(events, kind, nth)
        events[index], events[index + 1] = events[index + 1], events[index]
        return _numbered(events)

    return _of(f"`{kind}` sent one event too late", edit)


def _with(
    kind: str, path: str, value: Any, nth: int = 0, stream: Callable[[], list[Json]] = completed
) -> Example:
    """Return an example that sets a field of an event, given by a path with dots."""

    def edit(events: list[Any]) -> list[Any]:
        holder: Any = events[_place(events, kind, nth)]
        *parents, last = (int(key) if key.isdigit() else key for key in path.split("."))
        for key in parents:
            holder = holder[key]
        if value is _ABSENT:
            del holder[last]
        else:
            holder[last] = value
        return events

    shown = "left out" if value is _ABSENT else f"= `{encode(value).decode()}`"
    return _of(f"`{kind}` with `{path}` {shown}", edit, stream)


def _cut(events: list[Any]) -> list[Any]:
    events[_place(events, "output_item.done", 2)]["item"]["status"] = "incomplete"
    return events


def _renamed(events: list[Any]) -> list[Any]:
    index = _place(events, "output_text.delta", 0)
    events[index] = Frame("message", encode(events[index]))
    return events


_ABSENT: Final = object()
_TEXT: Final = {"type": "refusal", "refusal": "Hello"}
_ENVELOPE: Final = {"type": "error", "status": 404, "error": {"code": None, "message": "gone"}}

EXAMPLES: Final[dict[str, Example]] = {
    "event.json": _of("a frame without JSON", lambda events: [Frame("", b"oops"), *events]),
    "schema": _with("output_text.delta", "item_id", _ABSENT),
    "event.unknown_type": _with("output_text.delta", "type", "response.foo", 1),
    "seq.start_zero": _of(
        "numbers from 1", lambda events: [{**each, "sequence_number": n} for n, each in enumerate(events, 1)]
    ),
    "seq.increment": _with("output_text.delta", "sequence_number", 3, 1),
    "stream.first_created": _without("created"),
    "stream.in_progress_present": _without("in_progress"),
    "stream.lifecycle_order": _twice("in_progress"),
    "stream.one_terminal": _twice("completed"),
    "stream.after_terminal": _later("output_item.done", -1),
    "error.followed_by_failed": _of("nothing after `error`", lambda events: events[:-1], failed),
    "stream.no_terminal": _without("completed"),
    "sse.event_name": _of("a frame named `message`", _renamed),
    "stream.done_marker": _of("no `[DONE]`", lambda events: events, marked=False),
    "stream.after_done": _of("`[DONE]` sent twice", lambda events: [*events, _MARKER]),
    "item.present": _with("output_item.done", "item", None, 4),
    "item.has_status": _with("output_item.done", "item.status", _ABSENT, 4),
    "item.added_first": _without("output_item.added", 1),
    "item.after_closed": _later("content_part.done"),
    "item.closed_once": _twice("output_item.done"),
    "item.added_in_progress": _with("output_item.added", "item.status", "completed", 2),
    "item.added_empty": _with("output_item.added", "item.arguments", "{}", 2),
    "item.index_dense": _with("output_item.added", "output_index", 9, 4),
    "item.id_unique": _with("output_item.added", "item.id", "item_0", 1),
    "item.id_stable": _with("output_text.delta", "item_id", "item_9", 1),
    "item.type_stable": _with("output_item.done", "item.type", "acme:see", 4),
    "item.closed_status": _with("output_item.done", "item.status", "in_progress"),
    "item.incomplete_last": _of("an item done as incomplete before another", _cut),
    "item.incomplete_response": _of("an item done as incomplete, the response completed", _cut),
    "item.unclosed": _without("output_item.done", 1),
    "message.role_assistant": _with("output_item.added", "item.role", "user", 1),
    "call.id_unique": _with("output_item.added", "item.call_id", "call_2", 3),
    "status.event_matches": _with("completed", "response.status", "in_progress"),
    "response.same_id": _with("completed", "response.id", "resp_2"),
    "response.same_facts": _with("completed", "response.created_at", 1_767_225_599),
    "response.completed_at": _with("completed", "response.completed_at", None),
    "response.completed_after_created": _with("completed", "response.completed_at", 1_767_225_599),
    "response.error_iff_failed": _with("completed", "response.error", ERROR),
    "response.incomplete_details_iff": _with("completed", "response.incomplete_details", {"reason": "x"}),
    "response.starts_empty": _with("created", "response.output", [{"type": "acme:look", "id": "item_0"}]),
    "terminal.output_equals_items": _with("completed", "response.output.1.content.0.text", "Hullo"),
    "terminal.unclosed_incomplete": _with("failed", "response.output.0.status", "completed", 0, failed),
    "usage.sum": _with("completed", "response.usage.total_tokens", 9),
    "usage.negative": _with("completed", "response.usage.input_tokens", -3),
    "usage.part_of_whole": _with("completed", "response.usage.input_tokens_details.cached_tokens", 4),
    "part.backed": _without("content_part.added"),
    "part.done_before_closed": _without("output_text.done"),
    "part.after_done": _twice("output_text.done"),
    "part.unclosed": _without("content_part.done"),
    "part.index_dense": _with("content_part.added", "content_index", 1),
    "part.added_empty": _with("content_part.added", "part.text", "Hel"),
    "part.kind_of_item": _with("content_part.added", "part", {"type": "reasoning_text", "text": ""}),
    "part.kind_of_event": _with("output_text.delta", "type", "response.refusal.delta"),
    "part.kind_stable": _with("content_part.done", "part", _TEXT),
    "delta.sum_text": _without("output_text.delta"),
    "delta.sum_part": _with("content_part.done", "part.text", "Hullo"),
    "delta.sum_item": _with("output_item.done", "item.content.0.text", "Hullo", 1),
    "annotation.index_dense": _with("output_text.annotation.added", "annotation_index", 1),
    "annotation.in_part": _with("content_part.done", "part.annotations", [CITATION | {"title": "B"}]),
    "call.kind_of_item": _with("function_call_arguments.delta", "output_index", 1),
    "call.after_done": _twice("function_call_arguments.done"),
    "call.arguments_sum": _without("function_call_arguments.delta"),
    "call.arguments_done": _without("function_call_arguments.done"),
    "call.done_matches": _with("output_item.done", "item.arguments", "{}", 2),
    "call.identity_stable": _with("output_item.done", "item.name", "see", 2),
    "websocket.error_envelope": Example(
        f"`{encode(_ENVELOPE).decode()}`", lambda: validate_envelope(_ENVELOPE)
    ),
}


class Explanation(Struct, frozen=True):
    """A rule with an example. `example` describes the change in a valid stream, `violations` are what this
    rule then reports."""

    rule: str
    asks: str
    clause: str
    example: str
    violations: list[str]


def explanation(rule: str) -> Explanation:
    """Return the explanation of a rule. Raises KeyError for an unknown id."""
    described, example = RULES[rule], EXAMPLES[rule]
    violations = [str(violation) for violation in example.found() if violation.rule == rule]
    return Explanation(rule, described.description, described.source, example.says, violations)

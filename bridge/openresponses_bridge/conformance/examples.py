"""For every rule a stream that breaks it, as one change of a stream that is clean.

The examples are run where they are shown, so that they can't say what the rules do not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from openresponses_bridge.conformance.alone import judge_envelope
from openresponses_bridge.conformance.example_streams import CITATION, ERROR, Json, completed, failed
from openresponses_bridge.conformance.registry import Violation
from openresponses_bridge.conformance.validator import StreamValidator
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.sse import Frame

Edit = Callable[[list[Any]], list[Any]]


class Example(NamedTuple):
    """`says` is what was changed, `found` what the validator makes of it."""

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
    """A field of an event set; its path is written with dots."""

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
    "websocket.error_envelope": Example(f"`{encode(_ENVELOPE).decode()}`", lambda: judge_envelope(_ENVELOPE)),
}

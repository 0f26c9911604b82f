"""Rules about the whole stream: its numbers, order, frames and end."""

from __future__ import annotations

from typing import Any

from openresponses_bridge.conformance.advance import next_state
from openresponses_bridge.conformance.published import deviations, has_event
from openresponses_bridge.conformance.registry import (
    END,
    ENVELOPE,
    EVERY,
    FRAME,
    MARKER,
    TERMINALS,
    UNREADABLE,
    Findings,
    RuleFinding,
    rule,
)
from openresponses_bridge.conformance.tracks import EventContext
from openresponses_bridge.state import StreamState

_OPENING = frozenset({"response.created", "response.queued", "response.in_progress"})
_BEFORE_OUTPUT = (StreamState.EXPECTING, StreamState.CREATED)


@rule("specification, Streaming: data is JSON", UNREADABLE)
def event_json(context: EventContext) -> Findings:
    """The data of every frame is one JSON object."""
    yield RuleFinding(context.unreadable)


@rule("specification, OpenAPI schemas of the 24 events; law E3", EVERY)
def schema(context: EventContext) -> Findings:
    """Every event follows its schema."""
    problems = dict(deviations(context.wire, context.raw))
    problems.update(context.deviations)
    for path, what in problems.items():
        yield RuleFinding(what, path)


@rule("specification, Extensions: other event types are `slug:name`; law E10", EVERY)
def event_unknown_type(context: EventContext) -> Findings:
    """Every event type is one of the wire's or an extension's."""
    if context.text("type") is not None and not has_event(context.wire, context.type):
        yield RuleFinding(f"the {context.wire} wire has no such event", "$.type")


@rule("strict judge; law E2", EVERY)
def seq_start_zero(context: EventContext) -> Findings:
    """The first sequence number is 0."""
    number = context.number("sequence_number")
    if context.stream.events == 0 and number:
        yield RuleFinding(f"the stream starts at {number}", "$.sequence_number")


@rule("strict judge; law E2, field case 21", EVERY)
def seq_increment(context: EventContext) -> Findings:
    """The sequence number rises by 1 from event to event."""
    number, last = context.number("sequence_number"), context.stream.number
    if number is not None and last is not None and number != last + 1:
        yield RuleFinding(f"{number} follows {last}", "$.sequence_number")


@rule("specification, Streaming; state.STREAM", EVERY)
def stream_first_created(context: EventContext) -> Findings:
    """The first event is response.created."""
    if context.stream.state is StreamState.EXPECTING and context.type != "response.created":
        yield RuleFinding("the stream does not start with response.created")


@rule("strict judge; state.STREAM", EVERY)
def stream_in_progress_present(context: EventContext) -> Findings:
    """response.in_progress comes before any output, and before any end other than a failure."""
    begun = context.stream.state in _BEFORE_OUTPUT and context.type not in _OPENING
    if begun and next_state(StreamState.CREATED, context.type) is None:
        yield RuleFinding("there was no response.in_progress before it")


@rule("state.STREAM", EVERY)
def stream_lifecycle_order(context: EventContext) -> Findings:
    """created, queued and in_progress come in this order, each at most once."""
    state = context.stream.state
    if context.type not in _OPENING or state not in (StreamState.CREATED, StreamState.RUNNING):
        return
    late = context.type == "response.in_progress" and not context.stream.in_progress
    if next_state(state, context.type) is None and not late:
        yield RuleFinding(f"it can't come while the stream is {state}")


@rule("strict judge; law E8, state.STREAM", EVERY)
def stream_one_terminal(context: EventContext) -> Findings:
    """There is one terminal event."""
    if context.stream.state is StreamState.ENDED and context.type in TERMINALS:
        yield RuleFinding("the response had already ended")


@rule("strict judge; law E8, state.STREAM", EVERY)
def stream_after_terminal(context: EventContext) -> Findings:
    """Nothing follows the terminal event but [DONE]."""
    if context.stream.state is StreamState.ENDED and context.type not in TERMINALS:
        yield RuleFinding("the response had already ended")


@rule("specification, Streaming errors; law E8, field case 28", EVERY, END)
def error_followed_by_failed(context: EventContext) -> Findings:
    """response.failed follows an error event immediately."""
    if context.stream.state is StreamState.FAILING and context.type != "response.failed":
        yield RuleFinding("an error event was not followed by response.failed")


@rule("strict judge; field case 26", END)
def stream_no_terminal(context: EventContext) -> Findings:
    """A stream ends with a terminal event."""
    if context.stream.state not in (StreamState.ENDED, StreamState.FAILING):
        yield RuleFinding("the stream ended without completed, incomplete or failed")


@rule("specification, HTTP: `event` equals `type`", FRAME)
def sse_event_name(context: EventContext) -> Findings:
    """A frame's event name is the event's type."""
    if context.type and context.frame != context.type:
        named = f"is named {context.frame!r}" if context.frame else "has no event name"
        yield RuleFinding(f"the frame {named}")


@rule("specification, HTTP: the last frame is [DONE]", END)
def stream_done_marker(context: EventContext) -> Findings:
    """A stream of frames ends with [DONE] (OpenAI sends none, so only on the openresponses wire)."""
    if context.wire == "openresponses" and context.stream.framed and not context.stream.marked:
        yield RuleFinding("the stream has no [DONE] at its end")


@rule("specification, HTTP: the last frame is [DONE]", EVERY, MARKER)
def stream_after_done(context: EventContext) -> Findings:
    """Nothing follows [DONE]."""
    if context.stream.marked:
        yield RuleFinding("[DONE] was sent before it")


@rule("specification, WebSocket: failures are {type, status, error}", ENVELOPE)
def websocket_error_envelope(context: EventContext) -> Findings:
    """An error has an HTTP status, and in `error` a code and a message, both strings."""
    status = context.number("status")
    if status is None or not 400 <= status <= 599:
        yield RuleFinding("Expected a status of an error, 400 to 599", "$.status")
    error = context.object("error")
    if error is None:
        yield RuleFinding("Expected an object", "$.error")
        return
    for field in ("code", "message"):
        if not isinstance(error.get(field), str):
            yield RuleFinding("Expected a string", f"$.error.{field}")
    for field, admitted in _OPTIONAL.items():
        if field in error and not isinstance(error[field], admitted):
            yield RuleFinding("Expected a string", f"$.error.{field}")


_OPTIONAL: dict[str, Any] = {"type": str, "param": str | None}

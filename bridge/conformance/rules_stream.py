"""Clauses about the stream as a whole: its numbers, its order, its frames, its end."""

from __future__ import annotations

from bridge.conformance.advance import follow
from bridge.conformance.moment import Moment
from bridge.conformance.published import deviations, has_event
from bridge.conformance.registry import (
    END,
    EVERY,
    FRAME,
    MARKER,
    TERMINALS,
    UNREADABLE,
    Finding,
    Findings,
    rule,
)
from bridge.state import StreamState

_OPENING = frozenset({"response.created", "response.queued", "response.in_progress"})
_BEFORE_OUTPUT = (StreamState.EXPECTING, StreamState.CREATED)


@rule("specification, Streaming: data is JSON", UNREADABLE)
def event_json(moment: Moment) -> Findings:
    """The data of every frame is one JSON object."""
    yield Finding(moment.unreadable)


@rule("specification, OpenAPI schemas of the 24 events; law E3", EVERY)
def schema(moment: Moment) -> Findings:
    """Every event is what its schema says."""
    told = dict(deviations(moment.wire, moment.raw))
    told.update(moment.deviations)
    for path, what in told.items():
        yield Finding(what, path)


@rule("specification, Extensions: other event types are `slug:name`; law E10", EVERY)
def event_unknown_type(moment: Moment) -> Findings:
    """Every event type is one the wire has, or an extension's."""
    if moment.text("type") is not None and not has_event(moment.wire, moment.type):
        yield Finding(f"the {moment.wire} wire has no such event", "$.type")


@rule("strict judge; law E2", EVERY)
def seq_start_zero(moment: Moment) -> Findings:
    """The first sequence number is 0."""
    number = moment.number("sequence_number")
    if moment.stream.events == 0 and number:
        yield Finding(f"the stream starts at {number}", "$.sequence_number")


@rule("strict judge; law E2, field case 21", EVERY)
def seq_increment(moment: Moment) -> Findings:
    """The sequence number rises by 1 from event to event."""
    number, last = moment.number("sequence_number"), moment.stream.number
    if number is not None and last is not None and number != last + 1:
        yield Finding(f"{number} follows {last}", "$.sequence_number")


@rule("specification, Streaming; state.STREAM", EVERY)
def stream_first_created(moment: Moment) -> Findings:
    """The first event is response.created."""
    if moment.stream.state is StreamState.EXPECTING and moment.type != "response.created":
        yield Finding("the stream does not start with response.created")


@rule("strict judge; state.STREAM", EVERY)
def stream_in_progress_present(moment: Moment) -> Findings:
    """response.in_progress comes before any output and any end but failure."""
    begun = moment.stream.state in _BEFORE_OUTPUT and moment.type not in _OPENING
    if begun and follow(StreamState.CREATED, moment.type) is None:
        yield Finding("there was no response.in_progress before it")


@rule("state.STREAM", EVERY)
def stream_lifecycle_order(moment: Moment) -> Findings:
    """created, queued and in_progress come in this order and not again."""
    state = moment.stream.state
    if moment.type not in _OPENING or state not in (StreamState.CREATED, StreamState.RUNNING):
        return
    late = moment.type == "response.in_progress" and not moment.stream.in_progress
    if follow(state, moment.type) is None and not late:
        yield Finding(f"it can't come while the stream is {state}")


@rule("strict judge; law E8, state.STREAM", EVERY)
def stream_one_terminal(moment: Moment) -> Findings:
    """There is one terminal event."""
    if moment.stream.state is StreamState.ENDED and moment.type in TERMINALS:
        yield Finding("the response had already ended")


@rule("strict judge; law E8, state.STREAM", EVERY)
def stream_after_terminal(moment: Moment) -> Findings:
    """Nothing follows the terminal event but [DONE]."""
    if moment.stream.state is StreamState.ENDED and moment.type not in TERMINALS:
        yield Finding("the response had already ended")


@rule("specification, Streaming errors; law E8, field case 28", EVERY, END)
def error_followed_by_failed(moment: Moment) -> Findings:
    """response.failed follows an error event at once."""
    if moment.stream.state is StreamState.FAILING and moment.type != "response.failed":
        yield Finding("an error event was not followed by response.failed")


@rule("strict judge; field case 26", END)
def stream_no_terminal(moment: Moment) -> Findings:
    """A stream ends with a terminal event."""
    if moment.stream.state not in (StreamState.ENDED, StreamState.FAILING):
        yield Finding("the stream ended without completed, incomplete or failed")


@rule("specification, HTTP: `event` equals `type`", FRAME)
def sse_event_name(moment: Moment) -> Findings:
    """A frame's event name is the event's type."""
    if moment.type and moment.frame != moment.type:
        named = f"is named {moment.frame!r}" if moment.frame else "has no event name"
        yield Finding(f"the frame {named}")


@rule("specification, HTTP: the last frame is [DONE]", END)
def stream_done_marker(moment: Moment) -> Findings:
    """A stream of frames ends with [DONE] (OpenAI sends none, so only on the openresponses wire)."""
    if moment.wire == "openresponses" and moment.stream.framed and not moment.stream.marked:
        yield Finding("the stream has no [DONE] at its end")


@rule("specification, HTTP: the last frame is [DONE]", EVERY, MARKER)
def stream_after_done(moment: Moment) -> Findings:
    """Nothing follows [DONE]."""
    if moment.stream.marked:
        yield Finding("[DONE] was sent before it")

"""The states of a stream and the transitions between them, as tables.

Only these tables decide which method or event may follow which. The machine that emits events, the validator
that checks them and the diagrams in docs/ all use the same tables. A transition is a look-up,
`TABLE[state][verb]`; a key that is absent is not allowed.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol.hosted import PROGRESS_EVENTS


class ResponseStreamPhase(StrEnum):
    """The phase of a response's stream."""

    IDLE = "idle"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    FAILED = "failed"


_P = ResponseStreamPhase
TERMINAL_PHASES = frozenset({_P.COMPLETED, _P.INCOMPLETE, _P.FAILED})

# Methods that add output or facts about it, and methods about the response as a whole. In a wrong phase, one
# of the first is an error of output before the start or of a delta after the end, one of the second an
# invalid transition (law E9).
OUTPUT_METHODS = frozenset(
    {
        "text",
        "annotation",
        "refusal",
        "reasoning",
        "reasoning_summary",
        "reasoning_encrypted",
        "part_done",
        "part_extra",
        "block_done",
        "expect_item",
        "tool_call",
        "tool_call_done",
        "end_nameless",
        "item_added",
        "item_event",
        "item_extra",
        "item",
        "extension_event",
        "usage",
        "stop_sequence",
    }
)
LIFECYCLE_METHODS = frozenset(
    {"adopt", "report", "report_names", "native", "start", "defer_finish", "finish", "fail", "cancel"}
)

# phase → method → status of the response after it → next phase
METHODS: dict[ResponseStreamPhase, dict[str, dict[str, ResponseStreamPhase]]] = {
    _P.IDLE: {
        "adopt": {"queued": _P.IDLE},
        "report": {"queued": _P.IDLE},
        "report_names": {"queued": _P.IDLE},
        "native": {"queued": _P.IDLE},
        "usage": {"queued": _P.IDLE},
        "start": {"in_progress": _P.IN_PROGRESS},
    },
    _P.IN_PROGRESS: {
        **{method: {"in_progress": _P.IN_PROGRESS} for method in sorted(OUTPUT_METHODS)},
        "adopt": {"in_progress": _P.IN_PROGRESS},
        "report": {"in_progress": _P.IN_PROGRESS},
        "report_names": {"in_progress": _P.IN_PROGRESS},
        "native": {"in_progress": _P.IN_PROGRESS},
        "defer_finish": {"in_progress": _P.IN_PROGRESS},
        "finish": {"completed": _P.COMPLETED, "incomplete": _P.INCOMPLETE, "cancelled": _P.INCOMPLETE},
        "fail": {"failed": _P.FAILED},
        "cancel": {"incomplete": _P.INCOMPLETE, "cancelled": _P.INCOMPLETE},
    },
    _P.COMPLETED: {},
    _P.INCOMPLETE: {},
    _P.FAILED: {},
}


class StreamState(StrEnum):
    """The state of a reader within a response's events."""

    EXPECTING = "expecting"
    CREATED = "created"
    RUNNING = "running"
    FAILING = "failing"
    ENDED = "ended"


_S = StreamState
OUTPUT = "output"  # stands for every other event that is not named in STREAM
EXTENSION = "extension"  # stands for the events of extensions, `slug:name`

# state → event type → next state
STREAM: dict[StreamState, dict[str, StreamState]] = {
    _S.EXPECTING: {"response.created": _S.CREATED},
    _S.CREATED: {
        EXTENSION: _S.CREATED,
        "response.queued": _S.CREATED,
        "response.in_progress": _S.RUNNING,
        "response.failed": _S.ENDED,
        "error": _S.FAILING,
    },
    _S.RUNNING: {
        OUTPUT: _S.RUNNING,
        EXTENSION: _S.RUNNING,
        "response.completed": _S.ENDED,
        "response.incomplete": _S.ENDED,
        "response.failed": _S.ENDED,
        "error": _S.FAILING,
    },
    _S.FAILING: {"response.failed": _S.ENDED},
    _S.ENDED: {},
}
LIFECYCLE_EVENTS = frozenset(
    {
        "response.created",
        "response.queued",
        "response.in_progress",
        "response.completed",
        "response.incomplete",
        "response.failed",
        "error",
    }
)
# lifecycle event → the statuses that its response may have (field case 20)
STATUSES: dict[str, frozenset[str]] = {
    "response.created": frozenset({"in_progress", "queued"}),
    "response.queued": frozenset({"queued"}),
    "response.in_progress": frozenset({"in_progress"}),
    "response.completed": frozenset({"completed"}),
    "response.incomplete": frozenset({"incomplete", "cancelled"}),
    "response.failed": frozenset({"failed"}),
}
# fields that, like the id, are the same in every event; the model and the service tier may become known later
FIXED_FIELDS = frozenset({"created_at", "previous_response_id", "store", "background"})
# status of a response that has ended → the event that reports it
TERMINAL_EVENT: dict[str, type[Any]] = {
    status: event
    for event in (ev.ResponseCompleted, ev.ResponseIncomplete, ev.ResponseFailed)
    for status in STATUSES[event.type]
}


class BlockState(StrEnum):
    """The state of an item, a part or a call's arguments."""

    ABSENT = "absent"
    OPEN = "open"
    SEALED = "sealed"  # its text is done, its own closing event is still to come
    CLOSED = "closed"


_B = BlockState

# block state → verb → next state
ITEM: dict[BlockState, dict[str, BlockState]] = {
    _B.ABSENT: {"added": _B.OPEN},
    _B.OPEN: {"within": _B.OPEN, "closed": _B.CLOSED},
    _B.CLOSED: {},
}
PART: dict[BlockState, dict[str, BlockState]] = {
    _B.ABSENT: {"added": _B.OPEN},
    _B.OPEN: {"delta": _B.OPEN, "annotation": _B.OPEN, "done": _B.SEALED},
    _B.SEALED: {"annotation": _B.SEALED, "closed": _B.CLOSED},
    _B.CLOSED: {},
}
# a call's arguments; no event says that they were cut off, but their item is incomplete (law E7)
ARGUMENTS: dict[BlockState, dict[str, BlockState]] = {
    _B.ABSENT: {"delta": _B.OPEN, "done": _B.SEALED, "cut": _B.SEALED},
    _B.OPEN: {"delta": _B.OPEN, "done": _B.SEALED, "cut": _B.SEALED},
    _B.SEALED: {},
}
# the subject of an event (see ROLES) → the table of its states
TABLE_OF_SUBJECT: dict[str, dict[BlockState, dict[str, BlockState]]] = {
    "item": ITEM,
    "part": PART,
    "summary": PART,
    "call": ARGUMENTS,
}
ITEM_STATUSES: dict[str, frozenset[str]] = {
    "in_progress": frozenset({"completed", "incomplete"}),
    "completed": frozenset(),
    "incomplete": frozenset(),
}


class EventRole(NamedTuple):
    """The role of an event: the kind of block (item, part, summary, call) and the verb."""

    subject: str
    verb: str


ROLES: dict[str, EventRole] = {
    "response.output_item.added": EventRole("item", "added"),
    "response.output_item.done": EventRole("item", "closed"),
    "response.content_part.added": EventRole("part", "added"),
    "response.content_part.done": EventRole("part", "closed"),
    "response.output_text.delta": EventRole("part", "delta"),
    "response.output_text.done": EventRole("part", "done"),
    "response.output_text.annotation.added": EventRole("part", "annotation"),
    "response.refusal.delta": EventRole("part", "delta"),
    "response.refusal.done": EventRole("part", "done"),
    "response.reasoning.delta": EventRole("part", "delta"),
    "response.reasoning.done": EventRole("part", "done"),
    "response.reasoning_text.delta": EventRole("part", "delta"),
    "response.reasoning_text.done": EventRole("part", "done"),
    "response.reasoning_summary_part.added": EventRole("summary", "added"),
    "response.reasoning_summary_part.done": EventRole("summary", "closed"),
    "response.reasoning_summary_text.delta": EventRole("summary", "delta"),
    "response.reasoning_summary_text.done": EventRole("summary", "done"),
    "response.function_call_arguments.delta": EventRole("call", "delta"),
    "response.function_call_arguments.done": EventRole("call", "done"),
    "response.custom_tool_call_input.delta": EventRole("call", "delta"),
    "response.custom_tool_call_input.done": EventRole("call", "done"),
}

# type of an event without its verb → type of the part that it is about; then (type of an item, subject) →
# types of the parts that the item may have
PART_OF_EVENT: dict[str, str] = {
    "response.output_text": "output_text",
    "response.output_text.annotation": "output_text",
    "response.refusal": "refusal",
    "response.reasoning": "reasoning_text",
    "response.reasoning_text": "reasoning_text",
    "response.reasoning_summary_text": "summary_text",
}
PARTS_OF_ITEM: dict[tuple[str, str], frozenset[str]] = {
    ("message", "part"): frozenset({"output_text", "refusal"}),
    ("message", "summary"): frozenset(),
    ("function_call", "part"): frozenset(),
    ("function_call", "summary"): frozenset(),
    ("reasoning", "part"): frozenset({"reasoning_text"}),
    ("reasoning", "summary"): frozenset({"summary_text"}),
}
ITEM_OF_CALL_EVENT: dict[str, str] = {
    "response.function_call_arguments": "function_call",
    "response.custom_tool_call_input": "custom_tool_call",
}
# type of an item that is streamed → subject → the field with the streamed content, which is empty at first
PAYLOADS: dict[str, dict[str, str]] = {
    "message": {"part": "content"},
    "reasoning": {"part": "content", "summary": "summary"},
    "function_call": {"call": "arguments"},
    "custom_tool_call": {"call": "input"},
}
# subject → the field of an event with the index of the block in its item
INDEX_OF_SUBJECT: dict[str, str] = {"part": "content_index", "summary": "summary_index"}


class Wire(NamedTuple):
    """One spelling of the protocol: which events and items it admits and what it calls them."""

    name: str
    reasoning_delta: type[Any]
    reasoning_done: type[Any]
    openai_items: bool  # custom_tool_call, shell_call … are sent under their own names
    unknown_fields: bool  # fields that the protocol does not have are sent too
    nested_error: bool  # the error event's fields are in `error`, else at the top level
    cancelled_status: str
    progress: frozenset[str]  # events of hosted tools that are sent under their own names
    foreign: bool = False  # its client speaks another API, and reads citations that only that API has


WIRES: dict[str, Wire] = {
    "openresponses": Wire(
        "openresponses", ev.ReasoningDelta, ev.ReasoningDone, False, False, True, "incomplete", frozenset()
    ),
    "openai": Wire(
        "openai", ev.ReasoningTextDelta, ev.ReasoningTextDone, True, True, False, "cancelled", PROGRESS_EVENTS
    ),
}
OPENAI_SLUG = "openai:"  # precedes the names of types that a wire does not have
OPENAI_ROLES = frozenset(
    {
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.custom_tool_call_input.delta",
        "response.custom_tool_call_input.done",
    }
)
PUBLISHED_EVENTS = frozenset(ROLES) - OPENAI_ROLES | LIFECYCLE_EVENTS
PUBLISHED_ITEMS = frozenset({"message", "function_call", "function_call_output", "reasoning", "compaction"})

# values that the published schema allows in an echoed `reasoning`; models and servers have others too
PUBLISHED_EFFORTS = frozenset({"none", "low", "medium", "high", "xhigh"})
PUBLISHED_SUMMARIES = frozenset({"concise", "detailed", "auto"})

"""The names of Google's Interactions API, for both directions.

An interaction is a list of steps: what the user said, what the model said and thought, its calls, and the
calls and results of the tools that Google runs. A step that the protocol has no item for is kept whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.sse import DONE

Json = dict[str, Any]
DIALECT: Final = "interactions"
SLUG: Final = "interactions:"
"""With the type of a step or an annotation, the type of the item or annotation that has it."""
STEPS: Final = "interactions:steps"
"""The field of an item with the steps that it was made of."""
STEP: Final = "interactions:step"
"""The type of the event with deltas that the protocol can't express, before the end of their items."""
DELTAS: Final = "deltas"
"""The field of that event, and of `Response.native`, with those deltas: the index of an item → the deltas of
its step."""
ANSWER: Final = "answer"
"""The field of `Response.native` with those of the interaction."""

USER: Final = "user_input"
MODEL: Final = "model_output"
THOUGHT: Final = "thought"
CALL: Final = "function_call"
RESULT: Final = "function_result"
CALLS: Final = {
    "google_search_call": "google_search_result",
    "code_execution_call": "code_execution_result",
    "url_context_call": "url_context_result",
    "file_search_call": "file_search_result",
    "google_maps_call": "google_maps_result",
    "retrieval_call": "retrieval_result",
    "tool_search_call": "tool_search_result",
    "processing_call": "processing_result",
    "mcp_server_tool_call": "mcp_server_tool_result",
}
"""The steps of tools that Google runs: the type of a call → the type of its result."""
MEDIA: Final = ("image", "audio", "document", "video")
"""The types of content besides text."""

CREATED: Final = "interaction.created"
STATUS: Final = "interaction.status_update"
COMPLETED: Final = "interaction.completed"
START: Final = "step.start"
DELTA: Final = "step.delta"
STOP: Final = "step.stop"
ERROR: Final = "error"

RUNNING: Final = "in_progress"
ACTION: Final = "requires_action"
"""The status of an interaction that waits for the results of calls."""
CUT: Final = "max_tokens"
ENDED: Final = {
    "completed": "stop",
    ACTION: "tool_calls",
    "incomplete": CUT,
    "budget_exceeded": CUT,
    "requires_continuation": CUT,
}
"""The statuses with which an answer ends → the reason in the machine's words."""

TIERS: Final = {"default": "standard", "flex": "flex", "priority": "priority"}
"""Service tiers: the protocol's names → Google's."""
TIERS_OF_GOOGLE: Final = {theirs: ours for ours, theirs in TIERS.items()}
COUNTS: Final = (
    "total_input_tokens",
    "total_output_tokens",
    "total_thought_tokens",
    "total_cached_tokens",
    "total_tool_use_tokens",
    "total_tokens",
)
"""The counts of a `usage`."""


def encode_sse(events: Iterable[Mapping[str, Any]]) -> bytes:
    """Encode events as server-sent events, each with its `event_type` as the name."""
    frames = ((each["event_type"].encode(), encode(each)) for each in events)
    return b"".join([b"event: %b\ndata: %b\n\n" % frame for frame in frames])


def sse_end() -> bytes:
    """Return the frame after the last event."""
    return b"event: done\n" + DONE


def objects_in(fields: Json, name: str, diagnostics: Diagnostics) -> list[Json]:
    """Return the objects of an array. Anything else in its place, or among them, is a loss."""
    value = fields.get(name)
    if value is not None and not isinstance(value, list):
        report_unreadable(name, value, diagnostics)
        return []
    objects: list[Json] = []
    for each in value or ():
        objects.append(each) if isinstance(each, dict) else report_unreadable(name, each, diagnostics)
    return objects


def report_unreadable(name: str, value: object, diagnostics: Diagnostics) -> None:
    """Report a value of a wrong type."""
    diagnostics.loss(name, f"can't be read: {type(value).__name__}")

"""What Copilot Chat hands from its stream readers to its agent loop, under its own names.

A reader calls `finishedCallback(text, index, delta)` for each piece (`CallbackChunk`) and yields a
completion for each choice that ended (`Completion`). On the wire each is one JSON line.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct, field

from bridge.dialects.copilot.growing import TextSoFar


class BeginToolCall(Struct, frozen=True):
    """The model starts to call a tool; `id` is the call id."""

    name: str
    id: str


class ToolCall(Struct, frozen=True):
    """A whole call. `arguments` is JSON text."""

    name: str
    arguments: str
    id: str


class ToolCallUpdate(Struct, frozen=True):
    """A call as far as it came: `arguments` is all of them so far."""

    name: str
    arguments: TextSoFar
    id: str


class CopilotError(Struct, frozen=True, omit_defaults=True):
    """One error; `identifier` names the request's field at fault."""

    type: str
    code: str
    message: str
    agent: str
    identifier: str | None = None


class Thinking(Struct, frozen=True, omit_defaults=True):
    """A piece of reasoning, or its encrypted form. Pieces of one block share `id`."""

    id: str
    text: str | None = None
    encrypted: str | None = None
    metadata: dict[str, Any] | None = None


class ResponseDelta(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """`IResponseDelta`. Fields it has no use for are left out; `text` is always there."""

    text: str
    logprobs: dict[str, Any] | None = None
    begin_tool_calls: list[BeginToolCall] | None = None
    copilot_tool_call_stream_updates: list[ToolCallUpdate] | None = None
    copilot_tool_calls: list[ToolCall] | None = None
    thinking: Thinking | None = None
    copilot_errors: list[CopilotError] | None = None
    copilot_references: list[Any] | None = None
    stateful_marker: str | None = None
    ip_citations: Any = None
    code_vuln_annotations: Any = None
    copilot_confirmation: Any = None
    context_management: Any = None
    retry_reason: Any = None
    phase: str | None = None
    deprecated_function_calls: list[dict[str, str]] | None = field(
        default=None, name="_deprecatedCopilotFunctionCalls"
    )


class CallbackChunk(Struct, frozen=True):
    """One call of the callback: all text so far, the choice, the delta."""

    text: TextSoFar
    index: int
    delta: ResponseDelta


class Solution(Struct, frozen=True, rename="camel"):
    """The pieces of a choice's text, and those of them not yet handed out."""

    text: list[str]
    new_text: list[str]


class RequestId(Struct, frozen=True, rename="camel"):
    """Where the completion came from; `created` is Unix seconds."""

    completion_id: str
    created: int
    header_request_id: str = ""
    git_hub_request_id: str = ""
    server_experiments: str = ""
    deployment_id: str = ""


class Completion(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """How a choice ended. `reason` is one of Copilot's FinishedCompletionReason values, `usage` its
    APIUsage."""

    solution: Solution
    reason: str
    request_id: RequestId
    index: int
    usage: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


Chunk = CallbackChunk | Completion


def _hook(value: TextSoFar) -> str:
    return str(value)


encode_chunk = msgspec.json.Encoder(enc_hook=_hook).encode
"""A chunk → one line of JSON, without the line end."""


def as_dict(chunk: Chunk) -> dict[str, Any]:
    """A chunk as plain values."""
    plain: dict[str, Any] = msgspec.to_builtins(chunk, enc_hook=_hook)
    return plain


# fields of a delta that no event has a place for, and the extension events that carry them whole
_FIELDS = {
    # on the wire → (in ResponseDelta, event)
    "ipCitations": ("ip_citations", "copilot:ip_citations"),
    "codeVulnAnnotations": ("code_vuln_annotations", "copilot:code_vuln_annotations"),
    "copilotConfirmation": ("copilot_confirmation", "copilot:confirmation"),
    "contextManagement": ("context_management", "copilot:context_management"),
    "retryReason": ("retry_reason", "copilot:retry_reason"),
    "statefulMarker": ("stateful_marker", "copilot:stateful_marker"),
}
# references that do not cite an address; those have events of their own
REFERENCES = "copilot:references"

EVENT_OF_FIELD = {wire: event for wire, (_, event) in _FIELDS.items()}
FIELD_OF_EVENT = {event: field for field, event in _FIELDS.values()} | {REFERENCES: "copilot_references"}

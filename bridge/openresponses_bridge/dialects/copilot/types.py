"""What Copilot Chat passes from its stream readers to its agent loop, under its own names.

A reader calls `finishedCallback(text, index, delta)` for each piece (`CallbackChunk`) and yields a
completion for each choice that ended (`FinishedCompletion`). On the wire each is one JSON line.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from openresponses_bridge.protocol import codec

# Copilot's callback gets the whole text so far, and the whole arguments so far, with every delta. Building
# them for each delta takes time quadratic in the length, so a chunk has a view, and only an encoder of chunks
# builds the text (law E12).


class TextAccumulator:
    """The pieces of a text, in order. `pieces` is what Copilot keeps as the solution's text."""

    __slots__ = ("pieces",)

    def __init__(self) -> None:
        self.pieces: list[str] = []

    def add(self, piece: str) -> TextPrefix:
        self.pieces.append(piece)
        return TextPrefix(self.pieces, len(self.pieces))

    def current(self) -> TextPrefix:
        return TextPrefix(self.pieces, len(self.pieces))


class TextPrefix:
    """A prefix of an accumulated text; equal to the string of that prefix."""

    __slots__ = ("_count", "_pieces")

    def __init__(self, pieces: list[str], count: int) -> None:
        self._pieces = pieces
        self._count = count

    def __str__(self) -> str:
        return "".join(self._pieces[: self._count])

    def __repr__(self) -> str:
        return repr(str(self))

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, str | TextPrefix) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))


class BeginToolCall(Struct, frozen=True):
    """The announcement of a tool call; `id` is the call id."""

    name: str
    id: str


class ToolCall(Struct, frozen=True):
    """A whole call. `arguments` is JSON text."""

    name: str
    arguments: str
    id: str


class ToolCallUpdate(Struct, frozen=True):
    """A call so far; `arguments` is all of its arguments until now."""

    name: str
    arguments: TextPrefix
    id: str


class CopilotError(Struct, frozen=True, omit_defaults=True):
    """One error; `identifier` is the name of the wrong field of the request."""

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
    """`IResponseDelta`. Empty fields are left out, except `text`."""

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

    text: TextPrefix
    index: int
    delta: ResponseDelta


class Solution(Struct, frozen=True, rename="camel"):
    """The pieces of a choice's text, and those that were not passed on yet."""

    text: list[str]
    new_text: list[str]


class RequestId(Struct, frozen=True, rename="camel"):
    """The origin of the completion; `created` is Unix seconds."""

    completion_id: str
    created: int
    header_request_id: str = ""
    git_hub_request_id: str = ""
    server_experiments: str = ""
    deployment_id: str = ""


class FinishedCompletionReason(StrEnum):
    """Why a choice ended. The last three are Copilot's own: its reader stopped reading; its stream ended
    without a reason; everything that it waited for had come."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    FUNCTION_CALL = "function_call"
    CONTENT_FILTER = "content_filter"
    SERVER_ERROR = "error"
    CLIENT_TRIMMED = "client-trimmed"
    CLIENT_ITERATION_DONE = "Iteration Done"
    CLIENT_DONE = "DONE"


class FunctionCall(Struct, frozen=True):
    """A whole call in the older form, which has no id. `arguments` is JSON text."""

    name: str
    arguments: str


class FinishedCompletion(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The end of a choice. `tool_calls` are its whole calls, or `function_call` is the first one in the older
    form, as `reason` says; JSON leaves them out, since the last delta has them. `usage` is Copilot's
    APIUsage."""

    solution: Solution
    reason: FinishedCompletionReason
    request_id: RequestId
    index: int
    usage: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    tool_calls: list[ToolCall] | None = None
    function_call: FunctionCall | None = None


Chunk = CallbackChunk | FinishedCompletion


def _hook(value: TextPrefix) -> str:
    return str(value)


_encode = msgspec.json.Encoder(enc_hook=_hook).encode


def encode_chunk(chunk: Chunk) -> bytes:
    """Encode a chunk as one line of JSON, without the line end. Half a surrogate pair is sent as an escape,
    as it was received."""
    try:
        return _encode(chunk if type(chunk) is CallbackChunk else _on_the_wire(chunk))
    except UnicodeEncodeError:
        return codec.encode(as_dict(chunk))


def as_dict(chunk: Chunk) -> dict[str, Any]:
    """Return a chunk as the plain values of its JSON."""
    plain: dict[str, Any] = msgspec.to_builtins(_on_the_wire(chunk), enc_hook=_hook)
    return plain


def _on_the_wire(chunk: Chunk) -> Chunk:
    if isinstance(chunk, FinishedCompletion) and (chunk.tool_calls or chunk.function_call):
        return replace(chunk, tool_calls=None, function_call=None)
    return chunk


# fields of a delta that no event has, and the extension events that have them whole
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

"""The response resource: schema ResponseResource, all 31 fields required."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from msgspec import UNSET, Struct, UnsetType, field

from openresponses_bridge.protocol.content import OutputTextContent
from openresponses_bridge.protocol.items import Item, Message
from openresponses_bridge.protocol.tools import Tool, ToolChoice
from openresponses_bridge.protocol.unknown import OURS, Extensible, UnknownFormat
from openresponses_bridge.protocol.usage import Usage

PROTOCOL: Final = "responses"
"""The name of the dialect that is the protocol itself."""
NATIVE: Final = f"{OURS}native"
Native = dict[str, Any] | UnsetType
"""The name of a dialect → an upstream's further fields in that dialect, for clients of the same API; UNSET if
there are none."""


class ResponseError(Extensible, frozen=True):
    """Schema Error: the `error` of a failed response."""

    code: str
    message: str
    native: Native = field(default=UNSET, name=NATIVE)


class ErrorPayload(Struct, frozen=True):
    """Schema ErrorPayload: the `error` of an `error` event and of an HTTP error body."""

    type: str
    code: str | None
    message: str
    param: str | None
    headers: dict[str, str] | UnsetType = UNSET
    native: Native = field(default=UNSET, name=NATIVE)


class ErrorBody(Struct, frozen=True):
    """The body of a refused HTTP request: `{"error": {type, code, message, param}}`."""

    error: ErrorPayload


Verbosity = Literal["low", "medium", "high"]
Truncation = Literal["auto", "disabled"]
STOP_SEQUENCE: Final = f"{OURS}stop_sequence"
UPSTREAM_MODEL: Final = f"{OURS}upstream_model"


class TextFormat(Struct, frozen=True, tag="text", tag_field="type"):
    """Schema TextResponseFormat: plain text."""

    type: ClassVar[Literal["text"]] = "text"


class JsonObjectFormat(Struct, frozen=True, tag="json_object", tag_field="type"):
    """Schema JsonObjectResponseFormat: any JSON object."""

    type: ClassVar[Literal["json_object"]] = "json_object"


class JsonSchemaFormat(Struct, frozen=True, tag="json_schema", tag_field="type"):
    """Schema JsonSchemaResponseFormat, the echo of a request's format.

    The published schema allows only null for `schema` here; OpenAI echoes the schema itself.
    """

    type: ClassVar[Literal["json_schema"]] = "json_schema"
    name: str
    description: str | None
    schema: dict[str, Any] | None
    strict: bool


KnownFormat = TextFormat | JsonObjectFormat | JsonSchemaFormat
if TYPE_CHECKING:
    Format = KnownFormat | UnknownFormat
else:
    Format = KnownFormat


class TextField(Extensible, frozen=True):
    """Schema TextField."""

    format: Format
    verbosity: Verbosity | UnsetType = UNSET


class Reasoning(Extensible, frozen=True):
    """Schema Reasoning: the effort and summary that the request asked for. Strings, since servers add
    levels."""

    effort: str | None
    summary: str | None


class IncompleteDetails(Extensible, frozen=True):
    """Schema IncompleteDetails: max_output_tokens, content_filter, cancelled …"""

    reason: str


class Response(Extensible, frozen=True, kw_only=True):
    """Schema ResponseResource. Times are Unix seconds, limits are tokens. Our `stop_sequence`: the stop
    sequence of the request at which the text of a completed response ended; our `upstream_model`: the name
    that the upstream gives its model, if it is another than `model`; our `native`: what else the upstream
    said, for clients of its API."""

    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: str
    incomplete_details: IncompleteDetails | None
    model: str
    previous_response_id: str | None
    instructions: str | None
    output: list[Item]
    error: ResponseError | None
    tools: list[Tool]
    tool_choice: ToolChoice
    truncation: Truncation
    parallel_tool_calls: bool
    text: TextField
    top_p: float
    presence_penalty: float
    frequency_penalty: float
    top_logprobs: int
    temperature: float
    reasoning: Reasoning | None
    usage: Usage | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    store: bool
    background: bool
    service_tier: str
    metadata: Any
    safety_identifier: str | None
    prompt_cache_key: str | None
    stop_sequence: str | UnsetType = field(default=UNSET, name=STOP_SEQUENCE)
    upstream_model: str | UnsetType = field(default=UNSET, name=UPSTREAM_MODEL)
    native: Native = field(default=UNSET, name=NATIVE)

    @property
    def output_text(self) -> str:
        """All text of the output's messages, joined."""
        return text_of_messages(self.output)


def text_of_messages(items: Iterable[Item]) -> str:
    """Return all text of the messages among these items, joined."""
    return "".join(
        part.text
        for item in items
        if type(item) is Message
        for part in item.content
        if type(part) is OutputTextContent
    )


# The values of fields that the request did not set.
RESPONSE_DEFAULTS: dict[str, Any] = {
    "object": "response",
    "completed_at": None,
    "incomplete_details": None,
    "previous_response_id": None,
    "instructions": None,
    "output": [],
    "error": None,
    "tools": [],
    "tool_choice": "auto",
    "truncation": "disabled",
    "parallel_tool_calls": True,
    "text": TextField(TextFormat()),
    "top_p": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "top_logprobs": 0,
    "temperature": 1.0,
    "reasoning": None,
    "usage": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "store": True,
    "background": False,
    "service_tier": "default",
    "metadata": {},
    "safety_identifier": None,
    "prompt_cache_key": None,
}


class CompactResource(Struct, frozen=True, kw_only=True):
    """Schema CompactResource: an input window that begins a new chain, not a response."""

    id: str
    object: Literal["response.compaction"]
    output: list[Item]
    created_at: int
    usage: Usage

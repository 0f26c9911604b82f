"""The schemas of the document, out of the structs that requests are decoded into and answers encoded from.

What the structs can't say is added from the same tables that the lenient decoder walks: every place that
takes one of several objects takes extensions too, and input messages may come without `type`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from openresponses_bridge.dialects.vscode import LanguageModelErrorBody
from openresponses_bridge.protocol import vocabulary
from openresponses_bridge.protocol.events import KnownEvent
from openresponses_bridge.protocol.request import (
    CompactRequest,
    CreateResponse,
    Native,
    ResponseCreateMessage,
    WebSocketError,
)
from openresponses_bridge.protocol.response import OURS, CompactResource, ErrorBody, Response

# Bodies outside the protocol: as OpenAI's API reference has them, and health.


class Model(Struct, frozen=True):
    """A model that can be asked for by this id."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(Struct, frozen=True):
    """All models that are known by name."""

    object: Literal["list"]
    data: list[Model]


class DeletedResponse(Struct, frozen=True):
    """The response is forgotten."""

    id: str
    object: Literal["response"]
    deleted: Literal[True]


class InputItemList(Struct, frozen=True):
    """A page of a response's input items, each with its id."""

    object: Literal["list"]
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


class InputTokens(Struct, frozen=True):
    """How many tokens the input has."""

    object: Literal["response.input_tokens"]
    input_tokens: int


class Spent(Struct, frozen=True):
    """What some requests that have ended used."""

    requests: int
    failed: int
    input_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    output_tokens: int
    reasoning_tokens: int
    total_tokens: int
    estimated: bool


class UsageRow(Spent, frozen=True):
    """What was spent on one day with one model. All counts are tokens; `estimated`: not all of them are the
    upstream's."""

    day: str
    model: str
    estimated_requests: int


class AgentUsage(Spent, frozen=True):
    """What one agent (`prompt_cache_key`, else `safety_identifier` or `user`) spent, and how full its model's
    context is."""

    agent: str
    model: str
    last_input_tokens: int
    max_input_tokens: int | None


class UsageReport(Spent, frozen=True):
    """Sums, rows by day and model, agents; `since` is Unix seconds."""

    object: Literal["usage"]
    since: int
    estimated_requests: int
    data: list[UsageRow]
    agents: list[AgentUsage]


class MessageTokens(Struct, frozen=True):
    """How many tokens the input has."""

    input_tokens: int


class CountTokensRequest(Struct, frozen=True, kw_only=True):
    """A Messages request without its limit; the fields not named here are Anthropic's API reference's."""

    model: str
    messages: list[dict[str, Any]]


class Status(Struct, frozen=True):
    """The state of the process."""

    status: str


class ChatCompletionRequest(Struct, frozen=True, kw_only=True):
    """A Chat Completions request; the fields not named here are OpenAI's API reference's."""

    model: str
    messages: list[dict[str, Any]]
    stream: bool | None = None


class ChatCompletion(Struct, frozen=True, kw_only=True):
    """A Chat Completions answer."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[dict[str, Any]]
    usage: dict[str, Any] | None = None


class MessagesRequest(Struct, frozen=True, kw_only=True):
    """A request of Anthropic's Messages API; the fields not named here are that API's reference's."""

    model: str
    max_tokens: int
    messages: list[dict[str, Any]]
    stream: bool | None = None


class AnthropicMessage(Struct, frozen=True, kw_only=True):
    """An answer of Anthropic's Messages API."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]]
    stop_reason: str | None
    usage: dict[str, Any]


class AnthropicError(Struct, frozen=True):
    """An error in that API's shape: `error` holds `type` and `message`."""

    type: Literal["error"]
    error: dict[str, Any]


class ChatRequest(Struct, frozen=True, kw_only=True):
    """A VS Code language-model request: messages of parts, tools and options. `JSON.stringify` of VS Code's
    own messages will do. Without `store: false` the response is kept, and a stateful marker names it."""

    model: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    toolMode: int | str | None = None  # noqa: N815 - VS Code's names
    modelOptions: dict[str, Any] | None = None  # noqa: N815
    includeEncryptedThinking: bool | None = None  # noqa: N815
    store: bool | None = None


class LanguageModel(Struct, frozen=True, kw_only=True):
    """VS Code's LanguageModelChatInformation. Limits are tokens."""

    id: str
    name: str
    family: str
    version: str
    maxInputTokens: int  # noqa: N815
    maxOutputTokens: int  # noqa: N815
    capabilities: dict[str, Any]


class LanguageModels(Struct, frozen=True, kw_only=True):
    """The models, and what changed since the version that was asked about: lists of ids `added`, `removed`
    and `changed`, or null where that version is not known."""

    version: str
    models: list[LanguageModel]
    changes: dict[str, Any] | None


class TokensRequest(Struct, frozen=True, kw_only=True):
    """What is to be counted: `text`, a string or a message, or `message`."""

    model: str
    text: str | dict[str, Any] | None = None
    message: dict[str, Any] | None = None


class Tokens(Struct, frozen=True, kw_only=True):
    """About how many tokens it is."""

    tokens: int


class ListedResponse(Struct, frozen=True, kw_only=True):
    """A stored response without what it holds."""

    id: str
    status: str
    created_at: float
    previous_response_id: str | None
    last_sequence: int
    model: str
    asked: str


class ListedResponses(Struct, frozen=True, kw_only=True):
    """A page of them; `next` is the `after` of the next one."""

    object: Literal["list"]
    data: list[ListedResponse]
    next: str | None


class MeasuredContext(Struct, frozen=True, kw_only=True):
    """Sums, and `entries` of `from` (`earlier` for what came before this request), `kind`, `label`, `bytes`
    and `tokens` each."""

    object: Literal["context"]
    bytes: int
    tokens: int
    entries: list[dict[str, Any]]


Schema = dict[str, Any]
BEYOND: Final = f"{OURS}beyond"
NATIVE: Final = f"{OURS}native"
STREAM_EVENT: Final = "StreamEvent"
_TYPELESS: Final = "MessageWithoutType"
_REFERENCE: Final = "#/components/schemas/"

ROOTS: Final[tuple[type[Any], ...]] = (
    CreateResponse,
    Response,
    CompactRequest,
    CompactResource,
    ErrorBody,
    ResponseCreateMessage,
    WebSocketError,
    Model,
    ModelList,
    DeletedResponse,
    InputItemList,
    InputTokens,
    ListedResponses,
    MeasuredContext,
    Status,
    ChatCompletionRequest,
    ChatCompletion,
    MessagesRequest,
    AnthropicMessage,
    AnthropicError,
    CountTokensRequest,
    MessageTokens,
    UsageReport,
    ChatRequest,
    LanguageModels,
    TokensRequest,
    Tokens,
    LanguageModelErrorBody,
)


def reference(name: str) -> Schema:
    """A reference to the schema of this name."""
    return {"$ref": _REFERENCE + name}


def schemas() -> dict[str, Schema]:
    """Every schema, by the name of its struct; `StreamEvent` is any event of a stream."""
    (*_, event), found = msgspec.json.schema_components(
        [*ROOTS, KnownEvent], ref_template=_REFERENCE + "{name}"
    )
    for name in ("CreateResponse", "CompactRequest", "ResponseCreateMessage"):
        for internal in (BEYOND, NATIVE):
            found[name]["properties"].pop(internal, None)
    found.pop(Native.__name__, None)
    found[STREAM_EVENT] = {"description": "Any event of a stream.", **event}
    found[_TYPELESS] = _without_type(found["MessageParam"])
    _admit_extensions(found[STREAM_EVENT], vocabulary.EVENTS)
    for struct, fields in vocabulary.CHILDREN.items():
        properties = found.get(struct.__name__, {}).get("properties", {})
        for name, slot in fields.items():
            if name in properties:
                _admit_extensions(properties[name], slot)
    return found


def _without_type(message: Schema) -> Schema:
    """A message as several clients send it: recognised by its role."""
    kept = {name: schema for name, schema in message["properties"].items() if name != "type"}
    required = [name for name in message["required"] if name != "type"]
    return {
        "type": "object",
        "description": "A message whose type is not said.",
        "properties": kept,
        "required": required,
        "not": {"required": ["type"]},
    }


def _admit_extensions(schema: Schema, slot: vocabulary.Slot) -> None:
    """Let objects of other types stand where the slot's stand; they pass through as they are."""
    for union in _unions(schema):
        mapping = union.pop("discriminator")["mapping"]
        kind = {"type": "string", "not": {"enum": sorted(mapping)}}
        union["anyOf"].append(
            {
                "type": "object",
                "description": "An extension (`slug:name`) or what another server defines.",
                "required": ["type"],
                "properties": {"type": kind},
            }
        )
        if slot is vocabulary.INPUT_ITEMS:
            union["anyOf"].append(reference(_TYPELESS))


def _unions(schema: Any) -> Iterator[Schema]:
    """The unions within a schema whose members are distinguished by `type`."""
    if isinstance(schema, dict):
        if "discriminator" in schema:
            yield schema
        for inner in list(schema.values()):
            yield from _unions(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _unions(inner)

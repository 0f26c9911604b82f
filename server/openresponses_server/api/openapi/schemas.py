"""The schemas of the document, generated from the structs that requests are decoded into and answers are
encoded from.

What the structs can't express is added from the tables of the lenient decoder: unions of objects accept
extensions too, and input messages may have no `type`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from openresponses_bridge.dialects.vscode import LanguageModelErrorBody
from openresponses_bridge.protocol import vocabulary
from openresponses_bridge.protocol.events import KnownEvent
from openresponses_bridge.protocol.request import (
    CompactRequest,
    CreateConversation,
    CreateConversationItems,
    CreateResponse,
    ForeignFields,
    Native,
    ResponseCreateMessage,
    SearchRequest,
    UpdateConversation,
    WebSocketError,
)
from openresponses_bridge.protocol.response import CompactResource, ErrorBody, Response
from openresponses_bridge.protocol.unknown import EXTRA, OURS
from openresponses_server.api.inspector.routes import CostRequest

# Docstrings of these classes are descriptions in the document.


class Model(Struct, frozen=True):
    """A model, which requests name by its id."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(Struct, frozen=True):
    """The models that are known by name."""

    object: Literal["list"]
    data: list[Model]


class DeletedResponse(Struct, frozen=True):
    """The response was deleted."""

    id: str
    object: Literal["response"]
    deleted: Literal[True]


class Conversation(Struct, frozen=True):
    """A conversation without its items. `created_at` is in Unix seconds."""

    id: str
    object: Literal["conversation"]
    created_at: int
    metadata: dict[str, str]


class DeletedConversation(Struct, frozen=True):
    """The conversation was deleted."""

    id: str
    object: Literal["conversation.deleted"]
    deleted: Literal[True]


class ConversationItem(Struct, frozen=True):
    """An item with the id that it has in its conversation, and the fields of its type."""

    id: str
    type: str


class InputItemList(Struct, frozen=True):
    """A page of the input items of a response, or of the items of a conversation, each with its id."""

    object: Literal["list"]
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


class InputTokens(Struct, frozen=True):
    """The number of tokens of the input."""

    object: Literal["response.input_tokens"]
    input_tokens: int


class SearchHit(Struct, frozen=True):
    """A page that was found. `ref_id` is its address."""

    ref_id: str
    url: str
    title: str
    snippet: str


class SearchAnswer(Struct, frozen=True):
    """What the commands of a search gave: text for a model, and what was found if something was searched
    for."""

    output: str
    results: list[SearchHit] | UnsetType = UNSET


class UsageTotals(Struct, frozen=True):
    """The usage of ended requests. `cost_usd` is a decimal number, null if the cost of one of them is not
    known."""

    requests: int
    failed: int
    input_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    output_tokens: int
    reasoning_tokens: int
    total_tokens: int
    estimated: bool
    cost_usd: str | None


class UsageRow(UsageTotals, frozen=True):
    """The usage of one day and one model, in tokens. `estimated`: not all counts were reported by the
    upstream."""

    day: str
    model: str
    estimated_requests: int


class AgentUsage(UsageTotals, frozen=True):
    """The usage of one agent (`prompt_cache_key`, else `safety_identifier` or `user`), and how full its
    model's context is."""

    agent: str
    model: str
    last_input_tokens: int
    max_input_tokens: int | None


class UsageReport(UsageTotals, frozen=True):
    """Totals, rows by day and model, and agents. `since` is Unix seconds."""

    object: Literal["usage"]
    since: int
    estimated_requests: int
    data: list[UsageRow]
    agents: list[AgentUsage]


class MessageTokens(Struct, frozen=True):
    """The number of tokens of the input."""

    input_tokens: int


class CountTokensRequest(Struct, frozen=True, kw_only=True):
    """A Messages request without `max_tokens`. All other fields are as in Anthropic's API reference."""

    model: str
    messages: list[dict[str, Any]]


class Status(Struct, frozen=True):
    """The state of the process."""

    status: str


class RouteState(Struct, frozen=True):
    """An upstream with one of its keys or, with `model`, that model there. `key` counts from 1, `key_end` are
    the last four characters of a long one. `cause` is as in the setting `failover_on`. `cooldown_until` is
    Unix seconds."""

    upstream: str
    key: int
    key_end: str
    model: str | None
    state: Literal["closed", "limited", "open", "half_open"]
    cause: str | None
    cooldown_until: int | None
    in_progress: int


class RouteList(Struct, frozen=True):
    """The routes of the worker that answers."""

    object: Literal["list"]
    data: list[RouteState]


class ForwardedRequest(Struct, frozen=True, kw_only=True):
    """A request that goes on to the model's upstream. All other fields are as in the provider's API
    reference. `model` is left out only where the settings have a default one."""

    model: str | None = None


class ChatCompletionRequest(Struct, frozen=True, kw_only=True):
    """A Chat Completions request. All other fields are as in OpenAI's API reference."""

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
    """A request of Anthropic's Messages API. All other fields are as in Anthropic's API reference."""

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
    """An error in the shape of Anthropic's API: `error` has `type` and `message`."""

    type: Literal["error"]
    error: dict[str, Any]


class GenerateContentRequest(Struct, frozen=True, kw_only=True):
    """A request of the Gemini API. All other fields are as in Google's API reference, in camelCase or
    snake_case."""

    contents: list[dict[str, Any]]
    systemInstruction: dict[str, Any] | str | None = None  # noqa: N815 - Google's names
    tools: list[dict[str, Any]] | None = None
    generationConfig: dict[str, Any] | None = None  # noqa: N815


class GenerateContentResponse(Struct, frozen=True, kw_only=True):
    """An answer of the Gemini API."""

    candidates: list[dict[str, Any]] | None = None
    promptFeedback: dict[str, Any] | None = None  # noqa: N815
    usageMetadata: dict[str, Any] | None = None  # noqa: N815
    modelVersion: str | None = None  # noqa: N815
    responseId: str | None = None  # noqa: N815


class GeminiCountRequest(Struct, frozen=True, kw_only=True):
    """A request of which the tokens are counted: its contents, or all of it in `generateContentRequest`."""

    contents: list[dict[str, Any]] | None = None
    generateContentRequest: GenerateContentRequest | None = None  # noqa: N815


class GeminiTokens(Struct, frozen=True):
    """The number of tokens of the input."""

    totalTokens: int  # noqa: N815


class GeminiModel(Struct, frozen=True, kw_only=True):
    """A model in the shape of the Gemini API. Limits are in tokens."""

    name: str
    version: str
    displayName: str  # noqa: N815
    description: str
    supportedGenerationMethods: list[str]  # noqa: N815
    inputTokenLimit: int | None = None  # noqa: N815
    outputTokenLimit: int | None = None  # noqa: N815
    thinking: bool | None = None


class GeminiModels(Struct, frozen=True, kw_only=True):
    """A page of models."""

    models: list[GeminiModel]
    nextPageToken: str | None = None  # noqa: N815


class GoogleError(Struct, frozen=True):
    """An error in Google's shape: `error` has `code`, `message`, `status` and `details`."""

    error: dict[str, Any]


class ChatRequest(Struct, frozen=True, kw_only=True):
    """A VS Code language-model request: messages of parts, tools and options. Messages may be the result of
    `JSON.stringify` of VS Code's own. Unless `store` is false, the response is stored, and a stateful marker
    names it."""

    model: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    toolMode: int | str | None = None  # noqa: N815 - VS Code's names
    modelOptions: dict[str, Any] | None = None  # noqa: N815
    includeEncryptedThinking: bool | None = None  # noqa: N815
    store: bool | None = None


class LanguageModel(Struct, frozen=True, kw_only=True):
    """VS Code's LanguageModelChatInformation. Limits are in tokens."""

    id: str
    name: str
    family: str
    version: str
    maxInputTokens: int  # noqa: N815
    maxOutputTokens: int  # noqa: N815
    capabilities: dict[str, Any]


class LanguageModels(Struct, frozen=True, kw_only=True):
    """The models, and the changes since the version in the request: lists of ids `added`, `removed` and
    `changed`, or null if that version is not known."""

    version: str
    models: list[LanguageModel]
    changes: dict[str, Any] | None


class TokensRequest(Struct, frozen=True, kw_only=True):
    """The text to count: `text`, a string or a message, or `message`."""

    model: str
    text: str | dict[str, Any] | None = None
    message: dict[str, Any] | None = None


class Tokens(Struct, frozen=True, kw_only=True):
    """The approximate number of tokens."""

    tokens: int


class ListedResponse(Struct, frozen=True, kw_only=True):
    """A stored response without its output. `asked` is the beginning of its input's last text."""

    id: str
    status: str
    created_at: float
    previous_response_id: str | None
    last_sequence: int
    model: str
    asked: str


class ListedResponses(Struct, frozen=True, kw_only=True):
    """A page of stored responses. `next` is the parameter `after` for the next page."""

    object: Literal["list"]
    data: list[ListedResponse]
    next: str | None


class MeasuredContext(Struct, frozen=True, kw_only=True):
    """Totals, and `entries`, each with `from` (`earlier` for items before this request), `kind`, `label`,
    `bytes` and `tokens`."""

    object: Literal["context"]
    bytes: int
    tokens: int
    entries: list[dict[str, Any]]


class Cost(Struct, frozen=True):
    """A cost in US dollars, as a decimal number, and that of the tokens of each round; null if it is not
    known."""

    object: Literal["cost"]
    cost_usd: str | None
    rounds: list[str]


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
    CreateConversation,
    CreateConversationItems,
    UpdateConversation,
    Conversation,
    DeletedConversation,
    ConversationItem,
    InputItemList,
    InputTokens,
    SearchRequest,
    SearchAnswer,
    ListedResponses,
    MeasuredContext,
    CostRequest,
    Cost,
    Status,
    ForwardedRequest,
    ChatCompletionRequest,
    ChatCompletion,
    MessagesRequest,
    AnthropicMessage,
    AnthropicError,
    CountTokensRequest,
    MessageTokens,
    UsageReport,
    RouteList,
    GenerateContentRequest,
    GenerateContentResponse,
    GeminiCountRequest,
    GeminiTokens,
    GeminiModels,
    GoogleError,
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
    """The schemas by the names of their structs; `StreamEvent` is any event of a stream."""
    (*_, event), found = msgspec.json.schema_components(
        [*ROOTS, KnownEvent], ref_template=_REFERENCE + "{name}"
    )
    for schema in found.values():
        for internal in (BEYOND, NATIVE, EXTRA):
            schema.get("properties", {}).pop(internal, None)
    for unused in (Native, ForeignFields):
        found.pop(unused.__name__, None)
    found[STREAM_EVENT] = {"description": "Any event of a stream.", **event}
    found[_TYPELESS] = _without_type(found["MessageParam"])
    _allow_extensions(found[STREAM_EVENT], vocabulary.EVENTS)
    for struct, fields in vocabulary.CHILDREN.items():
        properties = found.get(struct.__name__, {}).get("properties", {})
        for name, slot in fields.items():
            if name in properties:
                _allow_extensions(properties[name], slot)
    return found


def _without_type(message: Schema) -> Schema:
    """The schema of a message without `type`, as several clients send it."""
    kept = {name: schema for name, schema in message["properties"].items() if name != "type"}
    required = [name for name in message["required"] if name != "type"]
    return {
        "type": "object",
        "description": "A message without `type`.",
        "properties": kept,
        "required": required,
        "not": {"required": ["type"]},
    }


def _allow_extensions(schema: Schema, slot: vocabulary.Slot) -> None:
    """Add objects of other types to the unions of a slot; they pass through unchanged."""
    for union in _unions(schema):
        mapping = union.pop("discriminator")["mapping"]
        kind = {"type": "string", "not": {"enum": sorted(mapping)}}
        union["anyOf"].append(
            {
                "type": "object",
                "description": "An extension (`slug:name`), or an object that another server defines.",
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

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

from openresponses_bridge.dialects.table import surfaces
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

# The docstrings of these classes are descriptions in the document.


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
    """The answer to the commands of a search: text for a model, and the results if something was searched
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


class LanguageModel(Struct, frozen=True, kw_only=True):
    """VS Code's LanguageModelChatInformation. Limits are in tokens. `configurationSchema` is there if the
    model's effort can be chosen, `pricing` if the server has a price."""

    id: str
    name: str
    family: str
    version: str
    maxInputTokens: int  # noqa: N815
    maxOutputTokens: int  # noqa: N815
    capabilities: dict[str, Any]
    tooltip: str
    detail: str
    isUserSelectable: bool  # noqa: N815
    pricing: str | None = None
    configurationSchema: dict[str, Any] | None = None  # noqa: N815


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
    UsageReport,
    RouteList,
    LanguageModels,
    TokensRequest,
    Tokens,
    LanguageModelErrorBody,
)


def _of_apis() -> Iterator[type[Any]]:
    """Yield the types that describe the paths of clients' APIs."""
    for surface in surfaces().values():
        yield surface.error_type
        for at in surface.paths:
            if at.description is not None:
                yield from (each for each in (at.description.request, at.description.answer) if each)


def reference(name: str) -> Schema:
    """Return a reference to the schema of this name."""
    return {"$ref": _REFERENCE + name}


def schemas() -> dict[str, Schema]:
    """Return the schemas by the names of their structs; `StreamEvent` is any event of a stream."""
    (*_, event), components = msgspec.json.schema_components(
        [*dict.fromkeys([*ROOTS, *_of_apis()]), KnownEvent], ref_template=_REFERENCE + "{name}"
    )
    for schema in components.values():
        for internal in (BEYOND, NATIVE, EXTRA):
            schema.get("properties", {}).pop(internal, None)
    for unused in (Native, ForeignFields):
        components.pop(unused.__name__, None)
    components[STREAM_EVENT] = {"description": "Any event of a stream.", **event}
    components[_TYPELESS] = _without_type(components["MessageParam"])
    _allow_extensions(components[STREAM_EVENT], vocabulary.EVENTS)
    for struct, fields in vocabulary.CHILDREN.items():
        properties = components.get(struct.__name__, {}).get("properties", {})
        for name, slot in fields.items():
            if name in properties:
                _allow_extensions(properties[name], slot)
    return components


def _without_type(message: Schema) -> Schema:
    """Return the schema of a message without `type`, as several clients send it."""
    properties = {name: schema for name, schema in message["properties"].items() if name != "type"}
    required = [name for name in message["required"] if name != "type"]
    return {
        "type": "object",
        "description": "A message without `type`.",
        "properties": properties,
        "required": required,
        "not": {"required": ["type"]},
    }


def _allow_extensions(schema: Schema, slot: vocabulary.Slot) -> None:
    """Add objects of other types to the unions of a slot, through which they pass unchanged."""
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
    """Yield the unions within a schema whose members are distinguished by `type`."""
    if isinstance(schema, dict):
        if "discriminator" in schema:
            yield schema
        for inner in list(schema.values()):
            yield from _unions(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _unions(inner)

"""Requests: schemas CreateResponseBody and CompactResponseMethodPublicBody.

Null means "not given" wherever the schema allows it. Fields that no struct here has are kept in
`CreateResponse.beyond`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, NamedTuple

from msgspec import UNSET, Meta, Struct, UnsetType, field

from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.input_items import InputItem, LongText
from openresponses_bridge.protocol.response import JsonObjectFormat, TextFormat, Truncation, Verbosity
from openresponses_bridge.protocol.tools import ToolChoice, ToolParam
from openresponses_bridge.protocol.unknown import OURS, UnknownFormat

Key64 = Annotated[str, Meta(max_length=64)]
Key128 = Annotated[str, Meta(max_length=128)]
RESTART: Final = f"{OURS}restart"
"""Which background responses are made again when their server stops before their end: `unseen`, those whose
output no client can have seen; `always`: all, and output becomes visible when the response has ended."""
Restart = Literal["unseen", "always"]

Place = tuple[str | int, ...]
"""The place of an object in a request: `()` is the request itself, `("tools", 0)` its first tool."""


class ForeignFields(NamedTuple):
    """The fields of one object of a request that the protocol does not have. `carried`: its struct has them
    in its `extra` too, so that they go wherever the object goes."""

    place: Place
    fields: dict[str, Any]
    carried: bool = False


class Native(Struct, frozen=True, omit_defaults=True):
    """Fields of another API's client that only an upstream with the same API can honour. `dialect`: that API.
    `names`: what is lost at any other upstream. `said`: the fields, for the two sides of that dialect.
    `unthinking`: the client wants an answer without thinking, as is the rule in that API. `needed`: the paths
    of fields without which the rest of the request means something else, and why any other upstream refuses
    them (law N3)."""

    dialect: str
    names: list[str]
    said: Any
    unthinking: bool = False
    needed: dict[str, str] = {}


class JsonSchemaFormatParam(Struct, frozen=True, tag="json_schema", tag_field="type"):
    """Schema JsonSchemaResponseFormatParam."""

    type: ClassVar[Literal["json_schema"]] = "json_schema"
    name: str | UnsetType = UNSET
    description: str | UnsetType | None = UNSET
    schema: dict[str, Any] | UnsetType | None = UNSET
    strict: bool | UnsetType | None = UNSET


KnownFormatParam = TextFormat | JsonObjectFormat | JsonSchemaFormatParam
if TYPE_CHECKING:
    FormatParam = KnownFormatParam | UnknownFormat
else:
    FormatParam = KnownFormatParam


class TextParam(Struct, frozen=True):
    """Schema TextParam."""

    format: FormatParam | UnsetType | None = UNSET
    verbosity: Verbosity | UnsetType | None = UNSET


class ReasoningOptions(Struct, frozen=True):
    """Schema ReasoningParam. Effort is free text, since models add levels of their own. OpenAI's fields:
    `context`, which reasoning of earlier turns the model sees; `mode`, how it reasons."""

    effort: str | UnsetType | None = UNSET
    summary: str | UnsetType | None = UNSET
    context: str | UnsetType | None = UNSET
    mode: str | UnsetType | None = UNSET


class StreamOptions(Struct, frozen=True):
    """Schema StreamOptionsParam."""

    include_obfuscation: bool | UnsetType = UNSET


Metadata = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]], Meta(max_length=16)
]


class CreateResponse(Struct, frozen=True, kw_only=True):
    """Schema CreateResponseBody. No field is required; limits are the schema's."""

    # From `user` on, fields that only OpenAI's Responses API has; from `stop` on, fields of other APIs;
    # `restart` is the bridge's own; `beyond` has fields that this struct does not have, `native` those of the
    # client's own API.

    model: str | None = None
    input: LongText | list[InputItem] | None = None
    previous_response_id: str | None = None
    include: list[str] | None = None
    tools: list[ToolParam] | None = None
    tool_choice: ToolChoice | None = None
    metadata: Metadata | None = None
    text: TextParam | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    parallel_tool_calls: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    background: bool | None = None
    max_output_tokens: Annotated[int, Meta(ge=16)] | None = None
    max_tool_calls: Annotated[int, Meta(ge=1)] | None = None
    reasoning: ReasoningOptions | None = None
    safety_identifier: Key128 | None = None
    prompt_cache_key: Key64 | None = None
    truncation: Truncation | None = None
    instructions: str | None = None
    store: bool | None = None
    service_tier: str | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    user: str | None = None
    client_metadata: dict[str, Any] | None = None
    conversation: str | dict[str, Any] | None = None
    prompt: dict[str, Any] | None = None
    context_management: list[dict[str, Any]] | None = None
    moderation: dict[str, Any] | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: dict[str, Any] | None = None
    background_options: dict[str, Any] | None = None
    access_programs: list[Any] | dict[str, Any] | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    logit_bias: dict[str, float] | None = None
    prediction: dict[str, Any] | None = None
    top_k: int | None = None
    restart: Restart | None = field(default=None, name=RESTART)
    beyond: list[ForeignFields] | UnsetType = field(default=UNSET, name=f"{OURS}beyond")
    native: Native | UnsetType = field(default=UNSET, name=f"{OURS}native")


def conversation_of(request: CreateResponse) -> str | None:
    """Return the id of the request's `conversation`, which is a string or an object with an `id`; None
    without one. Raises InvalidRequestError for anything else."""
    value = request.conversation
    if value is None:
        return None
    conversation_id = value if isinstance(value, str) else value.get("id") if value.keys() == {"id"} else None
    if isinstance(conversation_id, str) and conversation_id:
        return conversation_id
    what = "conversation is an id, or an object with an `id` alone"
    raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param="conversation")


class CreateConversation(Struct, frozen=True, kw_only=True):
    """OpenAI: the body that creates a conversation."""

    items: list[InputItem] | None = None
    metadata: Metadata | None = None
    beyond: list[ForeignFields] | UnsetType = field(default=UNSET, name=f"{OURS}beyond")


class UpdateConversation(Struct, frozen=True, kw_only=True):
    """OpenAI: the body that replaces a conversation's metadata."""

    metadata: Metadata | None
    beyond: list[ForeignFields] | UnsetType = field(default=UNSET, name=f"{OURS}beyond")


class CreateConversationItems(Struct, frozen=True, kw_only=True):
    """OpenAI: the body that adds items to a conversation."""

    items: list[InputItem]
    beyond: list[ForeignFields] | UnsetType = field(default=UNSET, name=f"{OURS}beyond")


class CompactRequest(Struct, frozen=True, kw_only=True):
    """Schema CompactResponseMethodPublicBody."""

    model: str
    input: LongText | list[InputItem] | None = None
    previous_response_id: str | None = None
    instructions: str | None = None
    prompt_cache_key: Key64 | None = None
    beyond: list[ForeignFields] | UnsetType = field(default=UNSET, name=f"{OURS}beyond")


class SearchQueryCommand(Struct, frozen=True, kw_only=True):
    """Codex: a search. `recency` is in days."""

    q: str
    recency: Annotated[int, Meta(ge=0)] | None = None
    domains: list[str] | None = None


class OpenCommand(Struct, frozen=True, kw_only=True):
    """Codex: a page, named by its address, from a line on."""

    ref_id: str
    lineno: Annotated[int, Meta(ge=0)] | None = None


class FindCommand(Struct, frozen=True, kw_only=True):
    """Codex: a text to look for in a page."""

    ref_id: str
    pattern: str


class TimeCommand(Struct, frozen=True, kw_only=True):
    """Codex: the time at an offset such as `+03:00`."""

    utc_offset: str


class SearchCommands(Struct, frozen=True, kw_only=True):
    """Codex: what its tool `web.run` was called with. The last ones are not served."""

    search_query: list[SearchQueryCommand] | None = None
    open: list[OpenCommand] | None = None
    find: list[FindCommand] | None = None
    time: list[TimeCommand] | None = None
    response_length: Literal["short", "medium", "long"] | None = None
    image_query: list[Any] | None = None
    click: list[Any] | None = None
    screenshot: list[Any] | None = None
    finance: list[Any] | None = None
    weather: list[Any] | None = None
    sports: list[Any] | None = None


class SearchRequest(Struct, frozen=True, kw_only=True):
    """Codex: the body of `/v1/alpha/search`. `settings` are those of the tool `web_search`. The conversation
    (`input`), its `id` and its model say nothing here."""

    commands: SearchCommands | None = None
    settings: dict[str, Any] | None = None
    max_output_tokens: Annotated[int, Meta(ge=0)] | None = None
    id: str | None = None
    model: str | None = None
    input: Any = None
    reasoning: Any = None
    beyond: list[ForeignFields] | UnsetType = field(default=UNSET, name=f"{OURS}beyond")


class ResponseCreateMessage(
    CreateResponse, frozen=True, kw_only=True, tag="response.create", tag_field="type"
):
    """Schema WebSocketResponseCreateEvent: a request as a message on a WebSocket.

    `generate: false` is Codex's prewarm: the turn is recorded and nothing is generated. `stream_id` is
    OpenAI's: the lane of the connection that the turn belongs to.
    """

    type: ClassVar[Literal["response.create"]] = "response.create"
    generate: bool | None = None
    stream_id: str | None = None


class SteerError(Struct, frozen=True, kw_only=True):
    """Why steering failed."""

    code: str
    message: str
    type: Literal["invalid_request_error"] = "invalid_request_error"


class FailedSteer(Struct, frozen=True):
    """The input that was refused, as it came; its `id`, if it had been accepted."""

    previous_response_id: Any
    input: Any
    id: str | UnsetType = UNSET


class AcceptedSteer(Struct, frozen=True):
    """Input for this response that was accepted."""

    id: str
    previous_response_id: str


class ResponseSteerAccepted(Struct, frozen=True, tag="response.steer.accepted", tag_field="type"):
    """OpenAI: input for a running response was accepted; it is sent to the model when that has ended."""

    type: ClassVar[Literal["response.steer.accepted"]] = "response.steer.accepted"
    steer: AcceptedSteer
    sequence_number: int


class ResponseSteerPending(Struct, frozen=True, tag="response.steer.pending", tag_field="type"):
    """OpenAI: accepted input waits for the client's outputs, of which `required_input` are the beginnings."""

    type: ClassVar[Literal["response.steer.pending"]] = "response.steer.pending"
    steer: AcceptedSteer
    required_input: list[dict[str, Any]]
    sequence_number: int
    reason: Literal["waiting_for_required_input"] = "waiting_for_required_input"


class ResponseSteerFailed(Struct, frozen=True, tag="response.steer.failed", tag_field="type"):
    """OpenAI: input for a running response was refused."""

    type: ClassVar[Literal["response.steer.failed"]] = "response.steer.failed"
    error: SteerError
    steer: FailedSteer
    sequence_number: int
    stream_id: str | UnsetType = UNSET


class InjectError(Struct, frozen=True):
    """Why items were not injected."""

    code: str
    message: str


class ResponseInjectFailed(Struct, frozen=True, tag="response.inject.failed", tag_field="type"):
    """OpenAI: items for a running response were refused; `input` has them as they came."""

    type: ClassVar[Literal["response.inject.failed"]] = "response.inject.failed"
    error: InjectError
    input: Any
    response_id: Any
    sequence_number: int


class WebSocketErrorDetail(Struct, frozen=True):
    """The `error` of a WebSocket error; unlike in a stream, `code` is never null."""

    code: str
    message: str
    type: str | UnsetType = UNSET
    param: str | UnsetType | None = UNSET


class WebSocketError(Struct, frozen=True, tag="error", tag_field="type"):
    """Schema WebSocketErrorEvent. `status` is the HTTP status of the same error over HTTP."""

    type: ClassVar[Literal["error"]] = "error"
    status: int
    error: WebSocketErrorDetail

"""The operations, as a table: method and path → request and answer."""

from __future__ import annotations

import re
from typing import Any, Final

from msgspec import Struct

from openresponses_bridge.dialects.base import Asks, Description, Parameter, SurfacePath
from openresponses_bridge.dialects.table import surfaces
from openresponses_bridge.dialects.vscode import LanguageModelErrorBody
from openresponses_bridge.protocol.request import (
    CompactRequest,
    CreateConversation,
    CreateConversationItems,
    CreateResponse,
    SearchRequest,
    UpdateConversation,
)
from openresponses_bridge.protocol.response import CompactResource, ErrorBody, Response
from openresponses_server.api.inspector.routes import CostRequest
from openresponses_server.api.openapi import schemas
from openresponses_server.api.openapi.schemas import STREAM_EVENT
from openresponses_server.observation.recordings.dialects import DIALECTS
from openresponses_server.observation.recordings.playing import AUTO
from openresponses_server.requests.forwarding import ENDPOINTS


class Operation(Struct, frozen=True, kw_only=True):
    """One method of one path."""

    id: str
    summary: str
    answer: type[Any] | None = None
    """The type of the JSON answer."""
    many: bool = False
    """True if the answer is an array of these."""
    text: str = ""
    """The content type of an answer that is not JSON."""
    request: type[Any] | None = None
    form: bool = False
    """True if the request may also be a form (`multipart/form-data`)."""
    parameters: tuple[Parameter, ...] = ()
    events: str = ""
    """The description of a streamed answer."""
    event_schema: str = ""
    success: int = 200
    errors: tuple[int, ...] = ()
    """The statuses of refusals."""
    error: type[Any] = ErrorBody
    """The body of a refusal."""
    leads_to: tuple[str, ...] = ()
    """The operations with a parameter `id` that is the `id` of this answer."""
    examples: dict[str, Any] = {}
    description: str = ""


_NOT_IN_A_NAME: Final = re.compile(r"\W+")
_LINES: Final = "application/x-ndjson"
_OBSERVED: Final = (
    "JSON lines, one for each event: `at` (seconds since the first), `event`, `data` as it was sent, "
    "`findings` (violations, repairs and losses: `kind`, `where`, `what`, `rule`, `asks`), and VS Code's "
    "`parts`. The last line of a response has `ended`."
)
_ID: Final = Parameter("id", "Id of a stored response.", {"type": "string"}, "path")
_TIME: Final[dict[str, Any]] = {"type": "integer", "minimum": 0}
_STRING: Final = {"type": "string", "maxLength": 200}
_BODY: Final = (400, 401, 403, 404, 408, 413, 415, 422, 429, 500, 502, 503, 504, 529)
_STORED: Final = (400, 401, 403, 404, 409, 429, 500, 503)

_KEPT: Final = (400, 401, 403, 404, 408, 413, 415, 422, 429, 500, 503)
_CONVERSATION: Final = Parameter("id", "Id of a conversation.", {"type": "string"}, "path")
_ITEM: Final = Parameter("item_id", "Id of an item of the conversation.", {"type": "string"}, "path")

INSPECTOR: Final[dict[tuple[str, str], Operation]] = {
    ("post", "/inspector/v1/responses"): Operation(
        id="inspect_new_response",
        summary="Create a response and observe its stream",
        description=_OBSERVED,
        request=CreateResponse,
        text=_LINES,
        errors=_BODY,
        examples={"text": {"model": "demo", "input": "Hello"}},
    ),
    ("get", "/inspector/v1/responses"): Operation(
        id="list_responses",
        summary="List the key's own stored responses, the newest first",
        answer=schemas.ListedResponses,
        parameters=(
            Parameter("status", "Only responses with this status.", _STRING),
            Parameter("model", "Only responses of this model.", _STRING),
            Parameter("search", "Only responses with this text in the id or in the last input.", _STRING),
            Parameter("since", "Only responses created at this time or later, in Unix seconds.", _TIME),
            Parameter("until", "Only responses created before this time, in Unix seconds.", _TIME),
            Parameter("limit", "Responses per page.", {"type": "integer", "minimum": 1, "maximum": 100}),
            Parameter("after", "The id before the page: `next` of the previous page.", _STRING),
            Parameter("conversation", "The turns of a conversation up to this response instead.", _STRING),
        ),
        errors=(400, 401, 403, 429, 500, 503),
    ),
    ("get", "/inspector/v1/responses/{id}"): Operation(
        id="inspect_stored_response",
        summary="Observe the stream of a stored response",
        description=_OBSERVED,
        text=_LINES,
        parameters=(
            _ID,
            Parameter("starting_after", "Only events with a greater sequence_number.", _TIME),
        ),
        errors=_STORED,
    ),
    ("get", "/inspector/v1/responses/{id}/request"): Operation(
        id="retrieve_request",
        summary="Retrieve the stored fields of a response's request",
        answer=CreateResponse,
        parameters=(_ID,),
        errors=_STORED,
    ),
    ("post", "/inspector/v1/captures"): Operation(
        id="inspect_capture",
        summary="Observe a capture of any dialect, a recording or a trace",
        description="The body is the file, as `application/octet-stream`. It is not stored. For a "
        "recording or a trace, the upstreams' answers are observed, with their times. " + _OBSERVED,
        text=_LINES,
        parameters=(
            Parameter(
                "dialect",
                "The dialect of a capture, or of a recording's answers; `auto` detects it.",
                {"enum": [AUTO, *DIALECTS]},
            ),
        ),
        errors=(400, 401, 403, 408, 413, 415, 429, 500, 503),
    ),
    ("post", "/inspector/v1/context"): Operation(
        id="measure_context",
        summary="Measure what a request puts into the context",
        request=CreateResponse,
        answer=schemas.MeasuredContext,
        errors=_BODY,
        examples={"text": {"model": "demo", "input": "Hello"}},
    ),
    ("post", "/inspector/v1/cost"): Operation(
        id="price_usage",
        summary="Say what a usage costs",
        request=CostRequest,
        answer=schemas.Cost,
        errors=_BODY,
        examples={
            "usage": {
                "model": "demo",
                "usage": {
                    "input_tokens": 10,
                    "output_tokens": 5,
                    "total_tokens": 15,
                    "input_tokens_details": {"cached_tokens": 0},
                    "output_tokens_details": {"reasoning_tokens": 0},
                },
            }
        },
    ),
}


_EVENTS: Final = (
    "Server-sent events: `data` is an event and `event` its type. The `data` of the last frame is the "
    "literal `[DONE]`."
)
_WEBSOCKET: Final = (
    "Upgrades the request to a WebSocket. Each text message of the client is a ResponseCreateMessage. The "
    "server answers with StreamEvents, one in each message, up to a terminal one, or with a WebSocketError. "
    "One turn runs at a time."
)
_MODELS_OF_ANTHROPIC: Final = (
    "In Anthropic's shape for Anthropic's clients (header `anthropic-version`, or a key in `x-api-key`), in "
    "Google's for Google's (header `x-goog-api-client`, or a key in `x-goog-api-key`)"
)
_REFRESH: Final = Parameter("refresh", "Request the upstreams' lists of models now.", {"type": "boolean"})
_KEYED: Final = (401, 403, 429, 500, 503)
_BOOLEAN: Final = {"type": "boolean"}
_TOOL: Final = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}},
}
_USER: Final = {"type": "message", "role": "user", "content": "Hello"}

_MODEL: Final = Parameter("model", "Name of the model.", {"type": "string"}, "path")


_ERRORS: Final = {
    Asks.ANSWER: _BODY,
    Asks.TOKENS: _BODY,
    Asks.MODELS: (*_KEYED, 400, 502, 504),
    Asks.MODEL: (*_KEYED, 400, 404, 502, 504),
    Asks.STORED: _STORED,
    Asks.CANCEL: _STORED,
    Asks.DELETE: _STORED,
}


def _of_api(name: str) -> dict[tuple[str, str], Operation]:
    """The operations of a client's API."""
    surface = surfaces()[name]
    return {(at.method.lower(), at.path): _at(at, surface.error_type) for at in surface.paths}


def _at(at: SurfacePath, error: type[Any]) -> Operation:
    named = _NOT_IN_A_NAME.sub("_", f"{at.method.lower()}{at.path}").strip("_")
    description = at.description or Description(id=named, summary=f"Ask for: {at.asks}")
    refresh = (_REFRESH,) if at.asks in (Asks.MODELS, Asks.MODEL) else ()
    own = tuple(each for each in (_MODEL, _ID) if f"{{{each.name}}}" in at.path)
    return Operation(
        id=description.id,
        summary=description.summary,
        request=description.request,
        answer=description.answer,
        many=description.many,
        text=description.text,
        events=description.events,
        parameters=(*own, *description.parameters, *refresh),
        errors=_ERRORS[at.asks],
        error=error,
        examples=description.examples,
    )


_FORWARDED: Final[tuple[tuple[str, str, str, dict[str, Any]], ...]] = (
    ("/v1/completions", "create_completion", "Complete a text, also with a suffix", {"prompt": "def f("}),
    ("/v1/embeddings", "create_embedding", "Embed texts", {"input": "Hello"}),
    ("/v1/moderations", "create_moderation", "Classify texts", {"input": "Hello"}),
    ("/v1/rerank", "rerank", "Rank documents", {"query": "x", "documents": ["y"]}),
    ("/v2/rerank", "rerank_v2", "Rank documents", {"query": "x", "documents": ["y"]}),
    ("/v1/images/generations", "create_image", "Generate images", {"prompt": "A cat"}),
    ("/v1/images/edits", "edit_image", "Edit images", {"prompt": "A cat"}),
    ("/v1/images/variations", "vary_image", "Vary an image", {}),
    ("/v1/audio/speech", "create_speech", "Speak a text", {"input": "Hello", "voice": "alloy"}),
    ("/v1/audio/transcriptions", "create_transcription", "Transcribe audio", {}),
    ("/v1/audio/translations", "create_translation", "Translate audio", {}),
)


def _forwarded() -> dict[tuple[str, str], Operation]:
    """Return the operations whose bodies are passed on unchanged."""
    return {
        ("post", path): Operation(
            id=name,
            summary=summary,
            request=schemas.ForwardedRequest,
            form=ENDPOINTS[path].forms,
            text="*/*",
            events="The upstream's answer, as it is.",
            errors=_BODY,
            examples={"whole": {"model": "a-model", **fields}},
            description=f"Served where the setting `forwarding` names `{ENDPOINTS[path].setting}` and the "
            "model's upstream has it.",
        )
        for path, name, summary, fields in _FORWARDED
    }


_OPERATIONS: Final[dict[tuple[str, str], Operation]] = {
    ("post", "/v1/responses"): Operation(
        id="create_response",
        summary="Create a response",
        request=CreateResponse,
        answer=Response,
        events=_EVENTS,
        event_schema=STREAM_EVENT,
        errors=_BODY,
        leads_to=("retrieve_response", "list_input_items", "cancel_response", "delete_response"),
        examples={
            "whole": {"model": "demo", "input": [_USER]},
            "streamed": {"model": "demo", "input": "Hello", "stream": True},
            "tool": {
                "model": "demo",
                "input": "Weather in Lima?",
                "tools": [_TOOL],
                "tool_choice": "required",
            },
        },
    ),
    ("get", "/v1/responses"): Operation(
        id="open_websocket",
        summary="Open a WebSocket",
        description=_WEBSOCKET,
        success=101,
        errors=(401, 403, 404, 405, 426, 503),
    ),
    ("get", "/v1/responses/{id}"): Operation(
        id="retrieve_response",
        summary="Retrieve a response, or stream it again",
        answer=Response,
        events=_EVENTS,
        event_schema=STREAM_EVENT,
        parameters=(
            _ID,
            Parameter("stream", "The response's events instead of the response.", _BOOLEAN),
            Parameter(
                "starting_after",
                "With `stream`: only events with a greater sequence_number.",
                {"type": "integer", "minimum": 0},
            ),
        ),
        errors=_STORED,
    ),
    ("delete", "/v1/responses/{id}"): Operation(
        id="delete_response",
        summary="Delete a response",
        answer=schemas.DeletedResponse,
        parameters=(_ID,),
        errors=_STORED,
    ),
    ("post", "/v1/responses/{id}/cancel"): Operation(
        id="cancel_response",
        summary="Cancel a response that runs in the background",
        answer=Response,
        parameters=(_ID,),
        errors=_STORED,
    ),
    ("get", "/v1/responses/{id}/trace"): Operation(
        id="get_trace",
        summary="Retrieve the trace of a response",
        description="A recording, in JSON lines, of what its client and its upstreams sent and received.",
        text="application/jsonl",
        parameters=(_ID,),
        errors=_STORED,
    ),
    ("get", "/v1/responses/{id}/input_items"): Operation(
        id="list_input_items",
        summary="List a response's input items",
        answer=schemas.InputItemList,
        parameters=(
            _ID,
            Parameter("limit", "Items per page.", {"type": "integer", "minimum": 1, "maximum": 100}),
            Parameter("order", "The order by age.", {"type": "string", "enum": ["asc", "desc"]}),
            Parameter("after", "The id of the item before the page.", {"type": "string"}),
        ),
        errors=_STORED,
    ),
    ("post", "/v1/responses/compact"): Operation(
        id="compact_conversation",
        summary="Compact a conversation into a shorter input for new responses",
        request=CompactRequest,
        answer=CompactResource,
        errors=_BODY,
        examples={"whole": {"model": "demo", "input": [_USER]}},
    ),
    ("post", "/v1/responses/input_tokens"): Operation(
        id="count_input_tokens",
        summary="Count the tokens of an input",
        request=CreateResponse,
        answer=schemas.InputTokens,
        errors=_BODY,
        examples={"whole": {"model": "demo", "input": "Hello"}},
    ),
    ("post", "/v1/alpha/search"): Operation(
        id="search",
        summary="Search the web, open pages, find text in them",
        description="What Codex's tool `web.run` asks for.",
        request=SearchRequest,
        answer=schemas.SearchAnswer,
        errors=_KEPT,
        examples={"search": {"commands": {"search_query": [{"q": "rain", "recency": 7}]}}},
    ),
    ("post", "/v1/conversations"): Operation(
        id="create_conversation",
        summary="Create a conversation",
        request=CreateConversation,
        answer=schemas.Conversation,
        errors=_KEPT,
        leads_to=("retrieve_conversation", "list_conversation_items", "delete_conversation"),
        examples={"with an item": {"items": [_USER], "metadata": {"topic": "demo"}}},
    ),
    ("get", "/v1/conversations/{id}"): Operation(
        id="retrieve_conversation",
        summary="Retrieve a conversation",
        answer=schemas.Conversation,
        parameters=(_CONVERSATION,),
        errors=_STORED,
    ),
    ("post", "/v1/conversations/{id}"): Operation(
        id="update_conversation",
        summary="Replace a conversation's metadata",
        request=UpdateConversation,
        answer=schemas.Conversation,
        parameters=(_CONVERSATION,),
        errors=_KEPT,
        examples={"metadata": {"metadata": {"topic": "demo"}}},
    ),
    ("delete", "/v1/conversations/{id}"): Operation(
        id="delete_conversation",
        summary="Delete a conversation with its items",
        answer=schemas.DeletedConversation,
        parameters=(_CONVERSATION,),
        errors=_STORED,
    ),
    ("get", "/v1/conversations/{id}/items"): Operation(
        id="list_conversation_items",
        summary="List a conversation's items",
        answer=schemas.InputItemList,
        parameters=(
            _CONVERSATION,
            Parameter("limit", "Items per page.", {"type": "integer", "minimum": 1, "maximum": 100}),
            Parameter("order", "The order by age.", {"type": "string", "enum": ["asc", "desc"]}),
            Parameter("after", "The id of the item before the page.", {"type": "string"}),
            Parameter("include", "Changes nothing: items are shown whole.", {"type": "string"}),
        ),
        errors=_STORED,
    ),
    ("post", "/v1/conversations/{id}/items"): Operation(
        id="create_conversation_items",
        summary="Append items to a conversation",
        request=CreateConversationItems,
        answer=schemas.InputItemList,
        parameters=(_CONVERSATION,),
        errors=_KEPT,
        examples={"message": {"items": [_USER]}},
    ),
    ("get", "/v1/conversations/{id}/items/{item_id}"): Operation(
        id="retrieve_conversation_item",
        summary="Retrieve an item of a conversation",
        answer=schemas.ConversationItem,
        parameters=(_CONVERSATION, _ITEM),
        errors=_STORED,
    ),
    ("delete", "/v1/conversations/{id}/items/{item_id}"): Operation(
        id="delete_conversation_item",
        summary="Delete an item of a conversation",
        answer=schemas.Conversation,
        parameters=(_CONVERSATION, _ITEM),
        errors=_STORED,
    ),
    ("get", "/v1/models"): Operation(
        id="list_models",
        summary="List models",
        answer=schemas.ModelList,
        parameters=(_REFRESH,),
        errors=(*_KEYED, 400, 502, 504),
        description=_MODELS_OF_ANTHROPIC + ", in pages (`limit`, `after_id`, `before_id`).",
    ),
    ("get", "/v1/models/{model}"): Operation(
        id="retrieve_model",
        summary="Retrieve a model",
        answer=schemas.Model,
        parameters=(_MODEL, _REFRESH),
        errors=(*_KEYED, 400, 404, 502, 504),
        description=_MODELS_OF_ANTHROPIC + ".",
    ),
    **_of_api("chat"),
    ("get", "/v1/usage"): Operation(
        id="get_usage",
        summary="Retrieve the usage of this key's responses",
        answer=schemas.UsageReport,
        parameters=(
            Parameter("since", "The first day (UTC), as 2026-01-31.", {"type": "string", "format": "date"}),
        ),
        errors=(*_KEYED, 400),
        description="Of the worker that answers, since its start; the oldest days are forgotten first.",
    ),
    **_of_api("anthropic"),
    **_of_api("vscode"),
    ("get", "/vscode/v1/models"): Operation(
        id="list_language_models",
        summary="List the models as VS Code's information objects",
        answer=schemas.LanguageModels,
        parameters=(
            Parameter("since", "A version; the answer has the changes after it.", {"type": "string"}),
            _REFRESH,
        ),
        errors=(400, *_KEYED),
        error=LanguageModelErrorBody,
    ),
    ("post", "/vscode/v1/tokens"): Operation(
        id="count_language_model_tokens",
        summary="Estimate the tokens of a text or message",
        request=schemas.TokensRequest,
        answer=schemas.Tokens,
        errors=(400, 401, 403, 404, 408, 413, 415, 422, 429, 500, 503),
        error=LanguageModelErrorBody,
        examples={"text": {"model": "demo", "text": "How many?"}},
    ),
    **_forwarded(),
    **_of_api("gemini"),
    **_of_api("interactions"),
    ("get", "/metrics"): Operation(
        id="metrics",
        summary="Metrics of all workers on this host, for Prometheus",
        description="Requires an operator's key or, if none are set, a connection from the same machine.",
        text="text/plain",
        errors=_KEYED,
    ),
    ("get", "/v1/routes"): Operation(
        id="list_routes",
        summary="List the routes: each key of each upstream, and the models with it that are left out",
        description="Requires an operator's key or, if none are set, a connection from the same machine.",
        answer=schemas.RouteList,
        errors=_KEYED,
    ),
    ("get", "/healthz"): Operation(
        id="health", summary="Whether the process is running", answer=schemas.Status
    ),
    ("get", "/readyz"): Operation(
        id="readiness", summary="Whether requests are accepted", answer=schemas.Status, errors=(503,)
    ),
    **INSPECTOR,
}

OPERATIONS: Final = _OPERATIONS | {
    key: operation
    for name in surfaces()
    for key, operation in _of_api(name).items()
    if key not in _OPERATIONS
}

"""Anthropic's Messages API over HTTP."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from msgspec.structs import replace

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.anthropic_messages.client import described
from openresponses_bridge.dialects.anthropic_messages.client.ending import error_body
from openresponses_bridge.dialects.anthropic_messages.client.message import message
from openresponses_bridge.dialects.anthropic_messages.client.model_list import (
    for_claude_code,
    from_claude_code,
    model_body,
    model_page,
)
from openresponses_bridge.dialects.anthropic_messages.client.outbound import Outbound, encode_sse
from openresponses_bridge.dialects.anthropic_messages.client.request import from_messages
from openresponses_bridge.dialects.base import (
    AnswerForm,
    Asked,
    Asks,
    Description,
    Encoding,
    FormContext,
    KeyPlace,
    LimitState,
    ModelList,
    OutboundForm,
    RequestHead,
    Surface,
    SurfacePath,
    TokenCount,
    body_of,
    native_of,
)
from openresponses_bridge.errors import BridgeError, HttpError
from openresponses_bridge.models.information import EnrichedModelData
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.seal import Sealer

INPUT: Final = "messages"
_KEY: Final = "x-api-key"
_VERSION: Final = "anthropic-version"
_ANY_LIMIT: Final = 1024
_THREADS: Final = "message-threads-"
_LONGEST_BETA: Final = 64
# its own requests, and those of the SDK in it
_CLAUDE_CODE: Final = re.compile(r"claude-(code|cli)/")


def whole(response: Response, sealer: Sealer) -> bytes | None:
    """Encode a finished response as a message; None for one that has only an error."""
    answer = message(response, sealer)
    return None if answer.get("type") == "error" else encode(answer)


def _form(context: FormContext) -> AnswerForm:
    sealer = context.sealer
    outbound = Outbound(sealer, context.identities, context.input_tokens(), context.usage_at_start)
    return OutboundForm(outbound, Encoding(encode_sse), lambda response: whole(response, sealer))


def read(body: bytes | Mapping[str, Any], head: RequestHead) -> Asked:
    """Read a request for a message."""
    request, losses = from_messages(body, head.sealer)
    return Asked(
        request=_with_model_meant(request, head),
        form=_form,
        losses=losses,
        input_param=INPUT,
        schema_param="output_config.format.schema",
    )


def read_counted(body: bytes | Mapping[str, Any], head: RequestHead) -> tuple[CreateResponse, Diagnostics]:
    """Read a request to count tokens, which needs no `max_tokens`."""
    request, losses = from_messages({"max_tokens": _ANY_LIMIT, **body_of(body).whole()}, head.sealer)
    return _with_model_meant(request, head), losses


def _with_model_meant(request: CreateResponse, head: RequestHead) -> CreateResponse:
    named = request.model or ""
    meant = _model_meant(named, head)
    return request if meant == named else replace(request, model=meant)


def _model_meant(name: str, head: RequestHead) -> str:
    """Return the model's own name. Names that Claude Code was shown stand for others, unless there is a model
    with that name."""
    return name if not _is_claude_code(head) or head.is_model(name) else from_claude_code(name)


def _is_claude_code(head: RequestHead) -> bool:
    return _CLAUDE_CODE.match(head.headers.get("user-agent", "")) is not None


def _model_page(models: Sequence[EnrichedModelData], head: RequestHead) -> dict[str, Any]:
    shown = [for_claude_code(model) for model in models] if _is_claude_code(head) else models
    return model_page(shown, head.query)


def error_of(error: BridgeError) -> dict[str, Any]:
    """Return the body of a refusal."""
    native = native_of(error, "anthropic")
    return error_body(error.code, error.error_type, error.message, error.http_status, native)


def _thread_refused(why: str, headers: Mapping[str, str]) -> HttpError:
    """Return the refusal with details and a message: some clients recognise it by its details, others by the
    words about a capability that is rejected."""
    betas = (name.strip() for name in headers.get("anthropic-beta", "").split(","))
    beta = next((name for name in betas if name.startswith(_THREADS)), f"{_THREADS}2026-08-12")
    shown = f"capability_rejected: beta_header:{beta[:_LONGEST_BETA]}"
    what = f"The thread can't be continued: send the whole conversation, without thread. {why} ({shown})"
    refused = HttpError(400, what, param="thread")
    refused.native = {"anthropic": {"details": {"error_code": "thread_unsupported_request"}}}
    return refused


def limit_headers(state: LimitState, now: float) -> Iterator[tuple[str, str]]:
    """Yield `anthropic-ratelimit-…` headers; `reset` is a time (RFC 3339)."""
    reset_at = datetime.fromtimestamp(math.ceil(now + state.reset), UTC)
    name = f"anthropic-ratelimit-{state.name}"
    yield f"{name}-limit", str(state.limit)
    yield f"{name}-remaining", str(state.left)
    yield f"{name}-reset", f"{reset_at:%Y-%m-%dT%H:%M:%SZ}"


_HELLO: Final = {"model": "demo", "messages": [{"role": "user", "content": "Hello"}]}

SURFACE: Final = Surface(
    paths=(
        SurfacePath(
            path="/v1/messages/count_tokens",
            asks=Asks.TOKENS,
            description=Description(
                id="count_message_tokens",
                summary="Estimate the tokens of a message's input",
                request=described.CountTokensRequest,
                answer=described.MessageTokens,
                examples={"whole": _HELLO},
            ),
        ),
        SurfacePath(
            path="/v1/messages",
            description=Description(
                id="create_message",
                summary="Create a message, in Anthropic's shape",
                request=described.MessagesRequest,
                answer=described.AnthropicMessage,
                events="Server-sent events of the Messages API.",
                examples={"whole": {"model": "demo", "max_tokens": 64, **_HELLO}},
            ),
        ),
    ),
    prefixes=("/v1/messages",),
    keys=(KeyPlace(_KEY),),
    recognises=lambda headers: _VERSION in headers or (_KEY in headers and "authorization" not in headers),
    read=read,
    error=lambda error: encode(error_of(error)),
    error_type=described.AnthropicError,
    count=TokenCount(read=read_counted, answer=lambda tokens: {"input_tokens": tokens}, input_param=INPUT),
    models=ModelList(
        page=_model_page, model=lambda model, name: {**model_body(model), "id": name}, named=_model_meant
    ),
    keep_alive=b'event: ping\ndata: {"type": "ping"}\n\n',
    limit_headers=limit_headers,
    request_id_header="request-id",  # on errors too
    needs_client=True,
    cannot_continue=_thread_refused,
)

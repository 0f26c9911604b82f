"""Amazon Bedrock's InvokeModel over HTTP, for models that speak Anthropic's Messages: that API in another
envelope."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

import openresponses_bridge.dialects.anthropic_messages.client.surface as messages
import openresponses_bridge.dialects.bedrock_converse.client.surface as converse
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.anthropic_messages.client.described import AnthropicMessage
from openresponses_bridge.dialects.base import (
    LONGEST_NAME,
    AnswerForm,
    Asked,
    Asks,
    Description,
    Encoding,
    Fields,
    FormContext,
    OutboundForm,
    RequestHead,
    SurfacePath,
    TokenCount,
    body_of,
    invalid,
)
from openresponses_bridge.dialects.bedrock_converse.event_stream import MEDIA_TYPE
from openresponses_bridge.dialects.bedrock_converse.types import TIERS
from openresponses_bridge.dialects.bedrock_invoke import described
from openresponses_bridge.dialects.bedrock_invoke.outbound import Outbound, encode_events
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.request import CreateResponse

_VERSION: Final = "anthropic_version"
_BETAS: Final = "anthropic_beta"
_BETAS_HEADER: Final = "anthropic-beta"
_TIER: Final = "x-amzn-bedrock-service-tier"
_TIERS: Final = {theirs: ours for ours, theirs in TIERS.items()}
# prefixes of the names of headers and fields for guardrails, traces and latency
_OF_HEADERS: Final = "x-amzn-bedrock-"
_OF_BODY: Final = "amazon-bedrock-"
_TOLD: Final = frozenset({_TIER, f"{_OF_HEADERS}accept"})
_NO_PAGE: Final = ("aws4-", "bearer ")
_OTHER_FORMAT: Final = (
    "is required: InvokeModel takes the body of Anthropic's Messages alone, with anthropic_version, "
    "max_tokens and messages. The formats of other makers are not served: ask any model with Converse"
)


def _form(context: FormContext) -> AnswerForm:
    sealer = context.sealer
    outbound = Outbound(sealer, context.identities, context.input_tokens(), context.usage_at_start)
    encoding = Encoding(encode_events, MEDIA_TYPE.encode())
    return OutboundForm(outbound, encoding, lambda response: messages.whole(response, sealer))


def _unwrapped(body: Fields, head: RequestHead) -> dict[str, Any]:
    """Return the body as one of Messages; the model, and whether the answer is streamed, are in the path.
    Raises InvalidRequestError for a body of another format."""
    if body.get(_VERSION, str) is None:
        raise invalid(body.at(_VERSION), _OTHER_FORMAT)
    fields = body.whole() | {"model": head.fields.get("model", ""), "stream": head.stream}
    return {
        name: value
        for name, value in fields.items()
        if name not in (_VERSION, _BETAS) and not name.startswith(_OF_BODY)
    }


def _betas(body: Fields, head: RequestHead) -> dict[str, str]:
    """Return the header for the betas in the body, after its own betas."""
    betas = body.get(_BETAS, list) or []
    if not all(isinstance(each, str) for each in betas):
        raise invalid(_BETAS, "expected strings")
    if not betas:
        return {}
    own = head.headers.get(_BETAS_HEADER)
    return {_BETAS_HEADER: ",".join([own, *betas] if own else betas)}


def _tiered(request: CreateResponse, head: RequestHead) -> CreateResponse:
    """Return the request with the service tier in the headers."""
    tier = head.headers.get(_TIER)
    return request if tier is None else replace(request, service_tier=_TIERS.get(tier, tier))


def _read(body: bytes, head: RequestHead) -> Asked:
    fields = body_of(body)
    betas = _betas(fields, head)
    asked = messages.read(_unwrapped(fields, head), head)
    assert asked.losses is not None
    own = [name for name in fields.names if name.startswith(_OF_BODY)]
    for name in (
        *own,
        *(each for each in head.headers if each.startswith(_OF_HEADERS) and each not in _TOLD),
    ):
        asked.losses.loss(name[:LONGEST_NAME], "is known to Bedrock alone")
    return replace(asked, request=_tiered(asked.request, head), form=_form, headers=betas)


def _read_counted(body: bytes, head: RequestHead) -> tuple[CreateResponse, Diagnostics]:
    """Read the request whose tokens are counted, in the form of either API."""
    within = body_of(body).inner("input")
    converse_body = within.get("converse", dict)
    if converse_body is not None:
        return converse.read_counted(converse_body, head)
    invoked = within.maybe_inner("invokeModel")
    if invoked is None:
        raise invalid(within.param, "expected converse or invokeModel")
    try:
        data = b64decode(invoked.need("body", str), validate=True)
    except ValueError:
        raise invalid(invoked.at("body"), "is not base64") from None
    head.check_json(data)
    return messages.read_counted(_unwrapped(body_of(data), head), head)


def _is_no_page(headers: Mapping[str, str]) -> bool:
    """Return whether the headers have a signature or a bearer token, which a browser never adds by itself.
    Amazon's SDKs send no type of the body, or `application/octet-stream`, unless their caller does."""
    return headers.get("authorization", "").lower().startswith(_NO_PAGE)


def _error(error: BridgeError) -> bytes:
    """Encode a refusal in Amazon's shape, with the words of Anthropic's, which clients know."""
    payload: Mapping[str, Any] = messages.error_of(error)["error"]
    return encode({name: value for name, value in payload.items() if name != "type"})


_HELLO: Final[dict[str, Any]] = {
    _VERSION: "bedrock-2023-05-31",
    "max_tokens": 64,
    "messages": [{"role": "user", "content": "Hello"}],
}
_INVOKE: Final = Description(
    id="invoke_model",
    summary="Create a message, in Amazon Bedrock's envelope",
    request=described.InvokeModelRequest,
    answer=AnthropicMessage,
    examples={"whole": _HELLO},
)

SURFACE: Final = replace(
    messages.SURFACE,
    paths=(
        SurfacePath(path="/model/{model}/invoke", stream=False, description=_INVOKE),
        SurfacePath(
            path="/model/{model}/invoke-with-response-stream",
            stream=True,
            description=replace(
                _INVOKE,
                id="invoke_model_with_response_stream",
                summary="Stream a message, in Amazon Bedrock's envelope",
                answer=None,
                text=MEDIA_TYPE,
            ),
        ),
        # one path for both APIs of Bedrock; both are known here
        SurfacePath(
            path="/model/{model}/count-tokens",
            asks=Asks.TOKENS,
            description=Description(
                id="count_converse_tokens",
                summary="Estimate the tokens of an answer's input, in Amazon Bedrock's shape",
                request=described.BedrockCountRequest,
                answer=described.BedrockTokens,
                examples={"whole": {"input": {"converse": converse.HELLO}}},
            ),
        ),
    ),
    prefixes=(),  # all other paths of Bedrock are Converse's
    keys=converse.SURFACE.keys,
    why_refused=converse.SURFACE.why_refused,
    recognises=lambda _headers: False,
    read=_read,
    takes_any_type=_is_no_page,
    error=_error,
    error_headers=converse.SURFACE.error_headers,
    error_type=converse.SURFACE.error_type,
    count=TokenCount(
        read=_read_counted, answer=lambda tokens: {"inputTokens": tokens}, input_param=messages.INPUT
    ),
    models=None,
    keep_alive=converse.SURFACE.keep_alive,
    request_id_header=converse.SURFACE.request_id_header,
)

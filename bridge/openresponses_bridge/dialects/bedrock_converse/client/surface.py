"""Amazon Bedrock's Converse API over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import (
    AnswerForm,
    Asked,
    Description,
    Encoding,
    FormContext,
    KeyPlace,
    OutboundForm,
    RequestHead,
    Surface,
    SurfacePath,
)
from openresponses_bridge.dialects.bedrock_converse.client import described
from openresponses_bridge.dialects.bedrock_converse.client.errors import error_body, error_name
from openresponses_bridge.dialects.bedrock_converse.client.message import answer
from openresponses_bridge.dialects.bedrock_converse.client.outbound import Outbound, encode_events
from openresponses_bridge.dialects.bedrock_converse.client.request import from_converse
from openresponses_bridge.dialects.bedrock_converse.event_stream import MEDIA_TYPE, encode_event
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.seal import Sealer

_INPUT: Final = "messages"
_SIGNED: Final = "aws4-"
_UNSIGNED: Final = (
    "Requests that are signed with credentials of AWS (SigV4) can't be checked here. Send a key of this "
    "server as `Authorization: Bearer KEY`: SDKs do it with AWS_BEARER_TOKEN_BEDROCK=KEY, over https."
)


def whole(response: Response, sealer: Sealer) -> bytes | None:
    """Encode a finished response as a whole answer; None for one that has only an error."""
    body = answer(response, sealer)
    return None if body is None else encode(body)


def _form(context: FormContext) -> AnswerForm:
    sealer, identities = context.sealer, context.identities

    def encoded(response: Response) -> bytes | None:
        body = answer(response, sealer, identities)
        return None if body is None else encode(body)

    return OutboundForm(Outbound(sealer, identities), Encoding(encode_events, MEDIA_TYPE.encode()), encoded)


def _named(head: RequestHead, request: CreateResponse) -> CreateResponse:
    """Return the request with the options in its path."""
    return replace(request, model=head.fields.get("model"), stream=head.stream)


def _read(body: bytes, head: RequestHead) -> Asked:
    request, losses = from_converse(body, head.sealer)
    return Asked(
        request=_named(head, request),
        form=_form,
        losses=losses,
        input_param=_INPUT,
        schema_param="outputConfig.textFormat.structure.jsonSchema.schema",
    )


def read_counted(body: Mapping[str, Any], head: RequestHead) -> tuple[CreateResponse, Diagnostics]:
    """Read a request whose tokens are counted."""
    request, losses = from_converse(body, head.sealer)
    return _named(head, request), losses


def _why_refused(headers: Mapping[str, str]) -> str:
    return _UNSIGNED if headers.get("authorization", "").lower().startswith(_SIGNED) else ""


HELLO: Final[dict[str, Any]] = {"messages": [{"role": "user", "content": [{"text": "Hello"}]}]}
_CONVERSE: Final = Description(
    id="converse",
    summary="Generate an answer, in Amazon Bedrock's shape",
    request=described.ConverseRequest,
    answer=described.ConverseResponse,
    examples={"whole": HELLO},
)

SURFACE: Final = Surface(
    paths=(
        SurfacePath(path="/model/{model}/converse", stream=False, description=_CONVERSE),
        SurfacePath(
            path="/model/{model}/converse-stream",
            stream=True,
            description=replace(
                _CONVERSE,
                id="converse_stream",
                summary="Stream an answer, in Amazon Bedrock's shape",
                answer=None,
                text=MEDIA_TYPE,
            ),
        ),
    ),
    prefixes=("/model/",),
    keys=(KeyPlace("authorization", "Bearer "),),
    why_refused=_why_refused,
    read=_read,
    error=lambda error: encode(error_body(error)),
    error_headers=lambda error: {"x-amzn-errortype": error_name(error)},
    error_type=described.ConverseError,
    keep_alive=encode_event("keepAlive", b"{}"),  # clients skip events that they do not know
    request_id_header="x-amzn-requestid",
)

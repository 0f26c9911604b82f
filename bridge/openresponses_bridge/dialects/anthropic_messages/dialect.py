"""The entry of the dialect."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec.structs import replace

from openresponses_bridge.dialects.anthropic_messages.client.outbound import Outbound, encode_sse
from openresponses_bridge.dialects.anthropic_messages.client.surface import SURFACE, whole
from openresponses_bridge.dialects.anthropic_messages.models import MessagesOptions
from openresponses_bridge.dialects.anthropic_messages.upstream.formats import answer_way
from openresponses_bridge.dialects.anthropic_messages.upstream.inbound import Inbound
from openresponses_bridge.dialects.anthropic_messages.upstream.request import FIELDS, to_messages
from openresponses_bridge.dialects.base import (
    SEARCH_TOOLS,
    CaptureFormat,
    ClientSide,
    Dialect,
    Endpoint,
    Outgoing,
    RequestContext,
    Traits,
    UpstreamSide,
    type_of,
)
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.request import CreateResponse

_TYPES: Final = ("message_", "content_block_", "ping")
_BEGINNINGS: Final = ("message_start", "message")


def _to_upstream(request: CreateResponse, context: RequestContext) -> Outgoing:
    options = context.options
    body, diagnostics = to_messages(
        request,
        history=context.history,
        tool_identities=context.identities,
        model=context.model,
        sealer=context.sealer,
        options=options if context.stream else replace(options, stream=False),
        efforts=context.efforts,
        output_room=context.output_room,
    )
    return Outgoing(encode(body), diagnostics)


def _is_anthropic(value: Mapping[str, Any]) -> bool:
    kind = type_of(value)
    return kind.startswith(_TYPES) or (kind == "message" and "stop_reason" in value)


def _head(value: Mapping[str, Any]) -> tuple[Any, Any]:
    message = value.get("message")
    return (message if isinstance(message, dict) else value).get("model"), None


DIALECT: Final = Dialect(
    name="anthropic",
    title="Messages",
    upstream=UpstreamSide(
        options=MessagesOptions,
        request=_to_upstream,
        inbound=lambda machine, context: Inbound(machine, context.sealer),
        whole=lambda value: isinstance(value.get("content"), list) and "role" in value,
        outcomes=lambda _options: FIELDS,
        compacts=True,
        endpoint=Endpoint(
            path="/messages",
            versioned=True,
            key_header="x-api-key",
            key_prefix="",
            headers=MappingProxyType({"anthropic-version": "2023-06-01"}),
            passed_headers=frozenset(
                {"anthropic-beta", "anthropic-user-profile-id", "anthropic-workspace-id"}
            ),
        ),
        answers=answer_way,
        traits=lambda options: Traits(
            takes_betas=options.betas,
            takes_reasoning=options.unsigned_thinking,
            hosted_tools=SEARCH_TOOLS if options.web_search else frozenset(),
        ),
    ),
    client=ClientSide(outbound=Outbound, encode=encode_sse, whole=whole),
    surface=SURFACE,
    capture=CaptureFormat(
        recognises=_is_anthropic,
        inbound=Inbound,
        head=_head,
        begins=lambda value, _before: type_of(value) in _BEGINNINGS,
    ),
)

"""The entry of the dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from openresponses_bridge.dialects.base import (
    CaptureFormat,
    ClientSide,
    Dialect,
    Endpoint,
    Framing,
    Outgoing,
    RequestContext,
    Traits,
    UpstreamSide,
)
from openresponses_bridge.dialects.bedrock_converse.client.outbound import Outbound, encode_sse
from openresponses_bridge.dialects.bedrock_converse.client.surface import SURFACE, whole
from openresponses_bridge.dialects.bedrock_converse.event_stream import MEDIA_TYPE, FramesOfMessages
from openresponses_bridge.dialects.bedrock_converse.options import ConverseOptions
from openresponses_bridge.dialects.bedrock_converse.types import EVENTS
from openresponses_bridge.dialects.bedrock_converse.upstream.inbound import Inbound
from openresponses_bridge.dialects.bedrock_converse.upstream.request import FIELDS, answer_way, to_converse
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.request import CreateResponse


def _to_upstream(request: CreateResponse, context: RequestContext) -> Outgoing:
    body, diagnostics = to_converse(
        request,
        history=context.history,
        tool_identities=context.identities,
        model=context.model,
        sealer=context.sealer,
        options=context.options,
        efforts=context.efforts,
    )
    return Outgoing(encode(body), diagnostics)


def _is_whole(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("output"), dict) and "stopReason" in value


def _is_converse(value: Mapping[str, Any]) -> bool:
    return _is_whole(value) or any(isinstance(value.get(name), dict) for name in EVENTS[:-1])


DIALECT: Final = Dialect(
    name="bedrock",
    title="Converse",
    upstream=UpstreamSide(
        options=ConverseOptions,
        request=_to_upstream,
        inbound=lambda machine, context: Inbound(machine, context.sealer),
        whole=_is_whole,
        outcomes=lambda _options: FIELDS,
        endpoint=Endpoint(
            path="/model/{model}/converse-stream",
            whole_path="/model/{model}/converse",
            version="",
            framing=Framing(MEDIA_TYPE, FramesOfMessages),
            signature="aws:bedrock",
        ),
        answers=answer_way,
        traits=lambda _options: Traits(names_stops=False),
    ),
    client=ClientSide(outbound=Outbound, encode=encode_sse, whole=whole),
    surface=SURFACE,
    capture=CaptureFormat(
        recognises=_is_converse,
        inbound=Inbound,
        begins=lambda value, _before: "messageStart" in value or _is_whole(value),
    ),
)

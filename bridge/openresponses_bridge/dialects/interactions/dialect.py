"""The entry of the dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

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
    object_in,
)
from openresponses_bridge.dialects.interactions import types as t
from openresponses_bridge.dialects.interactions.client.interaction import interaction
from openresponses_bridge.dialects.interactions.client.outbound import Outbound
from openresponses_bridge.dialects.interactions.client.surface import SURFACE
from openresponses_bridge.dialects.interactions.options import InteractionsOptions
from openresponses_bridge.dialects.interactions.upstream.inbound import Inbound, is_whole
from openresponses_bridge.dialects.interactions.upstream.request import FIELDS, to_interactions
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.seal import Sealer

_HOSTED: Final = SEARCH_TOOLS | {"mcp"}


def _to_upstream(request: CreateResponse, context: RequestContext) -> Outgoing:
    body, diagnostics = to_interactions(
        replace(request, stream=context.stream),
        history=context.history,
        tool_identities=context.identities,
        model=context.model,
        sealer=context.sealer,
        options=context.options,
        efforts=context.efforts,
    )
    return Outgoing(encode(body), diagnostics)


def _whole(response: Response, sealer: Sealer) -> bytes:
    return encode(interaction(response, sealer, thoughts=True))


def _is_interactions(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("event_type"), str) or is_whole(value)


def _head(value: Mapping[str, Any]) -> tuple[Any, Any]:
    return (object_in(value, "interaction") or value).get("model"), None


DIALECT: Final = Dialect(
    name=t.DIALECT,
    title="Interactions",
    upstream=UpstreamSide(
        options=InteractionsOptions,
        request=_to_upstream,
        inbound=lambda machine, context: Inbound(machine, context.sealer),
        whole=is_whole,
        outcomes=lambda _options: FIELDS,
        endpoint=Endpoint(
            path="/interactions",
            version="/v1",
            key_header="x-goog-api-key",
            key_prefix="",
        ),
        traits=lambda _options: Traits(names_stops=False, hosted_tools=_HOSTED),
    ),
    client=ClientSide(outbound=lambda: Outbound(thoughts=True), encode=t.encode_sse, whole=_whole),
    surface=SURFACE,
    capture=CaptureFormat(
        recognises=_is_interactions,
        inbound=Inbound,
        head=_head,
        concludes=lambda value: value.get("event_type") == t.COMPLETED or is_whole(value),
        begins=lambda value, _before: value.get("event_type") == t.CREATED or is_whole(value),
    ),
)

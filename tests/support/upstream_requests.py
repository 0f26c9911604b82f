"""A request in the form in which each dialect sends it to its upstream, and its losses."""

import json
from typing import Any

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.dialects import (
    anthropic_messages,
    bedrock_converse,
    chat_completions,
    codex,
    gemini,
    interactions,
    responses,
)
from openresponses_bridge.dialects.anthropic_messages import ModelFacts
from openresponses_bridge.dialects.base import (
    RequestContext,
    UpstreamSide,
)
from openresponses_bridge.protocol.request import (
    CreateResponse,
)
from openresponses_bridge.seal import Sealer

FACTS = ModelFacts(32_000, "adaptive", structured=True, efforts=("low",))


COLUMNS: dict[str, tuple[UpstreamSide | None, dict[str, Any]]] = {
    "chat": (chat_completions.DIALECT.upstream, {}),
    "anthropic": (anthropic_messages.DIALECT.upstream, {"facts": FACTS}),
    "gemini": (gemini.DIALECT.upstream, {"thinking": "level"}),
    "bedrock": (bedrock_converse.DIALECT.upstream, {"thinking": "reasoning_effort"}),
    "interactions": (interactions.DIALECT.upstream, {}),
    "responses": (responses.DIALECT.upstream, {}),
    "published": (responses.DIALECT.upstream, {"supersets": False}),
    "stateful": (responses.DIALECT.upstream, {"stateful": True}),
    "codex": (codex.DIALECT.upstream, {}),
    "published and stateful": (responses.DIALECT.upstream, {"supersets": False, "stateful": True}),
}


CLOSED = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


def drive(column: str, request: CreateResponse, **more: Any) -> tuple[dict[str, Any], list[str]]:
    """(the sent body, the fields that are reported as lost), with `more` options than the column's."""
    side, options = COLUMNS[column]
    assert side is not None
    context = RequestContext([], "m", side.options(**options, **more), Sealer(), ToolIdentityMap())
    outgoing = side.request(request, context)
    return json.loads(outgoing.body), [case.where for case in outgoing.diagnostics.of("loss")]

"""The entry of the dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from openresponses_bridge.dialects.base import (
    CaptureFormat,
    Dialect,
    Endpoint,
    Outgoing,
    RequestContext,
    Traits,
    UpstreamSide,
    type_of,
)
from openresponses_bridge.dialects.responses.inbound import Inbound, whole_answer
from openresponses_bridge.dialects.responses.request import ResponsesOptions, outcomes, to_responses
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.request import CreateResponse


def _to_upstream(request: CreateResponse, context: RequestContext) -> Outgoing:
    body, diagnostics = to_responses(
        replace(request, stream=context.stream),
        history=context.history,
        tool_identities=context.identities,
        model=context.model,
        options=context.options,
        reasons=context.reasons,
        efforts=context.efforts,
    )
    return Outgoing(encode(body), diagnostics)


def _is_responses(value: Mapping[str, Any]) -> bool:
    kind = type_of(value)
    return kind.startswith("response.") or kind == "error" or ":" in kind or whole_answer(value) is not None


def _begins(value: Mapping[str, Any], _before: Mapping[str, Any] | None) -> bool:
    return type_of(value) == "response.created" or whole_answer(value) is not None


_OF_KEPT: Final = frozenset({"previous_response_id", "store"})


def _traits(options: ResponsesOptions) -> Traits:
    return Traits(
        keeps_responses=options.stateful and not _OF_KEPT & options.omit,
        truncates="truncation" not in options.omit,
        takes_cache_keys=options.supersets and "prompt_cache_key" not in options.omit,
    )


DIALECT: Final = Dialect(
    name="responses",
    title="Responses",
    upstream=UpstreamSide(
        options=ResponsesOptions,
        request=_to_upstream,
        inbound=lambda machine, _context: Inbound(machine),
        whole=lambda value: whole_answer(value) is not None and not value.get("error"),
        outcomes=outcomes,
        compacts=True,
        endpoint=Endpoint(path="/responses"),
        traits=_traits,
    ),
    capture=CaptureFormat(
        recognises=_is_responses,
        inbound=lambda machine: Inbound(machine, adopt=True),
        begins=_begins,
    ),
)
"""Without a client's side: its clients read the protocol itself, in one of its two spellings."""

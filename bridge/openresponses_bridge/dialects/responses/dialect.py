"""The entry of the dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from openresponses_bridge.dialects.base import (
    SEARCH_TOOLS,
    AnswerContext,
    AnswerFormat,
    AnswerWay,
    CaptureFormat,
    Dialect,
    Endpoint,
    Outgoing,
    RequestContext,
    ThinkTags,
    Traits,
    UpstreamSide,
    type_of,
)
from openresponses_bridge.dialects.responses.inbound import Inbound, whole_answer
from openresponses_bridge.dialects.responses.request import ResponsesOptions, outcomes, to_responses
from openresponses_bridge.dialects.responses.socket import FRAMING
from openresponses_bridge.dialects.responses.surface import SURFACE
from openresponses_bridge.dialects.responses.tagged import TaggedReasoning
from openresponses_bridge.emitter.stream import ResponseStream
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


def _inbound(machine: ResponseStream, context: AnswerContext) -> Inbound:
    options: ResponsesOptions = context.options
    if options.think != "off":
        machine = TaggedReasoning(machine, ThinkTags(options.think_tags, opened=options.think == "opened"))
    return Inbound(machine, reports_cuts=options.reports_cuts)


def _is_responses(value: Mapping[str, Any]) -> bool:
    kind = type_of(value)
    return kind.startswith("response.") or kind == "error" or ":" in kind or whole_answer(value) is not None


def _begins(value: Mapping[str, Any], _before: Mapping[str, Any] | None) -> bool:
    return type_of(value) == "response.created" or whole_answer(value) is not None


_OF_KEPT: Final = frozenset({"previous_response_id", "store"})


_HOSTED: Final = SEARCH_TOOLS | {"mcp"}


def _traits(options: ResponsesOptions) -> Traits:
    return Traits(
        keeps_responses=options.stateful and not _OF_KEPT & options.omit,
        truncates="truncation" not in options.omit,
        takes_betas=options.supersets,
        takes_reasoning=options.reasoning_content and not options.encrypted_content,
        takes_cache_keys=options.supersets and "prompt_cache_key" not in options.omit,
        hosted_tools=_HOSTED if options.supersets else frozenset(),
        compacts=options.supersets and "context_management" not in options.omit,
    )


def _answers(_format: AnswerFormat, _model: str, options: ResponsesOptions) -> AnswerWay:
    is_native = options.schemas != "none" and "text" not in options.omit
    return AnswerWay.NATIVE if is_native else AnswerWay.INSTRUCTED


DIALECT: Final = Dialect(
    name="responses",
    title="Responses",
    upstream=UpstreamSide(
        options=ResponsesOptions,
        request=_to_upstream,
        inbound=_inbound,
        whole=lambda value: whole_answer(value) is not None and not value.get("error"),
        outcomes=outcomes,
        compacts=True,
        endpoint=Endpoint(path="/responses", passed_headers=frozenset({"openai-beta"}), socket=FRAMING),
        traits=_traits,
        answers=_answers,
    ),
    surface=SURFACE,
    capture=CaptureFormat(
        recognises=_is_responses,
        inbound=lambda machine: Inbound(machine, adopt=True),
        begins=_begins,
    ),
)
"""The entry has no client's side: its clients read the protocol itself, in one of its two spellings."""

"""Translates a request into one of Converse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from openresponses_bridge.calls.declarations import present_tools
from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import (
    EFFORTS,
    NATIVE_OF_CONVERSE,
    OURS,
    RUN_OUTPUTS,
    SEARCH_SOURCES,
    AnswerFormat,
    AnswerWay,
    AnyItem,
    Outcomes,
    accepted_efforts,
    active_tools,
    add_beside,
    add_missing,
    apply,
    asked_tier,
    built,
    check_include,
    configured,
    effort_of,
    entries_of,
    fitted_effort,
    honoured,
    invalid,
    loss,
    normalize_entries,
    passed_on,
    sent,
    with_answers,
    without_breakpoints,
)
from openresponses_bridge.dialects.bedrock_converse.carried import (
    ADDITIONAL,
    NOTHING,
    CarriedFields,
    carried_by,
)
from openresponses_bridge.dialects.bedrock_converse.models import (
    ANSWER_ROOM,
    BUDGETS,
    SMALLEST_BUDGET,
    ModelFacts,
    facts_of,
)
from openresponses_bridge.dialects.bedrock_converse.options import DEFAULT_OPTIONS, ConverseOptions
from openresponses_bridge.dialects.bedrock_converse.types import TIERS
from openresponses_bridge.dialects.bedrock_converse.upstream.messages import POINT, MessagesBuilder
from openresponses_bridge.dialects.bedrock_converse.upstream.tools import ToolConfig
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.request import CreateResponse, JsonSchemaFormatParam
from openresponses_bridge.protocol.response import TextFormat
from openresponses_bridge.seal import Sealer

_INFERENCE: Final = "inferenceConfig"
_OUTPUT: Final = "outputConfig"
_UNSAID: Final = (
    "parallel_tool_calls",
    "presence_penalty",
    "frequency_penalty",
    "top_logprobs",
    "text.verbosity",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
    "reasoning.context",
    "reasoning.mode",
    "client_metadata",
    "safety_identifier",
    "user",
    "seed",
    "logit_bias",
    "prediction",
)

FIELDS: Final[Outcomes] = {
    **OURS,
    **{name: loss() for name in _UNSAID},
    "model": honoured("it is in the path of the request"),
    "input": built("messages"),
    "instructions": built("system"),
    "include": honoured("encrypted reasoning is always included, anything else is a loss"),
    "tools": built("toolConfig"),
    "tool_choice": built("toolConfig"),
    "text.format": built(_OUTPUT),
    "max_output_tokens": sent(f"{_INFERENCE}.maxTokens"),
    "temperature": built(f"{_INFERENCE}.temperature"),
    "top_p": sent(f"{_INFERENCE}.topP"),
    "top_k": built(ADDITIONAL),
    "stop": built(f"{_INFERENCE}.stopSequences"),
    "service_tier": built("serviceTier"),
    "reasoning.effort": built(ADDITIONAL),
    "reasoning.summary": honoured("reasoning is shown whenever it is requested"),
    "stream": honoured("it is in the path of the request"),
    "stream_options.include_obfuscation": loss("the server decides whether answers are padded"),
    NATIVE_OF_CONVERSE: built("its own name"),
    "truncation": loss("a conversation that is too long is not shortened"),
}

_HOTTEST: Final = 1.0
# values of `include` that are kept anyway
_INCLUDES: Final = frozenset({"reasoning.encrypted_content", SEARCH_SOURCES, RUN_OUTPUTS})
_MADE: Final = frozenset({"messages", "system", "toolConfig", "modelId"})
"""The fields of the body that the bridge makes itself, and that nothing else is taken for."""
_MERGED: Final = (_INFERENCE, ADDITIONAL, _OUTPUT)
"""Fields whose inner fields are added one by one."""
_ANY_OBJECT: Final = {"type": "object"}


def answer_way(format: AnswerFormat, model: str, options: ConverseOptions) -> AnswerWay:
    """Return how this model is made to answer in this format."""
    if isinstance(format, JsonSchemaFormatParam):
        return AnswerWay.NATIVE if facts_of(model, options).structured else AnswerWay.FUNCTION
    return AnswerWay.INSTRUCTED


def to_converse(
    request: CreateResponse,
    *,
    model: str | None = None,
    history: Sequence[AnyItem] = (),
    tool_identities: ToolIdentityMap | None = None,
    sealer: Sealer | None = None,
    options: ConverseOptions = DEFAULT_OPTIONS,
    efforts: frozenset[str] | None = None,
) -> tuple[dict[str, Any], Diagnostics]:
    """Translate a request. Returns (body, losses and repairs). The model and whether the answer is streamed
    are in the path.

    `history` are the items of earlier turns, input and output; `model` replaces the request's;
    `tool_identities` is filled with the tools, for the machine that reads the answer; `efforts` are the
    model's levels of effort, as in `accepted_efforts`. Raises InvalidRequestError with `param` for a request
    that can't be sent: unpaired calls (`unpaired_tool_call`), malformed data, tools that were not declared,
    nothing to answer.
    """
    diagnostics = Diagnostics()
    identities = tool_identities if tool_identities is not None else ToolIdentityMap()
    facts = facts_of(model or request.model or "", options)
    carried = carried_by(request)
    request = configured(request, history)
    entries = normalize_entries(entries_of(request, history), diagnostics)
    functions, others = present_tools(active_tools(request, entries), identities, diagnostics)
    tools = ToolConfig(request.tool_choice, functions, others, identities, carried, diagnostics)
    if options.unanswered_calls == "answer":
        entries = with_answers(entries, identities, diagnostics)
    builder = MessagesBuilder(entries, identities, sealer or Sealer(), options, carried, diagnostics)
    messages = builder.build(request.instructions)
    if not messages:
        raise invalid("input", "there is nothing to answer")
    body: dict[str, Any] = {"messages": messages}
    body |= {"system": builder.system} if builder.system else {}
    body |= tools.fields(messages)
    if options.cache_points and not builder.points:
        _mark(body)
    request, passed = passed_on(without_breakpoints(request), options.passes, _MADE, _MERGED)
    fields = apply(request, FIELDS, diagnostics)
    add_missing(fields, _sampling(request, facts, carried, diagnostics), _MERGED)
    add_missing(fields, _format(request, facts, carried, diagnostics), _MERGED)
    add_missing(fields, _thinking(request, facts, carried, efforts, fields, tools, diagnostics), _MERGED)
    check_include(request.include or (), _INCLUDES, diagnostics)
    add_missing(fields, _tier(request, carried, diagnostics))
    add_beside(fields, options.extra, carried=_own(carried), passed=passed, merged=_MERGED)
    return {**fields, **body}, diagnostics


def _own(carried: CarriedFields) -> dict[str, Any]:
    return {**carried.body, **({_INFERENCE: carried.inference} if carried.inference else {})}


def _mark(body: dict[str, Any]) -> None:
    """Set cache points after the tools, the system prompt and the last message."""
    if "toolConfig" in body:
        config = body["toolConfig"]
        body["toolConfig"] = {**config, "tools": [*config["tools"], POINT]}
    if "system" in body:
        body["system"] = [*body["system"], POINT]
    body["messages"][-1]["content"].append(POINT)


def _sampling(
    request: CreateResponse, facts: ModelFacts, carried: CarriedFields, diagnostics: Diagnostics
) -> dict[str, Any]:
    inference: dict[str, Any] = {}
    if request.temperature is not None:
        if request.temperature > _HOTTEST:
            diagnostics.loss("temperature", f"{request.temperature:g} sent as {_HOTTEST:g}, the highest")
        inference["temperature"] = min(request.temperature, _HOTTEST)
    if request.stop:
        inference["stopSequences"] = [request.stop] if isinstance(request.stop, str) else request.stop
    fields: dict[str, Any] = {_INFERENCE: inference} if inference else {}
    if request.top_k is None or request.top_k == carried.top_k:
        return fields
    if not facts.top_k:
        diagnostics.loss("top_k", "the model has none")
    else:
        within, _, last = facts.top_k.rpartition(".")
        value: dict[str, Any] = {last: request.top_k}
        fields[ADDITIONAL] = {within: value} if within else value
    return fields


def _format(
    request: CreateResponse, facts: ModelFacts, carried: CarriedFields, diagnostics: Diagnostics
) -> dict[str, Any]:
    if carried.output and request.text == carried.text:
        return {_OUTPUT: carried.output}
    rest = {name: value for name, value in carried.output.items() if name != "textFormat"}
    requested = request.text.format if request.text is not None else None
    if not requested or isinstance(requested, TextFormat):
        return {_OUTPUT: rest} if rest else {}
    if not isinstance(requested, JsonSchemaFormatParam) or not facts.structured:
        diagnostics.loss("text.format", "the model has no such format")
        return {_OUTPUT: rest} if rest else {}
    schema: dict[str, Any] = {"schema": encode(requested.schema or _ANY_OBJECT).decode()}
    schema |= {"name": requested.name} if requested.name else {}
    schema |= {"description": requested.description} if requested.description else {}
    return {_OUTPUT: {**rest, "textFormat": {"type": "json_schema", "structure": {"jsonSchema": schema}}}}


def _tier(request: CreateResponse, carried: CarriedFields, diagnostics: Diagnostics) -> dict[str, Any]:
    if carried.tier is not None:
        return {"serviceTier": carried.tier}
    tier = asked_tier(request, TIERS, diagnostics)
    return {} if tier is None else {"serviceTier": {"type": tier}}


def _thinking(
    request: CreateResponse,
    facts: ModelFacts,
    carried: CarriedFields,
    efforts: frozenset[str] | None,
    fields: dict[str, Any],
    tools: ToolConfig,
    diagnostics: Diagnostics,
) -> dict[str, Any]:
    """Return the model's own fields for reasoning; those of a client of this API as they were sent."""
    if carried is not NOTHING and request.reasoning == carried.reasoning:
        return {}
    accepted = frozenset(accepted_efforts(facts.efforts, efforts))
    effort = effort_of(request, EFFORTS | accepted)
    if effort in (None, "none"):
        return {}
    if facts.thinking == "off":
        diagnostics.loss("reasoning.effort", "how the model is asked for it is not known (option `thinking`)")
        return {}
    level = fitted_effort(effort or "", accepted or EFFORTS, diagnostics)
    if level is None or level == "none":
        return {}
    if facts.thinking == "reasoning_effort":
        return {ADDITIONAL: {"reasoning_effort": level}}
    if facts.thinking == "reasoning_config":
        return {ADDITIONAL: {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": level}}}
    if tools.forces:
        diagnostics.loss("reasoning.effort", "turned off, since a tool call is forced")
        return {}
    if facts.thinking == "adaptive":
        thinking = {"type": "adaptive", "display": "summarized"}
        return {ADDITIONAL: {"thinking": thinking, "output_config": {"effort": level}}}
    return _budget(level, fields, diagnostics)


def _budget(level: str, fields: dict[str, Any], diagnostics: Diagnostics) -> dict[str, Any]:
    inference = fields.get(_INFERENCE, {})
    room = inference.get("maxTokens", BUDGETS["max"] + ANSWER_ROOM) - ANSWER_ROOM
    if room < SMALLEST_BUDGET:
        diagnostics.loss("reasoning.effort", "the output limit leaves no room for thinking")
        return {}
    for name in ("temperature", "topP"):
        if inference.pop(name, None) is not None:
            diagnostics.loss({"topP": "top_p"}.get(name, name), "not taken while the model thinks")
    budget = min(BUDGETS.get(level, BUDGETS["medium"]), room)
    return {ADDITIONAL: {"thinking": {"type": "enabled", "budget_tokens": budget}}}

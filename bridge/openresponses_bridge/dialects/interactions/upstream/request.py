"""Translates a request into one that creates an interaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from openresponses_bridge.calls.declarations import present_tools
from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import (
    EFFORTS,
    NATIVE_OF_INTERACTIONS,
    OURS,
    RUN_OUTPUTS,
    SEARCH_SOURCES,
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
    omit_within,
    passed_on,
    sent,
    with_answers,
)
from openresponses_bridge.dialects.interactions.carried import CarriedFields, carried_by
from openresponses_bridge.dialects.interactions.options import DEFAULT_OPTIONS, InteractionsOptions
from openresponses_bridge.dialects.interactions.types import TIERS, Json
from openresponses_bridge.dialects.interactions.upstream.input import InputBuilder
from openresponses_bridge.dialects.interactions.upstream.tools import Tools, as_taken
from openresponses_bridge.protocol.codec import plain
from openresponses_bridge.protocol.request import CreateResponse, JsonSchemaFormatParam
from openresponses_bridge.protocol.response import JsonObjectFormat, TextFormat
from openresponses_bridge.seal import Sealer

_GENERATION: Final = "generation_config"
_JSON: Final = "application/json"
_UNSAID: Final = (
    *("parallel_tool_calls", "text.verbosity", "prompt_cache_key", "prompt_cache_retention"),
    *("prompt_cache_options", "reasoning.context", "reasoning.mode", "client_metadata", "safety_identifier"),
    *("user", "logit_bias", "prediction", "top_k", "presence_penalty", "frequency_penalty", "top_logprobs"),
)

FIELDS: Final[Outcomes] = {
    **OURS,
    **{name: loss() for name in _UNSAID},
    "model": built("model"),
    "input": built("input"),
    "instructions": built("system_instruction"),
    "include": honoured("the answer always has it"),
    "tools": built("tools"),
    "tool_choice": built(f"{_GENERATION}.tool_choice"),
    "text.format": built("response_format"),
    "max_output_tokens": sent(f"{_GENERATION}.max_output_tokens"),
    "temperature": sent(f"{_GENERATION}.temperature"),
    "top_p": sent(f"{_GENERATION}.top_p"),
    "seed": sent(f"{_GENERATION}.seed"),
    "stop": built(f"{_GENERATION}.stop_sequences"),
    "service_tier": built("service_tier"),
    "reasoning.effort": built(f"{_GENERATION}.thinking_level"),
    "reasoning.summary": built(f"{_GENERATION}.thinking_summaries"),
    "stream": built("stream"),
    "stream_options.include_obfuscation": loss("answers are not padded"),
    NATIVE_OF_INTERACTIONS: built("its own name"),
    "truncation": loss("a conversation that is too long is not shortened"),
}

# values of `include` that are kept anyway
_INCLUDES: Final = frozenset({"reasoning.encrypted_content", SEARCH_SOURCES, RUN_OUTPUTS})
_MADE: Final = frozenset({"model", "agent", "input", "system_instruction", "tools", "stream", "store"})
"""The fields of the body that the bridge makes itself, and that nothing else is taken for."""


def to_interactions(
    request: CreateResponse,
    *,
    model: str | None = None,
    history: Sequence[AnyItem] = (),
    tool_identities: ToolIdentityMap | None = None,
    sealer: Sealer | None = None,
    options: InteractionsOptions = DEFAULT_OPTIONS,
    efforts: frozenset[str] | None = None,
) -> tuple[Json, Diagnostics]:
    """Translate a request. Returns (body, losses and repairs).

    `history` are the items of earlier turns, input and output; `model` replaces the request's;
    `tool_identities` is filled with the tools, for the machine that reads the answer; `efforts` are the
    model's levels of effort, as in `accepted_efforts`. The upstream is asked to store nothing. Raises
    InvalidRequestError with `param` for a request that can't be sent: unpaired calls (`unpaired_tool_call`),
    malformed data, tools that were not declared, nothing to answer.
    """
    diagnostics = Diagnostics()
    identities = tool_identities if tool_identities is not None else ToolIdentityMap()
    carried = carried_by(request)
    request = configured(request, history)
    entries = normalize_entries(entries_of(request, history), diagnostics)
    functions, others = present_tools(active_tools(request, entries), identities, diagnostics)
    tools = Tools(functions, others, identities, options, carried, diagnostics)
    if options.unanswered_calls == "answer":
        entries = with_answers(entries, identities, diagnostics)
    builder = InputBuilder(entries, identities, sealer or Sealer(), options, carried, diagnostics)
    steps = builder.build(request.instructions)
    if not steps:
        raise invalid("input", "there is nothing to answer")
    named = "agent" if "agent" in carried.body else "model"
    body: Json = {named: model or request.model, "input": steps, "store": False}
    if builder.system:
        body["system_instruction"] = "\n\n".join(builder.system)
    if declared := tools.declared():
        body["tools"] = declared
    if request.stream:
        body["stream"] = True
    body |= _format(request, options, carried, diagnostics)
    request, passed = passed_on(request, options.passes, _MADE, (_GENERATION,))
    fields = apply(request, FIELDS, diagnostics)
    check_include(request.include or (), _INCLUDES, diagnostics)
    generation = fields.pop(_GENERATION, {}) | tools.choice(request.tool_choice)
    if request.stop:
        generation["stop_sequences"] = [request.stop] if isinstance(request.stop, str) else request.stop
    generation |= _thinking(request, options, carried, efforts, diagnostics)
    body[_GENERATION] = generation
    tier = _tier(request, carried, diagnostics)
    labels = {"labels": carried.labels} if carried.labels else {}
    own = {_GENERATION: carried.generation, **labels, **carried.body}
    for additions in (fields, tier):
        add_missing(body, additions)
    add_beside(body, options.extra, carried=own, passed=passed, merged=(_GENERATION,))
    omit_within(body, _GENERATION, options.omit, diagnostics)
    return body, diagnostics


def _tier(request: CreateResponse, carried: CarriedFields, diagnostics: Diagnostics) -> Json:
    tier = asked_tier(request, TIERS, diagnostics) if carried.tier is None else carried.tier
    return {} if tier is None else {"service_tier": tier}


def _format(
    request: CreateResponse, options: InteractionsOptions, carried: CarriedFields, diagnostics: Diagnostics
) -> Json:
    if carried.format and plain(request.text) == carried.text:
        return carried.format
    text_format = request.text.format if request.text is not None else None
    if not text_format or isinstance(text_format, TextFormat):
        return {}
    if isinstance(text_format, JsonObjectFormat):
        return {"response_format": {"type": "text", "mime_type": _JSON}}
    if not isinstance(text_format, JsonSchemaFormatParam):
        diagnostics.loss(f"text.format.{text_format.type[:64]}", "Interactions has no such format")
        return {}
    schema = as_taken(text_format.schema or {"type": "object"}, options, "text.format.schema", diagnostics)
    return {"response_format": {"type": "text", "mime_type": _JSON, "schema": schema}}


def _thinking(
    request: CreateResponse,
    options: InteractionsOptions,
    carried: CarriedFields,
    efforts: frozenset[str] | None,
    diagnostics: Diagnostics,
) -> Json:
    if not carried.generation.keys().isdisjoint(("thinking_level", "thinking_summaries")):
        return {}  # the client's own is sent
    accepted = frozenset(accepted_efforts(options.efforts, efforts))
    effort = effort_of(request, EFFORTS | accepted)
    level = None if effort is None else fitted_effort(effort, accepted, diagnostics)
    thinking: Json = {} if level is None else {"thinking_level": level}
    if request.reasoning is not None and request.reasoning.summary:
        thinking["thinking_summaries"] = "auto"
    return thinking

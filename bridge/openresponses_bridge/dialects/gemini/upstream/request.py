"""Translates a request into one of `generateContent`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from openresponses_bridge.calls.declarations import present_tools
from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import (
    EFFORTS,
    NATIVE_OF_GEMINI,
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
    honoured,
    invalid,
    loss,
    normalize_entries,
    omit_within,
    passed_on,
    sent,
    with_answers,
)
from openresponses_bridge.dialects.gemini.carried import CarriedFields, carried_by
from openresponses_bridge.dialects.gemini.models import ModelFacts, facts_of, thinking_config
from openresponses_bridge.dialects.gemini.options import DEFAULT_OPTIONS, GeminiOptions
from openresponses_bridge.dialects.gemini.types import TIERS
from openresponses_bridge.dialects.gemini.upstream.messages import ContentsBuilder
from openresponses_bridge.dialects.gemini.upstream.tools import Tools, as_taken, takes_as_sent
from openresponses_bridge.protocol.request import CreateResponse, JsonSchemaFormatParam
from openresponses_bridge.protocol.response import JsonObjectFormat, TextFormat
from openresponses_bridge.seal import Sealer

_GENERATION: Final = "generationConfig"
_UNSAID: Final = (
    "parallel_tool_calls",
    "text.verbosity",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
    "reasoning.context",
    "reasoning.mode",
    "client_metadata",
    "safety_identifier",
    "user",
    "logit_bias",
    "prediction",
)

FIELDS: Final[Outcomes] = {
    **OURS,
    **{name: loss() for name in _UNSAID},
    "model": honoured("it is in the path of the request"),
    "input": built("contents"),
    "instructions": built("systemInstruction"),
    "include": built(f"{_GENERATION}.responseLogprobs"),
    "tools": built("tools"),
    "tool_choice": built("toolConfig"),
    "text.format": built(f"{_GENERATION}.responseJsonSchema"),
    "max_output_tokens": sent(f"{_GENERATION}.maxOutputTokens"),
    "temperature": sent(f"{_GENERATION}.temperature"),
    "top_p": sent(f"{_GENERATION}.topP"),
    "top_k": sent(f"{_GENERATION}.topK"),
    "seed": sent(f"{_GENERATION}.seed"),
    "presence_penalty": sent(f"{_GENERATION}.presencePenalty"),
    "frequency_penalty": sent(f"{_GENERATION}.frequencyPenalty"),
    "top_logprobs": built(f"{_GENERATION}.logprobs"),
    "stop": built(f"{_GENERATION}.stopSequences"),
    "service_tier": built("serviceTier"),
    "reasoning.effort": built(f"{_GENERATION}.thinkingConfig"),
    "reasoning.summary": honoured("thoughts are summarised whenever reasoning is requested"),
    "stream": honoured("it is in the path of the request"),
    "stream_options.include_obfuscation": loss("answers are not padded"),
    NATIVE_OF_GEMINI: built("its own name"),
    "truncation": loss("a conversation that is too long is not shortened"),
}

_LOGPROBS: Final = "message.output_text.logprobs"
# values of `include` that are kept anyway
_INCLUDES: Final = frozenset({_LOGPROBS, "reasoning.encrypted_content", SEARCH_SOURCES, RUN_OUTPUTS})
_MADE: Final = frozenset({"contents", "systemInstruction", "tools", "toolConfig", "model"})
"""The fields of the body that the bridge makes itself, and that nothing else is taken for."""


def to_gemini(
    request: CreateResponse,
    *,
    model: str | None = None,
    history: Sequence[AnyItem] = (),
    tool_identities: ToolIdentityMap | None = None,
    sealer: Sealer | None = None,
    options: GeminiOptions = DEFAULT_OPTIONS,
    choices: int = 1,
    efforts: frozenset[str] | None = None,
) -> tuple[dict[str, Any], Diagnostics]:
    """Translate a request. Returns (body, losses and repairs). The model and whether the answer is streamed
    are in the path.

    `history` are the items of earlier turns, input and output; `model` replaces the request's;
    `tool_identities` is filled with the tools, for the machine that reads the answer; `choices` is sent as
    `candidateCount` if the upstream accepts that; `efforts` are the model's levels of effort, as in
    `accepted_efforts`. Raises InvalidRequestError with `param` for a request that can't be sent: unpaired
    calls (`unpaired_tool_call`), malformed data, tools that were not declared, nothing to answer.
    """
    diagnostics = Diagnostics()
    identities = tool_identities if tool_identities is not None else ToolIdentityMap()
    facts = facts_of(model or request.model or "")
    carried = carried_by(request)
    request = configured(request, history)
    entries = normalize_entries(entries_of(request, history), diagnostics)
    functions, others = present_tools(active_tools(request, entries), identities, diagnostics)
    tools = Tools(request.tool_choice, functions, others, identities, options, facts, carried, diagnostics)
    if options.unanswered_calls == "answer":
        entries = with_answers(entries, identities, diagnostics)
    builder = ContentsBuilder(entries, identities, sealer or Sealer(), options, facts, carried, diagnostics)
    contents = builder.build(request.instructions)
    if not contents:
        raise invalid("input", "there is nothing to answer")
    body: dict[str, Any] = {"contents": contents}
    if builder.system:
        body["systemInstruction"] = {**(carried.system or {}), "parts": builder.system}
    body |= tools.fields()
    request, passed = passed_on(request, options.passes, _MADE, (_GENERATION,))
    fields = apply(request, FIELDS, diagnostics)
    generation = fields.pop(_GENERATION, {})
    generation |= _format(request, options, carried, diagnostics)
    generation |= _asked_for(request, options, choices, diagnostics)
    generation |= _thinking(request, options, facts, carried, efforts, diagnostics)
    body[_GENERATION] = generation
    tier = _tier(request, carried, diagnostics)
    own = {_GENERATION: carried.generation, **carried.body}
    for additions in (fields, tier):
        add_missing(body, additions)
    add_beside(body, options.extra, carried=own, passed=passed, merged=(_GENERATION,))
    omit_within(body, _GENERATION, options.omit, diagnostics)
    return body, diagnostics


def _tier(request: CreateResponse, carried: CarriedFields, diagnostics: Diagnostics) -> dict[str, Any]:
    tier = asked_tier(request, TIERS, diagnostics) if carried.tier is None else carried.tier
    return {} if tier is None else {"serviceTier": tier}


def _format(
    request: CreateResponse, options: GeminiOptions, carried: CarriedFields, diagnostics: Diagnostics
) -> dict[str, Any]:
    if carried.format and request.text == carried.text and takes_as_sent(carried.format, options):
        return carried.format
    text_format = request.text.format if request.text is not None else None
    if not text_format or isinstance(text_format, TextFormat):
        return {}
    if isinstance(text_format, JsonObjectFormat):
        return {"responseMimeType": "application/json"}
    if not isinstance(text_format, JsonSchemaFormatParam):
        diagnostics.loss(f"text.format.{text_format.type[:64]}", "Gemini has no such format")
        return {}
    schema = as_taken(text_format.schema or {"type": "object"}, options, "text.format.schema", diagnostics)
    field = "responseJsonSchema" if options.schemas == "parametersJsonSchema" else "responseSchema"
    return {"responseMimeType": "application/json", field: schema}


def _asked_for(
    request: CreateResponse, options: GeminiOptions, choices: int, diagnostics: Diagnostics
) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if request.stop:
        fields["stopSequences"] = [request.stop] if isinstance(request.stop, str) else request.stop
    if choices > 1 and options.candidates:
        fields["candidateCount"] = choices
    if request.top_logprobs or _LOGPROBS in (request.include or ()):
        fields["responseLogprobs"] = True
        if request.top_logprobs:
            fields["logprobs"] = request.top_logprobs
    check_include(request.include or (), _INCLUDES, diagnostics)
    return fields


def _thinking(
    request: CreateResponse,
    options: GeminiOptions,
    facts: ModelFacts,
    carried: CarriedFields,
    efforts: frozenset[str] | None,
    diagnostics: Diagnostics,
) -> dict[str, Any]:
    """Return `thinkingConfig`; that of a client of this API as it was sent."""
    if "thinkingConfig" in carried.generation:
        return {}
    thinking = options.thinking or facts.thinking
    of_server = options.efforts or facts.efforts or ModelFacts().efforts
    accepted = frozenset(accepted_efforts(of_server, efforts))
    effort = effort_of(request, EFFORTS | accepted)
    config = {} if effort is None else thinking_config(effort, thinking, accepted, facts, diagnostics)
    if request.reasoning is not None and effort != "none" and thinking != "off":
        config["includeThoughts"] = True
    return {"thinkingConfig": config} if config else {}

"""Converts a request of `generateContent` to one of ours, and reports what that can't express."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import UNSET, Struct
from msgspec.structs import replace

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import (
    EFFORTS,
    LEVELS,
    RUN_OUTPUTS,
    SEARCH_SOURCES,
    WebSearch,
    extension,
    invalid,
    is_search,
    run_tool,
)
from openresponses_bridge.dialects.gemini.carried import CarriedFields
from openresponses_bridge.dialects.gemini.client.contents import ContentReader, text_of
from openresponses_bridge.dialects.gemini.client.fields import GoogleFields, google_body
from openresponses_bridge.dialects.gemini.client.schemas import json_schema
from openresponses_bridge.dialects.gemini.types import SLUG, TIERS_OF_GOOGLE
from openresponses_bridge.protocol import request as rq
from openresponses_bridge.protocol import tools as tl
from openresponses_bridge.protocol.response import JsonObjectFormat
from openresponses_bridge.protocol.unknown import UnknownTool
from openresponses_bridge.seal import Sealer

MOST_CANDIDATES: Final = 8
"""The most candidates that Google gives for one request."""
_MOST_ALLOWED: Final = 128
_ENCRYPTED: Final = "reasoning.encrypted_content"
_LOGPROBS: Final = "message.output_text.logprobs"
_MODELS: Final = "models/"
_CALLING: Final = "functionCallingConfig"
_THINKING: Final = "thinkingConfig"
_JSON: Final = "application/json"
_PLAIN: Final = "text/plain"
_MODES: Final[dict[str, tl.ToolChoiceValue]] = {
    "MODE_UNSPECIFIED": "auto",
    "AUTO": "auto",
    "VALIDATED": "auto",
    "ANY": "required",
    "NONE": "none",
}
_UNSPECIFIED: Final = "THINKING_LEVEL_UNSPECIFIED"
_BUDGETS: Final = {"minimal": 512, "low": 1_024, "medium": 8_192, "high": 24_576}  # tokens
_DYNAMIC: Final = -1
_VALIDATED: Final = "VALIDATED"
_NO_TIER: Final = ("", "unspecified", "service_tier_unspecified")
# what clients say that the rest of a request is about
_NEEDED: Final = {
    "cachedContent": "content that Google keeps can't be read by this model: send the contents",
    "continuationToken": "an answer of Google's can't be continued by this model: send the contents",
}


class AnswerOptions(Struct, frozen=True):
    """The client's options for the form of the answer: `n` candidates, and whether it wants `thoughts`."""

    n: int = 1
    thoughts: bool = False


def answer_options(body: bytes | str | Mapping[str, Any]) -> AnswerOptions:
    """Return the options in a request, which `from_gemini` does not read. Raises InvalidRequestError with
    `param`."""
    generation = google_body(body).maybe_inner("generationConfig")
    if generation is None:
        return AnswerOptions()
    n = generation.integer("candidateCount")
    if n is not None and not 1 <= n <= MOST_CANDIDATES:
        raise invalid(generation.at("candidateCount"), f"must be from 1 to {MOST_CANDIDATES}")
    thinking = generation.maybe_inner(_THINKING)
    return AnswerOptions(n or 1, thinking is not None and bool(thinking.get("includeThoughts", bool)))


def from_gemini(
    body: bytes | str | Mapping[str, Any], sealer: Sealer | None = None
) -> tuple[rq.CreateResponse, Diagnostics]:
    """Translate a request. Returns (request, losses). The model and whether the answer is a stream are in the
    request's path; `model` is read if the body has it. `answer_options` reads `candidateCount` and the form
    of the answer. `sealer` opens and seals thought signatures.

    Raises InvalidRequestError with `param`, as `contents[0].parts[1].inlineData.data`: malformed fields, and
    answers without a call (`unpaired_tool_call`).
    """
    diagnostics = Diagnostics()
    fields = google_body(body)
    carried = CarriedFields()
    reader = ContentReader(sealer or Sealer(), diagnostics, carried)
    for content in fields.each("contents"):
        reader.content(content)
    reader.close()
    if not reader.items:
        raise invalid("contents", "at least one content with parts is required")
    generation = fields.maybe_inner("generationConfig") or GoogleFields({}, "generationConfig")
    logprobs, top = _logprobs(generation)
    model = fields.get("model", str)
    generation.skip("candidateCount")
    tools = _tools(fields, carried)
    include = [_ENCRYPTED, _LOGPROBS] if logprobs else [_ENCRYPTED]
    if any(is_search(tool.type) for tool in tools or ()):
        include.append(SEARCH_SOURCES)
    if run_tool() in (tools or ()):
        include.append(RUN_OUTPUTS)
    request = rq.CreateResponse(
        model=None if model is None else model.removeprefix(_MODELS),
        input=reader.items,
        instructions=_instructions(fields, carried),
        tools=tools,
        tool_choice=_tool_choice(fields, carried),
        text=_text(generation, carried),
        reasoning=_reasoning(generation, carried),
        max_output_tokens=_limit(generation),
        temperature=generation.get("temperature", float),
        top_p=generation.get("topP", float),
        top_k=generation.integer("topK"),
        stop=generation.texts("stopSequences") or None,
        seed=generation.integer("seed"),
        presence_penalty=generation.get("presencePenalty", float),
        frequency_penalty=generation.get("frequencyPenalty", float),
        include=include,
        top_logprobs=top,
        service_tier=_tier(fields, carried),
        store=False,
    )
    if generation.equals("responseModalities", ["TEXT"]):
        generation.skip("responseModalities")
    rest = generation.rest()
    carried.generation |= rest
    carried.report(generation.at(name[:64]) for name in rest)
    carried.body = fields.rest()
    carried.needed |= {name: why for name, why in _NEEDED.items() if name in carried.body}
    carried.report(name[:64] for name in carried.body)
    return replace(request, native=carried.native()), diagnostics


def _instructions(fields: GoogleFields, carried: CarriedFields) -> str | None:
    instructions = fields.either("systemInstruction", dict, str)
    if isinstance(instructions, dict):
        content = fields.inner("systemInstruction")
        carried.system = content.whole()
        instructions = carried.instructions = text_of(content, carried)
    return instructions or None


def _tier(fields: GoogleFields, carried: CarriedFields) -> str | None:
    carried.tier = tier = fields.get("serviceTier", str)
    if tier is None or tier.lower() in _NO_TIER:
        return None
    return TIERS_OF_GOOGLE.get(tier.lower(), tier)


def _tools(fields: GoogleFields, carried: CarriedFields) -> list[Any] | None:
    tools: list[Any] = []
    for tool in fields.each("tools"):
        tools += [_function(each, carried) for each in tool.each("functionDeclarations")]
        search = tool.maybe_inner("googleSearch")
        if search is not None:
            tools.append(WebSearch(blocked_domains=search.texts("excludeDomains")).tool())
            carried.search = search.whole()
            carried.report(search.at(name[:64]) for name in search.names if name not in _READ_OF_SEARCH)
        for name, value in tool.whole().items():
            if name not in _READ_TOOLS and value is not None:
                settings = value if isinstance(value, dict) else {name: value}
                runs = name == _RUNS and not settings
                server_tool = run_tool() if runs else UnknownTool(settings | {"type": extension(SLUG, name)})
                carried.tools.setdefault(server_tool.type, []).append(value)
                tools.append(server_tool)
    return tools or None


_RUNS: Final = "codeExecution"
_READ_TOOLS: Final = ("functionDeclarations", "googleSearch")
_READ_OF_SEARCH: Final = ("excludeDomains",)
_READ_OF_FUNCTIONS: Final = ("name", "description", "parameters", "parametersJsonSchema")


def _function(function: GoogleFields, carried: CarriedFields) -> tl.FunctionToolParam:
    name = function.need("name", str)
    if not name:
        raise invalid(function.at("name"), "is empty")
    schema = function.get("parametersJsonSchema", dict)
    if schema is None and "parameters" in function:
        schema = json_schema(function.need("parameters", dict), function.at("parameters"))
    carried.functions[name] = function.whole()
    carried.report(function.at(each[:64]) for each in function.names if each not in _READ_OF_FUNCTIONS)
    return tl.FunctionToolParam(name, function.get("description", str) or UNSET, schema or UNSET, False)


def _tool_choice(fields: GoogleFields, carried: CarriedFields) -> Any:
    config = fields.maybe_inner("toolConfig")
    if config is None:
        return None
    calling = config.maybe_inner(_CALLING)
    mode, names = None, []
    if calling is not None:
        mode, names = calling.get("mode", str), calling.texts("allowedFunctionNames")
        if mode is not None and mode.upper() not in _MODES:
            carried.needed[calling.at("mode")] = f"expected one of {', '.join(_MODES)}"
            mode = None
        carried.report(calling.at(name[:64]) for name in calling.rest())
        if mode is not None and mode.upper() == _VALIDATED:
            carried.report([calling.at("mode")])
    carried.tool_config = config.whole()
    carried.report(config.at(name[:64]) for name in config.names if name != _CALLING)
    carried.choice = _choice(mode, names)
    return carried.choice


def _choice(mode: str | None, names: list[str]) -> Any:
    if mode is None:
        return None
    choice = _MODES[mode.upper()]
    if not names or choice == "none":
        return choice
    if len(names) > _MOST_ALLOWED:
        raise invalid("toolConfig.functionCallingConfig.allowedFunctionNames", f"more than {_MOST_ALLOWED}")
    allowed = [tl.FunctionToolChoice(name) for name in names]
    return allowed[0] if len(names) == 1 and choice == "required" else tl.AllowedToolChoice(allowed, choice)


def _text(generation: GoogleFields, carried: CarriedFields) -> rq.TextParam | None:
    media = generation.get("responseMimeType", str) or ""
    schema = generation.get("responseJsonSchema", dict)
    if schema is None and "responseSchema" in generation:
        google_schema = generation.need("responseSchema", dict)
        schema = json_schema(google_schema, generation.at("responseSchema"))
    names = ("responseMimeType", "responseSchema", "responseJsonSchema")
    text: rq.TextParam | None = None
    carried.format = {name: generation.raw(name) for name in names if name in generation}
    if media not in ("", _PLAIN, _JSON):  # a value of an enum, for example
        carried.report([generation.at("responseMimeType")])
    elif schema is not None:
        text = rq.TextParam(rq.JsonSchemaFormatParam("response", UNSET, schema))
    elif media == _JSON:
        text = rq.TextParam(JsonObjectFormat())
    carried.text = text
    return text


def _reasoning(generation: GoogleFields, carried: CarriedFields) -> rq.ReasoningOptions | None:
    thinking = generation.maybe_inner(_THINKING)
    if thinking is None:
        return None
    carried.generation[_THINKING] = thinking.whole()
    effort = _effort(thinking, carried)
    shown = bool(thinking.get("includeThoughts", bool))
    known = ("includeThoughts", "thinkingBudget", "thinkingLevel")
    carried.report(thinking.at(name[:64]) for name in thinking.names if name not in known)
    if effort is None and not shown:
        return None
    return rq.ReasoningOptions(effort or UNSET, "auto" if shown else UNSET)


def _effort(thinking: GoogleFields, carried: CarriedFields) -> str | None:
    """Return the requested level, or the one nearest to a budget. None if the model decides, and for a level
    that only Google knows."""
    level, budget = thinking.get("thinkingLevel", str), thinking.integer("thinkingBudget")
    if level is not None and level.upper() != _UNSPECIFIED:
        if level.lower() in EFFORTS:
            return level.lower()
        carried.needed[thinking.at("thinkingLevel")] = f"expected one of {', '.join(LEVELS).upper()}"
        return None
    if budget is None or budget == _DYNAMIC:
        return None
    if budget < 0:
        raise invalid(thinking.at("thinkingBudget"), "must be -1 or more")
    return min(_BUDGETS, key=lambda effort: abs(_BUDGETS[effort] - budget)) if budget else "none"


def _limit(generation: GoogleFields) -> int | None:
    limit = generation.integer("maxOutputTokens")
    if limit is not None and limit < 1:
        raise invalid(generation.at("maxOutputTokens"), "must be 1 or more")
    return limit


def _logprobs(generation: GoogleFields) -> tuple[bool, int | None]:
    logprobs = bool(generation.get("responseLogprobs", bool))
    top = generation.integer("logprobs")
    if top is not None and not 0 <= top <= 20:
        raise invalid(generation.at("logprobs"), "must be from 0 to 20")
    if top and not logprobs:
        raise invalid(generation.at("logprobs"), "needs responseLogprobs")
    return logprobs, top

"""Converts a request that creates an interaction to one of ours, and reports what that can't express."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import (
    EFFORTS,
    RUN_OUTPUTS,
    SEARCH_SOURCES,
    Fields,
    WebSearch,
    body_of,
    extension,
    invalid,
    is_search,
    run_tool,
)
from openresponses_bridge.dialects.interactions.carried import CarriedFields
from openresponses_bridge.dialects.interactions.client.steps import StepReader
from openresponses_bridge.dialects.interactions.types import SLUG, TIERS_OF_GOOGLE
from openresponses_bridge.protocol import request as rq
from openresponses_bridge.protocol import tools as tl
from openresponses_bridge.protocol.codec import plain
from openresponses_bridge.protocol.response import JsonObjectFormat
from openresponses_bridge.protocol.unknown import UnknownTool
from openresponses_bridge.seal import Sealer

_ENCRYPTED: Final = "reasoning.encrypted_content"
_MODELS: Final = "models/"
_JSON: Final = "application/json"
_MODES: Final[dict[str, tl.ToolChoiceValue]] = {
    "auto": "auto",
    "validated": "auto",
    "any": "required",
    "none": "none",
}
_VALIDATED: Final = "validated"
_MOST_ALLOWED: Final = 128
_SHOWN: Final = 64
_AGENT: Final = "agent"
# what clients say that the rest of a request is about
_NEEDED: Final = {
    _AGENT: "an agent of Google's runs there alone: name a model",
    "agent_config": "an agent of Google's runs there alone: name a model",
    "cached_content": "content that Google keeps can't be read by this model: send the input",
    "continuation_token": "an answer of Google's can't be continued by this model: send the input",
    "environment": "an environment of Google's can't be reached by this model",
}
_METADATA: Final = (16, 64, 512)  # pairs, characters of a name and of a value


def from_interactions(
    body: bytes | str | Mapping[str, Any], sealer: Sealer | None = None
) -> tuple[rq.CreateResponse, Diagnostics]:
    """Translate a request. Returns (request, losses). `sealer` opens and seals the signatures of thoughts.
    Raises InvalidRequestError with `param`, as `input[0].content[1].data`."""
    diagnostics, fields, carried = Diagnostics(), body_of(body), CarriedFields()
    reader = StepReader(sealer or Sealer(), diagnostics, carried)
    reader.read(fields)
    previous = fields.get("previous_interaction_id", str)
    if not reader.items and previous is None:
        raise invalid("input", "at least one content or step is required")
    model, agent = fields.get("model", str), fields.get(_AGENT, str)
    if model is not None and agent is not None:
        raise invalid(_AGENT, "names another one than model does: send one of them")
    if agent is not None:
        carried.body[_AGENT] = agent
    generation = fields.maybe_inner("generation_config") or Fields({}, "generation_config")
    tools = _tools(fields, carried)
    include = [_ENCRYPTED]
    if any(is_search(tool.type) for tool in tools or ()):
        include.append(SEARCH_SOURCES)
    if run_tool() in (tools or ()):
        include.append(RUN_OUTPUTS)
    choice, text = _tool_choice(generation, carried), _text(fields, carried)
    carried.chosen, carried.text = plain(choice), plain(text)
    request = rq.CreateResponse(
        model=agent if model is None else model.removeprefix(_MODELS),
        input=reader.items,
        previous_response_id=previous,
        instructions=fields.get("system_instruction", str),
        tools=tools,
        tool_choice=choice,
        text=text,
        reasoning=_reasoning(generation, carried),
        max_output_tokens=_limit(generation),
        temperature=generation.get("temperature", float),
        top_p=generation.get("top_p", float),
        stop=_texts(generation, "stop_sequences") or None,
        seed=generation.get("seed", int),
        include=include,
        metadata=_labels(fields, carried),
        service_tier=_tier(fields, carried),
        stream=fields.get("stream", bool),
        store=fields.get("store", bool),
        background=fields.get("background", bool),
    )
    rest = generation.rest()
    carried.generation |= rest
    carried.report(generation.at(name[:_SHOWN]) for name in rest)
    if fields.equals("response_modalities", ["text"]):
        fields.skip("response_modalities")
    carried.body |= fields.rest()
    carried.needed |= {name: why for name, why in _NEEDED.items() if name in carried.body}
    carried.report(name[:_SHOWN] for name in carried.body)
    return replace(request, native=carried.native()), diagnostics


def _tier(fields: Fields, carried: CarriedFields) -> str | None:
    carried.tier = tier = fields.get("service_tier", str)
    return None if tier is None else TIERS_OF_GOOGLE.get(tier, tier)


def _labels(fields: Fields, carried: CarriedFields) -> dict[str, str] | None:
    """Return the labels as metadata, if they are within its limits."""
    labels = fields.get("labels", dict)
    if not labels:
        return None
    pairs, longest_name, longest_value = _METADATA
    fits = len(labels) <= pairs and all(
        isinstance(value, str) and len(name) <= longest_name and len(value) <= longest_value
        for name, value in labels.items()
    )
    carried.labels = labels
    if fits:
        return labels
    carried.report(["labels"])
    return None


def _tools(fields: Fields, carried: CarriedFields) -> list[Any] | None:
    tools: list[Any] = []
    for tool in fields.each("tools"):
        kind = tool.need("type", str)
        if kind == "function":
            tool_param: Any = _function(tool, carried)
        elif kind == "google_search":
            tool_param = WebSearch().tool()
        elif kind == "code_execution":
            tool_param = run_tool()
        elif kind == "mcp_server":
            tool_param = _mcp(tool)
        else:
            tool_param = UnknownTool({**tool.whole(), "type": extension(SLUG, kind)})
        if kind != "function":
            carried.report(tool.at(name[:_SHOWN]) for name in tool.rest())
            carried.tools.setdefault(tool_param.type, []).append(tool.whole())
        tools.append(tool_param)
    return tools or None


def _function(function: Fields, carried: CarriedFields) -> tl.FunctionToolParam:
    name = function.need("name", str)
    if not name:
        raise invalid(function.at("name"), "is empty")
    description = function.get("description", str) or UNSET
    parameters = function.get("parameters", dict) or UNSET
    carried.report(function.at(each[:_SHOWN]) for each in function.rest())
    carried.functions[name] = function.whole()
    return tl.FunctionToolParam(name, description, parameters, False)


def _mcp(server: Fields) -> UnknownTool:
    """Return an MCP server in OpenAI's terms. Its calls need no approval, which this API does not have."""
    allowed: list[str] = []
    for each in server.each("allowed_tools"):
        allowed += _texts(each, "tools")
    settings: dict[str, Any] = {
        "type": "mcp",
        "server_label": server.get("name", str) or "mcp",
        "server_url": server.need("url", str),
        "headers": server.get("headers", dict),
        "allowed_tools": allowed,
        "require_approval": "never",
    }
    return UnknownTool({name: value for name, value in settings.items() if value})


def _tool_choice(generation: Fields, carried: CarriedFields) -> Any:
    raw = generation.either("tool_choice", str, dict)
    carried.choice = raw
    if raw is None or isinstance(raw, str):
        return _choice(generation.at("tool_choice"), raw, [], carried)
    choice = generation.inner("tool_choice")
    allowed = choice.maybe_inner("allowed_tools")
    if allowed is None:
        raise invalid(choice.at("allowed_tools"), "is required")
    names = _texts(allowed, "tools")
    if len(names) > _MOST_ALLOWED:
        raise invalid(allowed.at("tools"), f"more than {_MOST_ALLOWED}")
    return _choice(allowed.at("mode"), allowed.get("mode", str) or "auto", names, carried)


def _choice(where: str, mode: str | None, names: list[str], carried: CarriedFields) -> Any:
    if mode is None:
        return None
    if mode not in _MODES:
        carried.needed[where] = f"expected one of {', '.join(_MODES)}"
        return None
    if mode == _VALIDATED:
        carried.report([where])
    choice = _MODES[mode]
    if not names or choice == "none":
        return choice
    functions = [tl.FunctionToolChoice(name) for name in names]
    alone = len(names) == 1 and choice == "required"
    return functions[0] if alone else tl.AllowedToolChoice(functions, choice)


def _text(request_fields: Fields, carried: CarriedFields) -> rq.TextParam | None:
    """Return the format of the text; formats of other media are only for Google."""
    media = request_fields.get("response_mime_type", str)
    response_format = request_fields.either("response_format", dict, list)
    if media is None and response_format is None:
        return None
    fields = {"response_mime_type": media, "response_format": response_format}
    carried.format = {name: value for name, value in fields.items() if value is not None}
    formats = [*request_fields.each("response_format")] if isinstance(response_format, list) else []
    formats += [request_fields.inner("response_format")] if isinstance(response_format, dict) else []
    text: rq.TextParam | None = None
    for each in formats:
        kind = each.raw("type")
        if kind not in (None, "text", "object"):
            carried.report([each.param])
        elif kind == "text":
            media = each.get("mime_type", str) or media
            schema = each.get("schema", dict)
            text = _json(media, schema) or text
            carried.report(each.unread_here)
        else:  # a schema without an envelope
            text = _json(media or _JSON, each.whole())
    return text or _json(media, None)


def _json(media: str | None, schema: dict[str, Any] | None) -> rq.TextParam | None:
    if schema:
        return rq.TextParam(rq.JsonSchemaFormatParam("response", UNSET, schema))
    return rq.TextParam(JsonObjectFormat()) if media == _JSON else None


def _reasoning(generation: Fields, carried: CarriedFields) -> rq.ReasoningOptions | None:
    level, summaries = generation.get("thinking_level", str), generation.get("thinking_summaries", str)
    if level is not None and level not in EFFORTS:
        carried.needed[generation.at("thinking_level")] = f"expected one of {', '.join(sorted(EFFORTS))}"
        level = None
    fields = {"thinking_level": generation.raw("thinking_level"), "thinking_summaries": summaries}
    carried.generation |= {name: value for name, value in fields.items() if value is not None}
    if summaries not in (None, "auto", "none"):
        carried.report([generation.at("thinking_summaries")])
    if level is None and summaries != "auto":
        return None
    return rq.ReasoningOptions(level or UNSET, "auto" if summaries == "auto" else UNSET)


def _limit(generation: Fields) -> int | None:
    limit = generation.get("max_output_tokens", int)
    if limit is not None and limit < 1:
        raise invalid(generation.at("max_output_tokens"), "must be 1 or more")
    return limit


def _texts(fields: Fields, name: str) -> list[str]:
    strings = fields.get(name, list) or []
    if not all(isinstance(each, str) for each in strings):
        raise invalid(fields.at(name), "expected strings")
    return strings

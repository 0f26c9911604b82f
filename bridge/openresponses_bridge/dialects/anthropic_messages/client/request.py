"""A request of the Messages API → a request of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.anthropic_messages.carried import CACHE, JOINT, PASSED, Carried
from openresponses_bridge.dialects.anthropic_messages.client.messages import MessageReader
from openresponses_bridge.dialects.anthropic_messages.thinking import effort_from
from openresponses_bridge.dialects.anthropic_messages.types import SLUG
from openresponses_bridge.dialects.base import Fields, body_of, invalid
from openresponses_bridge.protocol import request as rq
from openresponses_bridge.protocol.tools import FunctionToolChoice, FunctionToolParam, ToolChoice
from openresponses_bridge.protocol.unknown import UnknownTool
from openresponses_bridge.seal import Sealer

_CUSTOM = ("custom", None)  # the types of a tool that the client runs
_CHOICES: dict[str, ToolChoice] = {"auto": "auto", "any": "required", "none": "none"}
_TIERS = {"auto": "auto", "standard_only": "default"}
# read from the body as a whole
_THINKING = ("thinking", "output_config")


def from_messages(
    body: bytes | Mapping[str, Any], sealer: Sealer | None = None
) -> tuple[rq.CreateResponse, Diagnostics]:
    """(request, what was lost on the way). Thinking in the history is sealed by `sealer`.

    Raises InvalidRequestError with `param`, as `messages[0].content[1].source`.
    """
    diagnostics = Diagnostics()
    given = body_of(body)
    carried = Carried()
    reader = MessageReader(sealer or Sealer(), diagnostics, carried)
    given.need("messages", list)
    for message in given.each("messages"):
        reader.message(message)
    if not reader.items:
        raise invalid("messages", "at least one message is required")
    choice, parallel = _tool_choice(given)
    metadata = given.maybe_inner("metadata")
    stops = given.get("stop_sequences", list)
    if stops and not all(isinstance(each, str) for each in stops):
        raise invalid("stop_sequences", "expected strings")
    request = rq.CreateResponse(
        model=given.need("model", str),
        input=reader.items,
        instructions=_system(given, carried),
        tools=_tools(given, carried),
        tool_choice=choice,
        parallel_tool_calls=parallel,
        max_output_tokens=_limit(given),
        temperature=given.get("temperature", float),
        top_p=given.get("top_p", float),
        top_k=given.get("top_k", int),
        stop=stops or None,
        reasoning=_reasoning(given),
        text=_text(given),
        user=None if metadata is None else metadata.get("user_id", str),
        service_tier=_TIERS.get(given.get("service_tier", str) or ""),
        stream=given.get("stream", bool),
        store=False,
    )
    _carry(given, carried)
    carried.items = len(reader.items)
    request = replace(request, native=carried.native())
    for where in given.unread_here + ([] if metadata is None else metadata.unread_here):
        diagnostics.loss(where, "can't be expressed")
    return request, diagnostics


def _carry(given: Fields, carried: Carried) -> None:
    """What goes on as it is, where the API itself answers."""
    carried.body = {name: given.raw(name) for name in PASSED if name in given}
    carried.report(carried.body)
    thinking, config = (given.raw(name) for name in _THINKING)
    if isinstance(thinking, dict):
        carried.thinking = thinking
    if isinstance(config, dict):
        carried.output_config = {name: value for name, value in config.items() if name != "format"}
        told = ("effort",) if effort_from({"thinking": thinking, "output_config": config}) else ()
        carried.report(f"output_config.{name[:64]}" for name in carried.output_config if name not in told)


def _system(given: Fields, carried: Carried) -> str | None:
    system = given.raw("system")
    if system is None or isinstance(system, str):
        return system or None
    texts = []
    for block in given.each("system"):
        texts.append(block.need("text", str))
        carried.system.append(block.whole())
        if CACHE in block.names:
            carried.report([CACHE])
    return JOINT.join(texts) or None


def _limit(given: Fields) -> int:
    limit = given.need("max_tokens", int)
    if limit < 1:
        raise invalid("max_tokens", "has to be 1 or more")
    return limit


def _tools(given: Fields, carried: Carried) -> list[Any] | None:
    if "tools" not in given:
        return None
    found: list[Any] = []
    for tool in given.each("tools"):
        kind = tool.get("type", str)
        if kind not in _CUSTOM:
            tool.get("name", str)
            bare = {name: value for name, value in tool.whole().items() if name != CACHE}
            found.append(UnknownTool({**bare, "type": f"{SLUG}{kind}"}))
            if CACHE in tool.names:
                _carry_tool(tool, {CACHE: tool.raw(CACHE)}, carried)
            continue
        found.append(
            FunctionToolParam(
                tool.need("name", str),
                tool.get("description", str) or UNSET,
                tool.need("input_schema", dict),
                bool(tool.get("strict", bool)),
            )
        )
        _carry_tool(tool, tool.rest(), carried)
    return found


def _carry_tool(tool: Fields, fields: dict[str, Any], carried: Carried) -> None:
    name = tool.raw("name")
    if fields and isinstance(name, str):
        carried.tools[name] = fields
    carried.report(CACHE if each == CACHE else tool.at(each[:64]) for each in fields)


def _tool_choice(given: Fields) -> tuple[ToolChoice | None, bool | None]:
    """(choice, parallel calls)."""
    choice = given.maybe_inner("tool_choice")
    if choice is None:
        return None, None
    parallel = False if choice.get("disable_parallel_tool_use", bool) else None
    kind = choice.need("type", str)
    if kind == "tool":
        return FunctionToolChoice(choice.need("name", str)), parallel
    if kind not in _CHOICES:
        raise invalid("tool_choice.type", "expected auto, any, tool or none")
    return _CHOICES[kind], parallel


def _reasoning(given: Fields) -> rq.ReasoningOptions | None:
    effort = effort_from({name: given.raw(name) for name in _THINKING})
    return None if effort is None else rq.ReasoningOptions(effort, "auto")


def _text(given: Fields) -> rq.TextParam | None:
    config = given.maybe_inner("output_config")
    own = None if config is None else config.get("format", dict)
    wanted = own or given.get("output_format", dict)
    if wanted is None:
        return None
    schema = Fields(wanted, "output_config.format").need("schema", dict)
    return rq.TextParam(rq.JsonSchemaFormatParam("response", UNSET, schema, True))

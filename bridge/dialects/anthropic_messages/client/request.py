"""A request of the Messages API → a request of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET

from bridge.diagnostics import Diagnostics
from bridge.dialects.anthropic_messages.client.messages import CARRIER, Reader
from bridge.dialects.anthropic_messages.client.reading import maybe, need, objects
from bridge.dialects.anthropic_messages.thinking import effort_from
from bridge.dialects.anthropic_messages.upstream.hosted import SLUG
from bridge.dialects.base import invalid, object_of
from bridge.protocol import request as rq
from bridge.protocol.tools import FunctionToolChoice, FunctionToolParam, ToolChoice
from bridge.protocol.unknown import UnknownTool
from bridge.seal import Sealer

SMALLEST_LIMIT = 16  # tokens: schema CreateResponseBody, max_output_tokens
_CUSTOM = ("custom", None)  # the types of a tool that the client runs
_CHOICES: dict[str, ToolChoice] = {"auto": "auto", "any": "required", "none": "none"}
_TIERS = {"auto": "auto", "standard_only": "default"}
_SILENT = ("stop_sequences", "top_k", "container", "context_management", "mcp_servers", "inference_geo")


def from_messages(
    body: bytes | Mapping[str, Any], sealer: Sealer | None = None
) -> tuple[rq.CreateResponse, Diagnostics]:
    """(request, what was lost on the way). Thinking in the history is sealed by `sealer`.

    Raises InvalidRequestError with `param`, as `messages[0].content[1].source`.
    """
    diagnostics = Diagnostics()
    given = object_of(body)
    reader = Reader(sealer or Sealer(), diagnostics)
    for message, where in objects(need(given, "messages", list), "messages"):
        reader.message(message, where)
    if not reader.items:
        raise invalid("messages", "at least one message is required")
    for name in _SILENT:
        if given.get(name):
            diagnostics.loss(name, "can't be expressed")
    choice, parallel = _tool_choice(given)
    metadata = maybe(given, "metadata", dict) or {}
    request = rq.CreateResponse(
        model=need(given, "model", str),
        input=reader.items,
        instructions=_system(given, diagnostics),
        tools=_tools(given, diagnostics),
        tool_choice=choice,
        parallel_tool_calls=parallel,
        max_output_tokens=_limit(given, diagnostics),
        temperature=maybe(given, "temperature", float),
        top_p=maybe(given, "top_p", float),
        reasoning=_reasoning(given),
        text=_text(given),
        user=maybe(metadata, "user_id", str, "metadata"),
        service_tier=_TIERS.get(maybe(given, "service_tier", str) or ""),
        stream=maybe(given, "stream", bool),
        store=False,
    )
    return request, diagnostics


def _system(given: dict[str, Any], diagnostics: Diagnostics) -> str | None:
    system = given.get("system")
    if system is None or isinstance(system, str):
        return system or None
    texts = []
    for block, where in objects(need(given, "system", list), "system"):
        texts.append(need(block, "text", str, where))
        if CARRIER in block:
            diagnostics.loss(CARRIER, "can't be expressed")
    return "\n\n".join(texts) or None


def _limit(given: dict[str, Any], diagnostics: Diagnostics) -> int:
    limit = need(given, "max_tokens", int)
    if limit < 1:
        raise invalid("max_tokens", "has to be 1 or more")
    if limit < SMALLEST_LIMIT:
        diagnostics.loss("max_tokens", f"raised to {SMALLEST_LIMIT}")
    return max(limit, SMALLEST_LIMIT)


def _tools(given: dict[str, Any], diagnostics: Diagnostics) -> list[Any] | None:
    tools = maybe(given, "tools", list)
    if tools is None:
        return None
    found: list[Any] = []
    for tool, where in objects(tools, "tools"):
        if CARRIER in tool:
            diagnostics.loss(CARRIER, "can't be expressed")
        kind = maybe(tool, "type", str, where)
        if kind not in _CUSTOM:
            bare = {name: value for name, value in tool.items() if name != CARRIER}
            found.append(UnknownTool({**bare, "type": f"{SLUG}{kind}"}))
            continue
        found.append(
            FunctionToolParam(
                need(tool, "name", str, where),
                maybe(tool, "description", str, where) or UNSET,
                need(tool, "input_schema", dict, where),
                bool(maybe(tool, "strict", bool, where)),
            )
        )
    return found


def _tool_choice(given: dict[str, Any]) -> tuple[ToolChoice | None, bool | None]:
    """(choice, parallel calls)."""
    choice = maybe(given, "tool_choice", dict)
    if choice is None:
        return None, None
    parallel = False if maybe(choice, "disable_parallel_tool_use", bool, "tool_choice") else None
    kind = need(choice, "type", str, "tool_choice")
    if kind == "tool":
        return FunctionToolChoice(need(choice, "name", str, "tool_choice")), parallel
    if kind not in _CHOICES:
        raise invalid("tool_choice.type", "expected auto, any, tool or none")
    return _CHOICES[kind], parallel


def _reasoning(given: dict[str, Any]) -> rq.ReasoningOptions | None:
    effort = effort_from(given)
    return None if effort is None else rq.ReasoningOptions(effort, "auto")


def _text(given: dict[str, Any]) -> rq.TextParam | None:
    config = maybe(given, "output_config", dict) or {}
    wanted = maybe(config, "format", dict, "output_config") or maybe(given, "output_format", dict)
    if wanted is None:
        return None
    schema = need(wanted, "schema", dict, "output_config.format")
    return rq.TextParam(rq.JsonSchemaFormatParam("response", UNSET, schema, True))

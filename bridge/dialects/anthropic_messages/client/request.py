"""A request of the Messages API → a request of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET

from bridge.diagnostics import Diagnostics
from bridge.dialects.anthropic_messages.client.messages import CARRIER, MessageReader
from bridge.dialects.anthropic_messages.thinking import effort_from
from bridge.dialects.anthropic_messages.types import SLUG
from bridge.dialects.base import Fields, body_of, invalid
from bridge.protocol import request as rq
from bridge.protocol.tools import FunctionToolChoice, FunctionToolParam, ToolChoice
from bridge.protocol.unknown import UnknownTool
from bridge.seal import Sealer

SMALLEST_LIMIT = 16  # tokens: schema CreateResponseBody, max_output_tokens
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
    reader = MessageReader(sealer or Sealer(), diagnostics)
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
        instructions=_system(given, diagnostics),
        tools=_tools(given, diagnostics),
        tool_choice=choice,
        parallel_tool_calls=parallel,
        max_output_tokens=_limit(given, diagnostics),
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
    given.skip(*_THINKING)
    for where in given.unread_here + ([] if metadata is None else metadata.unread_here):
        diagnostics.loss(where, "can't be expressed")
    return request, diagnostics


def _system(given: Fields, diagnostics: Diagnostics) -> str | None:
    system = given.raw("system")
    if system is None or isinstance(system, str):
        return system or None
    texts = []
    for block in given.each("system"):
        texts.append(block.need("text", str))
        if CARRIER in block.names:
            diagnostics.loss(CARRIER, "can't be expressed")
    return "\n\n".join(texts) or None


def _limit(given: Fields, diagnostics: Diagnostics) -> int:
    limit = given.need("max_tokens", int)
    if limit < 1:
        raise invalid("max_tokens", "has to be 1 or more")
    if limit < SMALLEST_LIMIT:
        diagnostics.loss("max_tokens", f"raised to {SMALLEST_LIMIT}")
    return max(limit, SMALLEST_LIMIT)


def _tools(given: Fields, diagnostics: Diagnostics) -> list[Any] | None:
    if "tools" not in given:
        return None
    found: list[Any] = []
    for tool in given.each("tools"):
        if CARRIER in tool.names:
            diagnostics.loss(CARRIER, "can't be expressed")
        kind = tool.get("type", str)
        if kind not in _CUSTOM:
            bare = {name: value for name, value in tool.whole().items() if name != CARRIER}
            found.append(UnknownTool({**bare, "type": f"{SLUG}{kind}"}))
            continue
        found.append(
            FunctionToolParam(
                tool.need("name", str),
                tool.get("description", str) or UNSET,
                tool.need("input_schema", dict),
                bool(tool.get("strict", bool)),
            )
        )
        tool.skip("type", CARRIER)
        for where in tool.unread_here:
            diagnostics.loss(where, "can't be expressed")
    return found


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

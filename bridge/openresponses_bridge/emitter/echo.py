"""The response as it stands before any output: the request's fields, echoed as the schema wants."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, TypeVar

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from openresponses_bridge.emitter.arguments import spelled
from openresponses_bridge.protocol import tools as tl
from openresponses_bridge.protocol.request import CreateResponse, JsonSchemaFormatParam, TextParam
from openresponses_bridge.protocol.response import (
    RESPONSE_DEFAULTS,
    Format,
    JsonSchemaFormat,
    Reasoning,
    Response,
    TextField,
    TextFormat,
)
from openresponses_bridge.protocol.unknown import UnknownFormat, UnknownTool, UnknownToolChoice
from openresponses_bridge.state import PUBLISHED_EFFORTS, PUBLISHED_SUMMARIES, Wire

T = TypeVar("T")

# efforts that the published schema does not have → the nearest that it has; null would say that none was
# asked for
_NEAREST_EFFORTS = {"minimal": "low", "max": "xhigh"}

# request fields that stand in the response as they are; null there means the schema's default here
_PLAIN = (
    "previous_response_id",
    "instructions",
    "truncation",
    "parallel_tool_calls",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "top_logprobs",
    "temperature",
    "max_output_tokens",
    "max_tool_calls",
    "store",
    "background",
    "service_tier",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
)
_plain_of = attrgetter(*_PLAIN)


def initial_response(
    model: str, request: CreateResponse | None, response_id: str, created_at: int, wire: Wire
) -> Response:
    """A response with no output yet, status `queued`. `created_at` is in Unix seconds."""
    fields: dict[str, Any] = dict(RESPONSE_DEFAULTS)
    if request is not None:
        given = zip(_PLAIN, _plain_of(request), strict=True)
        fields.update([field for field in given if field[1] is not None])
        fields["tools"] = [_tool(tool, wire) for tool in request.tools] if request.tools else []
        fields["tool_choice"] = _choice(request.tool_choice, wire)
        fields["text"] = _text(request.text, wire)
        if request.reasoning is not None:
            fields["reasoning"] = _reasoning(
                request.reasoning.effort or None, request.reasoning.summary or None, wire
            )
    return Response(id=response_id, created_at=created_at, model=model, status="queued", **fields)


def respelled(response: Response, wire: Wire) -> Response:
    """What another server echoed, as this wire spells it (law E10)."""
    if wire.openai_items:
        return response
    reasoning, shape = response.reasoning, response.text.format
    if isinstance(shape, JsonSchemaFormat):
        shape = replace(shape, schema=None)
    return replace(
        response,
        tools=[tool if isinstance(tool, tl.FunctionTool) else _tool(tool, wire) for tool in response.tools],
        tool_choice=_choice(response.tool_choice, wire),
        text=replace(response.text, format=TextFormat() if isinstance(shape, UnknownFormat) else shape),
        reasoning=reasoning and _reasoning(reasoning.effort, reasoning.summary, wire),
    )


def _reasoning(effort: str | None, summary: str | None, wire: Wire) -> Reasoning:
    published = _NEAREST_EFFORTS.get(effort or "", effort)
    return Reasoning(
        effort if wire.openai_items else published if published in PUBLISHED_EFFORTS else None,
        summary if wire.openai_items or summary in PUBLISHED_SUMMARIES else None,
    )


def _tool(tool: tl.ToolParam | tl.Tool, wire: Wire) -> tl.Tool:
    if isinstance(tool, tl.FunctionToolParam):
        return tl.FunctionTool(
            tool.name, _given(tool.description), _given(tool.parameters), _given(tool.strict)
        )
    if wire.openai_items:
        return tool
    if isinstance(tool, tl.CustomTool):
        # the published schema knows functions only, and a function is how the model sees it
        parameters = {
            "type": "object",
            "properties": {"input": {"type": "string"}},
            "required": ["input"],
        }
        return tl.FunctionTool(tool.name, _given(tool.description), parameters, None)
    raw = dict(tool.raw) if isinstance(tool, UnknownTool) else _raw(tool)
    return UnknownTool({**raw, "type": spelled(str(raw.get("type")))})


def _raw(tool: Any) -> dict[str, Any]:
    fields = {name: getattr(tool, name) for name in tool.__struct_fields__}
    return {"type": tool.type} | {name: value for name, value in fields.items() if value is not UNSET}


def _choice(choice: tl.ToolChoice | None, wire: Wire) -> tl.ToolChoice:
    if choice is None:
        return "auto"
    if wire.openai_items:
        return choice
    if isinstance(choice, tl.AllowedToolChoice):
        return tl.AllowedToolChoice([_function_choice(each) for each in choice.tools], choice.mode)
    if isinstance(choice, UnknownToolChoice):
        function = _function_choice(choice)
        return "required" if function.name is UNSET else function
    return choice


def _function_choice(choice: tl.FunctionToolChoice | UnknownToolChoice) -> tl.FunctionToolChoice:
    """The published choice nearest to it: a function's, by name if it has one."""
    if isinstance(choice, tl.FunctionToolChoice):
        return choice
    name = choice.raw.get("name")
    return tl.FunctionToolChoice(name if isinstance(name, str) else UNSET)


def _text(text: TextParam | None, wire: Wire) -> TextField:
    if text is None:
        return TextField(TextFormat())
    return TextField(_format(text, wire), text.verbosity or UNSET)


def _format(text: TextParam, wire: Wire) -> Format:
    given = text.format or TextFormat()
    if isinstance(given, UnknownFormat):
        return given if wire.openai_items else TextFormat()
    if not isinstance(given, JsonSchemaFormatParam):
        return given
    # the published schema admits only null for the echoed schema (openresponses.md, "Schema traps")
    schema = _given(given.schema) if wire.openai_items else None
    return JsonSchemaFormat(given.name or "", _given(given.description), schema, bool(given.strict))


def _given(value: T | UnsetType | None) -> T | None:
    return None if value is UNSET else value

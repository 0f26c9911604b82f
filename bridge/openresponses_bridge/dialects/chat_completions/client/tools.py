"""Tools, the choice among them and the answer's format, from Chat's nesting to ours."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from openresponses_bridge.dialects.base import Fields, invalid
from openresponses_bridge.protocol import request as rq
from openresponses_bridge.protocol import tools as tl
from openresponses_bridge.protocol.response import JsonObjectFormat, TextFormat
from openresponses_bridge.protocol.unknown import UnknownFormat, UnknownTool, UnknownToolChoice

_MODES = ("none", "auto", "required")
_ALLOWED_MODES = ("auto", "required")
_MOST_ALLOWED = 128


def tools_of(body: Fields) -> list[Any] | None:
    """`tools`, the older `functions`, and web search; None when nothing is offered."""
    found = [_tool(tool) for tool in body.each("tools")]
    found += [_function(function) for function in body.each("functions")]
    search = body.get("web_search_options", dict)
    if search is not None:
        found.append(UnknownTool({"type": "web_search", **search}))
    return found or None


def _tool(tool: Fields) -> Any:
    kind = tool.need("type", str)
    if kind == "function":
        return _function(tool.inner("function"))
    if kind == "custom":
        return _custom(tool.inner("custom"))
    return UnknownTool(tool.whole())


def _function(function: Fields) -> tl.FunctionToolParam:
    # absent means false here, and true in the Responses API
    return tl.FunctionToolParam(
        _name(function),
        function.get("description", str) or UNSET,
        function.get("parameters", dict) or UNSET,
        bool(function.get("strict", bool)),
    )


def _custom(custom: Fields) -> tl.CustomTool:
    shape: dict[str, Any] = {}
    given = custom.maybe_inner("format")
    if given is not None:
        shape = {"type": given.need("type", str)}
        if shape["type"] == "grammar":
            shape |= given.inner("grammar").whole()
    return tl.CustomTool(_name(custom), custom.get("description", str) or UNSET, shape or UNSET)


def _name(tool: Fields) -> str:
    name = tool.need("name", str)
    if not name:
        raise invalid(tool.at("name"), "is empty")
    return name


def choice_of(body: Fields) -> Any:
    """The ToolChoice of `tool_choice`, or of the older `function_call`; None when there is neither."""
    if "tool_choice" not in body:
        return _legacy_choice(body)
    given = body.either("tool_choice", str, dict)
    if isinstance(given, str):
        return _mode(given, "tool_choice")
    choice = body.inner("tool_choice")
    if choice.need("type", str) == "allowed_tools":
        return _allowed(choice.inner("allowed_tools"))
    return _one(choice)


def _legacy_choice(body: Fields) -> Any:
    given = body.either("function_call", str, dict)
    if isinstance(given, dict):
        return tl.FunctionToolChoice(_name(body.inner("function_call")))
    return None if given is None else _mode(given, "function_call")


def _mode(mode: str, param: str) -> Any:
    if mode not in _MODES:
        raise invalid(param, f"expected one of {', '.join(_MODES)}, or an object")
    return mode


def _one(choice: Fields) -> Any:
    kind = choice.need("type", str)
    if kind == "function":
        return tl.FunctionToolChoice(_name(choice.inner("function")))
    if kind == "custom":
        return UnknownToolChoice({"type": "custom", "name": _name(choice.inner("custom"))})
    return UnknownToolChoice(choice.whole())


def _allowed(allowed: Fields) -> tl.AllowedToolChoice:
    mode: Any = allowed.one_of("mode", _ALLOWED_MODES) or "auto"
    tools = [_one(tool) for tool in allowed.each("tools")]
    if not 1 <= len(tools) <= _MOST_ALLOWED:
        raise invalid(allowed.at("tools"), f"expected 1 to {_MOST_ALLOWED} tools")
    return tl.AllowedToolChoice(tools, mode)


def text_of(body: Fields) -> rq.TextParam | None:
    """`response_format` and `verbosity`."""
    given = body.maybe_inner("response_format")
    verbosity: Any = body.one_of("verbosity", ("low", "medium", "high"))
    if given is None and verbosity is None:
        return None
    return rq.TextParam(UNSET if given is None else _format(given), verbosity or UNSET)


def _format(given: Fields) -> Any:
    kind = given.need("type", str)
    if kind == "json_schema":
        schema = given.inner("json_schema")
        strict = schema.get("strict", bool)
        return rq.JsonSchemaFormatParam(
            _name(schema),
            schema.get("description", str) or UNSET,
            schema.get("schema", dict) or UNSET,
            UNSET if strict is None else strict,
        )
    plain = {"text": TextFormat, "json_object": JsonObjectFormat}.get(kind)
    return UnknownFormat(given.whole()) if plain is None else plain()

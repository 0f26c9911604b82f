"""Tools and tool mode, both ways."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from openresponses_bridge.calls.choice import plain_choice
from openresponses_bridge.calls.identity import ToolIdentityMap, ToolKind
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.vscode.types import ChatTool, ToolMode
from openresponses_bridge.protocol.tools import (
    AllowedToolChoice,
    CustomTool,
    FunctionToolChoice,
    FunctionToolParam,
    NamespaceTool,
    ToolChoice,
    ToolParam,
)

_LEGAL = re.compile(r"[\w-]{1,64}", re.ASCII)
_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}
_FREE_TEXT: dict[str, Any] = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The tool's whole input as plain text."}},
    "required": ["input"],
}


def tool_params(tools: list[ChatTool], diagnostics: Diagnostics) -> list[ToolParam]:
    """VS Code's tools as functions. Schemas are not strict, since VS Code's are not."""
    for tool in tools:
        if not _LEGAL.fullmatch(tool.name):
            diagnostics.warning("tools.name", "not 1 to 64 letters, digits, _ and -")
    return [
        FunctionToolParam(tool.name, tool.description, tool.input_schema or _NO_PARAMETERS, False)
        for tool in tools
    ]


def tool_choice(mode: ToolMode, tools: list[ChatTool]) -> ToolChoice | None:
    """What the model may do with the tools; nothing to choose without any."""
    if not tools:
        return None
    return "required" if mode is ToolMode.REQUIRED else "auto"


class Offer(NamedTuple):
    """The tools that go to VS Code, and whether one must be called."""

    tools: list[ChatTool]
    mode: ToolMode


def offered(
    tools: list[ToolParam] | None,
    choice: ToolChoice | None,
    identities: ToolIdentityMap,
    diagnostics: Diagnostics,
) -> Offer:
    """A request's tools for VS Code. Choosing among them is done by leaving out the others."""
    declared: dict[str, ChatTool] = {}
    for tool in tools or ():
        _declare(tool, None, declared, identities, diagnostics)
    every = list(declared.values())
    if choice == "none":
        return Offer([], ToolMode.AUTO)
    if isinstance(choice, FunctionToolChoice):
        return Offer(_only(declared, [choice.name], identities), ToolMode.REQUIRED)
    if isinstance(choice, AllowedToolChoice):
        if choice.mode == "none":
            return Offer([], ToolMode.AUTO)
        names = [(plain_choice(each) or {}).get("name") for each in choice.tools]
        left = _only(declared, names, identities)
        return Offer(left, ToolMode.REQUIRED if choice.mode == "required" else ToolMode.AUTO)
    if choice not in (None, "auto", "required"):
        diagnostics.loss("tool_choice", "can't be expressed")
    return Offer(every, ToolMode.REQUIRED if choice == "required" and every else ToolMode.AUTO)


def _only(declared: dict[str, ChatTool], names: list[Any], identities: ToolIdentityMap) -> list[ChatTool]:
    wanted = [identities.upstream_name(name) for name in names if isinstance(name, str)]
    return [declared[name] for name in wanted if name in declared]


def _declare(
    tool: Any,
    namespace: str | None,
    declared: dict[str, ChatTool],
    identities: ToolIdentityMap,
    diagnostics: Diagnostics,
) -> None:
    if isinstance(tool, NamespaceTool):
        for inner in tool.tools:
            _declare(inner, tool.name, declared, identities, diagnostics)
        return
    if isinstance(tool, FunctionToolParam):
        kind, schema = ToolKind.FUNCTION, tool.parameters or _NO_PARAMETERS
    elif isinstance(tool, CustomTool):
        kind, schema = ToolKind.CUSTOM, _FREE_TEXT
    else:
        diagnostics.loss(f"tools.{tool.type[:64]}", "VS Code has functions only")
        return
    name = identities.declare(kind, tool.name, namespace).upstream_name
    declared[name] = ChatTool(name, tool.description or "", schema)

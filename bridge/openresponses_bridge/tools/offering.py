"""Tools as each kind of endpoint declares them in a request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final, NamedTuple

from openresponses_bridge.tools.registry import Tool


class ToolForm(Enum):
    """The forms by what takes them."""

    FUNCTIONS = "functions"  # Chat Completions as it was
    TOOLS = "tools"  # Chat Completions as it is
    ANTHROPIC = "anthropic"
    VSCODE = "vscode"
    RESPONSES = "responses"


def to_openai_function(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}


def to_openai_tool(tool: Tool) -> dict[str, Any]:
    return {"type": "function", "function": to_openai_function(tool)}


def to_anthropic_tool(tool: Tool) -> dict[str, Any]:
    """An object's schema says so there: `type` is not optional."""
    schema = {"type": "object"} | tool.input_schema
    return {"name": tool.name, "description": tool.description, "input_schema": schema}


def to_vscode_tool(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}


def to_responses_tool(tool: Tool) -> dict[str, Any]:
    return {"type": "function", "strict": False} | to_openai_function(tool)


class _Form(NamedTuple):
    tool: Callable[[Tool], dict[str, Any]]
    tools_field: str
    choice_field: str
    choices: dict[str, Any]
    one: Callable[[str], Any]


_CHAT_CHOICES: Final = {"auto": "auto", "none": "none", "required": "required"}
_FORMS: Final = {
    # the older form has no word for "some function"
    ToolForm.FUNCTIONS: _Form(
        to_openai_function,
        "functions",
        "function_call",
        {"auto": "auto", "none": "none", "required": "auto"},
        lambda name: {"name": name},
    ),
    ToolForm.TOOLS: _Form(
        to_openai_tool,
        "tools",
        "tool_choice",
        _CHAT_CHOICES,
        lambda name: {"type": "function", "function": {"name": name}},
    ),
    ToolForm.ANTHROPIC: _Form(
        to_anthropic_tool,
        "tools",
        "tool_choice",
        {"auto": {"type": "auto"}, "none": {"type": "none"}, "required": {"type": "any"}},
        lambda name: {"type": "tool", "name": name},
    ),
    # LanguageModelChatToolMode: 1 is Auto, 2 is Required, which means one tool
    ToolForm.VSCODE: _Form(
        to_vscode_tool, "tools", "toolMode", {"auto": 1, "none": 1, "required": 2}, lambda name: 2
    ),
    ToolForm.RESPONSES: _Form(
        to_responses_tool,
        "tools",
        "tool_choice",
        _CHAT_CHOICES,
        lambda name: {"type": "function", "name": name},
    ),
}


def tools_in_body(tools: Iterable[Tool], form: ToolForm, choice: str | None = "auto") -> dict[str, Any]:
    """The fields of a request that offer these tools: none when there are none, since endpoints refuse an
    empty list. `choice` is auto, none, required or the name of a tool; None leaves its field out. VS Code has
    no words for `none` and for one of several tools: those are offered alone, or not at all."""
    offered, spelling = list(tools), _FORMS[form]
    if form is ToolForm.VSCODE and choice not in (None, "auto", "required"):
        offered = [tool for tool in offered if tool.name == choice]
    if not offered:
        return {}
    fields: dict[str, Any] = {spelling.tools_field: [spelling.tool(tool) for tool in offered]}
    if choice is not None:
        known = spelling.choices.get(choice)
        fields[spelling.choice_field] = spelling.one(choice) if known is None else known
    return fields

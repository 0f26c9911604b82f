"""The declaration of tools in a request, for each kind of endpoint."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from openresponses_agent.tools.registry import Tool


class ToolForm(Enum):
    """The form in which a request declares tools, by API."""

    FUNCTIONS = "functions"  # the older form of Chat Completions
    TOOLS = "tools"  # the present form of Chat Completions
    ANTHROPIC = "anthropic"
    VSCODE = "vscode"
    RESPONSES = "responses"


def to_openai_function(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}


def to_openai_tool(tool: Tool) -> dict[str, Any]:
    return {"type": "function", "function": to_openai_function(tool)}


def to_anthropic_tool(tool: Tool) -> dict[str, Any]:
    """Return a tool in Anthropic's form. Its schema always has a `type`, which this API requires."""
    schema = {"type": "object"} | tool.input_schema
    return {"name": tool.name, "description": tool.description, "input_schema": schema}


def to_vscode_tool(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}


def to_responses_tool(tool: Tool) -> dict[str, Any]:
    return {"type": "function", "strict": False} | to_openai_function(tool)


class _OfferedForm(NamedTuple):
    tool: Callable[[Tool], dict[str, Any]]
    tools_field: str
    choice_field: str
    choices: dict[str, Any]
    one: Callable[[str], Any]


_CHAT_CHOICES: Final = {"auto": "auto", "none": "none", "required": "required"}
_FORMS: Final = {
    # `functions` can't require a call of any function
    ToolForm.FUNCTIONS: _OfferedForm(
        to_openai_function,
        "functions",
        "function_call",
        {"auto": "auto", "none": "none", "required": "auto"},
        lambda name: {"name": name},
    ),
    ToolForm.TOOLS: _OfferedForm(
        to_openai_tool,
        "tools",
        "tool_choice",
        _CHAT_CHOICES,
        lambda name: {"type": "function", "function": {"name": name}},
    ),
    ToolForm.ANTHROPIC: _OfferedForm(
        to_anthropic_tool,
        "tools",
        "tool_choice",
        {"auto": {"type": "auto"}, "none": {"type": "none"}, "required": {"type": "any"}},
        lambda name: {"type": "tool", "name": name},
    ),
    # LanguageModelChatToolMode: 1 is Auto, 2 is Required, which means one tool
    ToolForm.VSCODE: _OfferedForm(
        to_vscode_tool, "tools", "toolMode", {"auto": 1, "none": 1, "required": 2}, lambda name: 2
    ),
    ToolForm.RESPONSES: _OfferedForm(
        to_responses_tool,
        "tools",
        "tool_choice",
        _CHAT_CHOICES,
        lambda name: {"type": "function", "name": name},
    ),
}


def tools_in_body(tools: Iterable[Tool], form: ToolForm, choice: str | None = "auto") -> dict[str, Any]:
    """Return the fields of a request body that offer these tools; none if there are no tools, since endpoints
    refuse an empty list. `choice` is auto, none, required or the name of a tool; None leaves its field out.
    VS Code can't express `none` or one of several tools: then no tool, or only this one, is offered."""
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


@dataclass(frozen=True)
class ModelCapabilities:
    """The capabilities of a model with tools. `max_tools` is the most tools of one request, None for no
    limit."""

    supports_tool_calling: bool = True
    supports_streaming_tool_calls: bool = True
    max_tools: int | None = None


class ToolCallMode(Enum):
    """The way to send a request so that the model can call tools."""

    NONE = "none"  # it can't: requests offer no tools
    STREAMING = "streaming"
    WHOLE = "whole"  # it calls tools only in answers that are not streamed: requests have `stream: false`


def tool_call_mode(capabilities: ModelCapabilities) -> ToolCallMode:
    """Return the mode for a request that offers tools."""
    if not capabilities.supports_tool_calling:
        return ToolCallMode.NONE
    return ToolCallMode.STREAMING if capabilities.supports_streaming_tool_calls else ToolCallMode.WHOLE


def get_agent_tools(
    tools: Iterable[Tool],
    capabilities: ModelCapabilities,
    disabled: Collection[str] = (),
) -> list[Tool]:
    """Return the tools of a registry to offer, in its order, at most as many as the model accepts. `disabled`
    are names and tags of tools that are not offered. Give `ToolsService` a registry of only these tools, so
    that a call of any other is answered as one of an unknown tool."""
    if not capabilities.supports_tool_calling:
        return []
    chosen = [tool for tool in tools if tool.name not in disabled and tool.tags.isdisjoint(disabled)]
    return chosen[: capabilities.max_tools]

"""tool_choice, and the tools that it leaves: Chat has auto, none, required and one function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from openresponses_bridge.calls.choice import meant, named, plain_choice
from openresponses_bridge.calls.declarations import FunctionView
from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.chat_completions.types import ChatFunctionDefinition, ChatTool
from openresponses_bridge.errors import InvalidRequestError


class Chosen(NamedTuple):
    """What goes out; both None when there is nothing to choose from."""

    tools: list[ChatTool] | None
    choice: str | dict[str, Any] | None


def choose(
    choice: Any, functions: Sequence[FunctionView], identities: ToolIdentityMap, diagnostics: Diagnostics
) -> Chosen:
    """Raises InvalidRequestError (`tool_choice`) when the choice can't be kept."""
    given = plain_choice(choice)
    if given is None:
        if choice == "required" and not functions:
            raise _error("required", "needs a tool that the upstream can call")
        return _chosen(functions, choice)
    if given.get("type") == "allowed_tools":
        left: dict[str, FunctionView] = {}
        for each in given["tools"]:
            view = meant(each, functions, identities)
            if view is None:
                diagnostics.loss("tool_choice.tools", f"{named(each)} can't be called")
            else:
                left[view.name] = view
        if not left and given["mode"] == "required":
            raise _error("allowed_tools", "leaves no tool that the upstream can call")
        return _chosen(list(left.values()), given["mode"])
    view = meant(given, functions, identities)
    if view is None:
        raise _error(named(given), "is not among the tools that the upstream can call")
    return _chosen(functions, {"type": "function", "function": {"name": view.name}})


def as_functions(chosen: Chosen, diagnostics: Diagnostics) -> dict[str, Any]:
    """The same as `functions` and `function_call`, which know auto, none and one function."""
    if chosen.tools is None:
        return {}
    functions = [replace(tool.function, strict=None) for tool in chosen.tools]
    if any(tool.function.strict for tool in chosen.tools):
        diagnostics.loss("tools.strict", "can't be expressed")
    choice = chosen.choice
    if isinstance(choice, dict):
        choice = {"name": choice["function"]["name"]}
    elif choice == "required" and len(functions) == 1:
        choice = {"name": functions[0].name}
    elif choice == "required":
        diagnostics.loss("tool_choice", "required sent as auto")
        choice = "auto"
    return {"functions": functions, "function_call": choice}


def _chosen(functions: Sequence[FunctionView], choice: Any) -> Chosen:
    return Chosen([_tool(view) for view in functions], choice) if functions else Chosen(None, None)


def _tool(view: FunctionView) -> ChatTool:
    about = view.description or None
    return ChatTool(
        ChatFunctionDefinition(
            name=view.name, description=about, parameters=view.parameters, strict=view.strict
        )
    )


def _error(what: str, why: str) -> InvalidRequestError:
    return InvalidRequestError(
        InvalidRequestError.INVALID_VALUE, f"tool_choice {what!r} {why}", param="tool_choice"
    )

"""Tool calls and their outputs of any kind → what a function-calling upstream knows of them (law E11).

Each kind of call becomes the function call that the model would have made, with the same name and the
arguments in the form the function's schema asks for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from bridge.dialects.chat_completions.types import ChatFunction, ChatToolCall
from bridge.protocol import input_items as params
from bridge.protocol import items
from bridge.protocol.codec import encode
from bridge.tools.identity import ToolIdentityMap
from bridge.tools.presentation import called_name
from bridge.tools.unwrap import wrap_input

SHELL, LOCAL_SHELL, APPLY_PATCH, TOOL_SEARCH = "shell", "local_shell", "apply_patch", "tool_search"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else encode(value).decode()


def _local_shell(item: Any) -> str:
    action: dict[str, Any] = msgspec.to_builtins(item.action)
    return _text({name: value for name, value in action.items() if name != "type"})


# how to write a call's arguments, and the name of tools that have no name of their own
_Writer = tuple[str, Callable[[Any], str]]
_FUNCTION: _Writer = ("", lambda item: item.arguments if item.arguments.strip() else "{}")
_CUSTOM: _Writer = ("", lambda item: wrap_input(item.input))
_SHELL: _Writer = (SHELL, lambda item: _text(item.action))
_LOCAL: _Writer = (LOCAL_SHELL, _local_shell)
_PATCH: _Writer = (APPLY_PATCH, lambda item: _text(item.operation))
_SEARCH: _Writer = (TOOL_SEARCH, lambda item: _text(item.arguments))

CALLS: dict[type[Any], _Writer] = {
    params.FunctionCallParam: _FUNCTION,
    items.FunctionCall: _FUNCTION,
    params.CustomToolCallParam: _CUSTOM,
    items.CustomToolCall: _CUSTOM,
    params.ShellCallParam: _SHELL,
    items.ShellCall: _SHELL,
    params.LocalShellCallParam: _LOCAL,
    items.LocalShellCall: _LOCAL,
    params.ApplyPatchCallParam: _PATCH,
    items.ApplyPatchCall: _PATCH,
    params.ToolSearchCallParam: _SEARCH,
    items.ToolSearchCall: _SEARCH,
}


def call_key(call: Any) -> list[str]:
    """The names by which an output may mean this call; none for one that the server answered itself."""
    if not call.call_id:
        return []
    return list(dict.fromkeys(key for key in (call.call_id, call.id) if key))


def chat_call(call: Any, identities: ToolIdentityMap) -> ChatToolCall:
    """The call as part of an assistant's message."""
    own_name, arguments = CALLS[type(call)]
    namespace = getattr(call, "namespace", None) or None
    name = called_name(own_name or call.name, namespace, identities)
    return ChatToolCall(None, call.call_id, "function", ChatFunction(name, arguments(call)))


# ── outputs ────────────────────────────────────────────────────────────────────────────────────────
def _patched(item: Any) -> str:
    said = item.output or ""
    return f"failed: {said}" if item.status == "failed" else said or "done"


def _found(item: Any) -> str:
    names = [
        tool.get("name") if isinstance(tool, dict) else getattr(tool, "name", None) for tool in item.tools
    ]
    return _text({"tools": [name for name in names if name]})


Output = str | list[Any]
OUTPUTS: dict[type[Any], Callable[[Any], Output]] = {
    params.FunctionCallOutputParam: lambda item: item.output,
    items.FunctionCallOutput: lambda item: item.output,
    params.CustomToolCallOutputParam: lambda item: item.output,
    params.ShellCallOutputParam: lambda item: _text(item.output),
    params.LocalShellCallOutputParam: lambda item: item.output,
    params.ApplyPatchCallOutputParam: _patched,
    params.ToolSearchOutputParam: _found,
    items.ToolSearchOutput: _found,
}


def output_key(output: Any) -> str:
    """The call_id that an output names; local shells may name the call by the output's own id."""
    if output.call_id:
        return str(output.call_id)
    return str(output.id or "") if type(output) is params.LocalShellCallOutputParam else ""

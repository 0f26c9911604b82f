"""The client's tools, their calls and their outputs as a model sees them that knows functions only.

One list of declarations, one shape for calls, one for outputs: each dialect puts these three into its
own words. `ToolIdentityMap` remembers what was what, so that the way back is exact (law E11).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET

from bridge.diagnostics import Diagnostics
from bridge.protocol.codec import encode
from bridge.protocol.lenient import Repairing, build
from bridge.protocol.tools import CustomTool, FunctionToolParam, NamespaceTool, ToolSearchTool
from bridge.protocol.unknown import Unknown
from bridge.protocol.vocabulary import TOOL_PARAMS
from bridge.tools.builtin_schemas import BUILTINS, INPUT_SCHEMA
from bridge.tools.identity import ToolIdentity, ToolIdentityMap, ToolKind
from bridge.tools.json_input import INPUT_KEY
from bridge.tools.unwrap import wrap_input

TOOL_SEARCH: Final = "tool_search"
# input items that bring tools of their own, callable from there on
_TOOL_BEARERS: Final = frozenset({"additional_tools", "tool_search_output"})


class FunctionView(NamedTuple):
    """A tool as a function: `parameters` is JSON Schema of type object; `strict` None is not asked for."""

    identity: ToolIdentity
    description: str
    parameters: dict[str, Any]
    strict: bool | None = None

    @property
    def name(self) -> str:
        """The name that the upstream knows, legal everywhere."""
        return self.identity.upstream_name


class CallView(NamedTuple):
    """A call in the history as a function call: `arguments` is JSON text, whole unless it was `cut`."""

    call_id: str
    name: str
    arguments: str
    cut: bool = False


class OutputView(NamedTuple):
    """What a call brought back: text, or parts in the protocol's own structs."""

    call_id: str
    output: str | list[Any]
    failed: bool = False


# (tool, where its name is declared, where to put what is no function) → the functions it is
_Presenter = Callable[[Any, ToolIdentityMap, list[Any]], list[FunctionView]]


# ── declarations ───────────────────────────────────────────────────────────────────────────────────
def active_tools(tools: Iterable[Any] | None, items: Iterable[Any]) -> list[Any]:
    """The request's tools and those that came inside its input, in order."""
    found = list(tools or ())
    for item in items:
        if item.type in _TOOL_BEARERS and not isinstance(item, Unknown):
            found += [_declared(tool) for tool in item.tools]
    return found


def _declared(tool: Any) -> Any:
    """An output item holds its tools as plain objects; what can't be read of them is left out."""
    return build(TOOL_PARAMS, tool, Repairing()) if isinstance(tool, dict) else tool


def present_tools(
    tools: Iterable[Any], identities: ToolIdentityMap, diagnostics: Diagnostics
) -> tuple[list[FunctionView], list[Any]]:
    """(functions, what is none: hosted and extension tools as they were declared).

    Declares each tool in `identities`. A tool declared twice is one. Raises ToolError
    (`bridge.tools.name_collision`) when two kinds of tools share a name.
    """
    functions: dict[str, FunctionView] = {}
    others: list[Any] = []
    for tool in tools:
        maker = _PRESENTERS.get(tool.type)
        if maker is None or isinstance(tool, Unknown):
            others.append(tool)
            continue
        for view in maker(tool, identities, others):
            if view.name in functions:
                diagnostics.repair(f"tools.{view.name}", "declared twice, kept once")
            functions.setdefault(view.name, view)
    return list(functions.values()), others


def _function(
    tool: FunctionToolParam, identities: ToolIdentityMap, _others: list[Any], namespace: str | None = None
) -> list[FunctionView]:
    identity = identities.declare(ToolKind.FUNCTION, tool.name, namespace)
    parameters = tool.parameters or {"type": "object", "properties": {}}
    strict = None if tool.strict is UNSET else tool.strict
    return [FunctionView(identity, tool.description or "", parameters, strict)]


def _custom(
    tool: CustomTool, identities: ToolIdentityMap, _others: list[Any], namespace: str | None = None
) -> list[FunctionView]:
    identity = identities.declare(ToolKind.CUSTOM, tool.name, namespace)
    described = [tool.description or "", f"`{INPUT_KEY}` is plain text that is passed on as it is."]
    grammar = (tool.format or {}).get("definition")
    if grammar:
        syntax = (tool.format or {}).get("syntax") or "given"
        described.append(f"`{INPUT_KEY}` has to match this {syntax} grammar:\n{grammar}")
    return [FunctionView(identity, "\n\n".join(filter(None, described)), INPUT_SCHEMA)]


def _namespace(tool: NamespaceTool, identities: ToolIdentityMap, others: list[Any]) -> list[FunctionView]:
    views: list[FunctionView] = []
    members: list[Any] = list(tool.tools)  # a hosted tool stays one within a namespace
    for member in members:
        if isinstance(member, FunctionToolParam):
            views += _function(member, identities, others, tool.name)
        elif isinstance(member, CustomTool):
            views += _custom(member, identities, others, tool.name)
        else:
            others.append(member)
    return views


def _builtin(kind: ToolKind) -> _Presenter:
    def present(_tool: Any, identities: ToolIdentityMap, _others: list[Any]) -> list[FunctionView]:
        description, parameters = BUILTINS[kind]
        return [FunctionView(identities.declare(kind, kind.value), description, parameters)]

    return present


def _search(tool: ToolSearchTool, identities: ToolIdentityMap, others: list[Any]) -> list[FunctionView]:
    """A search that the client answers is a function; one that the server runs itself is hosted."""
    if tool.execution != "client":
        others.append(tool)
        return []
    description, parameters = BUILTINS[ToolKind.TOOL_SEARCH]
    identity = identities.declare(ToolKind.TOOL_SEARCH, TOOL_SEARCH)
    return [FunctionView(identity, tool.description or description, tool.parameters or parameters)]


_PRESENTERS: Final[dict[str, _Presenter]] = {
    "function": _function,
    "custom": _custom,
    "namespace": _namespace,
    **{kind.value: _builtin(kind) for kind in BUILTINS},
    TOOL_SEARCH: _search,
}


# ── history ────────────────────────────────────────────────────────────────────────────────────────
def call_view(item: Any, identities: ToolIdentityMap) -> CallView | None:
    """A call of any kind as a function call; None when the item is no call a client answers."""
    make = _CALLS.get(item.type)
    view = None if make is None or isinstance(item, Unknown) else make(item, identities)
    if view is not None and getattr(item, "status", None) == "incomplete":
        return view._replace(cut=True)
    return view


def called_name(name: str, namespace: str | None, identities: ToolIdentityMap) -> str:
    """The upstream's name for the tool that a call in the history names. The published wire has no
    namespaces, so there a call came with the upstream's own name and goes back with it."""
    upstream = identities.upstream_name(name, namespace)
    return name if upstream not in identities and name in identities else upstream


def output_view(item: Any) -> OutputView | None:
    """A tool's answer of any kind; None when the item is none. Clients name the call by `call_id`,
    else by `id` (field case 40)."""
    view = _OUTPUTS.get(item.type)
    return None if view is None or isinstance(item, Unknown) else view(item)


def _function_call(item: Any, identities: ToolIdentityMap) -> CallView:
    name = called_name(item.name, item.namespace or None, identities)
    return CallView(item.call_id, name, item.arguments if item.arguments.strip() else "{}")


def _custom_call(item: Any, identities: ToolIdentityMap) -> CallView:
    name = called_name(item.name, item.namespace or None, identities)
    return CallView(item.call_id, name, wrap_input(item.input))


def _action_call(kind: ToolKind, field: str) -> Callable[[Any, ToolIdentityMap], CallView]:
    def view(item: Any, identities: ToolIdentityMap) -> CallView:
        arguments = dict(msgspec.to_builtins(getattr(item, field)))
        if kind is ToolKind.LOCAL_SHELL:
            arguments.pop("type", None)  # always `exec`: nothing a model has to say
        return CallView(item.call_id, identities.upstream_name(kind.value), encode(arguments).decode())

    return view


def _search_call(item: Any, identities: ToolIdentityMap) -> CallView | None:
    if not item.call_id:
        return None  # run by the server: nobody answers it
    arguments = item.arguments if isinstance(item.arguments, str) else encode(item.arguments).decode()
    return CallView(item.call_id, identities.upstream_name(TOOL_SEARCH), arguments or "{}")


def _output(item: Any) -> OutputView:
    failed = getattr(item, "status", None) in ("failed", "incomplete")
    return OutputView(item.call_id or item.id or "", item.output or "", failed)


def _shell_output(item: Any) -> OutputView:
    printed = item.output if isinstance(item.output, str) else encode(item.output).decode()
    return OutputView(item.call_id, printed)


def _search_output(item: Any) -> OutputView | None:
    if not item.call_id:
        return None
    tools = map(_declared, item.tools)
    names = [tool.name for tool in tools if hasattr(tool, "name")]
    return OutputView(item.call_id, encode({"tools": names}).decode())


_CALLS: Final[dict[str, Callable[[Any, ToolIdentityMap], CallView | None]]] = {
    "function_call": _function_call,
    "custom_tool_call": _custom_call,
    "shell_call": _action_call(ToolKind.SHELL, "action"),
    "local_shell_call": _action_call(ToolKind.LOCAL_SHELL, "action"),
    "apply_patch_call": _action_call(ToolKind.APPLY_PATCH, "operation"),
    "tool_search_call": _search_call,
}
_OUTPUTS: Final[dict[str, Callable[[Any], OutputView | None]]] = {
    "function_call_output": _output,
    "custom_tool_call_output": _output,
    "local_shell_call_output": _output,
    "apply_patch_call_output": _output,
    "shell_call_output": _shell_output,
    "tool_search_output": _search_output,
}

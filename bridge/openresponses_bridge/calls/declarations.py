"""The client's tools as functions, for upstreams and models that know nothing else.

Each goes through the identity map, so that its calls find back (law E11): namespaces become part of the
name, a custom tool takes its text as one argument, shells and patches get the schema of their own action.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from openresponses_bridge.calls.builtin_schemas import BUILTINS, INPUT_SCHEMA
from openresponses_bridge.calls.identity import ToolIdentity, ToolIdentityMap, ToolKind
from openresponses_bridge.calls.json_input import INPUT_KEY
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.errors import InvalidRequestError, ToolError
from openresponses_bridge.protocol.lenient import Repairing, build
from openresponses_bridge.protocol.tools import (
    CustomTool,
    FunctionToolParam,
    NamespaceTool,
    ShellTool,
    ToolSearchTool,
)
from openresponses_bridge.protocol.unknown import Unknown
from openresponses_bridge.protocol.vocabulary import TOOL_PARAMS

# input items that bring tools of their own, callable from there on
_TOOL_BEARERS: Final = frozenset({"additional_tools", "tool_search_output"})
_NO_PARAMETERS: Final[dict[str, Any]] = {"type": "object", "properties": {}}


class Placed(NamedTuple):
    """A tool, and where it was declared, as `tools[0]`."""

    tool: Any
    where: str


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


def active_tools(tools: Iterable[Any] | None, items: Iterable[Any], earlier: int = 0) -> list[Placed]:
    """The request's tools and those that came inside its input, in order. The first `earlier` of the
    items are of turns before."""
    found = _placed(tools, "tools") if tools else []
    for index, item in enumerate(items):
        if item.type in _TOOL_BEARERS and not isinstance(item, Unknown):
            where = f"history[{index}]" if index < earlier else f"input[{index - earlier}]"
            found += _placed(map(declared, item.tools), f"{where}.tools")
    return found


def declared(tool: Any) -> Any:
    """An output item holds its tools as plain objects; what can't be read of them is left out."""
    return build(TOOL_PARAMS, tool, Repairing()) if isinstance(tool, dict) else tool


def _placed(tools: Iterable[Any], where: str) -> list[Placed]:
    return [Placed(tool, f"{where}[{index}]") for index, tool in enumerate(tools)]


def present_tools(
    tools: Sequence[Placed], identities: ToolIdentityMap, diagnostics: Diagnostics
) -> tuple[list[FunctionView], list[Placed]]:
    """(functions, other tools: hosted and extension tools as they were declared).

    Declares each tool in `identities`. A tool declared twice is one. Raises InvalidRequestError with the
    tool's place when two kinds of tools share a name.
    """
    if not tools:
        return [], []
    presenter = _Presenter(identities, diagnostics)
    for placed in tools:
        presenter.take(placed)
    return list(presenter.functions.values()), presenter.others


class _Presenter:
    """Sorts tools into `functions`, by upstream name, and `others`."""

    def __init__(self, identities: ToolIdentityMap, diagnostics: Diagnostics) -> None:
        self._identities = identities
        self._diagnostics = diagnostics
        self.functions: dict[str, FunctionView] = {}
        self.others: list[Placed] = []

    def take(self, placed: Placed, namespace: NamespaceTool | None = None) -> None:
        tool, where = placed
        present = None if isinstance(tool, Unknown) else _PRESENTERS.get(tool.type)
        if present is None:
            self.others.append(placed)
            return
        try:
            present(self, placed, namespace)
        except ToolError as error:
            raise InvalidRequestError(
                InvalidRequestError.INVALID_VALUE, error.message, param=where
            ) from error

    def _add(
        self,
        kind: ToolKind,
        name: str,
        about: Iterable[str],
        parameters: dict[str, Any],
        namespace: NamespaceTool | None = None,
        strict: bool | None = None,
    ) -> None:
        identity = self._identities.declare(kind, name, namespace.name if namespace else None)
        within = namespace.description or "" if namespace else ""
        description = "\n\n".join(filter(None, [within, *about]))
        view = FunctionView(identity, description, parameters, strict)
        if view.name in self.functions:
            self._diagnostics.repair(f"tools.{view.name}", "declared twice, kept once")
        self.functions.setdefault(view.name, view)

    def function(self, placed: Placed, namespace: NamespaceTool | None) -> None:
        tool: FunctionToolParam = placed.tool
        strict = tool.strict if isinstance(tool.strict, bool) else None
        parameters = tool.parameters or _NO_PARAMETERS
        self._add(ToolKind.FUNCTION, tool.name, [tool.description or ""], parameters, namespace, strict)

    def custom(self, placed: Placed, namespace: NamespaceTool | None) -> None:
        tool: CustomTool = placed.tool
        about = [tool.description or "", _grammar(tool.format or {})]
        self._add(ToolKind.CUSTOM, tool.name, about, INPUT_SCHEMA, namespace)

    def built_in(self, placed: Placed, _namespace: NamespaceTool | None) -> None:
        kind = ToolKind(placed.tool.type)
        if isinstance(placed.tool, ShellTool) and placed.tool.environment:
            lost = "can't be expressed, the client runs the shell"
            self._diagnostics.loss(f"{placed.where}.environment", lost)
        description, parameters = BUILTINS[kind]
        self._add(kind, kind.value, [description], parameters)

    def search(self, placed: Placed, _namespace: NamespaceTool | None) -> None:
        """A search that the client answers is a function; one that the server runs itself is hosted."""
        tool: ToolSearchTool = placed.tool
        if tool.execution != "client":
            self.others.append(placed)
            return
        kind = ToolKind.TOOL_SEARCH
        description, parameters = BUILTINS[kind]
        self._add(kind, kind.value, [tool.description or description], tool.parameters or parameters)

    def namespace(self, placed: Placed, _namespace: NamespaceTool | None) -> None:
        for member in _placed(placed.tool.tools, f"{placed.where}.tools"):
            self.take(member, placed.tool)


def _grammar(format: dict[str, Any]) -> str:
    """What a custom tool's format demands, in words; OpenAI's two spellings."""
    given = format.get("grammar", format)
    definition = given.get("definition") if isinstance(given, dict) else None
    if not definition:
        return ""
    syntax = given.get("syntax") or "given"
    return f"`{INPUT_KEY}` is plain text, never JSON, and must match this {syntax} grammar:\n{definition}"


_PRESENTERS: Final[dict[str, Callable[[_Presenter, Placed, NamespaceTool | None], None]]] = {
    "function": _Presenter.function,
    "custom": _Presenter.custom,
    "namespace": _Presenter.namespace,
    **{kind.value: _Presenter.built_in for kind in BUILTINS},
    ToolKind.TOOL_SEARCH.value: _Presenter.search,
}

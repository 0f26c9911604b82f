"""The client's tools as functions, for upstreams and models that know only functions.

Each is declared in the identity map, so that its calls are converted back (law E11): namespaces become part
of the name, a custom tool gets its text as one argument, shells and patches have the schema of their own
action.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from openresponses_bridge.calls.identity import ToolIdentity, ToolIdentityMap, ToolKind
from openresponses_bridge.calls.json_input import INPUT_KEY
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.errors import InvalidRequestError, ToolError
from openresponses_bridge.protocol.lenient import Repairing, build
from openresponses_bridge.protocol.tools import (
    AllowedToolChoice,
    CustomTool,
    FunctionToolChoice,
    FunctionToolParam,
    NamespaceTool,
    ShellTool,
    ToolSearchTool,
)
from openresponses_bridge.protocol.unknown import Unknown, UnknownToolChoice
from openresponses_bridge.protocol.vocabulary import TOOL_PARAMS

# The descriptions and JSON Schemas that a model gets for tools without a declaration of their own. The fields
# are those of the item that the call becomes.


def _object(required: tuple[str, ...], **properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _texts(description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": description}


_STRING: Final = {"type": "string"}
_TIMEOUT: Final = {"type": "integer", "description": "Time limit in milliseconds."}
INPUT_SCHEMA: Final = _object((INPUT_KEY,), **{INPUT_KEY: _text("The tool's whole input as plain text.")})
BUILTINS: Final[dict[ToolKind, tuple[str, dict[str, Any]]]] = {
    ToolKind.SHELL: (
        "Runs shell commands and returns what they print.",
        _object(
            ("commands",),
            commands=_texts("Commands, run one after the other."),
            timeout_ms=_TIMEOUT,
            max_output_length={"type": "integer", "description": "Longest output in characters."},
        ),
    ),
    ToolKind.LOCAL_SHELL: (
        "Runs one command on the user's machine and returns what it prints.",
        _object(
            ("command",),
            command=_texts("The program and its arguments."),
            working_directory=_STRING,
            timeout_ms=_TIMEOUT,
            env={"type": "object", "additionalProperties": _STRING},
            user=_STRING,
        ),
    ),
    ToolKind.APPLY_PATCH: (
        "Creates, changes or deletes one file.",
        _object(
            ("type", "path"),
            type={"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
            path=_text("Path of the file."),
            diff=_text(
                "V4A diff: each line of the change begins with a space, + or -. "
                "Needed unless the file is deleted."
            ),
        ),
    ),
    ToolKind.TOOL_SEARCH: (
        "Searches for further tools by what they should do; those found can be called from then on.",
        _object(("query",), query=_STRING, limit={"type": "integer"}),
    ),
}


TOOL_BEARERS: Final = frozenset({"additional_tools", "tool_search_output"})
"""The types of input items that declare tools, which can be called from there on."""
_NO_PARAMETERS: Final[dict[str, Any]] = {"type": "object", "properties": {}}


class DeclaredTool(NamedTuple):
    """A tool and the path of its declaration, such as `tools[0]`."""

    tool: Any
    where: str


class FunctionView(NamedTuple):
    """A tool as a function: `parameters` is JSON Schema of type object; `strict` is None if it is not
    given."""

    identity: ToolIdentity
    description: str
    parameters: dict[str, Any]
    strict: bool | None = None

    @property
    def name(self) -> str:
        """The upstream's name, which is valid everywhere."""
        return self.identity.upstream_name


def tools_of(item: Any) -> list[Any]:
    """Return the tools that an item declares; [] for other items. An output item has them as plain objects:
    fields that can't be read are left out."""
    if item.type not in TOOL_BEARERS or isinstance(item, Unknown):
        return []
    return [build(TOOL_PARAMS, tool, Repairing()) if isinstance(tool, dict) else tool for tool in item.tools]


def located(tools: Iterable[Any], where: str) -> list[DeclaredTool]:
    """Return the tools of a list with the path `where`."""
    return [DeclaredTool(tool, f"{where}[{index}]") for index, tool in enumerate(tools)]


def present_tools(
    tools: Sequence[DeclaredTool], identities: ToolIdentityMap, diagnostics: Diagnostics
) -> tuple[list[FunctionView], list[DeclaredTool]]:
    """Return (functions, other tools: hosted and extension tools as they were declared).

    Declares each tool in `identities`. A tool declared twice is one. Raises InvalidRequestError with the
    tool's place when two kinds of tools share a name.
    """
    if not tools:
        return [], []
    presenter = _Presenter(identities, diagnostics)
    for declared_tool in tools:
        presenter.present(declared_tool)
    return list(presenter.functions.values()), presenter.others


class _Presenter:
    """Sorts tools into `functions`, by upstream name, and `others`."""

    def __init__(self, identities: ToolIdentityMap, diagnostics: Diagnostics) -> None:
        self._identities = identities
        self._diagnostics = diagnostics
        self.functions: dict[str, FunctionView] = {}
        self.others: list[DeclaredTool] = []

    def present(self, declared_tool: DeclaredTool, namespace: NamespaceTool | None = None) -> None:
        tool, where = declared_tool
        present = None if isinstance(tool, Unknown) else _PRESENTERS.get(tool.type)
        if present is None:
            self.others.append(declared_tool)
            return
        try:
            present(self, declared_tool, namespace)
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

    def function(self, declared_tool: DeclaredTool, namespace: NamespaceTool | None) -> None:
        tool: FunctionToolParam = declared_tool.tool
        strict = tool.strict if isinstance(tool.strict, bool) else None
        parameters = _of_object(tool.parameters or _NO_PARAMETERS)
        self._add(ToolKind.FUNCTION, tool.name, [tool.description or ""], parameters, namespace, strict)

    def custom(self, declared_tool: DeclaredTool, namespace: NamespaceTool | None) -> None:
        tool: CustomTool = declared_tool.tool
        about = [tool.description or "", _grammar(tool.format or {})]
        self._add(ToolKind.CUSTOM, tool.name, about, INPUT_SCHEMA, namespace)

    def built_in(self, declared_tool: DeclaredTool, _namespace: NamespaceTool | None) -> None:
        kind = ToolKind(declared_tool.tool.type)
        if isinstance(declared_tool.tool, ShellTool) and declared_tool.tool.environment:
            lost = "can't be expressed, the client runs the shell"
            self._diagnostics.loss(f"{declared_tool.where}.environment", lost)
        description, parameters = BUILTINS[kind]
        self._add(kind, kind.value, [description], parameters)

    def search(self, declared_tool: DeclaredTool, _namespace: NamespaceTool | None) -> None:
        """Present a search: as a function if the client answers it, as hosted if the server runs it
        itself."""
        tool: ToolSearchTool = declared_tool.tool
        if tool.execution != "client":
            self.others.append(declared_tool)
            return
        kind = ToolKind.TOOL_SEARCH
        description, parameters = BUILTINS[kind]
        parameters = _of_object(tool.parameters or parameters)
        self._add(kind, kind.value, [tool.description or description], parameters)

    def namespace(self, declared_tool: DeclaredTool, _namespace: NamespaceTool | None) -> None:
        for member in located(declared_tool.tool.tools, f"{declared_tool.where}.tools"):
            self.present(member, declared_tool.tool)


def _of_object(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with its type, which some clients leave out or send as null: a call's arguments are
    an object."""
    return parameters if parameters.get("type") == "object" else {**parameters, "type": "object"}


def _grammar(format: dict[str, Any]) -> str:
    """Return a description of the format that a custom tool requires, in either of OpenAI's spellings."""
    grammar = format.get("grammar", format)
    definition = grammar.get("definition") if isinstance(grammar, dict) else None
    if not definition:
        return ""
    syntax = grammar.get("syntax") or "given"
    return f"`{INPUT_KEY}` is plain text, never JSON, and must match this {syntax} grammar:\n{definition}"


_PRESENTERS: Final[dict[str, Callable[[_Presenter, DeclaredTool, NamespaceTool | None], None]]] = {
    "function": _Presenter.function,
    "custom": _Presenter.custom,
    "namespace": _Presenter.namespace,
    **{kind.value: _Presenter.built_in for kind in BUILTINS},
    ToolKind.TOOL_SEARCH.value: _Presenter.search,
}


# tools without a name: a choice names them by their type
_NAMELESS: Final = frozenset(kind.value for kind in BUILTINS)


def encode_choice(choice: Any) -> dict[str, Any] | None:
    """Return an object choice as JSON; None for auto, none, required and no choice."""
    if choice is None:
        return None
    if isinstance(choice, UnknownToolChoice):
        return choice.raw
    if isinstance(choice, FunctionToolChoice):
        return {"type": "function", "name": choice.name or ""}
    if isinstance(choice, AllowedToolChoice):
        tools = [encode_choice(each) for each in choice.tools]
        return {"type": "allowed_tools", "mode": choice.mode, "tools": tools}
    return None


def named(choice: dict[str, Any]) -> str:
    """Return the name in a choice, as the client wrote it, for errors and diagnostics."""
    return str(choice.get("name") or choice.get("type") or "")


def chosen_function(
    choice: dict[str, Any], functions: Sequence[FunctionView], identities: ToolIdentityMap
) -> FunctionView | None:
    """Return the function that a choice of one tool names: by the client's name in its namespace, else by any
    name with which it may be called. None if there is no such function or more than one."""
    name = choice.get("name") or (choice.get("type") if choice.get("type") in _NAMELESS else None)
    if not isinstance(name, str) or not name:
        return None
    for view in functions:
        if (view.identity.name, view.identity.namespace) == (name, choice.get("namespace")):
            return view
    identity = identities.resolve(name)
    return next((view for view in functions if view.identity == identity), None)

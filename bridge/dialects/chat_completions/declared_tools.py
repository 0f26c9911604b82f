"""Tools of any kind → functions, which is all that a Chat Completions server knows (law E11).

Each goes through the identity map, so that its calls find back: namespaces become part of the name, a
custom tool takes its text as `input`, shells and patches get the schema of their own action.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from bridge.diagnostics import Diagnostics
from bridge.dialects.chat_completions.entries import Entry
from bridge.dialects.chat_completions.tool_items import APPLY_PATCH, LOCAL_SHELL, SHELL, TOOL_SEARCH
from bridge.dialects.chat_completions.types import ChatFunctionDefinition, ChatTool
from bridge.errors import InvalidRequestError, ToolError
from bridge.protocol import input_items as params
from bridge.protocol import items, tools
from bridge.protocol.lenient import Repairing, build
from bridge.protocol.unknown import UnknownTool
from bridge.protocol.vocabulary import TOOL_PARAMS
from bridge.tools.builtin_schemas import BUILTINS
from bridge.tools.identity import ToolIdentity, ToolIdentityMap, ToolKind

_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}
_STRINGS = {"type": "array", "items": {"type": "string"}}
_MILLISECONDS = {"type": "integer", "description": "Time limit in milliseconds."}


def _object(required: list[str], **properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


# kind → what it does and what it takes; the fields are those of the item its calls become
_BUILT_IN: dict[ToolKind, tuple[str, str, dict[str, Any]]] = {
    ToolKind.SHELL: (
        SHELL,
        "Runs shell commands and returns what they print.",
        _object(
            ["commands"],
            commands={**_STRINGS, "description": "Commands, run one after the other."},
            timeout_ms=_MILLISECONDS,
            max_output_length={"type": "integer", "description": "Longest output in characters."},
        ),
    ),
    ToolKind.LOCAL_SHELL: (
        LOCAL_SHELL,
        "Runs one command on the user's machine and returns what it prints.",
        _object(
            ["command"],
            command={**_STRINGS, "description": "The program and its arguments."},
            working_directory={"type": "string"},
            timeout_ms=_MILLISECONDS,
            env={"type": "object", "additionalProperties": {"type": "string"}},
            user={"type": "string"},
        ),
    ),
    ToolKind.APPLY_PATCH: (
        APPLY_PATCH,
        "Creates, changes or deletes one file.",
        _object(
            ["type", "path"],
            type={"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
            path={"type": "string", "description": "Path of the file."},
            diff={
                "type": "string",
                "description": "V4A diff: each line of the change begins with a space, + or -. "
                "Needed unless the file is deleted.",
            },
        ),
    ),
}
_INPUT = _object(["input"], input={"type": "string", "description": "The tool's whole input as plain text."})


class DeclaredTools:
    """The functions of one request, by upstream name, in order of declaration."""

    def __init__(self, identities: ToolIdentityMap, diagnostics: Diagnostics) -> None:
        self._identities = identities
        self._diagnostics = diagnostics
        self.functions: dict[str, ChatTool] = {}

    def take(self, declared: Iterable[Any], where: str, namespace: tools.NamespaceTool | None = None) -> None:
        """Declare these tools. Raises InvalidRequestError when two of different kinds share a name."""
        for index, tool in enumerate(declared):
            place = f"{where}[{index}]"
            given = build(TOOL_PARAMS, tool, Repairing()) if isinstance(tool, dict) else tool
            try:
                _DECLARE[type(given)](self, given, place, namespace)
            except ToolError as error:
                raise InvalidRequestError(
                    InvalidRequestError.INVALID_VALUE, error.message, param=place
                ) from error

    def take_items(self, entries: Iterable[Entry]) -> None:
        """Declare the tools that stand in the input: additional ones and those a search found."""
        for entry in entries:
            if isinstance(
                entry.item, params.AdditionalTools | params.ToolSearchOutputParam | items.ToolSearchOutput
            ):
                self.take(entry.item.tools, f"{entry.where}.tools")

    def find(self, name: str, namespace: str | None = None) -> ToolIdentity | None:
        """The tool that a client means by this name, if it is offered."""
        for identity in self._identities:
            if (identity.name, identity.namespace) == (name, namespace) and self._offers(identity):
                return identity
        meant = self._identities.resolve(name)
        return meant if meant is not None and self._offers(meant) else None

    def _offers(self, identity: ToolIdentity) -> bool:
        return identity.upstream_name in self.functions

    def _add(
        self,
        kind: ToolKind,
        name: str,
        namespace: tools.NamespaceTool | None,
        description: str | None,
        parameters: dict[str, Any],
        strict: bool | None = None,
    ) -> None:
        identity = self._identities.declare(kind, name, namespace.name if namespace else None)
        about = [namespace.description or "" if namespace else "", description or ""]
        definition = ChatFunctionDefinition(
            name=identity.upstream_name,
            description="\n\n".join(filter(None, about)) or None,
            parameters=parameters,
            strict=strict,
        )
        self.functions.setdefault(identity.upstream_name, ChatTool(definition))

    def _function(self, tool: Any, where: str, namespace: tools.NamespaceTool | None) -> None:
        parameters = tool.parameters or _NO_PARAMETERS
        strict = tool.strict if isinstance(tool.strict, bool) else None
        self._add(ToolKind.FUNCTION, tool.name, namespace, tool.description or None, parameters, strict)

    def _custom(self, tool: Any, where: str, namespace: tools.NamespaceTool | None) -> None:
        about = "\n\n".join(filter(None, [tool.description or "", _grammar(tool.format or {})]))
        self._add(ToolKind.CUSTOM, tool.name, namespace, about, _INPUT)

    def _built_in(self, kind: ToolKind) -> None:
        name, description, parameters = _BUILT_IN[kind]
        self._add(kind, name, None, description, parameters)

    def _shell(self, tool: Any, where: str, namespace: tools.NamespaceTool | None) -> None:
        if tool.environment:
            self._diagnostics.loss(f"{where}.environment", "can't be expressed, the client runs the shell")
        self._built_in(ToolKind.SHELL)

    def _local_shell(self, tool: Any, where: str, namespace: tools.NamespaceTool | None) -> None:
        self._built_in(ToolKind.LOCAL_SHELL)

    def _patch(self, tool: Any, where: str, namespace: tools.NamespaceTool | None) -> None:
        self._built_in(ToolKind.APPLY_PATCH)

    def _search(self, tool: Any, where: str, namespace: tools.NamespaceTool | None) -> None:
        """A search that the client answers is a function; one that the server runs itself is hosted."""
        if tool.execution != "client":
            return self._hosted(tool, where, namespace)
        description, parameters = BUILTINS[ToolKind.TOOL_SEARCH]
        about, schema = tool.description or description, tool.parameters or parameters
        return self._add(ToolKind.TOOL_SEARCH, TOOL_SEARCH, None, about, schema)

    def _namespace(self, tool: Any, where: str, namespace: tools.NamespaceTool | None) -> None:
        self.take(tool.tools, f"{where}.tools", tool)

    def _hosted(self, tool: Any, where: str, namespace: tools.NamespaceTool | None) -> None:
        self._diagnostics.loss(where, f"{tool.type or 'a tool without a type'} is not known to the upstream")


def _grammar(format: dict[str, Any]) -> str:
    """What a custom tool's format demands, in words; OpenAI's two spellings."""
    given = format.get("grammar", format)
    definition = given.get("definition") if isinstance(given, dict) else None
    if not definition:
        return ""
    syntax = given.get("syntax", "")
    return f"`input` is plain text, never JSON, and must match this {syntax} grammar:\n{definition}"


_Declare = Callable[[DeclaredTools, Any, str, tools.NamespaceTool | None], None]
_DECLARE: dict[type[Any], _Declare] = {
    tools.FunctionToolParam: DeclaredTools._function,
    tools.CustomTool: DeclaredTools._custom,
    tools.NamespaceTool: DeclaredTools._namespace,
    tools.ShellTool: DeclaredTools._shell,
    tools.LocalShellTool: DeclaredTools._local_shell,
    tools.ApplyPatchTool: DeclaredTools._patch,
    tools.ToolSearchTool: DeclaredTools._search,
    UnknownTool: DeclaredTools._hosted,
}

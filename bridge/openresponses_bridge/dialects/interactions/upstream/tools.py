"""Tools and the choice among them: functions, Google's own tools, MCP servers."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from openresponses_bridge.calls.declarations import (
    DeclaredTool,
    FunctionView,
    chosen_function,
    encode_choice,
    named,
)
from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import Fields, SearchForm, invalid, search_of
from openresponses_bridge.dialects.interactions.carried import CarriedFields
from openresponses_bridge.dialects.interactions.options import InteractionsOptions
from openresponses_bridge.dialects.interactions.types import SLUG, Json
from openresponses_bridge.protocol.codec import plain
from openresponses_bridge.protocol.unknown import UnknownTool, UnknownToolChoice
from openresponses_bridge.schemas.rewriting import Schema, rewritten

_MODES: Final = {"auto": "auto", "required": "any", "none": "none"}
_RUNS: Final = "code_interpreter"
_MCP: Final = "mcp"
_SEARCHING: Final = SearchForm(lambda _search: {"type": "google_search"})


def as_taken(schema: Schema, options: InteractionsOptions, where: str, diagnostics: Diagnostics) -> Schema:
    """Return a schema in a form that the server accepts; changes in it are losses."""
    return rewritten(schema, options.schema_omit, options.schema_forms, where, diagnostics)


class Tools:
    """The tools of a request and the choice among them. Raises InvalidRequestError for a choice that can't be
    kept."""

    def __init__(
        self,
        functions: Sequence[FunctionView],
        others: Sequence[DeclaredTool],
        identities: ToolIdentityMap,
        options: InteractionsOptions,
        carried: CarriedFields,
        diagnostics: Diagnostics,
    ) -> None:
        self._functions = functions
        self._identities = identities
        self._options = options
        self._carried = carried
        self._diagnostics = diagnostics
        sent = {kind: deque(values) for kind, values in carried.tools.items()}
        hosted = (self._hosted(tool, where, sent) for tool, where in others)
        self._others = [tool for tool in hosted if tool is not None]

    def declared(self) -> list[Json]:
        """Return all tools as they are sent."""
        return [*map(self._function, self._functions), *self._others]

    def _function(self, view: FunctionView) -> Json:
        own = self._carried.functions.get(view.identity.name, {})
        if own and view.description == (own.get("description") or ""):
            return own | {"name": view.name}
        if view.strict:
            self._diagnostics.loss(f"tools.{view.name}.strict", "not enforced")
        where = f"tools.{view.name}.parameters"
        parameters = as_taken(view.parameters, self._options, where, self._diagnostics)
        function: Json = {"type": "function", "name": view.name, "description": view.description}
        return own | function | {"parameters": parameters}

    def _hosted(self, tool: Any, where: str, sent: dict[str, deque[Any]]) -> Json | None:
        own: deque[Any] | None = sent.get(tool.type)
        if own and isinstance(tool, UnknownTool):
            original: Json = own.popleft()
            return original
        if isinstance(tool, UnknownTool) and tool.type.startswith(SLUG):
            return {**tool.raw, "type": tool.type.removeprefix(SLUG)}
        wish = search_of(tool, where)
        if wish is not None:
            return _SEARCHING.made(wish, where, self._diagnostics)
        kind = tool.type.removeprefix("openai:")
        if kind == _RUNS:
            return {"type": "code_execution"}
        if kind == _MCP and isinstance(tool, UnknownTool) and isinstance(tool.raw.get("server_url"), str):
            return self._server(Fields(tool.raw, where))
        self._diagnostics.loss(where, f"{(tool.type or 'a tool')[:64]} is not known to the upstream")
        return None

    def _server(self, tool: Fields) -> Json:
        allowed = tool.raw("allowed_tools")
        names = allowed if isinstance(allowed, list) else []
        server: Json = {
            "type": "mcp_server",
            "name": tool.get("server_label", str),
            "url": tool.need("server_url", str),
            "headers": tool.get("headers", dict),
            "allowed_tools": [{"tools": names}] if names else None,
        }
        tool.skip("type")
        if tool.raw("require_approval") != "never":
            self._diagnostics.loss(tool.at("require_approval"), "calls are not held for approval")
        for where in tool.unread_here:
            self._diagnostics.loss(where, "can't be expressed")
        return {name: value for name, value in server.items() if value}

    def choice(self, choice: Any) -> Json:
        """Return `tool_choice`; {} without one."""
        if self._carried.choice is not None and plain(choice) == self._carried.chosen:
            return {"tool_choice": self._carried.choice}
        if choice is None:
            return {}
        encoded = encode_choice(choice)
        if encoded is None:
            if choice == "required" and not self._functions and not self._others:
                raise invalid("tool_choice", "'required' needs a tool that the upstream can call")
            return {"tool_choice": _MODES[choice]}
        if encoded.get("type") == "allowed_tools":
            tools = enumerate(encoded["tools"])
            names = [self._named(each, f"tool_choice.tools[{index}]") for index, each in tools]
            return _allowed(_MODES[encoded["mode"]], names)
        if isinstance(choice, UnknownToolChoice) and self._others:
            self._diagnostics.loss("tool_choice", "a tool of the server can't be required")
            return {}
        return _allowed("any", [self._named(encoded, "tool_choice")])

    def _named(self, choice: Json, param: str) -> str:
        view = chosen_function(choice, self._functions, self._identities)
        if view is None:
            raise invalid(f"{param}.name", f"no tool is named {named(choice)!r}")
        return view.name


def _allowed(mode: str, names: list[str]) -> Json:
    return {"tool_choice": {"allowed_tools": {"mode": mode, "tools": names}}}

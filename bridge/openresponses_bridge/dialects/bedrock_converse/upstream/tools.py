"""Tools and the choice among them: `toolConfig`."""

from __future__ import annotations

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
from openresponses_bridge.dialects.base import invalid
from openresponses_bridge.dialects.bedrock_converse.carried import CarriedFields
from openresponses_bridge.dialects.bedrock_converse.types import CACHE_POINT, SLUG
from openresponses_bridge.protocol.unknown import UnknownTool, UnknownToolChoice
from openresponses_bridge.schemas.rewriting import ONE_ROOT, object_root

_SPEC: Final = "toolSpec"
_MODES: Final[dict[str, dict[str, Any]]] = {"auto": {"auto": {}}, "required": {"any": {}}}
_ANY_OBJECT: Final = {"json": {"type": "object"}}


class ToolConfig:
    """The tools of a request and the choice among them. Raises InvalidRequestError for a choice that can't be
    kept."""

    def __init__(
        self,
        choice: Any,
        functions: Sequence[FunctionView],
        others: Sequence[DeclaredTool],
        identities: ToolIdentityMap,
        carried: CarriedFields,
        diagnostics: Diagnostics,
    ) -> None:
        self._functions = functions
        self._identities = identities
        self._carried = carried
        self._diagnostics = diagnostics
        self._allowed: frozenset[str] | None = None
        self._is_none = choice == "none"
        self._hosted = self._own_tools(others)
        self._choice = self._choose(choice)

    @property
    def forces(self) -> bool:
        """True if the model must call a tool."""
        return self._choice is not None and "auto" not in self._choice

    def fields(self, messages: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return `toolConfig`; {} without tools. The API requires it whenever the messages have calls: the
        tools of earlier calls are then declared, and none may be called, as far as that can be expressed."""
        called = _called(messages)
        tools = [] if self._is_none and not called else self._declared()
        if not tools:
            if not called:
                return {}
            self._diagnostics.repair("tools", "those called earlier declared")
            tools = [{_SPEC: {"name": name, "inputSchema": _ANY_OBJECT}} for name in called]
        if self._is_none and self._functions and called:
            self._diagnostics.loss("tool_choice", "'none' can't be expressed beside earlier calls")
        config: dict[str, Any] = {"tools": tools}
        if self._choice is not None:
            config["toolChoice"] = self._choice
        return {"toolConfig": config}

    def _declared(self) -> list[dict[str, Any]]:
        """Return the tools; in the client's own order and with its cache points, if it has those of this
        API."""
        allowed = self._allowed
        views = {each.name: each for each in self._functions if allowed is None or each.name in allowed}
        tools: list[dict[str, Any]] = []
        hosted = list(self._hosted)
        for entry in self._carried.tools:
            if CACHE_POINT in entry:
                tools += [entry] if tools else []
            elif _SPEC in entry:
                view = next(
                    (each for each in views.values() if each.identity.name == entry[_SPEC]["name"]), None
                )
                if view is not None:
                    tools.append(self._spec(views.pop(view.name), entry[_SPEC]))
            elif entry in hosted:
                hosted.remove(entry)
                tools.append(entry)
        return tools + [self._spec(view) for view in views.values()] + hosted

    def _spec(self, view: FunctionView, own: dict[str, Any] | None = None) -> dict[str, Any]:
        if (
            own is not None
            and (own.get("description") or "") == view.description
            and own["name"] == view.name
        ):
            return {_SPEC: own}
        parameters = object_root(view.parameters)
        if parameters is not view.parameters:
            self._diagnostics.loss(f"tools.{view.name}.parameters", ONE_ROOT)
        spec: dict[str, Any] = {"name": view.name, "inputSchema": {"json": parameters}}
        if view.description.strip():
            spec["description"] = view.description
        if view.strict:
            spec["strict"] = True
        return {_SPEC: spec}

    def _own_tools(self, others: Sequence[DeclaredTool]) -> list[dict[str, Any]]:
        """Return the tools that the server runs itself."""
        tools: list[dict[str, Any]] = []
        for tool, where in others:
            raw = tool.raw if isinstance(tool, UnknownTool) and tool.type.startswith(SLUG) else {}
            if isinstance(raw.get("tool"), dict):
                tools.append(raw["tool"])
            else:
                self._diagnostics.loss(where, f"{(tool.type or 'a tool')[:64]} is not known to the upstream")
        return tools

    def _choose(self, choice: Any) -> dict[str, Any] | None:
        raw = encode_choice(choice)
        if raw is None:
            if choice == "required":
                self._need_tools()
            return _MODES.get(choice or "")
        if raw.get("type") == "allowed_tools":
            tools = enumerate(raw["tools"])
            self._allowed = frozenset(self._named(each, f"tool_choice.tools[{at}]") for at, each in tools)
            if raw["mode"] == "required":
                self._need_tools()
            return _MODES.get(raw["mode"])
        if isinstance(choice, UnknownToolChoice) and not chosen_function(
            raw, self._functions, self._identities
        ):
            self._diagnostics.loss(f"tool_choice.{choice.type[:64]}", "the upstream has no such tool")
            return None
        return {"tool": {"name": self._named(raw, "tool_choice")}}

    def _need_tools(self) -> None:
        if not self._functions and not self._hosted:
            raise invalid("tool_choice", "'required' needs a tool that the upstream can call")

    def _named(self, choice: dict[str, Any], param: str) -> str:
        view = chosen_function(choice, self._functions, self._identities)
        if view is None:
            raise invalid(f"{param}.name", f"no tool is named {named(choice)!r}")
        return view.name


def _called(messages: Sequence[dict[str, Any]]) -> list[str]:
    """Return the names of the tools that were called, each once."""
    blocks = (block["toolUse"] for each in messages for block in each["content"] if "toolUse" in block)
    return list(dict.fromkeys(block["name"] for block in blocks))

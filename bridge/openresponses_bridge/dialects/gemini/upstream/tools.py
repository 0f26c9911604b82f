"""Tools and the choice among them: functions, the server's own tools, `toolConfig`."""

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
from openresponses_bridge.dialects.base import SearchForm, invalid, search_of
from openresponses_bridge.dialects.gemini.carried import CarriedFields
from openresponses_bridge.dialects.gemini.models import ModelFacts
from openresponses_bridge.dialects.gemini.options import GeminiOptions
from openresponses_bridge.dialects.gemini.types import SLUG, camel
from openresponses_bridge.protocol.tools import AllowedToolChoice
from openresponses_bridge.protocol.unknown import UnknownTool, UnknownToolChoice
from openresponses_bridge.schemas.rewriting import Form, Schema, rewritten

_MODES: Final = {"auto": "AUTO", "required": "ANY", "none": "NONE"}
# hosted tools of OpenAI's API, without the dates of their versions → Google's
_HOSTED: Final = {
    "web_search": "googleSearch",
    "web_search_preview": "googleSearch",
    "code_interpreter": "codeExecution",
}
_SEARCH: Final = "googleSearch"
_CALLING: Final = "functionCallingConfig"
_CHOOSING: Final = ("mode", "allowedFunctionNames")
_PARAMETERS: Final = ("parameters", "parametersJsonSchema")
_JSON_SCHEMAS: Final = frozenset({"parametersJsonSchema", "responseJsonSchema"})
# ai.google.dev, Grounding with Google Search: only Vertex AI accepts domains, and only those to leave out
_SEARCHING: Final = SearchForm(lambda _search: {})
_SETTINGS: Final = frozenset({"type", "container"})  # of the tool that runs code
_NOT_IN_SUBSET: Final = frozenset(
    {
        *("$schema", "$id", "$comment", "$ref", "$defs", "$anchor", "definitions", "additionalProperties"),
        *("propertyNames", "patternProperties", "unevaluatedProperties", "unevaluatedItems", "contains"),
        *("dependentRequired", "dependentSchemas", "if", "then", "else", "not", "examples", "oneOf", "allOf"),
        *("exclusiveMinimum", "exclusiveMaximum", "multipleOf", "uniqueItems", "minContains", "maxContains"),
        *("prefixItems", "contentEncoding", "contentMediaType", "readOnly", "writeOnly", "deprecated"),
    }
)
_OF_SUBSET: Final[frozenset[Form]] = frozenset({"const_as_enum", "types_as_nullable", "arrays_with_items"})


def as_taken(schema: Schema, options: GeminiOptions, where: str, diagnostics: Diagnostics) -> Schema:
    """Return a schema in a form that the server accepts; changes in it are losses."""
    subset = options.schemas == "parameters"
    omit = options.schema_omit | (_NOT_IN_SUBSET if subset else frozenset())
    forms = options.schema_forms | (_OF_SUBSET if subset else frozenset())
    return rewritten(schema, omit, forms, where, diagnostics)


def takes_as_sent(fields: dict[str, Any], options: GeminiOptions) -> bool:
    """Return whether the server has the fields of a client's schema; their content is not checked here."""
    return options.schemas == "parametersJsonSchema" or not _JSON_SCHEMAS & fields.keys()


def _narrows(choice: Any, calling: dict[str, Any]) -> bool:
    """Return whether functions must be left out for a choice, since its mode has no names of allowed ones."""
    return isinstance(choice, AllowedToolChoice) and str(calling.get("mode")).upper() == _MODES["auto"]


class Tools:
    """The tools of a request and the choice among them. Raises InvalidRequestError for a choice that can't be
    kept."""

    def __init__(
        self,
        choice: Any,
        functions: Sequence[FunctionView],
        others: Sequence[DeclaredTool],
        identities: ToolIdentityMap,
        options: GeminiOptions,
        facts: ModelFacts,
        carried: CarriedFields,
        diagnostics: Diagnostics,
    ) -> None:
        self._carried = carried
        self._functions = functions
        self._identities = identities
        self._options = options
        self._facts = facts
        self._diagnostics = diagnostics
        self._hosted = self._server_tools(others)
        self._sent = dict(carried.tool_config)
        """`toolConfig` as the client sent it, except for the choice among functions."""
        calling = self._sent.pop(_CALLING, None) or {}
        self._is_own = bool(calling) and choice == carried.choice and not _narrows(choice, calling)
        if not self._is_own:
            calling = {name: value for name, value in calling.items() if name not in _CHOOSING}
            calling |= self._choose(choice)
        self._calling = calling

    def fields(self) -> dict[str, Any]:
        """Return `tools` and `toolConfig`; {} if there are none."""
        declared = [self._declaration(view) for view in self._functions]
        tools: list[dict[str, Any]] = [{"functionDeclarations": declared}] if declared else []
        tools += [{name: settings} for name, settings in self._hosted]
        config: dict[str, Any] = {}
        if self._calling and (declared or self._is_own):
            config[_CALLING] = self._calling
        if declared and self._hosted:
            config["includeServerSideToolInvocations"] = True
        config |= self._sent
        return ({"tools": tools} if tools else {}) | ({"toolConfig": config} if config else {})

    def _declaration(self, view: FunctionView) -> dict[str, Any]:
        own = self._carried.functions.get(view.identity.name, {})
        described = bool(own) and view.description == (own.get("description") or "")
        if described and takes_as_sent(own, self._options):
            return own | {"name": view.name}
        body = {name: value for name, value in own.items() if name not in _PARAMETERS}
        body |= {"name": view.name, "description": view.description}
        where = f"tools.{view.name}.parameters"
        body[self._options.schemas] = as_taken(view.parameters, self._options, where, self._diagnostics)
        if view.strict:
            self._diagnostics.loss(f"tools.{view.name}.strict", "not enforced")
        return body

    def _server_tools(self, others: Sequence[DeclaredTool]) -> list[tuple[str, Any]]:
        """Return the names of the server's own tools, with their settings."""
        tools: list[tuple[str, Any]] = []
        sent = {kind: deque(values) for kind, values in self._carried.tools.items()}
        for tool, where in others:
            own, kind = sent.get(tool.type), _HOSTED.get(tool.type.partition("_20")[0])
            if isinstance(tool, UnknownTool) and (own or tool.type.startswith(SLUG)):
                settings = {name: value for name, value in tool.raw.items() if name != "type"}
                named = kind or camel(tool.type.removeprefix(SLUG))
                tools.append((named, own.popleft() if own else settings))
                continue
            if kind is None:
                self._diagnostics.loss(where, f"{(tool.type or 'a tool')[:64]} is not known to the upstream")
            elif self._functions and not self._facts.mixes_tools:
                self._diagnostics.loss(where, f"{kind} can't stand beside functions at this model")
            elif any(name == kind for name, _ in tools):
                continue
            elif (wish := search_of(tool, where)) is not None:
                search = self._carried.search
                search_settings = (
                    _SEARCHING.made(wish, where, self._diagnostics) if search is None else search
                )
                tools.append((kind, search_settings))
            else:
                tools.append((kind, {}))
                raw = getattr(tool, "raw", {})
                for name in sorted(name for name in raw if name not in _SETTINGS and raw[name]):
                    self._diagnostics.loss(f"{where}.{name[:64]}", "can't be expressed")
        return tools

    def _choose(self, choice: Any) -> dict[str, Any]:
        """Return `functionCallingConfig`; {} without a choice."""
        encoded = encode_choice(choice)
        hosts = [name for name, _ in self._hosted]
        if choice == "none":  # there is no such choice for the search
            self._hosted = [each for each in self._hosted if each[0] != _SEARCH]
        if choice == "required" and _SEARCH in hosts and not self._functions:
            self._diagnostics.loss("tool_choice", "a tool of the server can't be required")
            return {}
        if encoded is None:
            if choice == "required":
                self._need_functions()
            return {} if choice is None else {"mode": _MODES[choice]}
        if encoded.get("type") == "allowed_tools":
            return self._allow(encoded)
        hosted = _HOSTED.get(str(encoded.get("type")).partition("_20")[0])
        if isinstance(choice, UnknownToolChoice) and hosted in hosts:
            self._diagnostics.loss("tool_choice", "a tool of the server can't be required")
            return {}
        return {"mode": _MODES["required"], "allowedFunctionNames": [self._named(encoded, "tool_choice")]}

    def _allow(self, choice: dict[str, Any]) -> dict[str, Any]:
        """Limit the choice by name, which works only for functions that must be called; otherwise all but the
        allowed ones are left out."""
        tools = enumerate(choice["tools"])
        names = [self._named(each, f"tool_choice.tools[{index}]") for index, each in tools]
        if choice["mode"] == "required" and names:
            self._need_functions()
            return {"mode": _MODES["required"], "allowedFunctionNames": names}
        self._functions = [view for view in self._functions if view.name in names]
        return {"mode": _MODES[choice["mode"]]}

    def _need_functions(self) -> None:
        if not self._functions:
            raise invalid("tool_choice", "'required' needs a tool that the upstream can call")

    def _named(self, choice: dict[str, Any], param: str) -> str:
        view = chosen_function(choice, self._functions, self._identities)
        if view is None:
            raise invalid(f"{param}.name", f"no tool is named {named(choice)!r}")
        return view.name

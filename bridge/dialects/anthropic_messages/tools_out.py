"""Tools, tool choice and text format of a request → the Messages API's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from bridge.diagnostics import Diagnostics
from bridge.dialects.anthropic_messages.inbound_hosted import SLUG
from bridge.dialects.anthropic_messages.models import ModelFacts
from bridge.errors import InvalidRequestError
from bridge.protocol.codec import encode
from bridge.protocol.request import CreateResponse, JsonSchemaFormatParam
from bridge.protocol.response import JsonObjectFormat, TextFormat
from bridge.protocol.tools import AllowedToolChoice, FunctionToolChoice
from bridge.protocol.unknown import UnknownTool, UnknownToolChoice
from bridge.tools.presentation import FunctionView

_MODES: Final = {"auto": "auto", "required": "any", "none": "none"}
FORCING: Final = frozenset({"any", "tool"})


def tool_bodies(
    functions: Sequence[FunctionView], others: Sequence[Any], facts: ModelFacts, diagnostics: Diagnostics
) -> list[dict[str, Any]]:
    """Tool definitions. Anthropic's own tools, declared as `anthropic:…`, pass as they are."""
    bodies = [_function(view, facts, diagnostics) for view in functions]
    for tool in others:
        if isinstance(tool, UnknownTool) and tool.type.startswith(SLUG):
            bodies.append({**tool.raw, "type": tool.type.removeprefix(SLUG)})
        else:
            diagnostics.loss(f"tools.{tool.type[:64]}", "the upstream has no such tool")
    return bodies


def _function(view: FunctionView, facts: ModelFacts, diagnostics: Diagnostics) -> dict[str, Any]:
    body: dict[str, Any] = {"name": view.name}
    if view.description:
        body["description"] = view.description
    body["input_schema"] = {"type": "object", **view.parameters}
    if view.strict and facts.structured and is_closed(view.parameters):
        body["strict"] = True
    elif view.strict:
        diagnostics.loss(f"tools.{view.name}.strict", "not enforced")
    return body


def is_closed(schema: Any) -> bool:
    """Whether every object in a JSON schema forbids other members, which strict use asks for."""
    if isinstance(schema, list):
        return all(map(is_closed, schema))
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
        return False
    return all(map(is_closed, schema.values()))


class ToolChoice:
    """`body` is the tool_choice, None when it needs none; `allowed` the names that may be called, None
    for all. Raises InvalidRequestError for a tool that was not declared."""

    def __init__(
        self, request: CreateResponse, functions: Sequence[FunctionView], diagnostics: Diagnostics
    ) -> None:
        self._functions = functions
        self.allowed: frozenset[str] | None = None
        self.body = self._choose(request.tool_choice, diagnostics)
        if request.parallel_tool_calls is False and (self.body or {}).get("type") != "none":
            self.body = {**(self.body or {"type": "auto"}), "disable_parallel_tool_use": True}

    @property
    def forces(self) -> bool:
        return self.body is not None and self.body["type"] in FORCING

    def _choose(self, choice: Any, diagnostics: Diagnostics) -> dict[str, Any] | None:
        if choice is None:
            return None
        if isinstance(choice, str):
            return {"type": _MODES[choice]}
        if isinstance(choice, AllowedToolChoice):
            named = enumerate(choice.tools)
            self.allowed = frozenset(
                self._name(_named(tool), f"tool_choice.tools[{index}]") for index, tool in named
            )
            return {"type": _MODES[choice.mode]}
        if isinstance(choice, UnknownToolChoice) and self._find(_named(choice)) is None:
            diagnostics.loss(f"tool_choice.{choice.type[:64]}", "the upstream has no such tool")
            return None
        return {"type": "tool", "name": self._name(_named(choice), "tool_choice")}

    def _name(self, name: str, param: str) -> str:
        found = self._find(name)
        if found is None:
            raise InvalidRequestError(
                InvalidRequestError.INVALID_VALUE, f"no tool is named {name!r}", param=f"{param}.name"
            )
        return found

    def _find(self, name: str) -> str | None:
        for view in self._functions:
            if name in (view.identity.name, view.name):
                return view.name
        return None


def _named(choice: Any) -> str:
    """The tool that a choice names; shells and patches go by their type."""
    if isinstance(choice, FunctionToolChoice):
        return choice.name or ""
    name = choice.raw.get("name")
    return name if isinstance(name, str) else str(choice.type)


def text_format(
    request: CreateResponse, facts: ModelFacts, diagnostics: Diagnostics
) -> tuple[dict[str, Any] | None, str]:
    """(what the API enforces, what the model is told instead)."""
    given = request.text.format if request.text is not None else None
    if not given or isinstance(given, TextFormat):
        return None, ""
    if isinstance(given, JsonObjectFormat):
        diagnostics.loss("text.format", "instructed, not enforced")
        return None, "Answer with one JSON object and nothing else: no prose, no code fence."
    if not isinstance(given, JsonSchemaFormatParam):
        diagnostics.loss(f"text.format.{given.type[:64]}", "Anthropic has no such format")
        return None, ""
    schema = given.schema or {"type": "object"}
    if facts.structured and is_closed(schema):
        return {"type": "json_schema", "schema": schema}, ""
    diagnostics.loss("text.format", "instructed, not enforced")
    return None, (
        "Answer with JSON that is valid under this JSON Schema and nothing else: no prose, no code fence.\n"
        + encode(schema).decode()
    )

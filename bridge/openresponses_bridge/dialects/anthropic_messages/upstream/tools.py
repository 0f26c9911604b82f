"""Tools, tool choice and text format of a request → the Messages API's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from openresponses_bridge.calls.choice import meant, named, plain_choice
from openresponses_bridge.calls.declarations import FunctionView, Placed
from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.anthropic_messages.models import ModelFacts
from openresponses_bridge.dialects.anthropic_messages.types import SLUG
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.request import CreateResponse, JsonSchemaFormatParam
from openresponses_bridge.protocol.response import JsonObjectFormat, TextFormat
from openresponses_bridge.protocol.unknown import UnknownTool, UnknownToolChoice

_MODES: Final = {"auto": "auto", "required": "any", "none": "none"}
FORCING: Final = frozenset({"any", "tool"})


def tool_bodies(
    functions: Sequence[FunctionView], others: Sequence[Placed], facts: ModelFacts, diagnostics: Diagnostics
) -> list[dict[str, Any]]:
    """Tool definitions. Anthropic's own tools, declared as `anthropic:…`, pass as they are."""
    bodies = [_function(view, facts, diagnostics) for view in functions]
    for tool, _ in others:
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


def tools_called(messages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The fields that declare the tools of earlier calls where none are offered: the API refuses calls of
    tools that it was not given. {} when there are no calls."""
    blocks = (block for message in messages for block in message["content"])
    names = dict.fromkeys(block["name"] for block in blocks if block["type"] == "tool_use")
    declared = [{"name": name, "input_schema": {"type": "object"}} for name in names]
    return {"tools": declared, "tool_choice": {"type": "none"}} if declared else {}


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
        self,
        request: CreateResponse,
        functions: Sequence[FunctionView],
        identities: ToolIdentityMap,
        diagnostics: Diagnostics,
    ) -> None:
        self._functions = functions
        self._identities = identities
        self.allowed: frozenset[str] | None = None
        self.body = self._choose(request.tool_choice, diagnostics)
        if request.parallel_tool_calls is False and (self.body or {}).get("type") != "none":
            self.body = {**(self.body or {"type": "auto"}), "disable_parallel_tool_use": True}

    @property
    def forces(self) -> bool:
        return self.body is not None and self.body["type"] in FORCING

    def check(self, tools: Sequence[Any]) -> None:
        """Raises InvalidRequestError when a call is required and nothing is left to be called."""
        if self.forces and not tools:
            raise InvalidRequestError(
                InvalidRequestError.INVALID_VALUE,
                "tool_choice 'required' needs a tool that the upstream can call",
                param="tool_choice",
            )

    def _choose(self, choice: Any, diagnostics: Diagnostics) -> dict[str, Any] | None:
        given = plain_choice(choice)
        if given is None:
            return None if choice is None else {"type": _MODES[choice]}
        if given.get("type") == "allowed_tools":
            tools = enumerate(given["tools"])
            self.allowed = frozenset(self._name(tool, f"tool_choice.tools[{index}]") for index, tool in tools)
            return {"type": _MODES[given["mode"]]}
        if isinstance(choice, UnknownToolChoice) and not meant(given, self._functions, self._identities):
            diagnostics.loss(f"tool_choice.{choice.type[:64]}", "the upstream has no such tool")
            return None
        return {"type": "tool", "name": self._name(given, "tool_choice")}

    def _name(self, choice: dict[str, Any], param: str) -> str:
        view = meant(choice, self._functions, self._identities)
        if view is None:
            raise InvalidRequestError(
                InvalidRequestError.INVALID_VALUE,
                f"no tool is named {named(choice)!r}",
                param=f"{param}.name",
            )
        return view.name


def text_format(
    request: CreateResponse, facts: ModelFacts, diagnostics: Diagnostics
) -> tuple[dict[str, Any] | None, str]:
    """(what the API enforces, what the model is instructed to do instead)."""
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

"""Tools by name, schemas from typed functions, which tools are offered and in which form."""

import datetime
import json
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal

import msgspec
import pytest

from openresponses_agent.tools import (
    ModelCapabilities,
    Tool,
    ToolCallMode,
    ToolForm,
    ToolInvocationContext,
    ToolRegistry,
    ToolValidationError,
    get_agent_tools,
    tool_call_mode,
    tools_in_body,
    validate_tool_input,
)
from openresponses_agent.tools.validation import INVALID_SCHEMA
from openresponses_bridge.errors import LocalError, ToolError

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


def tool(name: str = "read_file", **options: Any) -> Tool:
    return Tool(name, "Read a file from the workspace", SCHEMA, lambda given: given, **options)


def test_tools_are_kept_in_order_and_by_name() -> None:
    registry = ToolRegistry([tool("b", tags=frozenset({"files"})), tool("a")])
    registry.register(tool("c", tags=frozenset({"shell"})))
    assert [each.name for each in registry] == ["b", "a", "c"]
    assert [each.name for each in registry.get_tools(["files", "shell"])] == ["b", "c"]
    assert len(registry.get_tools()) == len(registry) == 3
    assert "a" in registry
    registry.unregister("a")
    registry.unregister("a")
    assert registry.get("a") is None
    assert "a" not in registry


def test_a_name_is_taken_once() -> None:
    registry = ToolRegistry([tool("a")])
    with pytest.raises(ToolError, match="'a' is registered already") as caught:
        registry.register(tool("a"))
    assert caught.value.code == ToolError.NAME_COLLISION


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ä", "x" * 65])
def test_names_that_providers_refuse(name: str) -> None:
    with pytest.raises(ToolError, match="a tool's name"):
        tool(name)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Tool("a", "", {"type": "string"}, print),
        lambda: Tool("a", "", {}, lambda: None),
        lambda: Tool("a", "", {}, lambda one, two, three: None),
        lambda: tool(timeout=0.0),
        lambda: tool(timeout=float("nan")),
    ],
    ids=["not an object", "takes nothing", "takes three", "no time", "not a time"],
)
def test_tools_that_cannot_be(wrong: Any) -> None:
    with pytest.raises(ToolError) as caught:
        wrong()
    assert caught.value.code == "bridge.tools.invalid_tool"


def test_what_a_handler_takes_is_known() -> None:
    async def later(given: dict[str, Any], context: ToolInvocationContext) -> None:
        pass

    class Callable:
        async def __call__(self, given: dict[str, Any]) -> None:
            pass

    plain, asynchronous = tool(), Tool("a", "", {}, later)
    assert (plain.takes_context, plain.is_async) == (False, False)
    assert (asynchronous.takes_context, asynchronous.is_async) == (True, True)
    assert (Tool("a", "", {}, Callable()).takes_context, Tool("a", "", {}, Callable()).is_async) == (
        False,
        True,
    )
    assert Tool("a", "", {}, dict).is_async is False


# --- typed functions -------------------------------------------------------------------------------------


class Kind(Enum):
    CITY = "city"
    LAND = "land"


@dataclass
class Place:
    name: str
    kind: Kind = Kind.CITY


def test_a_typed_function_is_a_tool() -> None:
    registry = ToolRegistry()

    @registry.tool(tags=["weather"], parallel=True)
    def get_weather(
        context: ToolInvocationContext,
        city: Annotated[str, "Name of the city"],
        days: Annotated[int, msgspec.Meta(ge=1, le=14)] = 1,
        units: Literal["metric", "imperial"] = "metric",
        places: list[Place] = [],  # noqa: B006
    ) -> str:
        """The weather of a city,
        as it will be.

        More that a model does not need.
        """
        return f"{context.tool_name} {city} {days} {units} {places}"

    entry = registry.get("get_weather")
    assert entry is not None
    assert entry.description == "The weather of a city, as it will be."
    assert entry.tags == {"weather"}
    assert entry.parallel
    schema = json.loads(json.dumps(entry.input_schema))
    assert schema["required"] == ["city"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["city"] == {"type": "string", "description": "Name of the city"}
    assert schema["properties"]["days"] == {"type": "integer", "minimum": 1, "maximum": 14, "default": 1}
    assert schema["properties"]["units"]["enum"] == ["imperial", "metric"]
    assert set(schema["$defs"]) == {"Place", "Kind"}
    arguments = validate_tool_input("t", {"city": "Bonn", "places": [{"name": "x", "kind": "land"}]}, schema)
    context: Any = type("Context", (), {"tool_name": "get_weather"})
    output = entry.handler(arguments, context)
    assert output == f"get_weather Bonn 1 metric {[Place('x', Kind.LAND)]}"
    assert get_weather(context, "Köln") == "get_weather Köln 1 metric []"  # the function stays as it is


def test_what_a_schema_cannot_say_is_invalid_input_too() -> None:
    registry = ToolRegistry()

    @registry.tool
    def since(day: datetime.date, count: int = 1) -> str:
        return f"{day} {count!r}"

    entry = registry.get("since")
    assert entry is not None
    assert entry.handler({"day": "2026-01-02", "count": 3.0}, None) == "2026-01-02 3"
    with pytest.raises(ToolValidationError, match="can't be converted"):
        entry.handler({"day": "yesterday"}, None)


def test_the_decorator_without_arguments_and_for_async_functions() -> None:
    registry = ToolRegistry()

    @registry.tool
    async def now() -> str:
        return "now"

    entry = registry.get("now")
    assert entry is not None
    assert entry.is_async
    assert entry.description == ""
    assert entry.input_schema == {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }


def test_name_and_description_can_be_given() -> None:
    registry = ToolRegistry()
    registry.tool(name="other", description="Words")(named)
    entry = registry.get("other")
    assert entry is not None
    assert entry.description == "Words"


def named(path: str) -> str:
    """Not these."""
    return path


def untyped(path):  # type: ignore[no-untyped-def]
    return path


def several(*paths: str) -> None: ...


def unknown(path: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821


def odd(path: complex) -> None: ...


def positional(path: str, /) -> None: ...


@pytest.mark.parametrize("function", [untyped, several, unknown, odd, positional])
def test_functions_that_cannot_be_tools(function: Any) -> None:
    with pytest.raises(ToolError) as caught:
        ToolRegistry().tool(function)
    assert function.__name__ in caught.value.message


# --- what is offered -------------------------------------------------------------------------------------


def test_tools_are_chosen_by_model_and_user() -> None:
    registry = ToolRegistry(
        [tool("a"), tool("b"), tool("c", tags=frozenset({"shell"})), tool("d"), tool("e"), tool("f")]
    )

    def names(*choices: Any) -> list[str]:
        return [each.name for each in get_agent_tools(registry, *choices)]

    model = ModelCapabilities()
    assert names(model) == ["a", "b", "c", "d", "e", "f"]
    assert names(ModelCapabilities(supports_tool_calling=False)) == []
    assert names(model, ["b", "shell"]) == ["a", "d", "e", "f"]
    assert names(ModelCapabilities(max_tools=2), ["a"]) == ["b", "c"]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "text"}}},
        {"type": "object", "properties": {"a": {"pattern": "("}}},
        {"$ref": "#/$defs/missing"},
        {"$schema": "https://example.com/unknown"},
    ],
)
def test_a_schema_that_can_not_be_used_is_found_at_registration(schema: dict[str, Any]) -> None:
    registry = ToolRegistry([tool("good")])
    with pytest.raises(ToolError, match="the input schema of the tool 'bad'") as raised:
        registry.register(Tool("bad", "", schema, lambda given: None))
    assert raised.value.code == INVALID_SCHEMA
    assert [each.name for each in registry] == ["good"]


def test_without_the_engine_tools_are_registered_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise LocalError("bridge.schemas.engine", "missing")

    monkeypatch.setattr("openresponses_agent.tools.validation.engine", missing)
    assert len(ToolRegistry([tool("a")])) == 1


@pytest.mark.parametrize(
    ("capabilities", "mode"),
    [
        (ModelCapabilities(), ToolCallMode.STREAMING),
        (ModelCapabilities(supports_streaming_tool_calls=False), ToolCallMode.WHOLE),
        (ModelCapabilities(supports_tool_calling=False), ToolCallMode.NONE),
    ],
)
def test_models_that_stream_no_calls_are_asked_whole(
    capabilities: ModelCapabilities, mode: ToolCallMode
) -> None:
    assert tool_call_mode(capabilities) is mode


FUNCTION = {"name": "read_file", "description": "Read a file from the workspace", "parameters": SCHEMA}


@pytest.mark.parametrize(
    ("form", "choice", "fields"),
    [
        (ToolForm.FUNCTIONS, "auto", {"functions": [FUNCTION], "function_call": "auto"}),
        (ToolForm.FUNCTIONS, "read_file", {"functions": [FUNCTION], "function_call": {"name": "read_file"}}),
        (
            ToolForm.TOOLS,
            "auto",
            {"tools": [{"type": "function", "function": FUNCTION}], "tool_choice": "auto"},
        ),
        (ToolForm.TOOLS, None, {"tools": [{"type": "function", "function": FUNCTION}]}),
        (
            ToolForm.ANTHROPIC,
            "required",
            {
                "tools": [
                    {"name": "read_file", "description": FUNCTION["description"], "input_schema": SCHEMA}
                ],
                "tool_choice": {"type": "any"},
            },
        ),
        (
            ToolForm.VSCODE,
            "read_file",
            {
                "tools": [
                    {"name": "read_file", "description": FUNCTION["description"], "inputSchema": SCHEMA}
                ],
                "toolMode": 2,
            },
        ),
        (ToolForm.VSCODE, "none", {}),
        (
            ToolForm.RESPONSES,
            "read_file",
            {
                "tools": [{"type": "function", "strict": False, **FUNCTION}],
                "tool_choice": {"type": "function", "name": "read_file"},
            },
        ),
    ],
)
def test_the_forms(form: ToolForm, choice: str | None, fields: dict[str, Any]) -> None:
    assert tools_in_body([tool()], form, choice) == fields


@pytest.mark.parametrize("form", ToolForm)
def test_no_tools_are_no_fields(form: ToolForm) -> None:
    assert tools_in_body([], form) == {}

"""The function that a tool choice means, by the client's name or by the name in a call."""

from typing import Any

import pytest

from openresponses_bridge.calls.declarations import (
    chosen_function,
    encode_choice,
    located,
    named,
    present_tools,
)
from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.protocol.codec import decode_request, encode
from openresponses_bridge.protocol.request import CreateResponse


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name}


TOOLS = [
    function("f"),
    {"type": "custom", "name": "sql"},
    {"type": "shell"},
    {"type": "tool_search", "execution": "client"},
    {"type": "namespace", "name": "files", "tools": [function("look"), function("both")]},
    {"type": "namespace", "name": "maps", "tools": [function("both")]},
]


def asked(**fields: Any) -> CreateResponse:
    return decode_request(encode({"model": "m", "input": "Hi", **fields}))


def chosen(choice: dict[str, Any]) -> str | None:
    """The upstream's name of the function that a choice means."""
    identities = ToolIdentityMap()
    declared = located(asked(tools=TOOLS).tools or (), "tools")
    functions, _ = present_tools(declared, identities, Diagnostics())
    view = chosen_function(choice, functions, identities)
    return None if view is None else view.name


@pytest.mark.parametrize(
    ("choice", "name"),
    [
        (function("f"), "f"),
        ({"type": "custom", "name": "sql"}, "sql"),
        ({"type": "shell"}, "shell"),
        ({"type": "tool_search"}, "tool_search"),
        (function("look"), "files__look"),
        (function("files__look"), "files__look"),
        (function("files.look"), "files__look"),
        ({**function("both"), "namespace": "maps"}, "maps__both"),
    ],
)
def test_a_choice_finds_its_function(choice: Any, name: str) -> None:
    assert chosen(choice) == name


@pytest.mark.parametrize(
    "choice",
    [
        function("gone"),
        function("both"),
        {"type": "web_search"},
        {"type": "apply_patch"},
        {"type": "function"},
    ],
)
def test_a_choice_of_none_or_of_two_finds_none(choice: Any) -> None:
    assert chosen(choice) is None


@pytest.mark.parametrize("choice", [None, "auto", "none", "required"])
def test_a_mode_is_no_object(choice: Any) -> None:
    assert encode_choice(asked(tool_choice=choice).tool_choice) is None


@pytest.mark.parametrize(
    "choice",
    [
        function("f"),
        {"type": "custom", "name": "sql", "namespace": "db"},
        {"type": "allowed_tools", "mode": "auto", "tools": [function("f"), {"type": "shell"}]},
    ],
)
def test_an_object_is_sent_as_it_came(choice: Any) -> None:
    assert encode_choice(asked(tool_choice=choice).tool_choice) == choice


def test_what_a_choice_names_is_its_name_or_its_type() -> None:
    assert [named(each) for each in (function("f"), {"type": "shell"}, {})] == ["f", "shell", ""]

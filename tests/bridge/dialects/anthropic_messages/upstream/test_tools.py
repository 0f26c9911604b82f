"""Requests of ours → the Messages API: tools, tool choice, text format."""

import json

import pytest

from openresponses_bridge.calls.identity import ToolIdentityMap, ToolKind
from tests.support.anthropic_requests import (
    ADAPTIVE,
    BUDGET,
    F,
    G,
    out,
    refused,
)


# ── tools ────────────────────────────────────────────────────────────────────────────────────────────
def test_tools_of_every_kind():
    identities = ToolIdentityMap()
    tools = [
        {**F, "description": "d"},
        {"type": "custom", "name": "patch"},
        {"type": "shell"},
        {"type": "namespace", "name": "ns", "tools": [G]},
        {"type": "web_search"},
        {"type": "anthropic:web_search_20250305", "name": "web_search", "max_uses": 3},
    ]
    body, lost = out(tools=tools, identities=identities)
    assert [tool["name"] for tool in body["tools"]] == ["f", "patch", "shell", "ns__g", "web_search"]
    assert body["tools"][0] == {"name": "f", "description": "d", "input_schema": F["parameters"]}
    assert body["tools"][-1] == {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
    assert lost == ["tools[4]"]
    assert identities.resolve("patch").kind is ToolKind.CUSTOM
    assert identities.resolve("ns__g").namespace == "ns"


def test_a_namespace_describes_each_of_its_tools():
    namespace = {
        "type": "namespace",
        "name": "ns",
        "description": "Maps.",
        "tools": [F, {**G, "description": "d"}],
    }
    body, _ = out(tools=[namespace])
    assert [tool["description"] for tool in body["tools"]] == ["Maps.", "Maps.\n\nd"]


def test_the_environment_of_a_shell_is_a_loss():
    shell = {"type": "shell", "environment": {"type": "container_auto"}}
    assert out(tools=[shell])[1] == ["tools[0].environment"]


def test_two_kinds_of_tool_with_one_name_are_refused_with_the_place_of_the_second():
    assert refused(tools=[F, {"type": "custom", "name": "f"}]) == ("invalid_value", "tools[1]")


def test_a_schema_without_type_is_an_object():
    tool = {"type": "function", "name": "f", "parameters": {"properties": {}}}
    assert out(tools=[tool])[0]["tools"][0]["input_schema"]["type"] == "object"


CLOSED = {
    "type": "object",
    "properties": {"a": {"type": "array", "items": [{"type": "string"}]}},
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("model", "schema", "strict"),
    [
        (BUDGET, CLOSED, True),
        (BUDGET, {**CLOSED, "properties": {"a": {"type": "object"}}}, False),
        ("claude-opus-4-1", CLOSED, False),
    ],
)
def test_strict_tools_where_the_model_has_them(model, schema, strict):
    tool = {"type": "function", "name": "f", "parameters": schema, "strict": True}
    body, lost = out(tools=[tool], model=model)
    assert body["tools"][0].get("strict", False) is strict
    assert lost == ([] if strict else ["tools.f.strict"])


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", {"type": "auto"}),
        ("required", {"type": "any"}),
        ("none", {"type": "none"}),
        ({"type": "function", "name": "f"}, {"type": "tool", "name": "f"}),
        ({"type": "function", "name": "say"}, {"type": "tool", "name": "ns__say"}),
        ({"type": "custom", "name": "patch"}, {"type": "tool", "name": "patch"}),
        ({"type": "shell"}, {"type": "tool", "name": "shell"}),
    ],
)
def test_tool_choice(choice, sent):
    tools = [F, {"type": "custom", "name": "patch"}, {"type": "shell"}]
    tools.append({"type": "namespace", "name": "ns", "tools": [{**F, "name": "say"}]})
    assert out(tools=tools, tool_choice=choice)[0]["tool_choice"] == sent


def test_no_parallel_calls():
    assert out(tools=[F], parallel_tool_calls=False)[0]["tool_choice"] == {
        "type": "auto",
        "disable_parallel_tool_use": True,
    }
    forced = out(tools=[F], parallel_tool_calls=False, tool_choice="required")[0]["tool_choice"]
    assert forced == {"type": "any", "disable_parallel_tool_use": True}
    assert out(tools=[F], parallel_tool_calls=False, tool_choice="none")[0]["tool_choice"] == {"type": "none"}
    assert "tool_choice" not in out(parallel_tool_calls=False)[0]


def test_allowed_tools_are_the_only_ones_sent():
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "g"}]}
    body, _ = out(tools=[F, G], tool_choice=choice)
    assert [tool["name"] for tool in body["tools"]] == ["g"]
    assert body["tool_choice"] == {"type": "any"}


@pytest.mark.parametrize(
    ("choice", "param"),
    [
        ({"type": "function", "name": "nope"}, "tool_choice.name"),
        (
            {
                "type": "allowed_tools",
                "tools": [{"type": "function", "name": "f"}, {"type": "function", "name": "no"}],
            },
            "tool_choice.tools[1].name",
        ),
    ],
)
def test_a_choice_of_what_was_not_declared_is_refused(choice, param):
    assert refused(tools=[F], tool_choice=choice) == ("invalid_value", param)


def test_a_choice_of_a_hosted_tool_is_a_loss():
    assert out(tools=[F], tool_choice={"type": "web_search"})[1] == ["tool_choice.web_search"]


# ── text format ──────────────────────────────────────────────────────────────────────────────────────
def fmt(schema):
    return {"format": {"type": "json_schema", "name": "x", "schema": schema, "strict": True}}


def test_a_schema_is_enforced_where_the_model_can():
    body, lost = out(text=fmt(CLOSED))
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": CLOSED}}
    assert lost == []
    both = out(text=fmt(CLOSED), model=ADAPTIVE, reasoning={"effort": "low"})[0]["output_config"]
    assert set(both) == {"effort", "format"}


@pytest.mark.parametrize(("model", "schema"), [("claude-opus-4-1", CLOSED), (BUDGET, {"type": "object"})])
def test_else_the_model_is_asked_in_words(model, schema):
    body, lost = out(text=fmt(schema), model=model, instructions="A")
    assert "output_config" not in body
    assert json.dumps(schema, separators=(",", ":")) in body["system"][-1]["text"]
    assert lost == ["text.format"]


def test_a_json_object_is_asked_for_in_words():
    body, lost = out(text={"format": {"type": "json_object"}})
    assert "JSON object" in body["system"][0]["text"]
    assert lost == ["text.format"]


def test_plain_text_is_nothing_and_an_unknown_format_a_loss():
    assert out(text={"format": {"type": "text"}})[1] == []
    assert out(text={"format": {"type": "grammar"}})[1] == ["text.format.grammar"]

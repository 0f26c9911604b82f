"""Clients that send `functions`, the older form of tools: the official SDK over a model that has tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from openresponses_server.settings import Settings, UpstreamSettings
from tests.support import sdks
from tests.support.chat_folds import chunks
from tests.support.serving import call, serving
from tests.support.upstream import DONE, Script, ScriptedUpstream, chunk
from tests.support.upstream import call as tool_call

ASKED: Any = [{"role": "user", "content": "Weather in Lima?"}]
FUNCTIONS: Any = [{"name": "look", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}]
TWO_CALLS = [
    tool_call(0, '{"q":', "look", "c0"),
    tool_call(0, '"a"}'),
    tool_call(1, '{"q":"b"}', "look", "c1"),
    chunk("tool_calls"),
    DONE,
]


@pytest.fixture
def client(bridged: str) -> Iterator[sdks.openai.OpenAI]:
    with sdks.openai.OpenAI(base_url=f"{bridged}/v1", api_key="none", max_retries=0) as sdk:
        yield sdk


def test_a_function_is_called_and_answered(demo: str) -> None:
    with sdks.openai.OpenAI(base_url=f"{demo}/v1", api_key="none", max_retries=0) as client:
        (choice,) = client.chat.completions.create(model="demo", messages=ASKED, functions=FUNCTIONS).choices
        assert choice.finish_reason == "stop", "the demo model was not asked for it"
        forced: Any = {"model": "demo", "functions": FUNCTIONS, "function_call": {"name": "look"}}
        (choice,) = client.chat.completions.create(messages=ASKED, **forced).choices
        assert choice.finish_reason == "function_call"
        assert choice.message.tool_calls is None
        assert choice.message.function_call is not None
        assert choice.message.function_call.name == "look"
        brought = {"role": "function", "name": "look", "content": "12 degrees"}
        answered = [*ASKED, choice.message.to_dict(), brought]
        (last,) = client.chat.completions.create(model="demo", messages=answered, functions=FUNCTIONS).choices
    assert last.message.content == "The tool answered: 12 degrees"


def test_a_function_is_called_in_a_stream(client: sdks.openai.OpenAI, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script(TWO_CALLS[:2] + TWO_CALLS[3:])
    stream: Any = client.chat.completions.create(
        model="m", messages=ASKED, functions=FUNCTIONS, function_call="auto", stream=True
    )
    shown = [piece.choices[0] for piece in stream]
    called = [choice.delta.function_call for choice in shown if choice.delta.function_call]
    assert called[0].name == "look"
    assert json.loads("".join(each.arguments for each in called)) == {"q": "a"}
    assert not any(choice.delta.tool_calls for choice in shown)
    assert shown[-1].finish_reason == "function_call"
    sent = upstream.last("m").body
    assert sent["tools"][0]["function"]["name"] == "look"
    assert sent["parallel_tool_calls"] is False, "there is a place for one call"


def test_an_upstream_that_calls_twice_all_the_same(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script(TWO_CALLS)
    body = {"model": "m", "messages": ASKED, "functions": FUNCTIONS}
    message = call(bridged, "POST", "/v1/chat/completions", body).json["choices"][0]["message"]
    assert message["function_call"] == {"name": "look", "arguments": '{"q":"a"}'}


def test_each_of_two_choices_calls_a_function(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script(TWO_CALLS[:2] + TWO_CALLS[3:])
    body = {"model": "m", "messages": ASKED, "functions": FUNCTIONS, "n": 2}
    whole = call(bridged, "POST", "/v1/chat/completions", body).json
    assert [choice["finish_reason"] for choice in whole["choices"]] == ["function_call"] * 2
    streamed = chunks(call(bridged, "POST", "/v1/chat/completions", {**body, "stream": True}).body)
    named = [
        choice["index"]
        for piece in streamed
        for choice in piece["choices"]
        if choice["delta"].get("function_call", {}).get("name") == "look"
    ]
    assert sorted(named) == [0, 1]


@pytest.mark.parametrize("form", ["tools", "functions"])
def test_an_upstream_that_knows_functions_only(upstream: ScriptedUpstream, form: str) -> None:
    """Either kind of client gets its own form over it."""
    fragments = [
        chunk(function_call={"name": "look", "arguments": ""}),
        chunk(function_call={"arguments": "{}"}),
    ]
    upstream.scripts["m"] = Script([*fragments, chunk("function_call"), DONE])
    options = {"tools_field": "functions"}
    offered = {"functions": FUNCTIONS, "tools": [{"type": "function", "function": FUNCTIONS[0]}]}
    with serving(Settings(upstreams=[UpstreamSettings(url=upstream.url, options=options)])) as base:
        body = {"model": "m", "messages": ASKED, form: offered[form]}
        (choice,) = call(base, "POST", "/v1/chat/completions", body).json["choices"]
    assert upstream.last("m").body["functions"] == FUNCTIONS
    assert "tools" not in upstream.last("m").body
    assert choice["finish_reason"] == ("function_call" if form == "functions" else "tool_calls")
    message = choice["message"]
    called = message["function_call"] if form == "functions" else message["tool_calls"][0]["function"]
    assert called == {"name": "look", "arguments": "{}"}


def test_clients_of_tools_get_tool_calls_as_before(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script(TWO_CALLS)
    tools = [{"type": "function", "function": FUNCTIONS[0]}]
    body = {"model": "m", "messages": ASKED, "tools": tools}
    (choice,) = call(bridged, "POST", "/v1/chat/completions", body).json["choices"]
    assert [each["id"] for each in choice["message"]["tool_calls"]] == ["c0", "c1"]
    assert choice["finish_reason"] == "tool_calls"

"""What clients of bridges meet, each a row by its number, seen from outside the server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openresponses_bridge.dialects.chat_completions import from_chat
from openresponses_bridge.protocol.codec import decode_request
from openresponses_bridge.protocol.tools import CustomTool
from openresponses_server.settings import (
    Capabilities,
    Settings,
    SettingsError,
    UpstreamSettings,
    WireKeys,
    load_settings,
)
from openresponses_server.settings.files import hashed
from tests.support.in_process import InProcess
from tests.support.serving import Reply, violations
from tests.support.upstream import DONE, Script, ScriptedUpstream, chunk

THOUGHT = "Which one?"
THINKING, THINKING_JSON = (
    Script([chunk(reasoning_content=THOUGHT), chunk(content=said), chunk("stop"), DONE])
    for said in ("Hello.", "{}")
)
KEYS = ["for-openai", "for-openresponses", "for-auto", "any"]
WIRE_KEYS = WireKeys(
    openai=[hashed("for-openai")], openresponses=[hashed("for-openresponses")], auto=[hashed("for-auto")]
)
DELTAS = {"openai": "response.reasoning_text.delta", "openresponses": "response.reasoning.delta"}


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream() as scripted:
        scripted.answer = lambda received: THINKING_JSON if "response_format" in received.body else THINKING
        yield scripted


@pytest.fixture(scope="module", params=["auto", "openai", "openresponses"])
def setting(request: pytest.FixtureRequest) -> str:
    setting: str = request.param
    return setting


@pytest.fixture(scope="module")
def keyed(upstream: ScriptedUpstream, setting: Any) -> Iterator[InProcess]:
    settings = UpstreamSettings(url=upstream.url, options={"reasoning_field": "reasoning_content"})
    keys = [hashed(key) for key in KEYS]
    running = InProcess(Settings(upstreams=[settings], api_keys=keys, wire=setting, wire_keys=WIRE_KEYS))
    yield running
    running.close()


def headers_of(key: str = "any", **fields: str | None) -> list[tuple[bytes, bytes]]:
    headers = {"authorization": f"Bearer {key}", **fields}
    return [
        (name.replace("_", "-").encode(), value.encode())
        for name, value in headers.items()
        if value is not None
    ]


# key, header, user agent → wire; None: that of the setting
WIRES: dict[str, tuple[str, str | None, str, str | None]] = {
    "P38, a stranger": ("any", None, "reader/1", None),
    "P38, a stranger's key": ("for-openai", None, "reader/1", "openai"),
    "P38, the key of a client that would be guessed": ("for-openresponses", None, "Zed/1.0", "openresponses"),
    "P38, a key that is not bound to the setting": ("for-auto", None, "Zed/1.0", "openai"),
    "P38, the header before the key": ("for-openresponses", "openai", "reader/1", "openai"),
    "P38, the header of a known client": ("for-openai", "openresponses", "codex/1", "openresponses"),
    "P38, the header that gives the choice back": ("for-openai", "auto", "reader/1", "openresponses"),
}


def wired(name: str, setting: str) -> tuple[list[tuple[bytes, bytes]], str]:
    key, header, agent, wire = WIRES[name]
    expected = wire or ("openresponses" if setting == "auto" else setting)
    return headers_of(key, openresponses_wire=header, user_agent=agent), expected


@pytest.mark.parametrize("name", WIRES)
def test_p38_the_wire_of_streams_and_of_what_is_read_again(keyed: InProcess, setting: str, name: str) -> None:
    headers, wire = wired(name, setting)
    response = keyed.call("POST", "/v1/responses", {"model": "m", "input": "q", "stream": True}, headers)
    assert violations(response) == []
    assert (DELTAS[wire] in response.types, len({*DELTAS.values()} & {*response.types})) == (True, 1)
    # read by the same key under any name: the response keeps the wire that it was made on
    reader = [each for each in headers if each[0] == b"authorization"]
    path = f"/v1/responses/{response.final['id']}"
    again = keyed.call("GET", f"{path}?stream=true", headers=reader)
    assert again.body == response.body
    resumed = keyed.call("GET", f"{path}?stream=true&starting_after=2", headers=reader)
    assert resumed.events == response.events[3:]
    assert keyed.call("GET", path, headers=reader).json == response.final


@pytest.mark.parametrize("name", WIRES)
def test_p38_the_wire_of_turns_on_a_websocket(keyed: InProcess, setting: str, name: str) -> None:
    headers, wire = wired(name, setting)
    custom = {"type": "custom", "name": "patch"}
    prewarm = {"type": "response.create", "model": "m", "generate": False, "tools": [custom]}
    request = {"type": "response.create", "model": "m", "input": "q"}
    warm, turn = keyed.turns([json.dumps(prewarm).encode(), json.dumps(request).encode()], headers)
    assert DELTAS[wire] in [event["type"] for event in turn]
    shown = warm[-1]["response"]["tools"][0]["type"]
    # what a request carries is a part of the guess only
    key, header, _, _ = WIRES[name]
    guessed = header == "auto" or (
        header is None and (key == "for-auto" or (key == "any" and setting == "auto"))
    )
    assert (shown == "custom") is (wire == "openai" or guessed)


def test_p38_the_wire_of_a_background_response(keyed: InProcess) -> None:
    headers = headers_of(openresponses_wire="openai")
    body = {"model": "m", "input": "q", "background": True, "stream": True}
    response = keyed.call("POST", "/v1/responses", body, headers)
    assert DELTAS["openai"] in response.types


def test_p38_an_unknown_wire_is_refused(keyed: InProcess) -> None:
    headers = headers_of(openresponses_wire="chat")
    for body in ({"input": "q"}, {"input": "q", "stream": True}):
        refused = keyed.call("POST", "/v1/responses", {"model": "m", **body}, headers)
        assert (refused.status, refused.error["param"]) == (400, "openresponses-wire")


def test_p38_keys_are_kept_as_hashes_and_are_in_one_list(tmp_path: Path) -> None:
    file = tmp_path / "bridge.toml"
    file.write_text('wire = "openai"\n[wire_keys]\nauto = ["secret"]\nopenresponses = ["other"]\n')
    settings = load_settings(file)
    assert settings.wire == "openai"
    assert settings.wire_keys == WireKeys(auto=[hashed("secret")], openresponses=[hashed("other")])
    file.write_text('[wire_keys]\nauto = ["a"]\nopenresponses = ["b", "a"]\n')
    with pytest.raises(SettingsError, match=r"toml:2: wire_keys\.auto\[0\]: the key is in another list too"):
        load_settings(file)


AI_SDK = "ai-sdk/openai/3.0.141 ai-sdk/provider-utils/4.0.66 runtime/node.js/v20.20.2"
# user agent, header, whether it is streamed → raw reasoning and summary that are shown
REASONING: dict[str, tuple[str, str | None, bool, bool, bool]] = {
    "P38, the AI SDK's provider openai": (AI_SDK, None, True, True, True),
    "P38, its header still counts": (AI_SDK, "raw", True, True, False),
    "P38, a whole answer that does not name the provider": (
        "ai/6.0.326",
        None,
        False,
        True,
        True,
    ),
    "P38, a stream under the SDK's bare name": ("ai/6.0.326", None, True, True, False),
    "P38, its provider for Open Responses": ("ai-sdk/open-responses/1.0.39", None, True, True, False),
}


@pytest.mark.parametrize("name", REASONING)
def test_p38_the_ai_sdk_shows_reasoning_without_a_header(keyed: InProcess, name: str) -> None:
    agent, header, streamed, raw, summary = REASONING[name]
    headers = headers_of(user_agent=agent, openresponses_reasoning_as=header)
    body = {"model": "m", "input": "q", "stream": streamed}
    reply: Reply = keyed.call("POST", "/v1/responses", body, headers)
    item = (reply.final if streamed else reply.json)["output"][0]
    assert [part["text"] for part in item.get("content") or ()] == [THOUGHT] * raw
    assert [part["text"] for part in item["summary"]] == [THOUGHT] * summary


PARAMETERS = {"type": "object", "properties": {"a": {"type": "string"}}}
FUNCTION = {"name": "ls", "description": "Lists.", "parameters": PARAMETERS}
FLAT = {"type": "function", **FUNCTION}
NESTED = {"type": "function", "function": FUNCTION}
OFFERED = {"type": "function", "function": {**FUNCTION, "strict": False}}
GRAMMAR = {"syntax": "lark", "definition": "start: /a+/"}
CALLED = {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "a"}
CURSOR: dict[str, Any] = {
    "input": [{"role": "system", "content": "be"}, {"role": "user", "content": "q"}, CALLED, RESULT],
    "tools": [FLAT | {"strict": False}],
    "reasoning": {"effort": "high", "summary": "auto"},
    "include": ["reasoning.encrypted_content"],
    "store": False,
}


@pytest.fixture(scope="module")
def app(upstream: ScriptedUpstream) -> Iterator[InProcess]:
    running = InProcess(Settings(upstreams=[UpstreamSettings(url=upstream.url)]))
    yield running
    running.close()


# path, fields of the body → fields of the body that goes out
READ: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "P37, a body of Responses": (
        "/v1/chat/completions",
        {**CURSOR, "stream_options": {"include_usage": True}},
        {
            "messages": [
                {"role": "system", "content": "be"},
                {"role": "user", "content": "q"},
                {
                    "role": "assistant",
                    "tool_calls": [
                        {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
                    ],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "a"},
            ],
            "tools": [OFFERED],
            "reasoning_effort": "high",
        },
    ),
    "P37, a body of Responses with fields of Chat": (
        "/v1/chat/completions",
        {
            "input": "q",
            "max_tokens": 99,
            "reasoning_effort": "low",
            "response_format": {"type": "json_object"},
            "stop": ["x"],
            "tools": [NESTED],
            "tool_choice": "none",
        },
        {
            "messages": [{"role": "user", "content": "q"}],
            "max_completion_tokens": 99,
            "reasoning_effort": "low",
            "response_format": {"type": "json_object"},
            "stop": ["x"],
            "tools": [OFFERED],
            "tool_choice": "none",
        },
    ),
    "P37, flat tools beside messages": (
        "/v1/chat/completions",
        {
            "messages": [{"role": "user", "content": "q"}],
            "tools": [FLAT, NESTED | {"function": FUNCTION | {"name": "cat"}}],
        },
        {"tools": [OFFERED, {"type": "function", "function": OFFERED["function"] | {"name": "cat"}}]},
    ),
    "P37, Chat's tools at Responses": (
        "/v1/responses",
        {
            "input": [{"role": "user", "content": "q"}],
            "tools": [NESTED, FLAT | {"name": "cat"}],
        },
        {
            "messages": [{"role": "user", "content": "q"}],
            "tools": [OFFERED, {"type": "function", "function": FUNCTION | {"name": "cat"}}],
        },
    ),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("name", READ)
def test_p37_hybrid_bodies_are_read(
    app: InProcess, upstream: ScriptedUpstream, name: str, streamed: bool
) -> None:
    path, fields, expected = READ[name]
    reply = app.call("POST", path, {"model": name, "stream": streamed, **fields})
    assert reply.status == 200, reply.body
    sent = upstream.last(name).body
    assert {field: sent.get(field) for field in expected} == expected
    assert (b'"chat.completion' in reply.body) is (path == "/v1/chat/completions")
    if streamed and "stream_options" in fields:
        assert b'"usage":{' in reply.body


def test_p37_a_choice_of_a_tool_in_either_form() -> None:
    for kind in ("function", "custom"):
        flat, nested = {"type": kind, "name": "p"}, {"type": kind, kind: {"name": "p"}}
        read = [decode_request(json.dumps({"tool_choice": each})).tool_choice for each in (flat, nested)]
        bodies = [{"model": "m", "messages": MESSAGES, "tool_choice": each} for each in (flat, nested)]
        assert [*read, *(from_chat(each)[0].tool_choice for each in bodies)] == [read[0]] * 4
        assert read[0] is not None


def test_p37_custom_tools_in_either_form() -> None:
    grammar = {"type": "grammar", **GRAMMAR}
    flat = {"type": "custom", "name": "p", "format": grammar}
    nested = {"type": "custom", "custom": {"name": "p", "format": {"type": "grammar", "grammar": GRAMMAR}}}
    for tool in (flat, nested):
        (read,) = decode_request(json.dumps({"tools": [tool]})).tools or ()
        assert read == CustomTool("p", format=grammar)
        body = {"model": "m", "messages": [{"role": "user", "content": "q"}], "tools": [tool]}
        assert (from_chat(body)[0].tools or ())[0] == read


MESSAGES = [{"role": "user", "content": "q"}]
# path, fields → the place that the error names
MISREAD: dict[str, tuple[str, dict[str, Any], str]] = {
    "P37, both": ("/v1/chat/completions", {"input": "q", "messages": MESSAGES}, "input"),
    "P37, neither": ("/v1/chat/completions", {}, "messages"),
    "P37, in the background": ("/v1/chat/completions", {"input": "q", "background": True}, "background"),
    "P37, a wrong item": (
        "/v1/chat/completions",
        {"input": [{"role": "user", "content": 1}]},
        "input[0].content",
    ),
    "P37, an unpaired call": ("/v1/chat/completions", {"input": [CALLED]}, "input[0]"),
    "P37, a flat tool": (
        "/v1/chat/completions",
        {"messages": MESSAGES, "tools": [{"type": "function", "name": "a", "parameters": 1}]},
        "tools[0].parameters",
    ),
    "P37, a tool of neither form": (
        "/v1/chat/completions",
        {"messages": MESSAGES, "tools": [{"type": "function"}]},
        "tools[0].function",
    ),
    "P37, Chat's tool at Responses": (
        "/v1/responses",
        {"input": "q", "tools": [FLAT, {"type": "function", "function": {"name": "a", "parameters": 1}}]},
        "tools[1].function.parameters",
    ),
    "P37, Chat's tool without a name at Responses": (
        "/v1/responses",
        {"input": "q", "tools": [{"type": "function", "function": {}}]},
        "tools[0].function.name",
    ),
    "P37, a tool at Responses": (
        "/v1/responses",
        {"input": "q", "tools": [{"type": "function"}]},
        "tools[0].name",
    ),
}


@pytest.mark.parametrize("name", MISREAD)
def test_p37_errors_name_the_place_as_it_was_sent(app: InProcess, name: str) -> None:
    path, fields, place = MISREAD[name]
    refused = app.call("POST", path, {"model": "m", **fields})
    assert (refused.status, refused.error["param"]) == (400, place), refused.body
    assert place in refused.error["message"] or name == "P37, an unpaired call"


CLAUDE_CODE = {"user_agent": "claude-code/2.1.197", "anthropic_version": "2023-06-01"}
SPEAKING = CLAUDE_CODE | {"user_agent": "claude-cli/2.1.197 (external, cli)"}
ANTHROPICS = CLAUDE_CODE | {"user_agent": "Anthropic/Python 0.94.0"}
SERVED = {
    "qwen3": Capabilities(context_window=40_000),
    "glm-big": Capabilities(context_window=1_048_576),
    "claude-sonnet-4-5": Capabilities(context_window=200_000),
    "claude-big": Capabilities(context_window=1_000_000),
    "claude-code/named": Capabilities(context_window=8_000),
    "guessed": Capabilities(),
}
SHOWN = [
    "claude-code/qwen3",
    "claude-code/glm-big[1m]",
    "claude-sonnet-4-5",
    "claude-big[1m]",
    "claude-code/named",
    "claude-code/guessed",
]


@pytest.fixture(scope="module")
def gateway(upstream: ScriptedUpstream) -> Iterator[InProcess]:
    settings = UpstreamSettings(url=upstream.url, models=[*SERVED])
    running = InProcess(Settings(upstreams=[settings], models=SERVED))
    yield running
    running.close()


def test_p41_claude_code_is_shown_names_that_it_lists(gateway: InProcess) -> None:
    page = gateway.call("GET", "/v1/models?limit=1000", headers=headers_of(**CLAUDE_CODE)).json
    assert [each["id"] for each in page["data"]] == SHOWN
    assert [each["display_name"] for each in page["data"]] == [*SERVED]
    assert (page["has_more"], page["first_id"], page["last_id"]) == (False, SHOWN[0], SHOWN[-1])
    for fields in (ANTHROPICS, {"user_agent": "claude-ish/1", "anthropic_version": "1"}):
        plain = gateway.call("GET", "/v1/models?limit=1000", headers=headers_of(**fields)).json
        assert [each["id"] for each in plain["data"]] == [*SERVED]
    listed = gateway.call("GET", "/v1/models?limit=1000", headers=headers_of(user_agent="codex/1")).json
    assert [each["id"] for each in listed["data"]] == [*SERVED]


@pytest.mark.parametrize(
    ("query", "ids", "more"),
    [
        ("limit=2", SHOWN[:2], True),
        ("limit=2&after_id=claude-code/glm-big[1m]", SHOWN[2:4], True),
        ("limit=4&after_id=claude-code/glm-big[1m]", SHOWN[2:], False),
        ("limit=1&before_id=claude-big[1m]", SHOWN[2:3], True),
        ("before_id=claude-code/glm-big[1m]", SHOWN[:1], False),
    ],
)
def test_p41_pages_are_of_the_names_that_are_shown(
    gateway: InProcess, query: str, ids: list[str], more: bool
) -> None:
    page = gateway.call("GET", f"/v1/models?{query}", headers=headers_of(**CLAUDE_CODE)).json
    assert ([each["id"] for each in page["data"]], page["has_more"]) == (ids, more)
    assert (page["first_id"], page["last_id"]) == (ids[0], ids[-1])


# the name that is asked for → the model that the upstream is asked for
MEANT = {
    "claude-code/qwen3": "qwen3",
    "claude-code/glm-big": "glm-big",
    "claude-code/glm-big[1m]": "glm-big",
    "glm-big[1M][1m]": "glm-big",
    "claude-big[1m]": "claude-big",
    "claude-sonnet-4-5": "claude-sonnet-4-5",
    "claude-code/named": "claude-code/named",
    "qwen3": "qwen3",
}


@pytest.mark.parametrize("name", MEANT)
def test_p41_a_name_that_was_shown_is_the_model(
    gateway: InProcess, upstream: ScriptedUpstream, name: str
) -> None:
    body = {"model": name, "max_tokens": 99, "messages": MESSAGES}
    headers = headers_of(**SPEAKING)
    reply = gateway.call("POST", "/v1/messages?beta=true", body, headers)
    assert reply.status == 200, reply.body
    assert upstream.received[-1].body["model"] == MEANT[name]
    assert gateway.call("POST", "/v1/messages/count_tokens", body, headers).status == 200
    shown = gateway.call("GET", f"/v1/models/{name.replace('[', '%5B').replace(']', '%5D')}", headers=headers)
    assert (shown.json["id"], shown.json["display_name"]) == (name, MEANT[name])
    other = gateway.call("POST", "/v1/messages", body, headers_of(**ANTHROPICS))
    assert other.status == (200 if name in SERVED else 404)

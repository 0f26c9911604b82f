"""What the server answers over HTTP and WebSocket, as conversations to be read."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from openresponses_bridge.dialects.bedrock_converse.event_stream import MEDIA_TYPE, FramesOfMessages
from openresponses_server.settings import Capabilities, Settings, UpstreamSettings
from tests.support.normalised import Normalised
from tests.support.serving import Reply, call, serving, violations
from tests.support.snapshots import snapshots
from tests.support.sockets import LAST, Socket, opened_socket
from tests.support.sockets import violations as violations_of

Step = tuple[Any, ...]  # method, path, body; `{id}` is the id of the newest response before it

# headers of every answer, which say nothing about it
SILENT = frozenset(
    {"connection", "content-length", "date", "openai-processing-ms", "server", "transfer-encoding"}
)
USER = [{"role": "user", "content": "Hello"}]
PART = {"type": "LanguageModelTextPart", "value": "Hello"}
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": WEATHER,
}
LEGACY = {"name": "get_weather", "parameters": WEATHER}
ASKED = [{"role": "user", "content": "Weather in Lima?"}]
CHAT_TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}


def responses(**fields: Any) -> Step:
    return ("POST", "/v1/responses", {"model": "demo", "input": "Hello", **fields})


def chat(**fields: Any) -> Step:
    return ("POST", "/v1/chat/completions", {"model": "demo", "messages": USER, **fields})


def messages(**fields: Any) -> Step:
    return ("POST", "/v1/messages", {"model": "demo", "max_tokens": 64, "messages": USER, **fields})


def gemini(method: str = "generateContent", model: str = "demo", **fields: Any) -> Step:
    body = {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}], **fields}
    query = "?alt=sse" if method.startswith("stream") else ""
    return ("POST", f"/v1beta/models/{model}:{method}{query}", body)


def interactions(**fields: Any) -> Step:
    return ("POST", "/v1beta/interactions", {"model": "demo", "input": "Hello", **fields})


def converse(method: str = "converse", model: str = "demo", **fields: Any) -> Step:
    body = {"messages": [{"role": "user", "content": [{"text": "Hello"}]}], **fields}
    return ("POST", f"/model/{model}/{method}", body)


def invoke(method: str = "invoke", model: str = "demo", **fields: Any) -> Step:
    body = {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 64, "messages": USER, **fields}
    return ("POST", f"/model/{model}/{method}", body)


STREAMED_GEMINI = "streamGenerateContent"
STREAMED_CONVERSE = "converse-stream"
STREAMED_INVOKE = "invoke-with-response-stream"
GEMINI_TOOLS = {
    "tools": [{"functionDeclarations": [{"name": "get_weather", "parametersJsonSchema": WEATHER}]}],
    "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
}
CONVERSE_TOOLS = {
    "toolConfig": {
        "tools": [{"toolSpec": {"name": "get_weather", "inputSchema": {"json": WEATHER}}}],
        "toolChoice": {"any": {}},
    }
}
COUNTED = {"invokeModel": {"body": base64.b64encode(json.dumps(invoke()[2]).encode()).decode()}}
SAID = {"role": 1, "content": [PART]}


def vscode(**fields: Any) -> Step:
    return (
        "POST",
        "/vscode/v1/chat",
        {"model": "demo", "messages": [SAID], **fields},
    )


ANSWERS: dict[str, list[Step]] = {
    "responses/whole": [responses(instructions="Be brief.", metadata={"team": "a"})],
    "responses/streamed": [responses(stream=True)],
    "responses/streamed_tool": [responses(stream=True, tools=[TOOL], tool_choice="required")],
    "responses/streamed_reasoning": [responses(model="demo-reasoning", stream=True)],
    "responses/refusal": [responses(model="demo-refusal")],
    "responses/incomplete": [responses(model="demo-incomplete")],
    "responses/filtered": [responses(model="demo-filtered")],
    "responses/streamed_failure": [responses(model="demo-failure", stream=True)],
    "responses/streamed_cut": [responses(model="demo-cut", stream=True)],
    "responses/json_schema": [
        responses(text={"format": {"type": "json_schema", "name": "place", "schema": WEATHER}})
    ],
    "responses/custom_tool": [
        responses(stream=True, tools=[{"type": "custom", "name": "sql"}], tool_choice="required")
    ],
    "responses/tool_loop": [
        responses(tools=[TOOL], tool_choice="required"),
        responses(
            previous_response_id="{id}",
            input=[{"type": "function_call_output", "call_id": "call_demo_1_0", "output": "18 °C"}],
        ),
    ],
    "responses/stored": [
        responses(),
        ("GET", "/v1/responses/{id}", None),
        ("GET", "/v1/responses/{id}/input_items", None),
        ("GET", "/v1/responses/{id}?stream=true&starting_after=5", None),
        ("DELETE", "/v1/responses/{id}", None),
        ("GET", "/v1/responses/{id}", None),
    ],
    "responses/withheld": [
        responses(background=True, stream=True, **{"openresponses-bridge:restart": "always"})
    ],
    "responses/compact": [("POST", "/v1/responses/compact", {"model": "demo", "input": "Hello"})],
    "responses/input_tokens": [("POST", "/v1/responses/input_tokens", {"model": "demo", "input": "Hello"})],
    "chat/whole": [chat()],
    "chat/streamed": [chat(stream=True, stream_options={"include_usage": True})],
    "chat/streamed_tool": [chat(stream=True, tools=[CHAT_TOOL], tool_choice="required")],
    "chat/streamed_failure": [chat(model="demo-failure", stream=True)],
    "chat/streamed_cut": [chat(model="demo-cut", stream=True)],
    "chat/choices": [chat(n=2)],
    "chat/choices_streamed": [chat(n=2, stream=True, stream_options={"include_usage": True})],
    "chat/choices_failed": [chat(n=2, model="demo-failure", stream=True)],
    "chat/function": [chat(functions=[LEGACY], function_call={"name": "get_weather"})],
    "chat/function_streamed": [chat(functions=[LEGACY], function_call="auto", messages=ASKED, stream=True)],
    "chat/losses": [chat(seed=7, top_k=5, messages=[{"role": "user", "content": "Hello", "odd": 1}])],
    "messages/whole": [messages()],
    "messages/streamed": [messages(stream=True)],
    "messages/streamed_tool": [
        messages(
            stream=True,
            tools=[{"name": "get_weather", "input_schema": WEATHER}],
            tool_choice={"type": "any"},
        )
    ],
    "messages/stop_sequence": [messages(stop_sequences=["Hello"])],
    "messages/stop_sequence_streamed": [messages(stop_sequences=["Hello"], stream=True)],
    "messages/streamed_failure": [messages(model="demo-failure", stream=True)],
    "messages/streamed_cut": [messages(model="demo-cut", stream=True)],
    "gemini/whole": [gemini()],
    "gemini/streamed": [gemini(STREAMED_GEMINI)],
    "gemini/streamed_tool": [gemini(STREAMED_GEMINI, **GEMINI_TOOLS)],
    "gemini/streamed_failure": [gemini(STREAMED_GEMINI, "demo-failure")],
    "gemini/streamed_cut": [gemini(STREAMED_GEMINI, "demo-cut")],
    "interactions/whole": [interactions()],
    "interactions/streamed": [interactions(stream=True)],
    "interactions/streamed_tool": [
        interactions(stream=True, tools=[{**TOOL}], generation_config={"tool_choice": "any"})
    ],
    "interactions/streamed_failure": [interactions(model="demo-failure", stream=True)],
    "interactions/streamed_cut": [interactions(model="demo-cut", stream=True)],
    "converse/whole": [converse()],
    "converse/streamed": [converse(STREAMED_CONVERSE)],
    "converse/streamed_tool": [converse(STREAMED_CONVERSE, **CONVERSE_TOOLS)],
    "converse/streamed_failure": [converse(STREAMED_CONVERSE, "demo-failure")],
    "converse/streamed_cut": [converse(STREAMED_CONVERSE, "demo-cut")],
    "converse/count_tokens": [("POST", "/model/demo/count-tokens", {"input": {"converse": converse()[2]}})],
    "invoke/whole": [invoke()],
    "invoke/streamed": [invoke(STREAMED_INVOKE)],
    "invoke/streamed_tool": [
        invoke(
            STREAMED_INVOKE,
            tools=[{"name": "get_weather", "input_schema": WEATHER}],
            tool_choice={"type": "any"},
        )
    ],
    "invoke/streamed_failure": [invoke(STREAMED_INVOKE, "demo-failure")],
    "invoke/streamed_cut": [invoke(STREAMED_INVOKE, "demo-cut")],
    "invoke/count_tokens": [("POST", "/model/demo/count-tokens", {"input": COUNTED})],
    "vscode/chat": [vscode()],
    "vscode/chat_tool": [vscode(tools=[{"name": "get_weather", "inputSchema": WEATHER}], toolMode=2)],
    "vscode/chat_failure": [vscode(model="demo-failure")],
    "vscode/chat_failure_line": [
        ("POST", "/vscode/v1/chat?errors=line", {"model": "demo-failure", "messages": [SAID]})
    ],
    "vscode/chat_not_stored": [vscode(store=False)],
    "vscode/tokens": [("POST", "/vscode/v1/tokens", {"model": "demo", "message": SAID})],
    "models": [("GET", "/v1/models", None), ("GET", "/v1/models/demo", None)],
}

_FORM: dict[str, Any] = {"responses": responses, "chat": chat, "messages": messages, "vscode": vscode}
_PATHS = {name: form()[1] for name, form in _FORM.items()}
# what is wrong → the request, on each surface
WRONG: dict[str, Any] = {
    "no_json": lambda name: ("POST", _PATHS[name], b"{"),
    "no_object": lambda name: ("POST", _PATHS[name], b"[]"),
    "no_model": lambda name: ("POST", _PATHS[name], {}),
    "unknown_model": lambda name: _FORM[name](model="nobody"),
    "upstream_overloaded": lambda name: _FORM[name](model="demo-overloaded"),
    "upstream_overloaded_streamed": lambda name: _FORM[name](model="demo-overloaded", stream=True),
    "upstream_fails": lambda name: _FORM[name](model="demo-failure"),
    "upstream_cut": lambda name: _FORM[name](model="demo-cut"),
    "wrong_method": lambda name: ("PUT", _PATHS[name], {}),
    "too_large": lambda name: ("POST", _PATHS[name], b'{"input":"' + b"x" * 60_000 + b'"}'),
}
ERRORS = {f"{surface}/{what}": [make(surface)] for surface in _FORM for what, make in WRONG.items()}
MORE_ERRORS: dict[str, list[Step]] = {
    "responses/wrong_type": [responses(temperature="hot")],
    "responses/out_of_range": [responses(max_output_tokens=1)],
    "responses/unpaired_output": [
        responses(input=[{"type": "function_call_output", "call_id": "call_x", "output": "x"}])
    ],
    "responses/unknown_previous": [responses(previous_response_id="resp_none")],
    "responses/unknown_id": [
        ("GET", "/v1/responses/resp_none", None),
        ("DELETE", "/v1/responses/resp_none", None),
        ("POST", "/v1/responses/resp_none/cancel", None),
        ("GET", "/v1/responses/resp_none/input_items", None),
    ],
    "responses/not_a_websocket": [("GET", "/v1/responses", None)],
    "responses/wrong_starting_after": [
        responses(),
        ("GET", "/v1/responses/{id}?stream=true&starting_after=x", None),
    ],
    "chat/wrong_type": [chat(temperature="hot")],
    "chat/too_many_choices": [chat(n=9)],
    "chat/no_messages": [chat(messages=[])],
    "messages/wrong_type": [messages(temperature="hot")],
    "messages/no_messages": [messages(messages=[])],
    "gemini/unknown_model": [gemini(model="nobody")],
    "gemini/wrong_type": [gemini(contents=5)],
    "gemini/upstream_overloaded": [gemini(model="demo-overloaded")],
    "interactions/unknown_model": [interactions(model="nobody")],
    "interactions/wrong_type": [interactions(input=5)],
    "interactions/upstream_overloaded": [interactions(model="demo-overloaded")],
    "converse/unknown_model": [converse(model="nobody")],
    "converse/wrong_type": [converse(messages=5)],
    "converse/upstream_overloaded": [converse(model="demo-overloaded")],
    "converse/upstream_overloaded_streamed": [converse(STREAMED_CONVERSE, "demo-overloaded")],
    "invoke/unknown_model": [invoke(model="nobody")],
    "invoke/wrong_type": [invoke(messages=5)],
    "invoke/another_format": [("POST", "/model/demo/invoke", {"inputText": "Hello"})],
    "invoke/upstream_overloaded": [invoke(model="demo-overloaded")],
    "invoke/upstream_overloaded_streamed": [invoke(STREAMED_INVOKE, "demo-overloaded")],
    "unknown_path": [("GET", "/v1/nothing", None)],
    "unknown_model": [("GET", "/v1/models/nobody", None)],
}

# a status, a response that failed, or the line of text that VS Code shows
FAILS = ("\n< 4", "\n< 5", '"status": "failed"', "**Error:**")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server over the demo model that takes bodies of 50 kB."""
    with serving(Settings(max_body_bytes=50_000)) as base:
        yield base


@snapshots("{case}.http", case=ANSWERS)
def test_answers(snapshot: SnapshotAssertion, small: str, case: str) -> None:
    assert conversation(small, ANSWERS[case]) == snapshot


@snapshots("models_for_codex.http")
def test_models_for_codex(snapshot: SnapshotAssertion, snapshot_file: str) -> None:
    """A server with one model: its instructions are long."""
    known = Capabilities(context_window=32_768, max_output_tokens=4_096, reasoning=True)
    nowhere = UpstreamSettings(url="http://127.0.0.1:9", models=["mine"])
    with serving(Settings(store="memory://", upstreams=[nowhere], models={"mine": known})) as base:
        assert conversation(base, [("GET", "/v1/models?client_version=0.169.0", None)]) == snapshot


@snapshots("health.http")
def test_health(snapshot: SnapshotAssertion, snapshot_file: str) -> None:
    """A server of its own: readiness counts what runs."""
    with serving(Settings(store="memory://")) as base:
        reported = conversation(base, [("GET", "/healthz", None), ("GET", "/readyz", None)])
    assert reported == snapshot


@snapshots("errors/{case}.http", case=ERRORS | MORE_ERRORS)
def test_errors(snapshot: SnapshotAssertion, small: str, case: str) -> None:
    reported = conversation(small, (ERRORS | MORE_ERRORS)[case])
    assert any(sign in reported for sign in FAILS), "an error says that it is one"
    assert reported == snapshot


@snapshots("errors/keys.http")
def test_errors_without_a_key(
    snapshot: SnapshotAssertion, snapshot_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLIENT_KEYS", "a-key")
    with serving(Settings(api_keys=["a-key"], store="memory://")) as base:
        assert conversation(base, [form() for form in _FORM.values()]) == snapshot


def conversation(base: str, steps: list[Step]) -> str:
    """Requests and answers: `>` leads what was sent, `<` the status and headers of what came back."""
    normalised, lines = Normalised(), []
    response_id = ""
    for method, path, body in steps:
        target = path.replace("{id}", response_id)
        sent = json.loads(json.dumps(body).replace("{id}", response_id)) if isinstance(body, dict) else body
        reply = call(base, method, target, sent)
        lines.append(normalised(f"> {method} {target}"))
        if body is not None:
            lines.append(normalised(shown_request(sent)))
        lines += [f"\n< {reply.status}"]
        lines += [normalised(f"< {name}: {value}") for name, value in headers(reply)]
        lines += ["", normalised(shown(reply)), ""]
        response_id = id_of(reply) or response_id
    return "\n".join(lines)


def shown_request(body: Any) -> str:
    if isinstance(body, bytes):
        return body.decode() if len(body) < 100 else f"({len(body)} bytes)"
    return json.dumps(body, ensure_ascii=False, indent=2)


def headers(reply: Reply) -> list[tuple[str, str]]:
    return sorted((name, value) for name, value in reply.headers.items() if name not in SILENT)


def shown(reply: Reply) -> str:
    """The body; JSON indented, a stream as it is. A Responses stream has to be valid."""
    if is_json(reply):
        return json.dumps(reply.json, ensure_ascii=False, indent=2)
    if reply.headers.get("content-type") == MEDIA_TYPE:  # binary: its messages as server-sent events
        return FramesOfMessages().feed(reply.body).decode().rstrip("\n")
    text = reply.body.decode()
    if text.startswith("event: response.created"):
        assert violations(reply) == []
    return text.rstrip("\n")


def is_json(reply: Reply) -> bool:
    return reply.headers.get("content-type", "").partition(";")[0] == "application/json"


def id_of(reply: Reply) -> str:
    body = reply.json if is_json(reply) else {}
    return str(body["id"]) if body.get("object") == "response" else ""


SOCKET: dict[str, list[Any]] = {
    "turns": [
        {"input": "Hello"},
        {"input": "And again", "previous_response_id": "{id}"},
    ],
    "not_generated": [{"input": "Hello", "generate": False}],
    "errors": [
        "not json",
        "[]",
        '{"type":"response.dance"}',
        {"input": 5},
        {"input": "Hello", "model": "nobody"},
        {"input": "Hello", "previous_response_id": "resp_none"},
    ],
    "failure": [{"input": "Hello", "model": "demo-failure"}],
    "lanes": [
        {"input": "Hello", "stream_id": "a"},
        '{"type":"response.steer","previous_response_id":"resp_1","input":"Stop."}',
        '{"type":"response.steer","input":"Stop."}',
        {"input": 5, "stream_id": "a"},
        {"input": "Hello", "stream_id": ""},
    ],
}
ALONE = {"error", "response.steer.failed"}  # messages that are not a turn


@snapshots("websocket/{case}.txt", case=SOCKET)
def test_websocket(snapshot: SnapshotAssertion, small: str, case: str) -> None:
    """Messages in both directions; each turn has to be valid."""
    normalised, lines = Normalised(), []
    response_id = ""
    with opened_socket(small) as socket:
        for message in SOCKET[case]:
            sent = message if isinstance(message, str) else message_of(message, response_id)
            socket.connection.send(sent)
            turn = list(turn_of(socket))
            events = [json.loads(each) for each in turn]
            assert events[-1]["type"] in ALONE or violations_of(events) == []
            lines += [f"> {sent}", *(f"< {each}" for each in turn)]
            response_id = events[-1].get("response", {}).get("id", response_id)
    assert normalised("\n".join(lines) + "\n") == snapshot


def turn_of(socket: Socket) -> Iterator[str]:
    """The messages that come until the turn ends, as they came."""
    last = ""
    while last not in LAST | ALONE:
        message = socket.connection.recv()
        yield message
        last = json.loads(message)["type"]


def message_of(fields: dict[str, Any], response_id: str) -> str:
    message = {"type": "response.create", "model": "demo", **fields}
    return json.dumps(message, ensure_ascii=False).replace("{id}", response_id)


@snapshots("openapi.json")
def test_openapi(snapshot: SnapshotAssertion, small: str, snapshot_file: str) -> None:
    reply = call(small, "GET", "/openapi.json")
    assert reply.status == 200
    assert reply.json == snapshot

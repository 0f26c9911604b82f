"""`POST /v1/responses`: streamed and whole, over the demo model and over a Chat Completions upstream."""

import json
from typing import Any

import pytest

from tests.support.schema import event_violations
from tests.support.schema import violations as schema_violations
from tests.support.serving import Reply, call, output_text, ready, respond, stream
from tests.support.upstream import DONE, Script, ScriptedUpstream, chunk, frame, text
from tests.support.upstream import call as tool_call

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Weather of a place",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string"}, "unit": {"enum": ["c", "f"]}},
        "required": ["location", "unit"],
    },
}


def timeless(value: Any) -> Any:
    """The response without what differs from one to the next: ids and times."""
    if isinstance(value, dict):
        passing = {"id", "call_id", "item_id", "created_at", "completed_at"}
        return {name: timeless(each) for name, each in value.items() if name not in passing}
    return [timeless(each) for each in value] if isinstance(value, list) else value


def test_streamed_answer_is_sse_with_done_last(demo: str) -> None:
    reply = stream(demo, model="demo", input="Hello")
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.headers["cache-control"] == "no-store"
    assert reply.headers["x-request-id"].startswith("req_")
    assert int(reply.headers["openai-processing-ms"]) >= 0
    assert reply.body.endswith(b"data: [DONE]\n\n")
    assert b"\r" not in reply.body
    assert [frame.event for frame in reply.frames[:-1]] == reply.types
    assert reply.types[:2] == ["response.created", "response.in_progress"]
    assert reply.types[-1] == "response.completed"
    assert output_text(reply.final) == "You said: Hello"


def test_e3_every_event_and_the_response_follow_the_published_schema(demo: str) -> None:
    for wish in ("Hello", "please think", "refuse", "fail", "incomplete", "What's the weather in Rome?"):
        for event in stream(demo, model="demo", input=wish, tools=[WEATHER]).events:
            assert event_violations(event) == []
    whole = respond(demo, model="demo", input="Hello", tools=[WEATHER], temperature=0.5)
    assert schema_violations("ResponseResource", whole.json) == []


@pytest.mark.parametrize(
    "request_",
    [
        {"input": "Hello"},
        {"input": "please think about it"},
        {"input": "please refuse"},
        {"input": "an incomplete answer"},
        {"input": "a content filter, please"},
        {"input": "What's the weather in San Francisco?", "tools": [WEATHER]},
        {"input": "Hello again", "reasoning": {"effort": "low"}, "metadata": {"a": "b"}},
        {"input": "fail, please"},
    ],
    ids=lambda request: request["input"][:20],
)
def test_e1_the_whole_answer_equals_the_streamed_one(demo: str, request_: dict[str, Any]) -> None:
    streamed = stream(demo, model="demo", **request_)
    whole = respond(demo, model="demo", **request_)
    assert whole.status == 200
    assert whole.headers["content-type"] == "application/json"
    assert timeless(whole.json) == timeless(streamed.final)


def test_tools_are_called_and_their_results_used(demo: str) -> None:
    question = {"role": "user", "content": "What's the weather in San Francisco?"}
    first = stream(demo, model="demo", input=[question], tools=[WEATHER], tool_choice="required").final
    (call_,) = first["output"]
    assert (call_["type"], call_["name"]) == ("function_call", "get_weather")
    assert json.loads(call_["arguments"]) == {"location": "San Francisco", "unit": "c"}
    result = {"type": "function_call_output", "call_id": call_["call_id"], "output": "18 degrees"}
    second = stream(demo, model="demo", input=[question, call_, result], tools=[WEATHER]).final
    assert output_text(second) == "The tool answered: 18 degrees"


def test_json_schema_format_gets_json_that_fits(demo: str) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
    format_ = {"type": "json_schema", "name": "trip", "schema": schema, "strict": True}
    response = stream(demo, model="demo", input="A trip to Oslo", text={"format": format_}).final
    assert json.loads(output_text(response)) == {"city": "Oslo", "days": 1}


def test_images_are_seen(demo: str) -> None:
    parts = [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="},
    ]
    response = stream(demo, model="demo", input=[{"role": "user", "content": parts}]).final
    assert "I was shown 1 image." in output_text(response)


def test_max_output_tokens_ends_as_incomplete(demo: str) -> None:
    response = stream(demo, model="demo-long", max_output_tokens=16).final
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["output"][-1]["status"] == "incomplete"


def test_long_output_arrives_whole(demo: str) -> None:
    reply = stream(demo, model="demo", input="write 5000 words")
    assert len(output_text(reply.final).split()) == 5000
    assert reply.types.count("response.output_text.delta") == 5000


def test_chat_upstream_is_asked_for_a_stream_and_translated(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["plain"] = Script(text("Hello", " there"))
    reply = stream(bridged, model="plain", input="Hi", instructions="Be brief.", max_output_tokens=50)
    assert output_text(reply.final) == "Hello there"
    assert reply.final["model"] == "plain"
    assert reply.final["usage"]["output_tokens"] == 2
    received = upstream.last("plain")
    assert received.path == "/v1/chat/completions"
    assert received.body["stream"] is True
    assert received.body["stream_options"] == {"include_usage": True}
    assert [message["role"] for message in received.body["messages"]] == ["system", "user"]
    assert received.headers["x-request-id"] == reply.headers["x-request-id"]


def test_tool_calls_of_a_chat_upstream_side_by_side(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["tools"] = Script(
        [
            tool_call(0, "", "get_weather", "call_a"),
            tool_call(0, '{"location":'),
            tool_call(0, '"Rome"}'),
            tool_call(1, '{"location":"Oslo"}', "get_weather", "call_b"),
            chunk("tool_calls"),
            DONE,
        ]
    )
    output = stream(bridged, model="tools", tools=[WEATHER]).final["output"]
    assert [(item["call_id"], item["arguments"]) for item in output] == [
        ("call_a", '{"location":"Rome"}'),
        ("call_b", '{"location":"Oslo"}'),
    ]


def test_one_read_leaves_in_one_write(bridged: str, upstream: ScriptedUpstream) -> None:
    """Frames that come together leave together, and no frame is split over two chunks."""
    upstream.scripts["burst"] = Script(
        [b"".join(step for step in text("a", "b", "c") if isinstance(step, bytes))]
    )
    chunks = raw_chunks(bridged, model="burst")
    assert len(chunks) == 1
    assert chunks[0].endswith(b"data: [DONE]\n\n")


def raw_chunks(base: str, **request: Any) -> list[bytes]:
    """The HTTP chunks of a streamed answer, as they were written."""
    import socket
    from urllib.parse import urlsplit

    body = json.dumps({"input": "Hello", "stream": True, **request}).encode()
    address = urlsplit(base)
    head = (
        "POST /v1/responses HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.sendall(head.encode() + body)
        received = b""
        while data := connection.recv(65536):
            received += data
    rest = received.partition(b"\r\n\r\n")[2]
    chunks = []
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        if not int(size, 16):
            break
        chunks.append(rest[: int(size, 16)])
        rest = rest[int(size, 16) + 2 :]
    return chunks


def test_s6_silence_is_bridged_with_events_then_comments(bridged: str, upstream: ScriptedUpstream) -> None:
    """An upstream that has accepted but says nothing: the client gets its status and a keep-alive."""
    upstream.scripts["sleepy"] = Script(
        [
            b": thinking\n\n",
            0.5,
            *text("done"),
        ]
    )
    chunks = raw_chunks(bridged, model="sleepy")
    assert chunks[0].startswith(b"event: response.created\n")
    assert chunks[0].count(b"\n\n") == 2
    assert b": keep-alive\n\n" in chunks
    assert all(chunk.endswith(b"\n\n") for chunk in chunks)


def test_split_frames_and_odd_line_ends_are_joined(bridged: str, upstream: ScriptedUpstream) -> None:
    whole = b"".join(step for step in text("Hé", "llo") if isinstance(step, bytes)).replace(b"\n", b"\r\n")
    upstream.scripts["split"] = Script([whole[at : at + 7] for at in range(0, len(whole), 7)])
    assert output_text(stream(bridged, model="split").final) == "Héllo"


def test_the_model_may_be_fixed_by_the_configuration(upstream: ScriptedUpstream) -> None:
    from openresponses_server.settings import Settings, UpstreamSettings
    from tests.support.serving import serving

    with serving(Settings(upstreams=[UpstreamSettings(url=upstream.url, model="fixed")])) as base:
        assert stream(base, model="whatever").final["model"] == "whatever"
        assert respond(base).json["model"] == "fixed"
        assert [model["id"] for model in call(base, "GET", "/v1/models").json["data"]] == ["fixed"]
    assert [each.body["model"] for each in upstream.received[-2:]] == ["fixed", "fixed"]


def test_api_key_goes_upstream_and_nowhere_else(
    upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    from openresponses_server.settings import Settings, UpstreamSettings
    from tests.support.serving import serving

    monkeypatch.setenv("SCRIPTED_KEY", "sk-very-secret")
    sent = json.dumps(
        {"error": {"message": "Incorrect API key: sk-very-secret", "type": "authentication_error"}}
    )
    upstream.scripts["keyed"] = Script([sent.encode()], 401, {"content-type": "application/json"})
    with serving(
        Settings(upstreams=[UpstreamSettings(url=upstream.url, api_key_env="SCRIPTED_KEY")])
    ) as base:
        refused = respond(base, model="keyed", headers={"authorization": "Bearer client-key"})
    assert upstream.last("keyed").headers["authorization"] == "Bearer sk-very-secret"
    assert (refused.status, refused.error["code"]) == (400, "upstream_authentication_failed")
    assert b"sk-very-secret" not in refused.body


def test_health_and_models(demo: str) -> None:
    assert call(demo, "GET", "/healthz").json == {"status": "ok"}
    assert ready(demo).json["status"] == "ready"
    models = call(demo, "GET", "/v1/models").json["data"]
    capabilities = {"images": True, "reasoning": False, "tools": True}
    sent = {"id": "demo", "object": "model", "created": 0, "owned_by": "demo", "capabilities": capabilities}
    assert models[0] == sent
    assert call(demo, "GET", "/v1/models/demo-slow").json["id"] == "demo-slow"


def test_request_id_of_the_client_is_kept(demo: str) -> None:
    reply: Reply = respond(demo, headers={"x-request-id": "mine-1"}, model="demo")
    assert reply.headers["x-request-id"] == "mine-1"
    odd = respond(demo, headers={"x-request-id": "with space"}, model="demo")
    assert odd.headers["x-request-id"].startswith("req_")


def test_usage_without_choices_and_lone_frames(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["odd"] = Script([frame(choices=[]), *text("x")])
    assert output_text(stream(bridged, model="odd").final) == "x"

"""Numbers, names and headers of an upstream that lies: a finished answer stands, a failure is the upstream's,
and none of it is a defect of this server. Its errors do not show the keys that it was sent."""

import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from openresponses_bridge.protocol.usage import MOST_TOKENS
from openresponses_server.settings import Settings, UpstreamSettings
from tests.support import dialect_scripts
from tests.support.cases import case
from tests.support.serving import call, respond, serving, stream
from tests.support.sockets import opened_socket
from tests.support.upstream import JSON, Script, ScriptedUpstream, Step, chunk, frame

SECRET = "sk-upstream-0123456789abcdef"
GATEWAY = "gateway-token-fedcba9876543210"
CLIENT = "sk-client-abcdef0123456789"
LIES = {
    "negative": "-5",
    "fraction": "1.5",
    "huge": "1" + "0" * 400,
    "huger": "9" * 5000,
    "float": "1e300",
    "beyond floats": "1e400",
    "text": '"9"',
    "long text": json.dumps("9" * 5000),
    "true": "true",
    "list": "[1]",
    "object": '{"a": 1}',
}
# where a dialect's streams count, with a place for the lie
COUNTS: dict[str, list[str]] = {
    "chat": [
        '{"choices": [], "usage": {"prompt_tokens": LIE, "completion_tokens": 2, "total_tokens": LIE}}',
        '{"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3,'
        ' "prompt_tokens_details": {"cached_tokens": LIE},'
        ' "completion_tokens_details": {"reasoning_tokens": LIE}}}',
        '{"choices": [], "created": LIE, "usage": null}',
    ],
    "anthropic": [
        '{"type": "message_delta", "delta": {}, "usage": {"input_tokens": LIE, "output_tokens": LIE}}',
        '{"type": "message_delta", "delta": {}, "usage": {"output_tokens": 1, "cache_read_input_tokens": LIE,'
        ' "cache_creation_input_tokens": LIE, "server_tool_use": LIE, "iterations": LIE}}',
        '{"type": "content_block_start", "index": LIE, "content_block": {"type": "text", "text": ""}}',
        '{"type": "content_block_start", "index": 7, "content_block": {"type": "text", "citations": LIE}}',
        '{"type": "content_block_start", "index": 7, "content_block": {"type": "thinking",'
        ' "signature": LIE}}',
        '{"type": "message_start", "message": {"id": LIE, "content": LIE, "usage": LIE}}',
    ],
    "responses": [
        '{"type": "response.completed", "sequence_number": LIE, "response": {"created_at": LIE, "usage":'
        ' {"input_tokens": LIE, "output_tokens": 1, "total_tokens": LIE, "input_tokens_details":'
        ' {"cached_tokens": LIE}, "output_tokens_details": {"reasoning_tokens": LIE}}}}',
    ],
}


@pytest.fixture(scope="module")
def lying(upstream: ScriptedUpstream) -> Iterator[str]:
    """A server over it in each dialect, with a key and a secret header."""
    upstreams = [
        UpstreamSettings(
            name=dialect,
            url=upstream.url,
            dialect=dialect,
            models=[f"{dialect}-*"],
            api_key="${LYING_KEY}",
            headers={"x-gateway": "Token ${LYING_TOKEN}"},
        )
        for dialect in ("chat", "anthropic", "responses")
    ]
    through = UpstreamSettings(name="through", url=upstream.url, models=["through-*"], pass_through=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LYING_KEY", SECRET)
        patch.setenv("LYING_TOKEN", GATEWAY)
        with serving(Settings(upstreams=[*upstreams, through])) as base:
            yield base


def sent_by(dialect: str, *frames: bytes) -> list[Step]:
    """A stream of text with these frames before its end."""
    steps = dialect_scripts.text(dialect, "Hel", "lo")
    at = len(steps) - (1 if dialect != "anthropic" else 2)
    return [*steps[:at], *(b"data: " + each + b"\n\n" for each in frames), *steps[at:]]


def counts_of(usage: dict[str, Any]) -> list[Any]:
    details = [*usage["input_tokens_details"].values(), *usage["output_tokens_details"].values()]
    return [usage["input_tokens"], usage["output_tokens"], usage["total_tokens"], *details]


@pytest.mark.parametrize(
    ("dialect", "sent"),
    [
        pytest.param(dialect, sent, id=f"{dialect}-{number}")
        for dialect in COUNTS
        for number, sent in enumerate(COUNTS[dialect])
    ],
)
def test_a_lie_in_a_number_loses_no_answer(
    lying: str, upstream: ScriptedUpstream, dialect: str, sent: str
) -> None:
    for lie in LIES:
        with case(lie):
            lie_in_a_number(lying, upstream, dialect, sent, lie)


def lie_in_a_number(lying: str, upstream: ScriptedUpstream, dialect: str, sent: str, lie: str) -> None:
    payload = sent.replace("LIE", LIES[lie]).encode()
    upstream.scripts[f"{dialect}-m"] = Script(sent_by(dialect, payload))
    whole = respond(lying, model=f"{dialect}-m")
    assert whole.status == 200, whole.body
    answer = whole.json
    assert answer["status"] == "completed", answer["error"]
    said_by = [item for item in answer["output"] if item["type"] == "message"]
    assert "".join(part["text"] for item in said_by for part in item["content"]) == "Hello"
    if answer["usage"] is not None:
        input_tokens, received, total, *details = counts = counts_of(answer["usage"])
        assert all(type(each) is int and each >= 0 for each in counts)
        assert all(each <= MOST_TOKENS for each in (input_tokens, received, *details))
        assert total == input_tokens + received
    assert call(lying, "GET", f"/v1/responses/{answer['id']}").json["usage"] == answer["usage"]
    streamed = stream(lying, model=f"{dialect}-m").final
    assert (streamed["status"], streamed["usage"]) == ("completed", answer["usage"])
    if lie in ("negative", "huge"):
        for path in ("/v1/chat/completions", "/v1/messages"):
            body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 9}
            assert call(lying, "POST", path, {"model": f"{dialect}-m", **body}).status == 200
        assert call(lying, "GET", "/metrics").status == 200


@pytest.mark.parametrize(
    "code", ["9" * 5000, "500", "\u0665\u0660\u0660", "1" + "0" * 400, "-500", "\ud800", "\x1b[2J"]
)
@pytest.mark.parametrize("streamed", [False, True])
def test_a_code_that_is_no_status(lying: str, upstream: ScriptedUpstream, code: str, streamed: bool) -> None:
    error = {"message": "no", "code": code}
    upstream.scripts["chat-code"] = [
        Script([frame(choices=[], error=error)]),
        Script([json.dumps({"error": error}).encode()], 200, JSON),
        Script([json.dumps({"error": error}).encode()], 400, JSON),
    ]
    for status in ({500} if code == "500" else {502}, {500} if code == "500" else {502}, {400}):
        reply = respond(lying, model="chat-code", stream=streamed)
        if reply.status == 200:
            assert reply.final["status"] == "failed"
            assert len(reply.final["error"]["code"]) <= 200
        else:
            assert reply.status in status
            assert reply.error["code"] != "internal_error"
            assert len(reply.error["code"]) <= 200


# frames with a place for a value that is read whole
WHOLE = {
    "chat": b'{"choices": [{"delta": {"content": [{"type": "text", "text": VALUE}]}}]}',
    "anthropic": b'{"type": "content_block_start", "index": 7, "content_block": {"type": "tool_use",'
    b' "id": "t", "name": "f", "input": {"a": VALUE}}}',
    "responses": b'{"type": "response.output_item.done", "output_index": 9, "item": {"type": "x:y",'
    b' "id": "z", "a": VALUE}}',
}
TOO_MUCH = {
    "arrays": b"[" * 300 + b"]" * 300,
    "arrays, as deep as can be decoded": b"[" * 950 + b"]" * 950,
    "objects": b'{"a": ' * 300 + b"1" + b"}" * 300,
    "parts": b'[{"text": ' * 300 + b'"x"' + b"}]" * 300,
    "values": b"[" + b"0," * 2_100_000 + b"0]",
}


@pytest.mark.parametrize("value", TOO_MUCH)
@pytest.mark.parametrize("dialect", WHOLE)
def test_s10_json_of_great_depth_or_many_values_is_the_upstream_s_failure(
    lying: str, upstream: ScriptedUpstream, dialect: str, value: str
) -> None:
    """What is decoded at one place may be too deep for another, where more functions have been called."""
    payload = WHOLE[dialect].replace(b"VALUE", TOO_MUCH[value])
    upstream.scripts[f"{dialect}-deep"] = Script([b"data: " + payload + b"\n\n"])
    model = {"model": f"{dialect}-deep"}
    messages = {**model, "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
    for path in ("/v1/responses", "/v1/chat/completions", "/v1/messages"):
        reply = call(lying, "POST", path, {**model, "input": "x"} if path == "/v1/responses" else messages)
        assert reply.status == 502
        assert reply.error["message"].startswith("the upstream sent an event that can't be read: The JSON ")
    begun = dialect_scripts.piece(dialect)
    upstream.scripts[f"{dialect}-deep"] = Script([*begun, b"data: " + payload + b"\n\n"])
    final = stream(lying, **model).final
    assert (final["status"], final["error"]["code"]) == ("failed", "upstream_invalid_response")
    assert call(lying, "GET", f"/v1/responses/{final['id']}").status == 200


@pytest.mark.parametrize("status", [200, 400])
def test_half_a_character_in_an_error_is_replaced(
    lying: str, upstream: ScriptedUpstream, status: int
) -> None:
    """Strict decoders of JSON refuse it, even as an escape."""
    error = dict.fromkeys(("message", "type", "code", "param"), "a\ud800b\ud83d\ude00")
    upstream.scripts["chat-half"] = Script([json.dumps({"error": error}).encode()], status, JSON)
    reply = respond(lying, model="chat-half")
    assert b"\\ud" not in reply.body
    assert reply.error == dict.fromkeys(("message", "type", "code", "param"), "a\ufffdb😀")


def test_a_content_type_in_an_error_is_printable(lying: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["chat-type"] = Script([b"x"], 400, {"content-type": "text/\x1b[2J\u202e"})
    message = respond(lying, model="chat-type").error["message"]
    assert message.endswith("text/\\x1b[2J\\u202e")


@pytest.mark.parametrize("flag", [True, False])
def test_a_truth_value_is_no_text_of_an_error(lying: str, upstream: ScriptedUpstream, flag: bool) -> None:
    body = json.dumps({"error": {"message": flag, "code": flag, "type": "t"}}).encode()
    upstream.scripts["chat-flag"] = Script([body], 400, JSON)
    error = respond(lying, model="chat-flag").error
    assert (error["type"], error["code"]) == ("t", "invalid_request")
    assert str(flag) not in error["message"]


@pytest.mark.parametrize(
    ("header", "passed"),
    [
        ("9" * 400, str(366 * 24 * 3600)),
        ("\u0661\u0662", None),
        ("\uff11", None),
        ("Mon, 01 Jan 99999999999999999999 00:00:00 GMT", None),
        ("Mon, 01 Jan 2024 00:00:00 +9999999999999999999", None),
        (SECRET, None),
        ("12", "12"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages", "/v1/chat/completions"])
def test_a_retry_after_that_is_none(
    lying: str, upstream: ScriptedUpstream, header: str, passed: str | None, path: str
) -> None:
    upstream.scripts["chat-busy"] = Script(
        [b'{"error": {"message": "later"}}'], 429, JSON | {"retry-after": header}
    )
    messages = [{"role": "user", "content": "x"}]
    fields = {"input": "x"} if path == "/v1/responses" else {"messages": messages, "max_tokens": 9}
    reply = call(lying, "POST", path, {"model": "chat-busy", **fields})
    assert reply.status == 429
    assert reply.headers.get("retry-after") == passed


FORMS = {
    "as it is": SECRET,
    "base64": b64encode(f"Bearer {SECRET}".encode()).decode(),
    "cut": SECRET[:-4],
    "header": f"Token {GATEWAY}",
    "token": GATEWAY,
}


def error_with(form: str) -> dict[str, str]:
    return {
        "message": f"bad key {form}!",
        "type": f"type {form}",
        "code": f"code {form}",
        "param": f"p {form}",
    }


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dialect", ["chat", "anthropic", "responses"])
def test_keys_are_in_no_error(lying: str, upstream: ScriptedUpstream, dialect: str, form: str) -> None:
    """Wherever it is quoted: in a refusal, in an answer that claims success, in a stream before and after its
    first words, in a content type, in a `retry-after`."""
    quoted = FORMS[form]
    error = error_with(quoted)
    body = json.dumps({"type": "error", "error": error}).encode()
    mid_stream = b"event: error\ndata: " + body + b"\n\n"
    scripts = [
        Script([body], 401, JSON | {"retry-after": quoted}),
        Script([body], 200, JSON),
        Script([b"<html>"], 200, {"content-type": f"text/html{quoted}"}),
        Script([b"<html>"], 500, {"content-type": f"text/{quoted}"}),
        Script([mid_stream]),
        Script([*dialect_scripts.piece(dialect), mid_stream]),
    ]
    model = f"{dialect}-key"
    with structlog.testing.capture_logs() as logs, opened_socket(lying) as socket:
        for script in scripts:
            upstream.scripts[model] = script
            replies = [respond(lying, model=model), respond(lying, model=model, stream=True)]
            replies += [
                call(
                    lying,
                    "POST",
                    path,
                    {"model": model, "max_tokens": 9, "messages": messages, "stream": True},
                )
                for path in ("/v1/chat/completions", "/v1/messages")
                for messages in [[{"role": "user", "content": "x"}]]
            ]
            bodies = [json.dumps(reply.headers) + reply.body.decode() for reply in replies]
            bodies.append(json.dumps(socket.turn(model=model, input="x").events))
            assert all(quoted not in each and quoted.lower() not in each for each in bodies), script
            assert "internal_error" not in "".join(bodies)
    assert quoted not in repr(logs)


@pytest.mark.parametrize("code", [503, 429, 402, 404, 400])
@pytest.mark.parametrize("streamed", [False, True])
def test_keys_are_in_no_error_that_comes_in_the_place_of_an_answer_after_which_nobody_else_answers(
    upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch, code: int, streamed: bool
) -> None:
    """A refusal within an accepted stream, for which another upstream is asked, and refuses, too."""
    monkeypatch.setenv("LYING_KEY", SECRET)
    error = {**error_with(SECRET), "code": code}
    upstream.scripts["first"] = Script([frame(choices=[], error=error)])
    upstream.scripts["second"] = Script([b'{"error": {"message": "later"}}'], 503, JSON)
    first = UpstreamSettings(
        name="a", url=upstream.url, models=["first"], api_key="${LYING_KEY}", failover=["b/second"]
    )
    second = UpstreamSettings(name="b", url=upstream.url, models=["second"])
    with serving(Settings(upstreams=[first, second])) as base, structlog.testing.capture_logs() as logs:
        for _ in range(2):  # the second time the first upstream may be left out
            reply = respond(base, model="first", stream=streamed)
            assert SECRET not in json.dumps(reply.headers) + reply.body.decode()
    assert SECRET not in repr(logs)


def test_a_client_s_own_key_is_in_no_error(lying: str, upstream: ScriptedUpstream) -> None:
    error = error_with(CLIENT)
    upstream.scripts["through-key"] = [
        Script([json.dumps({"error": error}).encode()], 401, JSON),
        Script([chunk(content="Ha"), frame(choices=[], error=error)]),
    ]
    headers = {"authorization": f"Bearer {CLIENT}"}
    refused = respond(lying, headers, model="through-key")
    assert (refused.status, refused.error["message"]) == (401, "bad key [key]!")
    streamed = stream(lying, headers, model="through-key")
    assert streamed.final["error"] == {"code": "code [key]", "message": "bad key [key]!"}
    stored = call(lying, "GET", f"/v1/responses/{streamed.final['id']}", headers=headers)
    assert stored.json["error"]["message"] == "bad key [key]!"


@pytest.mark.parametrize("name", ["\ud800", "a\r\nb: c", "\x1b[2J", "é" * 50, '{"x"}', "m\x00"])
def test_odd_names_of_models(lying: str, upstream: ScriptedUpstream, name: str) -> None:
    body = json.dumps({"model": name, "input": "x"}).encode()
    reply = call(lying, "POST", "/v1/responses", body, {"content-type": "application/json"})
    assert reply.status in (400, 404)
    upstream.models = [name, "chat-ok"]
    try:
        assert call(lying, "GET", "/v1/models").status == 200
    finally:
        upstream.models = None

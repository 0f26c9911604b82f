"""An upstream that answers with whole JSON where a stream was asked for is read, in each dialect."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from openresponses_server.settings import Capabilities, Limits, Settings, Timeouts, UpstreamSettings
from tests.support.serving import Reply, respond, serving, stream
from tests.support.upstream import CUT, HANG, JSON, Script, ScriptedUpstream, Step, text

LONG = "A long text. " * 12_000  # 156,000 characters


def chat(words: str, **fields: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": words}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage, **fields}


def anthropic(words: str, **fields: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": words}]
    usage = {"input_tokens": 3, "output_tokens": 2}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "content": content}
    return {**head, "stop_reason": "end_turn", "usage": usage, **fields}


def responses(words: str, **fields: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": words, "annotations": []}]
    message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": content}
    usage = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
    head = {"id": "resp_1", "object": "response", "status": "completed", "output": [message]}
    return {**head, "usage": usage, "error": None, **fields}


ANSWERS = {"chat": chat, "anthropic": anthropic, "responses": responses}
DIALECTS = pytest.mark.parametrize("dialect", ANSWERS)


def answered(dialect: str, *steps: Step, headers: dict[str, str] = JSON, streamed: bool = True) -> Reply:
    """What our client gets from an upstream of this dialect that answers with this body."""
    with ScriptedUpstream({"m": Script(steps, headers=headers)}) as upstream:
        settings = UpstreamSettings(url=upstream.url, dialect=dialect)
        with serving(Settings(upstreams=[settings])) as base:
            return stream(base, model="m") if streamed else respond(base, model="m")


def words_of(response: dict[str, Any]) -> str:
    return "".join(part["text"] for item in response["output"] for part in item["content"])


@DIALECTS
@pytest.mark.parametrize("words", ["Hello, 😀!", LONG], ids=["short", "long"])
def test_a_whole_answer_is_read(dialect: str, words: str) -> None:
    body = json.dumps(ANSWERS[dialect](words), indent=2).encode()  # several lines, as servers send
    half = len(body) // 2
    reply = answered(dialect, body[:half], 0.02, body[half:])
    assert (reply.status, reply.final["status"]) == (200, "completed")
    assert words_of(reply.final) == words
    assert (reply.final["usage"]["input_tokens"], reply.final["usage"]["output_tokens"]) == (3, 2)


@DIALECTS
def test_a_whole_answer_is_read_for_a_client_that_wants_no_stream(dialect: str) -> None:
    headers = {"content-type": "application/json; charset=utf-8"}
    body = b"\xef\xbb\xbf" + json.dumps(ANSWERS[dialect]("Hello")).encode() + b"\r\n"
    reply = answered(dialect, body, headers=headers, streamed=False)
    assert (reply.status, reply.json["status"], words_of(reply.json)) == (200, "completed", "Hello")


@DIALECTS
def test_an_error_beside_the_answer_keeps_its_meaning(dialect: str) -> None:
    error = {"message": "No credits", "code": 402, "type": "billing"}
    reply = answered(dialect, json.dumps(ANSWERS[dialect]("Hello", error=error)).encode(), streamed=False)
    if dialect == "anthropic":  # its answers have no such field
        assert (reply.status, words_of(reply.json)) == (200, "Hello")
    else:
        assert (reply.status, reply.error["message"]) == (402, "No credits")


@DIALECTS
def test_what_is_not_an_answer_of_the_dialect_is_502(dialect: str) -> None:
    for name, answer in ANSWERS.items():
        if name != dialect:
            reply = answered(dialect, json.dumps(answer("Hello")).encode(), streamed=False)
            assert (reply.status, reply.error["code"]) == (502, "upstream_invalid_response")


@pytest.mark.parametrize("status", ["in_progress", "queued", "nonsense", 7, None])
def test_a_response_that_has_not_ended_is_not_an_answer(status: object) -> None:
    body = json.dumps(responses("Hello", status=status)).encode()
    assert answered("responses", body, streamed=False).status == 502


def test_a_whole_answer_that_is_incomplete_stays_so() -> None:
    cut = responses("Hel", status="incomplete", incomplete_details={"reason": "content_filter"})
    reply = answered("responses", json.dumps(cut).encode())
    assert reply.types[-1] == "response.incomplete"
    assert reply.final["incomplete_details"] == {"reason": "content_filter"}


def test_a_whole_answer_that_is_cut_never_completes() -> None:
    body = json.dumps(chat(LONG)).encode()
    for sent in (body[:-10], body[: len(body) // 2]):
        for ending in ([], [CUT]):
            reply = answered("chat", sent, *ending, streamed=False)
            assert (reply.status, reply.error["type"]) == (502, "server_error")


def test_a_whole_answer_is_bounded() -> None:
    with ScriptedUpstream({"m": Script([json.dumps(chat(LONG)).encode()], headers=JSON)}) as upstream:
        limits = Limits(output_bytes=100_000)
        with serving(Settings(upstreams=[UpstreamSettings(url=upstream.url)], limits=limits)) as base:
            reply = stream(base, model="m")
    assert (reply.final["status"], reply.final["output"]) == ("failed", [])


def test_a_whole_answer_is_an_answer_and_nobody_else_is_asked() -> None:
    body = json.dumps(chat("From the first")).encode()
    with (
        ScriptedUpstream({"m": Script([body], headers=JSON)}) as first,
        ScriptedUpstream({"m": Script(text("From the second"))}) as second,
    ):
        upstreams = [
            UpstreamSettings(name="one", url=first.url, failover=["two"]),
            UpstreamSettings(name="two", url=second.url, models=["other"]),
        ]
        with serving(Settings(upstreams=upstreams)) as base:
            assert words_of(respond(base, model="m").json) == "From the first"
        assert (len(first.received), len(second.received)) == (1, 0)


def test_a_whole_answer_may_take_its_time_as_long_as_something_comes() -> None:
    """Gateways send blanks while the model thinks."""
    body = json.dumps(chat("Hello")).encode()
    slow = Script([*[b" ", 0.1] * 25, body], headers=JSON)
    with ScriptedUpstream({"slow": slow, "silent": Script([b" ", HANG], headers=JSON)}) as upstream:
        settings = Settings(upstreams=[UpstreamSettings(url=upstream.url)], timeouts=Timeouts(idle=2.0))
        with serving(settings) as base:
            assert words_of(respond(base, model="slow").json) == "Hello"
            silent = respond(base, model="silent")
    assert (silent.status, silent.error["code"]) == (504, "upstream_timeout")


TOOL = {"type": "function", "name": "look", "parameters": {"type": "object"}}
TOOLS: dict[str, dict[str, Any]] = {
    "in the request": {"tools": [TOOL]},
    "in an item": {
        "input": [
            {"type": "additional_tools", "role": "developer", "tools": [TOOL]},
            {"role": "user", "content": "Hi"},
        ]
    },
}


@DIALECTS
@pytest.mark.parametrize("tools", TOOLS)
def test_a_model_that_calls_tools_in_whole_answers_alone_is_asked_for_one_where_there_are_tools(
    dialect: str, tools: str
) -> None:
    whole = Script([json.dumps(ANSWERS[dialect]("Hello")).encode()], headers=JSON)
    with ScriptedUpstream({"m": whole}) as upstream:
        upstreams = [UpstreamSettings(url=upstream.url, dialect=dialect)]
        able = {"m": Capabilities(streaming_tool_calls=False)}
        with serving(Settings(upstreams=upstreams, models=able)) as base:
            reply = stream(base, model="m", **TOOLS[tools])
            assert (reply.final["status"], words_of(reply.final)) == ("completed", "Hello")
            assert not upstream.received[-1].body.get("stream")
            assert upstream.received[-1].headers["accept"] == "application/json"
            stream(base, model="m")
            assert upstream.received[-1].body["stream"] is True
            assert upstream.received[-1].headers["accept"] == "text/event-stream"


def test_one_that_streams_all_the_same_is_read_and_its_fallback_is_asked_in_its_own_way() -> None:
    refused = Script([b"{}"], 503, JSON)
    with ScriptedUpstream({"m": [Script(text("Hi")), refused], "other": Script(text("Ho"))}) as upstream:
        upstreams = [
            UpstreamSettings(url=upstream.url, name="first", models=["m"], failover=["second/other"]),
            UpstreamSettings(url=upstream.url, name="second"),
        ]
        able = {"m": Capabilities(streaming_tool_calls=False)}
        with serving(Settings(upstreams=upstreams, models=able)) as base:
            texts = [words_of(stream(base, model="m", tools=[TOOL]).final) for _ in range(2)]
        assert texts == ["Hi", "Ho"]
        requests = [(each.body["model"], each.body.get("stream", False)) for each in upstream.received]
        assert requests == [("m", False), ("m", False), ("other", True)]


@pytest.mark.parametrize("streamed", [True, False])
def test_a_stream_that_is_said_to_be_json_is_read_as_one(streamed: bool) -> None:
    reply = answered("chat", *text("Hel", "lo"), headers=JSON, streamed=streamed)
    response = reply.final if streamed else reply.json
    assert (reply.status, response["status"], words_of(response)) == (200, "completed", "Hello")


def test_a_whole_answer_that_is_packed_without_saying_so_is_named() -> None:
    reply = answered("chat", gzip.compress(json.dumps(chat("Hello")).encode()), streamed=False)
    assert reply.status == 502
    assert "gzip" in reply.json["error"]["message"]

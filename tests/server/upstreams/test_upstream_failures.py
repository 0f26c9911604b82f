"""An upstream that is down, slow, cut or lying: the client gets the upstream's own error (law S5)."""

import json
import socket
import time
from typing import Any

import pytest

from openresponses_server.settings import Settings, UpstreamSettings
from tests.support.serving import Reply, respond, serving, stream
from tests.support.upstream import (
    CUT,
    DONE,
    HANG,
    RESET,
    Script,
    ScriptedUpstream,
    chunk,
    frame,
    refusal,
    text,
)
from tests.support.upstream import call as tool_call

JSON = {"content-type": "application/json"}


def both(base: str, model: str) -> list[Reply]:
    """The same request, streamed and whole."""
    return [respond(base, model=model, stream=True), respond(base, model=model)]


@pytest.mark.parametrize(
    ("status", "error_type", "code"),
    [
        (400, "invalid_request_error", "context_length_exceeded"),
        (403, "moderation_error", "flagged"),
        (404, "not_found_error", "model_not_found"),
        (408, "timeout", "timeout"),
        (413, "invalid_request_error", "too_large"),
        (429, "rate_limit_error", "rate_limit_exceeded"),
        (500, "server_error", "boom"),
        (503, "server_error", "loading"),
        (529, "overloaded_error", "overloaded"),
    ],
)
def test_s5_refusal_keeps_status_type_code_message_and_param(
    bridged: str, upstream: ScriptedUpstream, status: int, error_type: str, code: str
) -> None:
    sent = {"type": error_type, "code": code, "message": "That is why.", "param": "messages"}
    upstream.scripts["refuse"] = refusal(status, **sent)
    for reply in both(bridged, "refuse"):
        assert reply.status == status
        assert reply.headers["content-type"] == "application/json"
        assert reply.error == sent


def test_s5_retry_after_is_kept(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["limited"] = refusal(429, {"retry-after": "17"}, message="Slow down")
    for reply in both(bridged, "limited"):
        assert reply.status == 429
        assert reply.headers["retry-after"] == "17"
        assert reply.error["type"] == "too_many_requests"
        assert reply.error["code"] == "rate_limit_exceeded"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": "model not loaded"}', "model not loaded"),
        (b'{"object": "error", "message": "Bad thing", "code": 40001}', "Bad thing"),
        (b'{"detail": "Not authenticated"}', "Not authenticated"),
        (b'[{"error": {"code": 500, "message": "Wrapped", "status": "INTERNAL"}}]', "Wrapped"),
        (b"<html>Bad gateway</html>", "the upstream answered with status 500 and a body of type text/x"),
        (b"", "the upstream answered with status 500 and an empty body"),
        (b'{"error": {"message": ""}}', "the upstream answered with status 500 and a body of type text/x"),
    ],
)
def test_s5_message_is_found_in_other_servers_shapes(
    bridged: str, upstream: ScriptedUpstream, body: bytes, message: str
) -> None:
    upstream.scripts["shapes"] = Script([body] if body else [], 500, {"content-type": "text/x"})
    reply = respond(bridged, model="shapes")
    assert (reply.status, reply.error["message"]) == (500, message)


def test_a_body_of_no_type_is_said_to_be_without_one(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["untyped"] = Script([b"{}"], 500, {"content-type": ""})
    message = respond(bridged, model="untyped").error["message"]
    assert message == "the upstream answered with status 500 and a body without a content type"


@pytest.mark.parametrize(
    ("status", "body", "asks"),
    [
        (404, b"Not Found", True),
        (405, b"", True),
        (404, b'{"detail": "No such model"}', False),
        (400, b"", False),
    ],
)
def test_s5_a_path_that_is_not_there_asks_for_the_dialect(
    bridged: str, upstream: ScriptedUpstream, status: int, body: bytes, asks: bool
) -> None:
    upstream.scripts["elsewhere"] = Script([body] if body else [], status, {"content-type": "text/plain"})
    reply = respond(bridged, model="elsewhere")
    assert reply.status == status
    assert ("does it speak the dialect" in reply.error["message"]) == asks


LIES = {
    "html": Script([b"<html>Welcome</html>"], headers={"content-type": "text/html"}),
    "another json": Script([b'{"hello": "world"}'], headers=JSON),
    "a list": Script([b"[]"], headers=JSON),
    "empty": Script([]),
    "empty json": Script([], headers=JSON),
    "redirect": Script([], 302, {"location": "http://127.0.0.1:1/"}),
    "cut before the first byte": Script([CUT]),
    "reset before the first byte": Script([RESET]),
}


@pytest.mark.parametrize("lie", LIES)
def test_s5_answer_that_is_no_stream_is_502(bridged: str, upstream: ScriptedUpstream, lie: str) -> None:
    upstream.scripts[lie] = LIES[lie]
    for reply in both(bridged, lie):
        assert reply.status == 502, reply.body
        assert reply.error["type"] == "server_error"


def test_s5_error_in_the_json_of_a_200_keeps_its_meaning(bridged: str, upstream: ScriptedUpstream) -> None:
    body = json.dumps({"error": {"message": "No credits", "code": 402, "type": "billing"}}).encode()
    upstream.scripts["in json"] = Script([body], headers=JSON)
    for reply in both(bridged, "in json"):
        assert reply.status == 402
        assert reply.error == {"type": "billing", "code": "402", "message": "No credits", "param": None}


@pytest.mark.parametrize(
    ("name", "called"), [(None, "the upstream can't"), ("far", "the upstream far can't")]
)
def test_s5_upstream_that_is_down_is_502(name: str | None, called: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with serving(Settings(upstreams=[UpstreamSettings(url=url, name=name)])) as base:
        for reply in both(base, "any"):
            assert reply.status == 502
            assert reply.error["code"] == "upstream_unreachable"
            assert reply.error["message"].startswith(called)


def test_s5_upstream_that_never_answers_is_504(bridged_hasty: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["hang"] = Script(before=HANG)
    reply = respond(bridged_hasty, model="hang")
    assert (reply.status, reply.error["code"]) == (504, "upstream_timeout")


FAILURES: dict[str, tuple[list[Any], str]] = {
    "cut after text": ([chunk(content="Hel"), CUT], "upstream_disconnected"),
    "reset after text": ([chunk(content="Hel"), 0.05, RESET], "upstream_disconnected"),
    "ends without a reason": ([chunk(content="Hel")], "upstream_cut"),
    "cut within a frame": ([chunk(content="Hel"), chunk(content="lo")[:30], CUT], "upstream_disconnected"),
    "silent": ([chunk(content="Hel"), HANG], "upstream_timeout"),
    "garbage": ([chunk(content="Hel"), b"data: {broken\n\n", DONE], "upstream_invalid_json"),
    "error in band": (
        [chunk(content="Hel"), frame(choices=[], error={"code": 429, "message": "Slow"})],
        "429",
    ),
    "within a call": ([tool_call(0, '{"a', "f", "call_1"), CUT], "upstream_disconnected"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_case_26_failure_after_the_first_byte_is_response_failed(
    bridged_hasty: str, upstream: ScriptedUpstream, case: str
) -> None:
    steps, code = FAILURES[case]
    upstream.scripts[case] = Script(steps)
    reply = stream(bridged_hasty, model=case)
    assert reply.types[-2:] == ["error", "response.failed"]
    assert reply.final["status"] == "failed"
    assert reply.final["error"]["code"] == code
    assert reply.final["output"]
    assert all(item["status"] == "incomplete" for item in reply.final["output"])
    assert reply.body.endswith(b"data: [DONE]\n\n")
    whole = respond(bridged_hasty, model=case)
    assert (whole.status, whole.json["status"], whole.json["error"]["code"]) == (200, "failed", code)


def test_case_27_error_in_band_before_any_output(bridged: str, upstream: ScriptedUpstream) -> None:
    """The upstream has said 200, so the stream says `response.failed`; the whole answer can still be an
    HTTP error, and is."""
    error = {"code": "rate_limit_exceeded", "message": "Slow down", "type": "rate_limit_error"}
    upstream.scripts["early"] = Script([frame(choices=[], error=error)])
    assert stream(bridged, model="early").final["error"]["code"] == "rate_limit_exceeded"
    whole = respond(bridged, model="early")
    assert (whole.status, whole.error["code"], whole.error["message"]) == (
        429,
        "rate_limit_exceeded",
        "Slow down",
    )


def test_total_time_is_bounded(upstream: ScriptedUpstream) -> None:
    from openresponses_server.settings import Timeouts

    upstream.scripts["drip"] = Script([step for _ in range(100) for step in (chunk(content="x"), 0.05)])
    settings = Settings(upstreams=[UpstreamSettings(url=upstream.url)], timeouts=Timeouts(total=0.5))
    with serving(settings) as base:
        reply = stream(base, model="drip")
        assert reply.final["error"]["code"] == "upstream_timeout"
        assert "0.5 seconds" in reply.final["error"]["message"]
        assert reply.final["output"][0]["content"][0]["text"].startswith("xx")


def test_frame_without_end_is_bounded(bridged: str, upstream: ScriptedUpstream) -> None:
    piece = b"x" * 1_000_000
    upstream.scripts["endless"] = Script([chunk(content="a"), b"data: ", *[piece] * 20])
    assert stream(bridged, model="endless").final["error"]["code"] == "bridge.sse.frame_too_large"


def test_connection_is_used_again_after_a_good_stream(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["again"] = Script(text("x"))
    before = len(upstream.connections)
    for _ in range(5):
        stream(bridged, model="again")
        time.sleep(0.05)  # its last chunk may come after the client has all
    assert len(upstream.connections) - before <= 1

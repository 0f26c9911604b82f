"""Gemini's own API as an upstream: paths, keys, and answers that are no event stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from openresponses_server.settings import Settings, UpstreamSettings
from tests.support.gemini import chunk
from tests.support.serving import respond, serving, stream
from tests.support.upstream import JSON, Script, ScriptedUpstream

HI = chunk({"text": "Hel"})
END = chunk({"text": "lo"}, finish="STOP")


@pytest.fixture
def upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream() as scripted:
        yield scripted


@pytest.fixture
def base(upstream: ScriptedUpstream) -> Iterator[str]:
    settings = UpstreamSettings(profile="gemini", url=upstream.url.removesuffix("/v1"), api_key="secret")
    with serving(Settings(upstreams=[settings], store="memory://")) as address:
        yield address


def framed(*payloads: bytes) -> list[Any]:
    return [b"data: " + payload + b"\r\n\r\n" for payload in payloads]


def test_the_path_says_the_model_and_that_the_answer_is_streamed(
    upstream: ScriptedUpstream, base: str
) -> None:
    upstream.scripts["gemini-3-flash"] = Script(framed(HI, END))
    final = stream(base, model="gemini-3-flash").final
    assert final["output"][0]["content"][0]["text"] == "Hello"
    request = upstream.last("gemini-3-flash")
    assert request.path == "/v1beta/models/gemini-3-flash:streamGenerateContent?alt=sse"
    assert request.headers["x-goog-api-key"] == "secret"
    assert "authorization" not in request.headers
    assert request.body == {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("models/gemini-3-flash", "/models/gemini-3-flash:"),
        ("../../files?a=b#c", "/models/..%2F..%2Ffiles%3Fa%3Db%23c:"),
        ("x:generateContent", "/models/x%3AgenerateContent:"),
        ("é x", "/models/%C3%A9%20x:"),
    ],
)
def test_a_name_is_one_segment_of_the_path(
    upstream: ScriptedUpstream, base: str, model: str, path: str
) -> None:
    respond(base, model=model)
    (request,) = upstream.received
    assert request.path.startswith(f"/v1beta{path}")


def test_parameters_of_each_request_follow_those_of_the_path(upstream: ScriptedUpstream) -> None:
    settings = UpstreamSettings(profile="gemini", url=upstream.url, api_key="none", query={"a": "b c"})
    with serving(Settings(upstreams=[settings])) as base:
        stream(base, model="m")
    assert upstream.last("m").path == "/v1/models/m:streamGenerateContent?alt=sse&a=b+c"


@pytest.mark.parametrize(
    "body",
    [b"[%b\n,\n%b]" % (HI, END), chunk({"text": "Hello"}, finish="STOP")],
    ids=["an array of chunks", "a whole answer"],
)
def test_an_answer_in_json_is_read(upstream: ScriptedUpstream, base: str, body: bytes) -> None:
    upstream.scripts["m"] = Script([body], headers=dict(JSON))
    final = stream(base, model="m").final
    assert (final["status"], final["output"][0]["content"][0]["text"]) == ("completed", "Hello")


ERROR = {"error": {"code": 499, "message": "The operation was cancelled.", "status": "CANCELLED"}}


@pytest.mark.parametrize("indent", [None, 2])
def test_an_error_that_stands_bare_behind_the_frames_fails_the_response(
    upstream: ScriptedUpstream, base: str, indent: int | None
) -> None:
    bare = json.dumps(ERROR, indent=indent).encode()
    upstream.scripts["m"] = Script([*framed(chunk({"text": "Hel"}, finish="STOP")), bare + b"\n"])
    final = stream(base, model="m").final
    assert (final["status"], final["error"]["code"]) == ("failed", "CANCELLED")


@pytest.mark.parametrize("wrap", [False, True], ids=["object", "array"])
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
def test_a_refusal_is_told_whatever_it_says_it_is(
    upstream: ScriptedUpstream, base: str, wrap: bool, kind: str
) -> None:
    error = {"error": {"code": 400, "message": "Unknown name.", "status": "INVALID_ARGUMENT"}}
    body = json.dumps([error] if wrap else error).encode()
    upstream.scripts["m"] = Script([body], 400, {"content-type": kind})
    refused = respond(base, model="m")
    assert (refused.status, refused.error["message"]) == (400, "Unknown name.")

"""Each way in which an upstream fails, for each dialect it may speak and each surface a client may use:
the client gets the upstream's own error (law S5)."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support import dialect_scripts as scripts
from tests.support.dialect_scripts import DIALECTS
from tests.support.serving import Reply, call
from tests.support.upstream import CUT, DONE, HANG, JSON, Script, ScriptedUpstream, Step, chunk, frame

_TURN = [{"role": "user", "content": "Hello"}]
_GEMINI = "/v1beta/models"
SURFACES: dict[str, dict[str, Any]] = {
    _GEMINI: {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]},
    "/v1/responses": {"input": "Hello"},
    "/v1/chat/completions": {"messages": _TURN},
    "/v1/messages": {"messages": _TURN, "max_tokens": 100},
}
# status → the error's type in Anthropic's words
ANTHROPIC = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    502: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
# how upstreams name their refusals
KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}
every = pytest.mark.parametrize("dialect", DIALECTS)
everywhere = pytest.mark.parametrize("path", SURFACES)


def ask(base: str, path: str, model: str, stream: bool, into: bytearray | None = None) -> Reply:
    if path == _GEMINI:
        verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return call(base, "POST", f"{path}/{model}:{verb}", SURFACES[path], into=into)
    return call(base, "POST", path, {**SURFACES[path], "model": model, "stream": stream}, into=into)


def shown(path: str, reply: Reply, kind: str | None = None) -> str:
    """The message of an HTTP error, whose shape has to be the surface's own."""
    body = reply.json
    assert reply.headers["content-type"] == "application/json"
    if path == "/v1/messages":
        assert set(body) == {"type", "error"}
        assert (body["type"], set(body["error"])) == ("error", {"type", "message"})
        assert body["error"]["type"] == (kind or ANTHROPIC[reply.status])
    elif path == _GEMINI:
        assert (set(body), body["error"]["code"]) == ({"error"}, reply.status)
        assert set(body["error"]) == {"code", "message", "status", "details"}
    else:
        assert set(body) == {"error"}
        assert set(body["error"]) == {"type", "code", "message", "param"}
    message: str = body["error"]["message"]
    return message


@everywhere
@every
@pytest.mark.parametrize("status", KINDS)
def test_s5_refusals(many: str, upstream: ScriptedUpstream, dialect: str, path: str, status: int) -> None:
    model = f"{dialect}-refuses"
    body = scripts.refusal_body(dialect, KINDS[status], None, "That is why.")
    retry = {"retry-after": "17"} if status == 429 else {}
    upstream.scripts[model] = Script([body], status, JSON | retry)
    for stream in (False, True):
        reply = ask(many, path, model, stream)
        expected, kind = (status, "That is why."), None
        if status == 401:  # the key is this server's, and not the client's
            expected = (400, f"the upstream {dialect} asks for a key, and this server has none for it")
            kind = "api_error"
        assert (reply.status, shown(path, reply, kind)) == expected
        assert reply.headers.get("retry-after") == retry.get("retry-after")


LIES: dict[str, tuple[Script, int]] = {
    "html": (Script([b"<html>Welcome</html>"], headers={"content-type": "text/html"}), 502),
    "html error": (Script([b"<html>Bad gateway</html>"], 500, {"content-type": "text/html"}), 500),
    "empty": (Script([]), 502),
    "empty error": (Script([], 500, JSON), 500),
    "hang before the headers": (Script([], before=HANG), 504),
    "hang before the first byte": (Script([HANG]), 504),
    "cut before the first byte": (Script([CUT]), 502),
}


@everywhere
@every
@pytest.mark.parametrize("lie", LIES)
def test_s5_lies_before_the_first_byte(
    many_hasty: str, upstream: ScriptedUpstream, dialect: str, path: str, lie: str
) -> None:
    model = f"{dialect}-lies"
    upstream.scripts[model], status = LIES[lie]
    reply = ask(many_hasty, path, model, stream=False)
    assert reply.status == status
    assert "<html>" not in shown(path, reply)


ENDS: dict[str, list[Step]] = {"cut": [CUT], "hang": [HANG], "no end": []}


@every
@pytest.mark.parametrize("end", ENDS)
def test_case_26_what_breaks_off_never_completes(
    many_hasty: str, upstream: ScriptedUpstream, dialect: str, end: str
) -> None:
    model = f"{dialect}-breaks-off"
    upstream.scripts[model] = Script([*scripts.piece(dialect), *ENDS[end]])
    for path, check in STREAMED.items():
        reply = ask(many_hasty, path, model, stream=True)
        assert (reply.status, b"Hel" in reply.body) == (200, True), path
        check(reply)
    responses = ask(many_hasty, "/v1/responses", model, stream=False)
    assert (responses.status, responses.json["status"]) == (200, "failed")
    for path in ("/v1/chat/completions", "/v1/messages", _GEMINI):
        whole = ask(many_hasty, path, model, stream=False)
        assert whole.status in (502, 504), path  # there is no form for half an answer
        shown(path, whole)


def _responses_failed(reply: Reply) -> None:
    assert reply.types[-2:] == ["error", "response.failed"]


def _chat_failed(reply: Reply) -> None:
    *_, last, done = reply.frames
    assert (set(json.loads(last.data)), done.data) == ({"error"}, b"[DONE]")
    assert b'"finish_reason":"stop"' not in reply.body


def _messages_failed(reply: Reply) -> None:
    last = reply.frames[-1]
    assert (last.event, json.loads(last.data)["type"]) == ("error", "error")
    assert b"message_stop" not in reply.body


def _gemini_failed(reply: Reply) -> None:
    assert set(json.loads(reply.frames[-1].data)) == {"error"}
    assert b"finishReason" not in reply.body


STREAMED: dict[str, Callable[[Reply], None]] = {
    _GEMINI: _gemini_failed,
    "/v1/responses": _responses_failed,
    "/v1/chat/completions": _chat_failed,
    "/v1/messages": _messages_failed,
}


def _vscode(base: str, model: str) -> Reply:
    message = {"role": 1, "content": [{"value": "Hello"}]}
    return call(base, "POST", "/vscode/v1/chat", {"model": model, "messages": [message]})


BREAKS: dict[str, list[Step]] = {
    "cut": [CUT],
    "frame": [frame(error={"message": "boom", "type": "server_error"}), DONE],
}


@pytest.mark.parametrize("end", BREAKS)
@pytest.mark.parametrize("path", [*STREAMED, "/vscode/v1/chat"])
def test_e8_text_that_waits_is_shown_before_the_failure(
    many_hasty: str, upstream: ScriptedUpstream, path: str, end: str
) -> None:
    model = "chat-breaks-within-a-tag"
    upstream.scripts[model] = Script([chunk(role="assistant"), chunk(content="<thi"), *BREAKS[end]])
    vscode = path not in STREAMED
    reply = _vscode(many_hasty, model) if vscode else ask(many_hasty, path, model, stream=True)
    body = reply.body.replace(b"\\u003c", b"<")
    assert reply.status == 200
    assert body.index(b'"<thi"') < body.lower().rindex(b"error")
    if not vscode:
        STREAMED[path](reply)


def test_own_refusals_of_gemini_s_surface(many: str) -> None:
    for model, body, status in (("nothing", SURFACES[_GEMINI], 404), ("m", b"{", 400), ("m", b"[]", 400)):
        for verb in ("generateContent", "streamGenerateContent?alt=sse", "countTokens"):
            reply = call(many, "POST", f"{_GEMINI}/{model}:{verb}", body)
            assert reply.status == status, (verb, body, reply.body)
            assert shown(_GEMINI, reply)


@pytest.mark.parametrize("path", [path for path in SURFACES if path != _GEMINI])
def test_own_refusals_have_the_shape_of_the_surface(many: str, path: str) -> None:
    for body, status in (({"model": "nothing"}, 404), ({"model": 5}, 400), (b"{", 400), (b"[]", 400)):
        sent = {**SURFACES[path], **body} if isinstance(body, dict) else body
        reply = call(many, "POST", path, sent)
        assert reply.status == status, (path, body, reply.body)
        assert shown(path, reply)
    assert call(many, "POST", path, b"x", {"content-type": "text/plain"}).status == 415


def test_keep_alive_is_the_surface_s_own(many: str, upstream: ScriptedUpstream) -> None:
    first, *rest = scripts.text("chat", "a", "b")

    def answer(path: str, mark: bytes) -> Reply:
        """That of an upstream which goes on when this has come."""
        got = bytearray()
        upstream.scripts["chat-slow"] = Script([first, lambda: mark in got.replace(b"\r", b""), *rest])
        return ask(many, path, "chat-slow", stream=True, into=got)

    assert b"event: ping\n" in answer("/v1/messages", b"event: ping\n").body
    assert b": keep-alive" in answer("/v1/chat/completions", b": keep-alive").body
    google = answer(_GEMINI, b"\n\n\n")  # whose SDK takes a comment for an error
    lines = google.body.replace(b"\r", b"").split(b"\n")
    assert not any(line.startswith(b":") for line in lines)
    assert b"\n\n\n" in b"\n".join(lines)


@every
def test_dialects_have_their_own_paths_headers_and_keys(
    many: str, upstream: ScriptedUpstream, dialect: str
) -> None:
    model = f"{dialect}-path"
    upstream.scripts[model] = Script(scripts.text(dialect, "a"))
    assert ask(many, "/v1/responses", model, stream=False).status == 200
    sent = upstream.last(model)
    paths = {"chat": "/v1/chat/completions", "anthropic": "/v1/messages", "responses": "/v1/responses"}
    assert sent.path == paths[dialect]
    assert ("anthropic-version" in sent.headers) == (dialect == "anthropic")
    assert not {"authorization", "x-api-key"} & sent.headers.keys()


def test_parts_for_vs_code(demo: str) -> None:
    message = {"role": 1, "content": [{"value": "Hello"}]}
    reply = call(demo, "POST", "/vscode/v1/chat", {"model": "demo", "messages": [message]})
    assert (reply.status, reply.headers["content-type"]) == (200, "application/jsonl; charset=utf-8")
    parts = [json.loads(line) for line in reply.body.splitlines() if line]
    assert (
        "".join(str(part["value"]) for part in parts if isinstance(part.get("value"), str))
        == "You said: Hello"
    )
    assert call(demo, "POST", "/vscode/v1/chat", {"model": "demo"}).error["param"] == "messages"
    assert call(demo, "POST", "/vscode/v1/chat", b"{").status == 400


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("ending", ["response.cancelled", "response.incomplete"])
def test_a_cancelled_upstream_is_the_same_error_streamed_and_whole(
    many: str, upstream: ScriptedUpstream, path: str, ending: str
) -> None:
    model = "responses-cancelled"
    status = ending.removeprefix("response.")
    response = {"id": "resp_u", "created_at": 1, "model": "up", "output": []}
    frames = [
        {"type": "response.created", "response": {**response, "status": "in_progress"}},
        {
            "type": "response.output_text.delta",
            "item_id": "m",
            "output_index": 0,
            "content_index": 0,
            "delta": "Hi",
        },
        {
            "type": ending,
            "response": {**response, "status": status, "incomplete_details": {"reason": "cancelled"}},
        },
    ]
    upstream.scripts[model] = Script([f"data: {json.dumps(each)}\n\n".encode() for each in frames])
    whole = ask(many, path, model, stream=False)
    assert whole.status == 502
    streamed = [each["error"] for each in ask(many, path, model, stream=True).events if each.get("error")]
    assert [each["message"] for each in streamed] == [whole.json["error"]["message"]]
    assert [each["type"] for each in streamed] == [whole.json["error"]["type"]]
    assert [each.get("code") for each in streamed] == [whole.json["error"].get("code")]
    assert "cancelled" in streamed[0]["message"]

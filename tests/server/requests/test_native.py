"""What one API alone has, through the server: from a client to an upstream of the same API and back (laws N1
and N2)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from openresponses_server.settings import Settings, UpstreamSettings
from tests.support import dialect_scripts as scripts
from tests.support.anthropic import add_up, parse_sse
from tests.support.in_process import InProcess
from tests.support.serving import Reply
from tests.support.upstream import JSON, Script, ScriptedUpstream

BETA = b"anthropic-beta"
# fields of a request that only Anthropic has, each with the beta that it belongs to, if any
FIELDS: dict[str, tuple[Any, str]] = {
    "container": ("container_1", "code-execution-2025-08-25"),
    "fallbacks": ("default", "server-side-fallback-2026-07-01"),
    "diagnostics": ({"previous_message_id": None}, "cache-diagnosis-2026-04-07"),
    "mcp_servers": ([{"type": "url", "url": "https://a.example", "name": "a"}], "mcp-client-2025-11-20"),
    "safeguards": ([{"type": "dangerous_tool_use"}], "dangerous-tool-use-2026-09-03"),
    "context_hint": ({"a": 1}, "context-hint-2026-01-01"),
    "billing_policy": ({"type": "x"}, "billing-2026-01-01"),
    "of_tomorrow": ({"a": [1, None]}, "tomorrow-2027-01-01"),
}
START: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [],
    "diagnostics": {"cache_miss_reason": None, "x": 1},
    "usage": {
        "input_tokens": 7,
        "cache_read_input_tokens": 20,
        "cache_creation_input_tokens": 100,
        "cache_creation": {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 0},
        "output_tokens": 1,
        "service_tier": "standard",
        "inference_geo": "eu",
    },
}
TEXT = {"type": "text", "text": "Hello"}
DELTA: dict[str, Any] = {
    "stop_reason": "compaction",
    "stop_sequence": None,
    "container": {"id": "c1", "expires_at": "2026-01-01T00:00:00Z"},
    "safeguard_results": [{"type": "dangerous_tool_use", "status": {"type": "available"}}],
}
BESIDE: dict[str, Any] = {
    "context_management": {"applied_edits": [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 3}]},
    "input_transformations": [{"type": "thinking_dropped"}],
}
USAGE: dict[str, Any] = {
    "output_tokens": 2,
    "iterations": [{"type": "message", "output_tokens": 1}, {"type": "message", "output_tokens": 1}],
    "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 2},
}


def streamed() -> list[Any]:
    frames = [
        {"type": "message_start", "message": START},
        {"type": "content_block_start", "index": 0, "content_block": {**TEXT, "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": DELTA, "usage": USAGE, **BESIDE},
        {"type": "message_stop"},
    ]
    return [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in frames]


def whole() -> dict[str, Any]:
    return {**START, "content": [TEXT], **DELTA, **BESIDE, "usage": {**START["usage"], **USAGE}}


@pytest.fixture(scope="module")
def app(upstream: ScriptedUpstream) -> Iterator[InProcess]:
    def reached(name: str, dialect: str, **more: Any) -> UpstreamSettings:
        return UpstreamSettings(name=name, url=upstream.url, dialect=dialect, models=[f"{name}-*"], **more)

    upstreams = [
        reached("anthropic", "anthropic"),
        reached("without", "anthropic", options={"betas": False}),
        *(reached(name, name) for name in ("chat", "responses", "gemini")),
    ]
    running = InProcess(Settings(upstreams=upstreams))
    yield running
    running.close()


def ask(app: InProcess, upstream: ScriptedUpstream, name: str, betas: str = "", **fields: Any) -> Reply:
    dialect = "anthropic" if name == "without" else name
    upstream.scripts.setdefault(f"{name}-m", Script(scripts.text(dialect, "Hello")))
    body = {
        "model": f"{name}-m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], **fields
    }  # fmt: skip
    return app.call("POST", "/v1/messages", body, [(BETA, betas.encode())] if betas else ())


@pytest.mark.parametrize("name", FIELDS)
def test_n1_n2_a_field_and_its_beta_reach_the_same_api(
    app: InProcess, upstream: ScriptedUpstream, name: str
) -> None:
    value, beta = FIELDS[name]
    reply = ask(app, upstream, "anthropic", beta, **{name: value})
    received = upstream.last("anthropic-m")
    assert (received.body[name], received.headers[BETA.decode()]) == (value, beta)
    assert (reply.status, reply.headers.get("openresponses-losses")) == (200, None)


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("upstream_name", ["without", "chat", "responses", "gemini"])
def test_n2_elsewhere_neither_goes_and_both_are_losses(
    app: InProcess, upstream: ScriptedUpstream, upstream_name: str, name: str
) -> None:
    value, beta = FIELDS[name]
    reply = ask(app, upstream, upstream_name, beta, **{name: value})
    if name == "container" and upstream_name != "without":  # law N3
        assert (reply.status, reply.json["error"]["message"].partition(":")[0]) == (400, name)
        return
    received = upstream.last(f"{upstream_name}-m")
    lost = {each.partition(":")[0] for each in reply.headers["openresponses-losses"].split("; ")}
    stable = upstream_name == "without" and name in ("container", "diagnostics")  # fields of no beta
    assert (name in received.body, BETA.decode() in received.headers) == (stable, False)
    assert lost - {"max_output_tokens"} == {BETA.decode(), *([] if stable else [name])}


def test_n1_the_headers_of_an_account_go_on(app: InProcess, upstream: ScriptedUpstream) -> None:
    names = {"anthropic-user-profile-id": "up_01Ab", "anthropic-workspace-id": "wrkspc_01Ab"}
    body = {"model": "anthropic-m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    upstream.scripts["anthropic-m"] = Script(scripts.text("anthropic", "Hello"))
    app.call("POST", "/v1/messages", body, [(each.encode(), names[each].encode()) for each in names])
    received = upstream.last("anthropic-m").headers
    assert {name: received[name] for name in names} == names


@pytest.mark.parametrize("made_whole", [False, True], ids=["streamed upstream", "whole upstream"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_n1_what_the_answer_says_comes_back(
    app: InProcess, upstream: ScriptedUpstream, stream: bool, made_whole: bool
) -> None:
    script = Script([json.dumps(whole()).encode()], headers=JSON) if made_whole else Script(streamed())
    upstream.scripts["anthropic-m"] = script
    reply = ask(app, upstream, "anthropic", stream=stream)
    answer = add_up(parse_sse(reply.body)) if stream else reply.json
    expected = {**whole(), "id": answer["id"], "model": "anthropic-m"}
    del expected["input_transformations" if stream else "type"]  # which the SDK's accumulator leaves out
    assert {name: answer[name] for name in expected} == expected


def test_n1_the_beginning_has_the_counts_that_the_upstream_gave(
    app: InProcess, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["anthropic-m"] = Script(streamed())
    begun = parse_sse(ask(app, upstream, "anthropic", stream=True).body)[0]["message"]
    counts = {name: count for name, count in START["usage"].items() if name != "output_tokens"}
    assert {name: begun["usage"][name] for name in counts} == counts
    assert begun["diagnostics"] == START["diagnostics"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [400, 200])
def test_n1_details_of_an_error_come_back(
    app: InProcess, upstream: ScriptedUpstream, stream: bool, status: int
) -> None:
    details = {"error_code": "thread_unsupported_request", "more": [1]}
    error = {"type": "invalid_request_error", "message": "m", "details": details}
    body = json.dumps({"type": "error", "error": error}).encode()
    late = [*streamed()[:3], b"event: error\ndata: " + body + b"\n\n"]
    upstream.scripts["anthropic-m"] = (
        Script([body], status, JSON) if status != 200 or not stream else Script(late)
    )
    reply = ask(app, upstream, "anthropic", stream=stream)
    late_error = reply.status == 200
    assert late_error == (status == 200 and stream)
    reply_error = parse_sse(reply.body)[-1]["error"] if late_error else reply.json["error"]
    assert reply_error == error


def test_an_explained_refusal_keeps_all_that_explains_it(app: InProcess, upstream: ScriptedUpstream) -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "x", "recommended_model": "y"}
    answer = {**whole(), "stop_reason": "refusal", "stop_details": details}
    upstream.scripts["anthropic-m"] = Script([json.dumps(answer).encode()], headers=JSON)
    reply = ask(app, upstream, "anthropic").json
    assert (reply["stop_reason"], reply["stop_details"]) == ("refusal", details)


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])
def test_t4_other_clients_lose_nothing_in_silence(
    app: InProcess, upstream: ScriptedUpstream, path: str
) -> None:
    upstream.scripts["anthropic-m"] = Script(streamed())
    fields = {"input": "Hi"} if path == "/v1/responses" else {"messages": [{"role": "user", "content": "Hi"}]}
    reply = app.call("POST", path, {"model": "anthropic-m", **fields})
    native = reply.json.get("openresponses-bridge:native")
    if path != "/v1/responses":
        assert (reply.status, native) == (200, None)
        return
    delta = {name: DELTA[name] for name in ("stop_reason", "container", "safeguard_results")}
    assert native["anthropic"]["delta"] == delta
    assert native["anthropic"]["usage"]["iterations"] == USAGE["iterations"]


@pytest.mark.parametrize("name", ["responses", "plain"])
def test_n2_openai_s_betas_go_with_their_fields(upstream: ScriptedUpstream, name: str) -> None:
    betas = "responses_multi_agent=v1, responses_websockets=2026-02-06"
    options = {} if name == "responses" else {"supersets": False}
    reached = UpstreamSettings(name=name, url=upstream.url, dialect="responses", options=options)
    running = InProcess(Settings(upstreams=[reached]))
    upstream.scripts["multi"] = Script(scripts.text("responses", "Hello"))
    body = {"model": "multi", "input": "Hi", "multi_agent": {"enabled": True}}
    reply = running.call("POST", "/v1/responses", body, [(b"openai-beta", betas.encode())])
    running.close()
    received, lost = upstream.last("multi"), reply.headers.get("openresponses-losses", "")
    sent = (received.headers.get("openai-beta"), received.body.get("multi_agent"))
    expected = ("responses_multi_agent=v1", {"enabled": True})
    assert sent == (expected if name == "responses" else (None, None))
    assert [each in lost for each in ("openai-beta", "multi_agent")] == [name == "plain"] * 2


def test_case_55_a_token_for_an_mcp_server_reaches_the_upstream_alone(
    app: InProcess, upstream: ScriptedUpstream
) -> None:
    server = {
        "type": "url",
        "url": "https://a.example",
        "name": "a",
        "authorization_token": "tok-of-the-client",
    }
    details = {
        "type": "invalid_request_error",
        "message": "no: tok-of-the-client",
        "details": {"a": "tok-of-the-client"},
    }
    upstream.scripts["anthropic-m"] = Script(
        [json.dumps({"type": "error", "error": details}).encode()], 400, JSON
    )
    reply = ask(app, upstream, "anthropic", mcp_servers=[server])
    assert upstream.last("anthropic-m").body["mcp_servers"] == [server]
    assert reply.status == 400
    assert b"tok-of-the-client" not in reply.body


SOUND: dict[str, Any] = {"id": "audio_1", "data": "QVVESU8=", "transcript": "Hello there", "expires_at": 9}
OF_CHAT: dict[str, Any] = {"system_fingerprint": "fp_1", "service_tier": "flex", "of_tomorrow": {"a": [1]}}
COUNTS: dict[str, Any] = {
    "prompt_tokens": 5,
    "completion_tokens": 4,
    "total_tokens": 9,
    "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 3},
    "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 4, "of_tomorrow": 1},
}


def spoken(stream: bool) -> Script:
    """An answer in sound, of a Chat server."""
    head = {"id": "c", "created": 1, "model": "m", **OF_CHAT}
    if not stream:
        message = {"role": "assistant", "content": None, "audio": SOUND}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        body = {**head, "object": "chat.completion", "choices": [choice], "usage": COUNTS}
        return Script([json.dumps(body).encode()], headers=JSON)
    deltas: list[Any] = [
        {"role": "assistant", "audio": {"id": "audio_1", "transcript": "Hello"}},
        {"audio": {"data": "QVVE"}},
        {"audio": {"data": "SU8=", "transcript": " there"}},
        {"audio": {"expires_at": 9}},
    ]
    choices: list[Any] = [[{"index": 0, "delta": delta}] for delta in deltas]
    frames = [{**head, "choices": each} for each in choices]
    frames.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    frames.append({**head, "choices": [], "usage": COUNTS})
    return Script([f"data: {json.dumps(each)}\n\n".encode() for each in frames] + [b"data: [DONE]\n\n"])


def talk(app: InProcess, model: str, *messages: Any, **fields: Any) -> Reply:
    body = {"model": model, "messages": [{"role": "user", "content": "Hi"}, *messages], **fields}
    return app.call("POST", "/v1/chat/completions", body)


@pytest.mark.parametrize("made_whole", [False, True], ids=["streamed upstream", "whole upstream"])
def test_n1_sound_and_what_an_answer_of_chat_says_come_back(
    app: InProcess, upstream: ScriptedUpstream, made_whole: bool
) -> None:
    upstream.scripts["chat-m"] = spoken(not made_whole)
    fields = {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}}
    reply = talk(app, "chat-m", **fields)
    assert (reply.status, reply.headers.get("openresponses-losses")) == (200, None)
    assert upstream.last("chat-m").body.items() >= fields.items()
    assert reply.json["choices"][0]["message"]["audio"] == SOUND
    assert reply.json.items() >= OF_CHAT.items()
    assert reply.json["usage"] == COUNTS

    streamed = talk(app, "chat-m", stream=True, stream_options={"include_usage": True}, **fields)
    lines = streamed.body.decode().splitlines()
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    heard = [
        each["delta"]["audio"] for chunk in chunks for each in chunk["choices"] if "audio" in each["delta"]
    ]
    assert len(heard) == (1 if made_whole else 4)
    pieces = {name: [each[name] for each in heard if name in each] for name in SOUND}
    joined = {name: "".join(each) if name != "expires_at" else each[-1] for name, each in pieces.items()}
    assert joined == SOUND
    assert chunks[0].items() >= OF_CHAT.items()
    assert chunks[-1].items() >= OF_CHAT.items()
    assert chunks[-1]["usage"] == COUNTS


def test_n1_n3_an_earlier_answer_in_sound_is_known_to_its_server_alone(
    app: InProcess, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["chat-m"] = Script(scripts.text("chat", "Hello"))
    before = {"role": "assistant", "audio": {"id": "audio_1"}}
    assert talk(app, "chat-m", before, {"role": "user", "content": "And?"}).status == 200
    assert upstream.last("chat-m").body["messages"][1] == before
    for elsewhere in ("responses-m", "gemini-m", "anthropic-m"):
        refused = talk(app, elsewhere, before, {"role": "user", "content": "And?"})
        assert refused.status == 400
        assert refused.json["error"]["param"] == "messages[1].audio"


def test_n1_counts_of_several_choices_are_added_up(app: InProcess, upstream: ScriptedUpstream) -> None:
    upstream.scripts["chat-m"] = spoken(False)
    usage = talk(app, "chat-m", n=2).json["usage"]
    assert (usage["total_tokens"], usage["prompt_tokens_details"]["audio_tokens"]) == (18, 6)
    assert usage["completion_tokens_details"]["of_tomorrow"] == 2

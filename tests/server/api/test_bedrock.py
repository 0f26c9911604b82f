"""Bedrock's Converse API over HTTP: botocore's own client over each kind of upstream, its keys and errors,
and hostile clients."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from openresponses_bridge.dialects.bedrock_converse import EventStreamDecoder
from openresponses_server.api.app import create_app
from openresponses_server.http.connection import http_protocol
from openresponses_server.settings import Settings, UpstreamSettings
from openresponses_server.settings.files import hashed
from tests.support import converse
from tests.support import dialect_scripts as scripts
from tests.support.bedrock_client import (
    client_of,
    leave_environment,
    message_of,
    serving_each,
    streamed,
    text_in,
    with_header,
)
from tests.support.certificates import Authority
from tests.support.converse import played
from tests.support.serving import Reply, call, serving, serving_app
from tests.support.strict_converse import KEY, SECRET
from tests.support.strict_sessions import strict_bedrock
from tests.support.strict_upstreams import Asked, Said
from tests.support.upstream import CUT, HANG, Script, ScriptedUpstream, contains, refusal
from tests.support.waiting import wait_until

botocore = pytest.importorskip("botocore")
exceptions = pytest.importorskip("botocore.exceptions")
Json = dict[str, Any]
HELLO: list[Json] = [{"role": "user", "content": [{"text": "Hello"}]}]
BODY: Json = {"messages": HELLO}
WEATHER: Json = {
    "tools": [
        {
            "toolSpec": {
                "name": "weather",
                "description": "The weather in a city.",
                "inputSchema": {"json": {"type": "object", "properties": {"city": {"type": "string"}}}},
            }
        }
    ]
}
CALLS = (("call_1", "weather", '{"city": "Lima"}'), ("call_2", "weather", '{"city": "Oslo"}'))
DIALECTS = ("chat", "anthropic", "responses", "bedrock")
CLAUDE = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    leave_environment(monkeypatch, tmp_path, "AWS_")


@pytest.fixture(scope="module")
def each(upstream: ScriptedUpstream) -> Iterator[str]:
    """A server over one upstream of each dialect: `chat-1`, …, `bedrock-1`."""
    with serving_each(upstream, {dialect: [f"{dialect}-*"] for dialect in DIALECTS}) as base:
        yield base


@pytest.fixture
def made() -> Iterator[Callable[..., Any]]:
    """Makes clients, which are closed when the test is over."""
    with ExitStack() as clients:

        def make(base: str, **options: Any) -> Any:
            return clients.enter_context(closing(client_of(base, **options)))

        yield make


@pytest.fixture(scope="module")
def aws(demo: str) -> Iterator[Any]:
    """A client of the demo model, which signs its requests as ever: the server has no keys."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("AWS_BEARER_TOKEN_BEDROCK", raising=False)
        with closing(client_of(demo)) as client:
            yield client


def events_in(reply: Reply) -> list[Json]:
    """The events of a stream, exceptions among them."""
    decoder = EventStreamDecoder()
    messages = decoder.feed(reply.body)
    decoder.close()
    names = [each.headers.get(":event-type") or each.headers[":exception-type"] for each in messages]
    return [{name: json.loads(each.payload)} for name, each in zip(names, messages, strict=True)]


def post(base: str, call_: str = "converse", body: Any = None, model: str = "demo", **headers: str) -> Reply:
    return call(base, "POST", f"/model/{model}/{call_}", BODY if body is None else body, headers)


# ── answers ────────────────────────────────────────────────────────────────────────────────────────────
def test_one_answer(aws: Any) -> None:
    response = aws.converse(modelId="demo", messages=HELLO)
    assert response["output"]["message"] == {"role": "assistant", "content": [{"text": "You said: Hello"}]}
    assert response["stopReason"] == "end_turn"
    usage = response["usage"]
    assert usage["totalTokens"] == usage["inputTokens"] + usage["outputTokens"]
    assert response["metrics"]["latencyMs"] >= 0
    assert response["ResponseMetadata"]["RequestId"].startswith("req_")


def test_a_stream_has_what_one_answer_has(aws: Any) -> None:
    events = list(streamed(aws, modelId="demo", messages=HELLO))
    assert text_in(events) == "You said: Hello"
    kinds = [next(iter(event)) for event in events if "contentBlockDelta" not in event]
    assert kinds == ["messageStart", "contentBlockStop", "messageStop", "metadata"]
    assert events[-2]["messageStop"]["stopReason"] == "end_turn"
    whole = aws.converse(modelId="demo", messages=HELLO)
    assert events[-1]["metadata"]["usage"] == whole["usage"]


def test_tokens_are_counted(aws: Any) -> None:
    counted = aws.count_tokens(modelId="demo", input={"converse": {"messages": HELLO}})
    assert counted["inputTokens"] > 0


@pytest.mark.parametrize("model", ["a/b:c", "arn:aws:bedrock:eu-west-3:1:inference-profile/eu.m:0", "é ~%2F"])
def test_a_name_of_a_model_may_have_any_characters(
    made: Callable[..., Any], each: str, upstream: ScriptedUpstream, model: str
) -> None:
    upstream.scripts[f"bedrock-{model}"] = played("bedrock", scripts.text("bedrock", "Hel", "lo"))
    response = made(each).converse(modelId=f"bedrock-{model}", messages=HELLO)
    assert response["output"]["message"]["content"] == [{"text": "Hello"}]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("stream", [False, True])
def test_calls_and_their_results(
    made: Callable[..., Any], each: str, upstream: ScriptedUpstream, dialect: str, *, stream: bool
) -> None:
    model, aws = f"{dialect}-1", made(each)
    upstream.scripts[model] = played(dialect, scripts.call(dialect, *CALLS))
    request: Json = {"modelId": model, "toolConfig": WEATHER, "system": [{"text": "Be brief."}]}
    if stream:
        events = list(streamed(aws, messages=HELLO, **request))
        message, stop = message_of(events), events[-2]["messageStop"]["stopReason"]
        usage = events[-1]["metadata"]["usage"]
    else:
        said = aws.converse(messages=HELLO, **request)
        message, stop, usage = said["output"]["message"], said["stopReason"], said["usage"]
    expected = [
        {"toolUse": {"toolUseId": id, "name": name, "input": json.loads(arguments)}}
        for id, name, arguments in CALLS
    ]
    assert (message["content"], stop) == (expected, "tool_use")
    assert usage["inputTokens"] > 0
    results = [
        {"toolResult": {"toolUseId": "call_1", "content": [{"json": {"degrees": 12}}], "status": "success"}},
        {"toolResult": {"toolUseId": "call_2", "content": [{"text": "broken"}], "status": "error"}},
    ]
    upstream.scripts[model] = played(dialect, scripts.text(dialect, "Both ", "are mild."))
    turns = [*HELLO, message, {"role": "user", "content": results}]
    answer = aws.converse(messages=turns, **request)
    assert answer["output"]["message"]["content"] == [{"text": "Both are mild."}]
    body = json.dumps(upstream.received[-1].body)
    for said in ("degrees", "broken", "Be brief.", "weather"):
        assert said in body


def test_to_bedrock_itself_nothing_is_lost(
    made: Callable[..., Any], each: str, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["bedrock-1"] = played("bedrock", scripts.call("bedrock", CALLS[0]))
    request: Json = {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"text": "Look"},
                    {"image": {"format": "png", "source": {"bytes": b"\x89PNG"}}},
                    {"document": {"format": "pdf", "name": "Report (1)", "source": {"bytes": b"%PDF"}}},
                    {"guardContent": {"text": {"text": "Guarded", "qualifiers": ["query"]}}},
                    {"cachePoint": {"type": "default"}},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "c2ln=="}}},
                    {"reasoningContent": {"redactedContent": b"\x00\xffopaque"}},
                    {"text": "Seen."},
                ],
            },
            {"role": "user", "content": [{"text": "And?"}]},
        ],
        "system": [{"text": "Be brief."}, {"cachePoint": {"type": "default", "ttl": "1h"}}],
        "inferenceConfig": {"maxTokens": 99, "temperature": 0.5, "topP": 0.5, "stopSequences": ["END"]},
        "toolConfig": WEATHER | {"toolChoice": {"any": {}}},
        "guardrailConfig": {"guardrailIdentifier": "g1", "guardrailVersion": "1", "trace": "enabled"},
        "additionalModelRequestFields": {"thinking": {"type": "enabled", "budget_tokens": 2048}},
        "additionalModelResponseFieldPaths": ["/stop_sequence"],
        "performanceConfig": {"latency": "optimized"},
        "requestMetadata": {"team": "a"},
        "serviceTier": {"type": "priority"},
    }
    reply = made(each).converse(modelId="bedrock-1", **request)
    assert "openresponses-losses" not in reply["ResponseMetadata"]["HTTPHeaders"]
    body = upstream.received[-1].body
    assert body == json.loads(json.dumps(request, default=lambda data: base64.b64encode(data).decode()))


def test_elsewhere_what_is_lost_is_said(
    made: Callable[..., Any], each: str, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["chat-1"] = Script(scripts.text("chat", "Hello"))
    reply = made(each).converse(
        modelId="chat-1",
        messages=[{"role": "user", "content": [{"guardContent": {"text": {"text": "Guarded"}}}]}],
        guardrailConfig={"guardrailIdentifier": "g1", "guardrailVersion": "1"},
        additionalModelRequestFields={"anthropic_beta": ["a"], "reasoning_effort": "low"},
    )
    losses = reply["ResponseMetadata"]["HTTPHeaders"]["openresponses-losses"]
    for name in ("guardrailConfig", "guardContent", "additionalModelRequestFields.anthropic_beta"):
        assert name in losses
    body = upstream.received[-1].body
    assert body["messages"][-1]["content"] == "Guarded"
    assert body["reasoning_effort"] == "low"
    assert "reasoning_effort" not in losses


@pytest.mark.parametrize(
    "block",
    [
        {"image": {"format": "png", "source": {"s3Location": {"uri": "s3://bucket/a.png"}}}},
        {"document": {"format": "pdf", "name": "a", "source": {"s3Location": {"uri": "s3://bucket/a"}}}},
    ],
)
def test_what_only_bedrock_can_read_is_refused_elsewhere(
    made: Callable[..., Any], each: str, block: Json
) -> None:
    aws = made(each)
    with pytest.raises(aws.exceptions.ValidationException, match="S3"):
        aws.converse(modelId="chat-1", messages=[{"role": "user", "content": [{"text": "a"}, block]}])


# ── reasoning ──────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("stream", [False, True])
def test_ten_turns_with_reasoning_and_calls_are_never_refused(
    monkeypatch: pytest.MonkeyPatch, *, stream: bool
) -> None:
    """Signatures, ids and the order of blocks come back to a strict Bedrock as it made them."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)

    def rule(asked: Asked) -> Said:
        thinking = f"Thought {asked.turn}.{asked.outputs} \u00e9"
        if asked.outputs < asked.turn % 3:
            return Said("I look.", (("weather", {"city": "Lima"}), ("weather", {"city": "Oslo"})), thinking)
        return Said(f"Turn {asked.turn} is done.", (), thinking)

    with strict_bedrock(rule) as (base, strict), closing(client_of(base)) as aws:
        turns: list[Json] = []
        for turn in range(1, 11):
            turns.append({"role": "user", "content": [{"text": f"Turn {turn}."}]})
            while True:
                asked: Json = {"modelId": CLAUDE, "messages": turns, "toolConfig": WEATHER}
                if stream:
                    message = message_of(streamed(aws, **asked))
                else:
                    message = aws.converse(**asked)["output"]["message"]
                turns.append(message)
                calls = [block["toolUse"] for block in message["content"] if "toolUse" in block]
                if not calls:
                    break
                results = [
                    {"toolResult": {"toolUseId": each["toolUseId"], "content": [{"text": "seen"}]}}
                    for each in calls
                ]
                turns.append({"role": "user", "content": results})
            assert message["content"][-1] == {"text": f"Turn {turn} is done."}
            assert "signature" in message["content"][0]["reasoningContent"]["reasoningText"]
    assert strict.refused == []


REASONED = [
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA-opaque/+="},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Said", "annotations": []}],
    },
]


def reasoned(summary: str) -> Script:
    """A stream of Responses with encrypted reasoning, and a summary of it if there is one."""
    thought: Json = dict(REASONED[0])
    events: list[Json] = [{"type": "response.created", "response": _response("in_progress", [])}]
    begun = {"type": "response.output_item.added", "output_index": 0, "item": {**thought, "status": None}}
    events.append(begun)
    if summary:
        place = {"item_id": "rs_1", "output_index": 0, "summary_index": 0}
        thought["summary"] = [{"type": "summary_text", "text": summary}]
        events.append({"type": "response.reasoning_summary_text.delta", **place, "delta": summary})
    events += [
        {"type": "response.output_item.done", "output_index": 0, "item": thought},
        {"type": "response.output_item.added", "output_index": 1, "item": {**REASONED[1], "content": []}},
        {
            "type": "response.output_text.delta",
            "item_id": "msg_1",
            "output_index": 1,
            "content_index": 0,
            "delta": "Said",
        },
        {"type": "response.output_item.done", "output_index": 1, "item": REASONED[1]},
        {"type": "response.completed", "response": _response("completed", [thought, REASONED[1]])},
    ]
    numbered = [{**event, "sequence_number": number} for number, event in enumerate(events)]
    return Script([b"data: " + json.dumps(event).encode() + b"\n\n" for event in numbered])


def _response(status: str, output: list[Json]) -> Json:
    head = {"id": "resp_u", "object": "response", "created_at": 1, "model": "m", "status": status}
    return {**head, "output": output, "tools": [], "tool_choice": "auto", "parallel_tool_calls": True}


@pytest.mark.parametrize("summary", ["", "Hm."])
@pytest.mark.parametrize("stream", [False, True])
def test_another_upstreams_reasoning_comes_back_to_the_byte(
    made: Callable[..., Any], each: str, upstream: ScriptedUpstream, summary: str, *, stream: bool
) -> None:
    """botocore decodes redacted content from base64, and encodes it again."""
    aws = made(each)
    upstream.scripts["responses-1"] = reasoned(summary)
    request: Json = {"modelId": "responses-1", "messages": HELLO}
    message = message_of(streamed(aws, **request)) if stream else aws.converse(**request)["output"]["message"]
    thought = message["content"][0]["reasoningContent"]
    if summary:
        assert thought["reasoningText"]["text"] == summary
    else:
        assert isinstance(thought["redactedContent"], bytes)
    turns = [*HELLO, message, {"role": "user", "content": [{"text": "Go on"}]}]
    aws.converse(modelId="responses-1", messages=turns)
    sent = [item for item in upstream.received[-1].body["input"] if item.get("type") == "reasoning"]
    assert [item["encrypted_content"] for item in sent] == ["gAAA-opaque/+="]
    assert [part["text"] for part in sent[0]["summary"]] == ([summary] if summary else [])


# ── keys ───────────────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture(scope="module")
def locked() -> Iterator[str]:
    with serving(Settings(store="memory://", api_keys=[hashed("key-1"), hashed("key-2")])) as base:
        yield base


def test_a_signed_request_is_refused_and_told_what_to_send(made: Callable[..., Any], locked: str) -> None:
    aws = made(locked)
    for ask in (aws.converse, aws.converse_stream):
        with pytest.raises(aws.exceptions.AccessDeniedException, match="AWS_BEARER_TOKEN_BEDROCK") as caught:
            ask(modelId="demo", messages=HELLO)
        assert "AKIA" not in str(caught.value)
    assert post(locked, authorization="Bearer key-1").status == 200
    known = with_header(made(locked), "x-api-key", "key-1")
    assert known.converse(modelId="demo", messages=HELLO)["stopReason"] == "end_turn"
    for headers in ({}, {"authorization": "Bearer key-3"}, {"authorization": "Basic a2V5"}):
        refused = post(locked, **headers)
        assert (refused.status, refused.headers["x-amzn-errortype"]) == (401, "AccessDeniedException")
        assert "SigV4" not in refused.json["message"]


def test_a_bearer_key_over_tls(
    made: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """botocore sends AWS_BEARER_TOKEN_BEDROCK to addresses of https alone."""
    authority = Authority(tmp_path)
    settings = Settings(store="memory://", api_keys=[hashed("key-1")])
    options = {"lifespan": "on", "http": http_protocol(settings)}
    certificate = str(authority.certificate("server"))
    with serving_app(create_app(settings), ssl_certfile=certificate, **options) as base:
        address = base.replace("http://127.0.0.1", "https://localhost")
        monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "key-1")
        aws = made(address, verify=str(authority.file))
        assert aws.converse(modelId="demo", messages=HELLO)["stopReason"] == "end_turn"
        assert text_in(streamed(aws, modelId="demo", messages=HELLO)) == "You said: Hello"
        monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "of another")
        stranger = made(address, verify=str(authority.file))
        with pytest.raises(stranger.exceptions.AccessDeniedException, match="not valid"):
            stranger.converse(modelId="demo", messages=HELLO)
        for client in (aws, stranger):  # an idle one answers no end of TLS, for which the server waits
            client.close()


def test_another_key_can_not_open_reasoning(upstream: ScriptedUpstream) -> None:
    upstream.scripts["r"] = reasoned("")
    made = UpstreamSettings(url=upstream.url, dialect="responses", name="r")
    settings = Settings(upstreams=[made], store="memory://", api_keys=[hashed("key-1"), hashed("key-2")])
    with serving(settings) as base:
        first = post(base, model="r", authorization="Bearer key-1").json["output"]["message"]
        turns = {"messages": [*HELLO, first, *HELLO]}
        for key, is_kept in (("key-1", True), ("key-2", False)):
            reply = post(base, body=turns, model="r", authorization=f"Bearer {key}")
            assert reply.status == 200
            assert ("can't be opened" in reply.headers.get("openresponses-losses", "")) is not is_kept
            assert ("gAAA-opaque" in json.dumps(upstream.received[-1].body)) is is_kept


# ── errors ─────────────────────────────────────────────────────────────────────────────────────────────
REFUSALS = [
    (refusal(429, message="Slow down.", code="rate_limit_exceeded"), "ThrottlingException", "Slow down."),
    (
        refusal(400, message="maximum context length is 9 tokens", code="context_length_exceeded"),
        "ValidationException",
        "Input is too long for requested model",
    ),
    (refusal(503, message="Overloaded."), "ServiceUnavailableException", "Overloaded."),
    (refusal(500, message="Broken."), "", "Broken."),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("script", "name", "message"), REFUSALS)
def test_refusals_are_the_exceptions_that_sdks_know(
    made: Callable[..., Any],
    each: str,
    upstream: ScriptedUpstream,
    script: Script,
    name: str,
    message: str,
    *,
    stream: bool,
) -> None:
    aws = made(each)
    upstream.scripts["chat-1"] = script
    with pytest.raises(exceptions.ClientError, match=message) as caught:
        (aws.converse_stream if stream else aws.converse)(modelId="chat-1", messages=HELLO)
    error = caught.value.response["Error"]
    assert error["Code"] in ([name] if name else ["InternalServerException", "ModelErrorException"])
    assert hasattr(aws.exceptions, error["Code"])


def test_a_stream_that_breaks_raises(made: Callable[..., Any], each: str, upstream: ScriptedUpstream) -> None:
    aws = made(each)
    upstream.scripts["chat-1"] = Script([*scripts.piece("chat"), CUT])
    events: list[Any] = []
    stream = streamed(aws, modelId="chat-1", messages=HELLO)
    with pytest.raises(exceptions.EventStreamError, match="modelStreamErrorException"):
        events.extend(event for event in stream)
    assert text_in(events) == "Hel"
    with pytest.raises(exceptions.ClientError, match="ModelErrorException"):
        aws.converse(modelId="chat-1", messages=HELLO)


def test_bedrocks_own_exception_within_a_stream_keeps_its_name(
    made: Callable[..., Any], each: str, upstream: ScriptedUpstream
) -> None:
    aws = made(each)
    events = [converse.start(), *converse.text(0, "Hel"), {"throttlingException": {"message": "Too fast."}}]
    upstream.scripts["bedrock-1"] = Script(converse.messages(events), headers=converse.HEADERS)
    with pytest.raises(exceptions.EventStreamError, match=r"throttlingException.*Too fast"):
        list(streamed(aws, modelId="bedrock-1", messages=HELLO))


def test_what_is_not_served_is_refused_in_its_shape(demo: str, aws: Any) -> None:
    unserved = call(demo, "POST", "/model/demo/async-invoke", BODY)
    assert (unserved.status, unserved.headers["x-amzn-errortype"]) == (404, "ResourceNotFoundException")
    with pytest.raises(aws.exceptions.ResourceNotFoundException, match="nothing"):
        aws.converse(modelId="nothing", messages=HELLO)
    refused = call(demo, "GET", "/model/demo/converse")
    assert (refused.status, refused.headers["x-amzn-errortype"]) == (405, "ValidationException")
    assert refused.json.keys() == {"message"}


# ── streams ────────────────────────────────────────────────────────────────────────────────────────────
def test_s6_keep_alives_are_events_that_clients_skip(
    made: Callable[..., Any], each: str, upstream: ScriptedUpstream
) -> None:
    slow = scripts.text("chat", "Hel", "lo")
    got = bytearray()
    once, again = (partial(contains, got, "keepAlive", times) for times in (1, 4))
    upstream.scripts["chat-1"] = Script([*slow[:1], once, *slow[1:2], again, *slow[2:]])
    reply = call(each, "POST", "/model/chat-1/converse-stream", BODY, into=got)
    assert reply.headers["content-type"] == "application/vnd.amazon.eventstream"
    events = events_in(reply)
    assert sum("keepAlive" in event for event in events) >= 2
    assert text_in(events) == "Hello"
    upstream.scripts["chat-1"] = Script([*slow[:1], 0.5, *slow[1:2], 0.5, *slow[2:]])
    known = list(streamed(made(each), modelId="chat-1", messages=HELLO))
    assert [event for event in events if "keepAlive" not in event][:-1] == known[:-1]


def test_s3_a_client_that_leaves_aborts_its_upstream(each: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["chat-1"] = Script([*scripts.piece("chat"), HANG])
    address, body = urlsplit(each), json.dumps(BODY).encode()
    head = (
        f"POST /model/chat-1/converse-stream HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
    )
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.sendall(head.encode() + b"content-type: application/json\r\n\r\n" + body)
        wait_until(lambda: bool(upstream.received))
        assert connection.recv(4096)
    wait_until(lambda: upstream.received[-1].gone_at is not None)


# ── hostile clients ────────────────────────────────────────────────────────────────────────────────────
def _message(*content: Any, role: Any = "user") -> Json:
    return {"messages": [{"role": role, "content": [*content]}]}


HOSTILE: dict[str, tuple[Any, str]] = {
    "no messages": ({}, "messages"),
    "empty messages": ({"messages": []}, "messages"),
    "a role of its own": (_message({"text": "a"}, role="root"), "messages[0].role"),
    "no role": ({"messages": [{"content": [{"text": "a"}]}]}, "messages[0].role"),
    "content as a text": ({"messages": [{"role": "user", "content": "a"}]}, "messages[0].content"),
    "a block without a kind": (_message({}), "messages[0].content[0]"),
    "a block of two kinds": (_message({"text": "a", "cachePoint": {}}), "messages[0].content[0]"),
    "a block of an unknown kind": (_message({"zip": {"a": 1}}), "messages[0].content[0].zip"),
    "a text that is none": (_message({"text": 7}), "messages[0].content[0].text"),
    "bytes that are none": (
        _message({"image": {"format": "png", "source": {"bytes": "%%%"}}}),
        "messages[0].content[0].image.source.bytes",
    ),
    "an image without source": (
        _message({"image": {"format": "png"}}),
        "messages[0].content[0].image.source",
    ),
    "a call without input": (
        _message({"toolUse": {"toolUseId": "a", "name": "b"}}, role="assistant"),
        "messages[0].content[0].toolUse.input",
    ),
    "a call without name": (
        _message({"toolUse": {"toolUseId": "a", "name": "", "input": {}}}, role="assistant"),
        "messages[0].content[0].toolUse.name",
    ),
    "a result of no call": (
        _message({"toolResult": {"toolUseId": "a", "content": [{"text": "b"}]}}),
        "",
    ),
    "reasoning that is none": (_message({"reasoningContent": {}}, role="assistant"), "redactedContent"),
    "a schema that is no JSON": (
        {
            **BODY,
            "outputConfig": {
                "textFormat": {"type": "json_schema", "structure": {"jsonSchema": {"schema": "{"}}}
            },
        },
        "outputConfig.textFormat.structure.jsonSchema.schema",
    ),
    "no tokens": ({**BODY, "inferenceConfig": {"maxTokens": 0}}, "inferenceConfig.maxTokens"),
    "stops that are none": ({**BODY, "inferenceConfig": {"stopSequences": [1]}}, "stopSequences"),
    "a choice of its own": (
        {**BODY, "toolConfig": {**WEATHER, "toolChoice": {"some": {}}}},
        "toolConfig.toolChoice",
    ),
    "a tool without schema": (
        {**BODY, "toolConfig": {"tools": [{"toolSpec": {"name": "a"}}]}},
        "inputSchema",
    ),
    "a system prompt that is none": ({**BODY, "system": "a"}, "system"),
    "nested deeply": ({**BODY, "requestMetadata": json.loads("[" * 200 + "]" * 200)}, "deeper"),
}


@pytest.mark.parametrize("call_", ["converse", "converse-stream"])
@pytest.mark.parametrize("case", HOSTILE)
def test_what_can_not_be_read_is_refused_with_its_place(demo: str, case: str, call_: str) -> None:
    body, place = HOSTILE[case]
    refused = post(demo, call_, body)
    assert (refused.status, refused.headers["x-amzn-errortype"]) == (400, "ValidationException")
    assert place in refused.json["message"]


@pytest.mark.parametrize("sealed", ["", "or1.", "b3IxLmFiYy5kZWY=", "x" * 4000, "é"])
def test_signatures_of_strangers_are_kept_or_lost(demo: str, sealed: str) -> None:
    thought = {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": sealed}}}
    turns = [*HELLO, {"role": "assistant", "content": [thought, {"text": "a"}]}, *HELLO]
    assert post(demo, body={"messages": turns}).status == 200

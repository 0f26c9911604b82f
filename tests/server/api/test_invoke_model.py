"""Bedrock's InvokeModel over HTTP: botocore's client and Anthropic's over each kind of upstream, nothing of
Messages lost on the way, its keys and errors."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from openresponses_server.settings import Settings
from openresponses_server.settings.files import hashed
from tests.support import anthropic as frames
from tests.support import dialect_scripts as scripts
from tests.support import sdks
from tests.support.anthropic import add_up
from tests.support.bedrock_client import (
    chunks,
    client_of,
    invoked,
    leave_environment,
    serving_each,
    with_header,
)
from tests.support.converse import played
from tests.support.serving import Reply, call, serving
from tests.support.upstream import CUT, JSON, Script, ScriptedUpstream, contains, refusal

botocore = pytest.importorskip("botocore")
exceptions = pytest.importorskip("botocore.exceptions")
Json = dict[str, Any]
VERSION = {"anthropic_version": "bedrock-2023-05-31"}
HELLO: list[Json] = [{"role": "user", "content": "Hello"}]
BODY: Json = {**VERSION, "max_tokens": 64, "messages": HELLO}
TOOL: Json = {
    "name": "weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CALLS = (("call_1", "weather", '{"city": "Lima"}'), ("call_2", "weather", '{"city": "Oslo"}'))
DIALECTS = ("chat", "anthropic", "responses", "gemini", "bedrock")
CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    leave_environment(monkeypatch, tmp_path, "AWS_", "ANTHROPIC_")


@pytest.fixture(scope="module")
def each(upstream: ScriptedUpstream) -> Iterator[str]:
    """A server over one upstream of each dialect: `chat-1`, …, `bedrock-1`; Claude is Anthropic's."""
    models = {dialect: [f"{dialect}-*"] for dialect in DIALECTS}
    models["anthropic"] += ["*anthropic.claude*", "claude/*"]
    with serving_each(upstream, models) as base:
        yield base


@pytest.fixture
def aws(each: str) -> Iterator[Any]:
    with closing(client_of(each)) as client:
        yield client


@pytest.fixture
def clients() -> Iterator[Callable[..., sdks.anthropic.AnthropicBedrock]]:
    """Makes clients of Anthropic's SDK, which are closed when the test is over."""
    with ExitStack() as stack:

        def make(base: str, key: str = "none") -> sdks.anthropic.AnthropicBedrock:
            options = {"base_url": base, "aws_region": "us-east-1", "api_key": key, "max_retries": 0}
            return stack.enter_context(sdks.anthropic.AnthropicBedrock(**options))

        yield make


def post(base: str, call_: str = "invoke", body: Any = None, model: str = "demo", **headers: str) -> Reply:
    return call(base, "POST", f"/model/{model}/{call_}", BODY if body is None else body, headers)


def ask(aws: Any, model: str, *, stream: bool, **fields: Any) -> Json:
    """The message that botocore's client gets."""
    request = {"modelId": model, "body": json.dumps({**BODY, **fields})}
    if stream:
        return add_up(list(chunks(aws, **request)))
    answer: Json = json.loads(aws.invoke_model(**request)["body"].read())
    return answer


# ── answers ────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("stream", [False, True])
def test_calls_and_their_results(aws: Any, upstream: ScriptedUpstream, dialect: str, *, stream: bool) -> None:
    model = f"{dialect}-1"
    upstream.scripts[model] = played(dialect, scripts.call(dialect, *CALLS))
    message = ask(aws, model, stream=stream, tools=[TOOL], system="Be brief.")
    called = [block for block in message["content"] if block["type"] == "tool_use"]
    assert [(each["name"], each["input"]) for each in called] == [
        ("weather", {"city": "Lima"}),
        ("weather", {"city": "Oslo"}),
    ]
    assert message["stop_reason"] == "tool_use"
    results = [
        {
            "type": "tool_result",
            "tool_use_id": each["id"],
            "content": f"12 degrees in {each['input']['city']}",
        }
        for each in called
    ]
    upstream.scripts[model] = played(dialect, scripts.text(dialect, "Both ", "are mild."))
    turns = [
        *HELLO,
        {"role": "assistant", "content": message["content"]},
        {"role": "user", "content": results},
    ]
    answer = ask(aws, model, stream=stream, messages=turns, tools=[TOOL], system="Be brief.")
    assert answer["content"] == [{"type": "text", "text": "Both are mild."}]
    sent = json.dumps(upstream.received[-1].body)
    for word in ("12 degrees in Oslo", "Be brief.", "weather"):
        assert word in sent


def test_the_last_event_has_the_metrics(aws: Any, upstream: ScriptedUpstream) -> None:
    upstream.scripts["chat-1"] = Script(scripts.text("chat", "Hel", "lo"))
    *_, end, last = chunks(aws, modelId="chat-1", body=json.dumps(BODY))
    metrics = last["amazon-bedrock-invocationMetrics"]
    assert (last["type"], end["type"]) == ("message_stop", "message_delta")
    assert metrics["inputTokenCount"] == end["usage"]["input_tokens"]
    assert metrics["outputTokenCount"] == end["usage"]["output_tokens"] > 0
    assert metrics["invocationLatency"] >= 0


@pytest.mark.parametrize(
    "model", [CLAUDE, f"arn:aws:bedrock:eu-west-3:1:inference-profile/{CLAUDE}", "claude/é ~%2F;a=b"]
)
def test_a_name_of_a_model_may_have_any_characters(aws: Any, upstream: ScriptedUpstream, model: str) -> None:
    upstream.scripts[model] = Script(scripts.text("anthropic", "Hel", "lo"))
    assert ask(aws, model, stream=True)["content"] == [{"type": "text", "text": "Hello"}]
    assert upstream.received[-1].body["model"] == model


def test_tokens_are_counted(aws: Any) -> None:
    of_invoke = aws.count_tokens(modelId="chat-1", input={"invokeModel": {"body": json.dumps(BODY).encode()}})
    of_converse = aws.count_tokens(
        modelId="chat-1",
        input={"converse": {"messages": [{"role": "user", "content": [{"text": "Hello"}]}]}},
    )
    assert of_invoke["inputTokens"] == of_converse["inputTokens"] > 0
    with pytest.raises(aws.exceptions.ValidationException, match="Messages"):
        aws.count_tokens(modelId="chat-1", input={"invokeModel": {"body": b'{"inputText": "Hi"}'}})


# ── Messages to Messages ───────────────────────────────────────────────────────────────────────────────
MARK = {"type": "ephemeral", "ttl": "1h"}
NATIVE: Json = {
    "max_tokens": 4096,
    "system": [{"type": "text", "text": "Be brief.", "cache_control": MARK}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Search", "cache_control": MARK}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk/+=="},
                {"type": "redacted_thinking", "data": "b3BhcXVl"},
                {
                    "type": "server_tool_use",
                    "id": "srvtoolu_1",
                    "name": "code_execution",
                    "input": {"code": "1"},
                },
                {
                    "type": "code_execution_tool_result",
                    "tool_use_id": "srvtoolu_1",
                    "content": {"type": "code_execution_result", "stdout": "1", "return_code": 0},
                },
                {"type": "text", "text": "Done."},
            ],
        },
        {"role": "user", "content": [{"type": "text", "text": "And?"}]},
    ],
    "tools": [
        {**TOOL, "cache_control": MARK},
        {"type": "code_execution_20250825", "name": "code_execution"},
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
    ],
    "thinking": {"type": "enabled", "budget_tokens": 2048},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "mcp_servers": [{"type": "url", "url": "https://a.example", "name": "a"}],
    "metadata": {"user_id": "u"},
    "stop_sequences": ["END"],
}
BETAS = ["context-management-2025-06-27", "mcp-client-2025-11-20"]


@pytest.mark.parametrize("stream", [False, True])
def test_n1_n2_to_messages_nothing_is_lost(each: str, upstream: ScriptedUpstream, *, stream: bool) -> None:
    """The same body arrives by either API, and the betas of the body are the header."""
    upstream.scripts[CLAUDE] = Script(scripts.text("anthropic", "Hello"))
    path = "invoke-with-response-stream" if stream else "invoke"
    reply = post(each, path, {**VERSION, **NATIVE, "anthropic_beta": BETAS}, CLAUDE)
    assert (reply.status, reply.headers.get("openresponses-losses")) == (200, None)
    by_invoke = upstream.received[-1]
    own = {"model": CLAUDE, "stream": stream, **NATIVE}
    call(each, "POST", "/v1/messages", own, {"anthropic-beta": ",".join(BETAS)})
    by_messages = upstream.received[-1]
    assert by_invoke.body == by_messages.body
    assert by_invoke.headers["anthropic-beta"] == by_messages.headers["anthropic-beta"] == ",".join(BETAS)
    for name in ("system", "tools", "thinking", "context_management", "mcp_servers"):
        assert by_invoke.body[name] == NATIVE[name]
    assert by_invoke.body["messages"][1] == NATIVE["messages"][1]
    assert "anthropic_beta" not in by_invoke.body


def test_n2_elsewhere_betas_are_a_loss(each: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["chat-1"] = Script(scripts.text("chat", "Hello"))
    body = {**BODY, "anthropic_beta": BETAS, "amazon-bedrock-guardrailConfig": {"tagSuffix": "x"}}
    reply = post(each, "invoke", body, "chat-1", **{"x-amzn-bedrock-guardrailidentifier": "g1"})
    losses = reply.headers["openresponses-losses"]
    for name in ("anthropic-beta", "amazon-bedrock-guardrailConfig", "x-amzn-bedrock-guardrailidentifier"):
        assert name in losses


@pytest.mark.parametrize("stream", [False, True])
def test_n1_what_the_answer_has_comes_back(aws: Any, upstream: ScriptedUpstream, *, stream: bool) -> None:
    content = [
        {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk/+=="},
        {"type": "text", "text": "So."},
    ]
    events = [
        frames.start(),
        *frames.thinking(0, "H", "m.", signature="c2lnbmVk/+=="),
        *frames.text(1, "So."),
        frames.frame(
            "message_delta",
            delta={"stop_reason": "end_turn", "stop_sequence": None, "container": {"id": "c1"}},
            usage={"output_tokens": 9},
            context_management={"applied_edits": []},
        ),
        frames.frame("message_stop"),
    ]
    upstream.scripts[CLAUDE] = Script(scripts.named(*events))
    message = ask(aws, CLAUDE, stream=stream)
    assert message["content"] == content
    assert (message["container"], message["context_management"]) == ({"id": "c1"}, {"applied_edits": []})
    upstream.scripts[CLAUDE] = Script(scripts.text("anthropic", "Hello"))
    ask(aws, CLAUDE, stream=stream, messages=[*HELLO, {"role": "assistant", "content": content}, *HELLO])
    assert upstream.received[-1].body["messages"][1]["content"] == content


@pytest.mark.parametrize("name", ["claude-code/chat-1", "claude-code%2Fchat-1"])
def test_names_that_claude_code_is_shown_are_those_of_models(
    each: str, upstream: ScriptedUpstream, name: str
) -> None:
    """As at Messages: of Claude Code alone."""
    upstream.scripts["chat-1"] = Script(scripts.text("chat", "Hello"))
    assert post(each, "invoke", None, name).status == 404
    assert post(each, "invoke", None, name, **{"user-agent": "claude-cli/2.1"}).status == 200
    assert upstream.received[-1].body["model"] == "chat-1"


# ── Anthropic's SDK ────────────────────────────────────────────────────────────────────────────────────
def test_the_sdk_asks_with_tools_betas_and_streams(
    clients: Callable[..., Any], each: str, upstream: ScriptedUpstream
) -> None:
    client = clients(each)
    upstream.scripts[CLAUDE] = Script(scripts.call("anthropic", CALLS[0]))
    request: Json = {"model": CLAUDE, "max_tokens": 64, "messages": HELLO, "tools": [TOOL]}
    with client.beta.messages.stream(betas=BETAS, **request) as stream:
        message = stream.get_final_message()
    assert (message.content[0].name, message.content[0].input) == ("weather", {"city": "Lima"})
    assert upstream.received[-1].headers["anthropic-beta"] == ",".join(BETAS)
    upstream.scripts[CLAUDE] = Script(scripts.text("anthropic", "Mild."))
    result = {"type": "tool_result", "tool_use_id": message.content[0].id, "content": "12 degrees"}
    turns = [*HELLO, {"role": "assistant", "content": message.content}, {"role": "user", "content": [result]}]
    answer = client.messages.create(**{**request, "messages": turns})
    assert answer.content[0].text == "Mild."


def test_s6_keep_alives_are_events_that_clients_skip(
    clients: Callable[..., Any], aws: Any, each: str, upstream: ScriptedUpstream
) -> None:
    slow, got = scripts.text("chat", "Hel", "lo"), bytearray()
    once, again = (partial(contains, got, "keepAlive", times) for times in (1, 4))
    upstream.scripts["chat-1"] = Script([*slow[:1], once, *slow[1:2], again, *slow[2:]])
    reply = call(each, "POST", "/model/chat-1/invoke-with-response-stream", BODY, into=got)
    assert reply.headers["content-type"] == "application/vnd.amazon.eventstream"
    assert reply.body.count(b"keepAlive") >= 4
    upstream.scripts["chat-1"] = Script([*slow[:1], 0.5, *slow[1:2], 0.5, *slow[2:]])
    expected = [{"type": "text", "text": "Hello"}]
    assert add_up(invoked(reply.body))["content"] == expected
    assert ask(aws, "chat-1", stream=True)["content"] == expected
    with clients(each).messages.stream(model="chat-1", max_tokens=64, messages=HELLO) as stream:
        assert "".join(stream.text_stream) == "Hello"


# ── keys ───────────────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture(scope="module")
def locked() -> Iterator[str]:
    with serving(Settings(store="memory://", api_keys=[hashed("key-1"), hashed("key-2")])) as base:
        yield base


def test_keys_are_bearers(clients: Callable[..., Any], locked: str) -> None:
    with closing(client_of(locked)) as aws:
        with pytest.raises(aws.exceptions.AccessDeniedException, match="AWS_BEARER_TOKEN_BEDROCK") as caught:
            aws.invoke_model(modelId="demo", body=json.dumps(BODY))
        assert "AKIA" not in str(caught.value)
        known = with_header(aws, "x-api-key", "key-1")
        assert json.loads(known.invoke_model(modelId="demo", body=json.dumps(BODY))["body"].read())["content"]
    request: Json = {"model": "demo", "max_tokens": 64, "messages": HELLO}
    assert clients(locked, "key-2").messages.create(**request).content[0].text == "You said: Hello"
    with pytest.raises(sdks.anthropic.AuthenticationError):
        clients(locked, "key-3").messages.create(**request)
    refused = post(locked)
    assert (refused.status, refused.headers["x-amzn-errortype"]) == (401, "AccessDeniedException")


@pytest.mark.parametrize("kind", [None, "application/octet-stream"])
@pytest.mark.parametrize(
    ("authorization", "status"),
    [("AWS4-HMAC-SHA256 Credential=a", 200), ("Bearer none", 200), ("Basic YTpi", 415), (None, 415)],
)
def test_s10_a_body_need_not_declare_json_where_no_page_can_have_sent_it(
    demo: str, kind: str | None, authorization: str | None, status: int
) -> None:
    fields = {"content-type": kind, "authorization": authorization}
    headers = {name: value for name, value in fields.items() if value is not None}
    address = urlsplit(demo)
    for path, expected in (("/model/demo/invoke", status), ("/model/demo/converse", 415)):
        connection = http.client.HTTPConnection(address.hostname or "", address.port)
        connection.request("POST", path, json.dumps(BODY).encode(), headers)
        assert connection.getresponse().status == expected
        connection.close()


# ── errors ─────────────────────────────────────────────────────────────────────────────────────────────
FORMATS: dict[str, Json] = {
    "Titan": {"inputText": "Hello"},
    "Llama": {"prompt": "Hello", "max_gen_len": 9},
    "Nova": {"schemaVersion": "messages-v1", "messages": [{"role": "user", "content": [{"text": "Hello"}]}]},
}


@pytest.mark.parametrize("name", FORMATS)
def test_other_formats_are_refused_with_what_is_taken(aws: Any, name: str) -> None:
    for operation in (aws.invoke_model, aws.invoke_model_with_response_stream):
        with pytest.raises(
            aws.exceptions.ValidationException, match=r"Messages.*anthropic_version.*Converse"
        ):
            operation(modelId="chat-1", body=json.dumps(FORMATS[name]))


REFUSALS = [
    (refusal(429, message="Slow down.", code="rate_limit_exceeded"), "ThrottlingException", "Slow down."),
    (
        refusal(400, message="maximum context length is 9 tokens", code="context_length_exceeded"),
        "ValidationException",
        "prompt is too long",
    ),
    (refusal(503, message="Overloaded."), "ServiceUnavailableException", "Overloaded."),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("script", "name", "message"), REFUSALS)
def test_refusals_are_the_exceptions_that_sdks_know(
    aws: Any, upstream: ScriptedUpstream, script: Script, name: str, message: str, *, stream: bool
) -> None:
    upstream.scripts["chat-1"] = script
    with pytest.raises(exceptions.ClientError, match=message) as caught:
        ask(aws, "chat-1", stream=stream)
    assert caught.value.response["Error"]["Code"] == name


def test_n1_details_of_anthropic_s_error_come_back(each: str, upstream: ScriptedUpstream) -> None:
    details = {"error_code": "thread_unsupported_request", "more": [1]}
    error = {"type": "invalid_request_error", "message": "m", "details": details}
    body = json.dumps({"type": "error", "error": error}).encode()
    upstream.scripts[CLAUDE] = Script([body], 400, JSON)
    assert post(each, "invoke", None, CLAUDE).json == {"message": "m", "details": details}


def test_a_stream_that_breaks_raises(
    clients: Callable[..., Any], aws: Any, each: str, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["chat-1"] = Script([*scripts.piece("chat"), CUT])
    got: list[Json] = []
    with pytest.raises(exceptions.EventStreamError, match="modelStreamErrorException"):
        got.extend(chunks(aws, modelId="chat-1", body=json.dumps(BODY)))
    assert "Hel" in json.dumps(got)
    with pytest.raises(exceptions.ClientError, match="ModelErrorException"):
        ask(aws, "chat-1", stream=False)
    stream = clients(each).messages.stream(model="chat-1", max_tokens=64, messages=HELLO)
    with stream as events, pytest.raises(sdks.anthropic.APIError, match="modelStreamErrorException"):
        list(events)


def test_s3_json_that_is_none_is_refused_in_its_shape(demo: str) -> None:
    for body, status in ((b"{", 400), (b"[]", 400), (b"", 400)):
        refused = post(demo, "invoke", body)
        assert (refused.status, refused.headers["x-amzn-errortype"]) == (status, "ValidationException")
        assert refused.json.keys() == {"message"}
    unknown = post(demo, "invoke", None, "nothing")
    assert (unknown.status, unknown.headers["x-amzn-errortype"]) == (404, "ResourceNotFoundException")
    wrong = call(demo, "GET", "/model/demo/invoke")
    assert (wrong.status, wrong.headers["x-amzn-errortype"]) == (405, "ValidationException")


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"messages": []}, "messages"),
        ({"max_tokens": 0}, "max_tokens"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": 7}]}]},
            "messages[0].content[0]",
        ),
        ({"anthropic_beta": "a"}, "anthropic_beta"),
    ],
)
def test_what_can_not_be_read_is_refused_with_its_place(demo: str, fields: Json, place: str) -> None:
    refused = post(demo, "invoke", {**BODY, **fields})
    assert (refused.status, refused.headers["x-amzn-errortype"]) == (400, "ValidationException")
    assert place in refused.json["message"]


def test_base64_that_is_none_is_refused(demo: str) -> None:
    for body in ("%%%", base64.b64encode(b"{").decode()):
        refused = post(demo, "count-tokens", {"input": {"invokeModel": {"body": body}}})
        assert (refused.status, refused.headers["x-amzn-errortype"]) == (400, "ValidationException")

"""Law S8: limits with clear errors, and a stop that lets what runs finish."""

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest

from openresponses_bridge.errors import InvalidRequestError
from openresponses_server.errors import HttpError
from openresponses_server.limits.gate import Gate
from openresponses_server.limits.requests import check_json
from openresponses_server.settings import Limits, Settings, UpstreamSettings
from tests.support.in_process import InProcess
from tests.support.serving import call, opened, ready, respond, serving, stream
from tests.support.upstream import HANG, Script, ScriptedUpstream, chunk, text
from tests.support.waiting import wait_until

SMALL = Limits(header_bytes=2000, tools=2, depth=20, output_bytes=4000, concurrent=1)


@pytest.fixture(scope="module")
def app() -> Iterator[InProcess]:
    running = InProcess(Settings(store="memory:", default_model="demo"))
    yield running
    running.close()


@pytest.fixture(scope="module")
def small(upstream: ScriptedUpstream) -> Iterator[str]:
    settings = Settings(upstreams=[UpstreamSettings(url=upstream.url)], limits=SMALL, max_body_bytes=5000)
    with serving(settings) as base:
        yield base


def test_s8_headers(small: str) -> None:
    reply = respond(small, {"x-long": "x" * 3000}, model="m")
    assert (reply.status, reply.error["code"]) == (431, "headers_too_large")
    assert "2000 bytes" in reply.error["message"]


def test_s8_body(small: str) -> None:
    for path in ("/v1/responses", "/v1/chat/completions"):
        reply = call(small, "POST", path, {"model": "m", "input": "x" * 6000})
        assert (reply.status, reply.error["code"]) == (413, "request_too_large")
    messages = call(small, "POST", "/v1/messages", {"model": "m", "input": "x" * 6000})
    assert (messages.status, messages.error["type"]) == (413, "request_too_large")


def test_s8_tools(small: str) -> None:
    tools = [{"type": "function", "name": f"f{number}", "parameters": {}} for number in range(3)]
    reply = respond(small, model="m", tools=tools)
    assert (reply.status, reply.error["param"]) == (400, "tools")
    assert "3 tools; the limit is 2" in reply.error["message"]


def test_s8_depth(small: str) -> None:
    deep = "[" * 30 + "]" * 30
    reply = call(small, "POST", "/v1/responses", f'{{"model": "m", "input": "x", "x": {deep}}}'.encode())
    assert (reply.status, reply.error["type"]) == (400, "invalid_request_error")
    assert "deeper than the limit of 20" in reply.error["message"]


@pytest.mark.parametrize("depth", [1, 7, 8, 9, 200])
@pytest.mark.parametrize("pair", ["[]", "{}", "[{}]"])
def test_s8_depth_is_counted_exactly(depth: int, pair: str) -> None:
    opening, closing = pair[: len(pair) // 2], pair[len(pair) // 2 :]
    body = (opening * depth + r'"]]}\"{{[["' + closing * depth).encode() + b"[]" * 50
    if depth * len(opening) > 8:
        with pytest.raises(InvalidRequestError):
            check_json(body, Limits(depth=8))
    else:
        check_json(body, Limits(depth=8))


def test_s8_depth_leaves_what_is_no_json_to_others() -> None:
    check_json(b"]" * 50 + b"[" * 50, Limits(depth=8))


def test_s8_output(small: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["chatty"] = Script(
        [chunk(content="x"), 0.2, *(chunk(content="x" * 500) for _ in range(20))]
    )
    final = stream(small, model="chatty").final
    assert (final["status"], final["error"]["code"]) == ("failed", "upstream_output_too_long")
    assert final["output"][0]["status"] == "incomplete"


def test_s8_concurrent_responses(small: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["long"] = Script([chunk(content="a"), HANG])
    payload = {"model": "long", "input": "x", "stream": True, "store": False}
    with opened(small, "POST", "/v1/responses", payload) as running:
        running.read(10)
        for path, body in (
            ("/v1/responses", {"input": "x"}),
            ("/v1/messages", {"max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}),
        ):
            reply = call(small, "POST", path, {"model": "m", **body})
            assert (reply.status, reply.headers["retry-after"]) == (429, "1")
        assert ready(small).json["running"] == 1
    wait_until(lambda: ready(small).json["running"] == 0)
    upstream.scripts["m"] = Script(text("a"))
    assert respond(small, model="m").status == 200


async def test_s8_closed_gate() -> None:
    gate = Gate(Limits())
    gate.check_open()
    gate.close()
    with pytest.raises(HttpError) as closed:
        gate.check_open()
    assert (closed.value.http_status, closed.value.headers) == (503, {"retry-after": "5"})


async def test_s8_cut_off_ends_what_is_held() -> None:
    gate = Gate(Limits())

    async def run() -> None:
        async with asyncio.timeout(60) as deadline:
            async with gate.slot("", waits=False):
                gate.deadlines.add(deadline)
                assert gate.running == 1
                gate.cut_off()
                await asyncio.sleep(60)

    with pytest.raises(TimeoutError):
        await run()
    assert gate.running == 0


def test_s8_metrics_count_and_show_no_secrets(
    upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPSTREAM_KEY", "s3cret")
    upstream_settings = UpstreamSettings(name="up", url=upstream.url, api_key_env="UPSTREAM_KEY")
    upstream.scripts["named-model"] = Script(text("private words"))
    with serving(Settings(upstreams=[upstream_settings])) as base:
        respond(base, {"authorization": "Bearer client-key"}, model="named-model", user="private-user")
        call(base, "GET", "/made/up/by/a/client")
        sent = call(base, "GET", "/metrics").body.decode()
    assert 'openresponses_bridge_requests_total{route="/v1/responses",status="200"} 1.0' in sent
    assert 'openresponses_bridge_upstream_requests_total{outcome="accepted",upstream="up"} 1.0' in sent
    assert (
        'openresponses_bridge_responses_total{model="named-model",status="completed",upstream="up"} 1.0'
        in sent
    )
    assert 'openresponses_bridge_tokens_total{kind="input",model="named-model",upstream="up"} 3.0' in sent
    assert "openresponses_bridge_running 0.0" in sent
    assert not re.search("s3cret|client-key|private|made/up", sent)


def test_cors_is_off_unless_set() -> None:
    preflight = {"origin": "https://app.example", "access-control-request-method": "POST"}
    for origins, status in (([], 403), (["https://app.example"], 200)):
        with serving(Settings(cors_origins=origins)) as base:
            reply = call(base, "OPTIONS", "/v1/responses", headers=preflight)
            got = respond(base, {"origin": "https://app.example"}, model="demo")
        assert reply.status == status
        allowed = got.headers.get("access-control-allow-origin")
        assert allowed == (origins[0] if origins else None)


LONG = "x" * 1025


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/responses", {"model": LONG, "input": "x"}, "model"),
        ("/v1/responses", {"input": "x", "previous_response_id": LONG}, "previous_response_id"),
        ("/v1/responses", {"input": [{"type": "item_reference", "id": LONG}]}, "input[0].id"),
        ("/v1/responses", {"input": [{"role": "user", "id": LONG, "content": "x"}]}, "input[0].id"),
        ("/v1/responses/input_tokens", {"model": LONG, "input": "x"}, "model"),
        ("/v1/responses/compact", {"model": LONG, "input": "x"}, "model"),
        ("/v1/chat/completions", {"model": LONG, "messages": [{"role": "user", "content": "x"}]}, "model"),
        (
            "/v1/messages",
            {"model": LONG, "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]},
            "model",
        ),
        ("/vscode/v1/tokens", {"model": LONG, "text": "x"}, "model"),
    ],
)
def test_s8_names_and_ids_are_bounded(app: InProcess, path: str, body: dict[str, Any], param: str) -> None:
    reply = app.call("POST", path, body)
    assert reply.status == 400
    assert f"{param} has 1025 characters; the limit is 1024" in reply.error["message"]


def test_s8_a_name_at_the_limit_is_looked_for(app: InProcess) -> None:
    assert app.call("POST", "/v1/responses", {"model": LONG[:-1], "input": "x"}).status in (200, 404)

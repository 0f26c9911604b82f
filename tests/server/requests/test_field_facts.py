"""Facts of an upstream that speaks Responses, from its stream to the client, the store and the next turn."""

import json
from pathlib import Path
from typing import Any

import pytest

from openresponses_server.settings import Settings, UpstreamSettings
from openresponses_server.settings.files import hashed
from tests.support.serving import call, respond, response_of, serving, stream
from tests.support.upstream import JSON, Script, ScriptedUpstream

SDK = {"x-stainless-lang": "python"}
CALLER = {"type": "program", "caller_id": "c0"}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "ls", "arguments": "{}"}
CALL |= {"status": "completed", "caller": CALLER}
TOOL = {"type": "function", "name": "ls", "parameters": {}}
TOLD = {
    "moderation": {"input": {"flagged": False}},
    "tool_usage": {"web_search": {"calls": 2}},
    "conversation": {"id": "conv_1"},
    "service_tier": "priority",
    "reasoning": {"effort": "low", "summary": None, "context": "all"},
}


def script() -> Script:
    head = {"id": "resp_up", "object": "response", "model": "m-2026-09-01", **TOLD}
    ended = {**head, "status": "completed", "output": [CALL]}
    ended["usage"] = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, "images": 3}
    events = [
        {"type": "response.created", "response": {**head, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**CALL, "arguments": ""}},
        {"type": "response.output_item.done", "output_index": 0, "item": CALL},
        {"type": "response.completed", "response": ended},
    ]
    numbered = [{"sequence_number": at, **each} for at, each in enumerate(events)]
    return Script([b"data: " + json.dumps(each).encode() + b"\n\n" for each in numbered])


def whole() -> Script:
    response = {"id": "resp_2", "object": "response", "status": "completed", "model": "m", "output": []}
    return Script([json.dumps(response).encode()], headers=JSON)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_p44_facts_reach_the_client_the_store_and_the_next_turn(kind: str, tmp_path: Path) -> None:
    database = "memory://" if kind == "memory" else f"sqlite:///{tmp_path / 'r.db'}"
    with ScriptedUpstream({"m": [script(), whole()]}) as upstream:
        settings = UpstreamSettings(url=upstream.url, dialect="responses", models=["m"])
        with serving(Settings(upstreams=[settings], store=database)) as base:
            first = stream(base, SDK, model="m", tools=[TOOL])
            response_id = first.final["id"]
            stored = response_of(base, response_id)
            again = call(base, "GET", f"/v1/responses/{response_id}?stream=true")
            output = {"type": "function_call_output", "call_id": "c1", "output": "a", "caller": CALLER}
            more = {"input": [output], "previous_response_id": response_id, "tools": [TOOL]}
            assert respond(base, SDK, model="m", **more).status == 200
            listed = call(base, "GET", f"/v1/responses/{response_id}/input_items").json
        sent = upstream.received[-1].body["input"]
    for response in (first.final, stored, again.final):
        assert {name: response[name] for name in TOLD} == TOLD
        assert (response["output"][0]["caller"], response["usage"]["images"]) == (CALLER, 3)
        assert (response["model"], response["openresponses-bridge:upstream_model"]) == ("m", "m-2026-09-01")
    assert [each.get("caller") for each in sent] == [None, CALLER, CALLER]
    assert b"openresponses-bridge:extra" not in first.body + again.body + json.dumps(listed).encode()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_p44_facts_that_a_client_of_another_dialect_can_not_read_are_losses(
    path: str,
) -> None:
    with ScriptedUpstream({"m": script()}) as upstream:
        settings = UpstreamSettings(url=upstream.url, dialect="responses", models=["m"])
        with serving(Settings(upstreams=[settings])) as base:
            body = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": "q"}]}
            reply = call(base, "POST", path, body, SDK)
            metrics = call(base, "GET", "/metrics").body.decode()
    assert (reply.status, b"caller" in reply.body) == (200, False)
    (counted,) = (line for line in metrics.splitlines() if 'diagnostics_total{kind="loss"' in line)
    assert float(counted.split()[-1]) >= 6


def test_p24_input_items_keep_what_is_new_and_others_report_it() -> None:
    part = {"type": "input_text", "text": "q", "new": {"a": 1}}
    item = {"type": "message", "role": "user", "content": [part]}
    with ScriptedUpstream({"m": whole(), "n": whole()}) as upstream:
        plain = UpstreamSettings(
            name="other", url=upstream.url, dialect="responses", models=["n"], options={"supersets": False}
        )
        settings = UpstreamSettings(url=upstream.url, dialect="responses", models=["m"])
        with serving(Settings(upstreams=[settings, plain])) as base:
            carried = respond(base, model="m", input=[item], store=False)
            lost = respond(base, model="n", input=[item] * 3, store=False)
        first, second = (each.body["input"] for each in upstream.received)
    assert first == [item]
    assert "openresponses-losses" not in carried.headers
    assert lost.headers["openresponses-losses"] == "input[0].content[0].new: is not known"
    assert "new" not in json.dumps(second)


SESSION = "0f3c2a1b-aaaa-bbbb-cccc-0123456789ab"
CLAUDE = {"metadata": {"user_id": f"user_abc_account__session_{SESSION}"}}
IN_JSON = {"metadata": {"user_id": json.dumps({"device_id": "d", "session_id": SESSION})}}
OF_CODEX = {"session_id": SESSION}


def key_sent(
    path: str,
    more: dict[str, Any],
    headers: dict[str, str],
    keys: tuple[str, ...] = (),
    options: dict[str, Any] | None = None,
) -> str | None:
    """The `prompt_cache_key` that the upstream gets with this request."""
    with ScriptedUpstream({"m": whole()}) as upstream:
        settings = UpstreamSettings(
            url=upstream.url, dialect="responses", models=["m"], options=options or {}
        )
        with serving(Settings(upstreams=[settings], api_keys=[hashed(each) for each in keys])) as base:
            body = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": "q"}]}
            request = body if path.endswith("messages") else {"model": "m", "input": "q"}
            assert call(base, "POST", path, request | more, headers).status == 200
        key: str | None = upstream.received[-1].body.get("prompt_cache_key")
    return key


def test_p35_a_session_has_one_key_at_the_upstream_and_each_client_its_own() -> None:
    key = key_sent("/v1/messages", CLAUDE, {})
    assert key is not None
    assert (len(key), SESSION in key) == (64, False)
    assert key_sent("/v1/messages", IN_JSON, {}) == key
    assert key_sent("/v1/responses", {}, OF_CODEX) == key
    keys = ("key-one", "key-two")
    owned = [
        key_sent("/v1/responses", {}, OF_CODEX | {"authorization": f"Bearer {each}"}, keys) for each in keys
    ]
    assert len({key, *owned}) == 3


def test_p35_the_clients_own_key_is_kept_and_nothing_is_made_of_nothing() -> None:
    assert key_sent("/v1/responses", {"prompt_cache_key": "mine"}, OF_CODEX) == "mine"
    assert key_sent("/v1/responses", {"user": "user_1"}, {}) is None
    for options in ({"supersets": False}, {"omit": ["prompt_cache_key"]}):
        assert key_sent("/v1/responses", {}, OF_CODEX, options=options) is None

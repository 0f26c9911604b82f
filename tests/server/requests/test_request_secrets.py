"""What a client gives with its tools as a secret reaches the upstream, and nothing else."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from openresponses_bridge.protocol.codec import decode_json, decode_request
from openresponses_server.observation.recordings.masking import without_secrets_of
from openresponses_server.requests import prepared
from openresponses_server.requests.assembly import RunAssembly
from openresponses_server.requests.background import enqueue
from openresponses_server.requests.prepare import prepare
from openresponses_server.runs.support import lacks_secrets, stored_request
from openresponses_server.settings import Settings, Tracing, UpstreamSettings
from openresponses_server.store.base import Lease, StoredResponse
from tests.support.in_process import InProcess
from tests.support.logs import log_as_in_production
from tests.support.request_secrets import MCP, SECRETS, TOOLS
from tests.support.upstream import JSON, Received, Script, ScriptedUpstream, frame, text

INSIDE = {
    "type": "additional_tools",
    "role": "developer",
    "tools": [MCP | {"server_label": "inside", "authorization": "hidden-b-inside"}],
}
MESSAGE = {"type": "message", "role": "user", "content": "Hi"}


def echoing(received: Received) -> Script:
    """An upstream that repeats the tools in its response, as some do."""
    if received.path.endswith("/chat/completions"):
        return Script(text("Hello"))
    part = {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}
    message = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }
    whole = {
        "id": "resp_up_1",
        "object": "response",
        "status": "completed",
        "model": "m",
        "output": [message],
        "tools": received.body.get("tools", []),
    }
    return Script([json.dumps(whole).encode()], headers=JSON)


@contextmanager
def served(folder: Path, **more: Any) -> Iterator[tuple[InProcess, ScriptedUpstream]]:
    with ScriptedUpstream() as upstream:
        upstream.answer = echoing
        upstreams = [
            UpstreamSettings(url=upstream.url, name="one", dialect="responses", models=["m"]),
            UpstreamSettings(url=upstream.url, name="two", models=["chat"]),
        ]
        app = InProcess(Settings(upstreams=upstreams, store=f"sqlite:///{folder}/s.sqlite3", **more))
        try:
            yield app, upstream
        finally:
            app.close()


def asked(model: str, **more: Any) -> dict[str, Any]:
    return {"model": model, "input": [INSIDE, MESSAGE], "tools": TOOLS, **more}


def found_in(shown: bytes | str) -> list[str]:
    data = shown.encode() if isinstance(shown, str) else shown
    return [secret for secret in SECRETS if secret.encode() in data]


def in_background(app: InProcess, body: dict[str, Any]) -> list[bytes]:
    queued = app.call("POST", "/v1/responses", body | {"background": True})
    shown = [queued.body]
    while json.loads(shown[-1])["status"] in ("queued", "in_progress"):
        app.run(asyncio.sleep(0.01))
        shown.append(app.call("GET", f"/v1/responses/{queued.json['id']}").body)
    return shown


@pytest.mark.parametrize("model", ["m", "chat"])
def test_case_55_secrets_of_tools_reach_the_upstream_alone(tmp_path: Path, model: str) -> None:
    log = io.StringIO()
    log_as_in_production(log)
    trace, record = Tracing(folder=str(tmp_path / "traces")), str(tmp_path / "recordings")
    try:
        with served(tmp_path, trace=trace, record=record) as (app, upstream):
            shown = {"stream": app.call("POST", "/v1/responses", asked(model, stream=True)).body}
            plain = app.call("POST", "/v1/responses", asked(model))
            assert (plain.status, len(plain.json["tools"])) == (200, len(TOOLS))
            assert "shown.example:8443" in plain.body.decode()
            assert "shown-label" in plain.body.decode()
            shown["plain"] = plain.body
            response_id = plain.json["id"]
            messages = [
                json.dumps({"type": "response.create", **asked(model), **more}).encode()
                for more in ({}, {"generate": False})
            ]
            shown["websocket"] = json.dumps(app.turns(messages)).encode()
            shown["inspected"] = app.call("POST", "/inspector/v1/responses", asked(model)).body
            shown["context"] = app.call("POST", "/inspector/v1/context", asked(model)).body
            shown["background"] = b"".join(in_background(app, asked(model)))
            for target in (
                f"/v1/responses/{response_id}",
                f"/v1/responses/{response_id}?stream=true",
                f"/v1/responses/{response_id}/input_items",
                f"/v1/responses/{response_id}/trace",
                "/inspector/v1/responses",
                f"/inspector/v1/responses/{response_id}",
                f"/inspector/v1/responses/{response_id}/request",
                "/metrics",
            ):
                shown[target] = app.call("GET", target).body

            async def exported() -> bytes:
                return b"".join([line async for line in app.app.state.service.store.export()])

            shown["export"] = app.run(exported())
            sent = json.dumps([received.body for received in upstream.received]).encode()
    finally:
        log_as_in_production()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.relative_to(tmp_path).parts[0] for path in files} >= {"recordings", "traces", "s.sqlite3"}
    shown |= {f"file {path.suffix}": path.read_bytes() for path in files}
    shown["log"] = log.getvalue().encode()
    assert shown["log"]
    if model == "m":
        assert found_in(sent) == SECRETS
    assert {where: secrets for where, text in shown.items() if (secrets := found_in(text))} == {}


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("streamed", [False, True])
def test_case_55_an_error_that_repeats_them_is_shown_without_them(
    tmp_path: Path, status: int, streamed: bool
) -> None:
    def repeating(received: Received) -> Script:
        error = {"code": "invalid_prompt", "message": f"No: {received.body['tools']}"}
        if status == 400:
            return Script([json.dumps({"error": error}).encode()], 400, JSON)
        failed = {"id": "r", "object": "response", "status": "failed", "model": "m", "output": []}
        return Script([frame(type="response.failed", sequence_number=0, response=failed | {"error": error})])

    log = io.StringIO()
    log_as_in_production(log)
    try:
        with served(tmp_path) as (app, upstream):
            upstream.answer = repeating
            refused = app.call("POST", "/v1/responses", asked("m", stream=streamed)).body
            background = b"".join(in_background(app, asked("m")))
    finally:
        log_as_in_production()
    assert b"[key]" in refused
    assert b"[key]" in background
    assert found_in(refused + background + log.getvalue().encode()) == []


@pytest.mark.parametrize("streamed", [False, True])
def test_case_55_a_refusal_that_is_answered_without_images_is_logged_without_them(
    tmp_path: Path, streamed: bool
) -> None:
    """The log says why the upstream was asked once more."""
    content = [{"type": "input_image", "image_url": "data:image/png;base64,QUJD"}]
    seen = {"type": "message", "role": "user", "content": content}

    def repeating(received: Received) -> Script:
        if "input_image" not in json.dumps(received.body["input"]):
            return echoing(received)
        error = {"code": "no", "message": f"Images are not supported by {received.body['tools']}"}
        if not streamed:
            return Script([json.dumps({"error": error}).encode()], 400, JSON)
        return Script([frame(type="error", **error)])

    log = io.StringIO()
    log_as_in_production(log)
    try:
        with served(tmp_path) as (app, upstream):
            upstream.answer = repeating
            body = asked("m", stream=streamed) | {"input": [INSIDE, seen]}
            assert app.call("POST", "/v1/responses", body).status == 200
            assert len(upstream.received) == 2
    finally:
        log_as_in_production()
    assert "request.without_images" in log.getvalue()
    assert found_in(log.getvalue()) == []


def test_case_55_of_more_secrets_than_are_looked_for_nothing_is_shown() -> None:
    headers = {f"x-{at}": f"hidden-{at}-of-many" for at in range(300)}
    request = decode_request(json.dumps({"model": "m", "tools": [MCP | {"headers": headers}]}).encode())
    assert without_secrets_of(request, "No: hidden-1-of-many") == "[masked]"


def test_what_a_continuation_sends_again_is_used(tmp_path: Path) -> None:
    with served(tmp_path) as (app, upstream):
        first = app.call("POST", "/v1/responses", asked("m")).json
        again = {"model": "m", "input": "And?", "previous_response_id": first["id"]}
        assert app.call("POST", "/v1/responses", again | {"tools": [MCP]}).status == 200
        assert app.call("POST", "/v1/responses", again).status == 200
        resent, left_out = (received.body for received in upstream.received[-2:])
    assert MCP in resent["tools"]
    assert found_in(json.dumps(left_out)) == []


def test_a_request_with_secrets_is_stored_without_them_and_says_so() -> None:
    harmless = decode_request(json.dumps({"model": "m", "tools": [{"type": "web_search"}]}).encode())
    secret = decode_request(json.dumps(asked("m", background=True)).encode())
    for request, lacks in ((harmless, False), (secret, True)):
        stored = stored_request(request, "openai")
        assert found_in(stored) == []
        assert len(decode_json(stored)["tools"]) == len(request.tools or ())
        assert lacks_secrets(stored) is lacks


@pytest.mark.parametrize(("tools", "personal"), [(TOOLS, True), ([{"type": "web_search"}], False)])
def test_only_its_own_worker_makes_a_run_with_secrets(tmp_path: Path, tools: Any, personal: bool) -> None:
    body = {"model": "m", "input": "Hi", "tools": tools, "background": True}
    with served(tmp_path) as (app, _):
        service = app.app.state.service

        async def made() -> bool:
            request = prepared.Received(decode_request(json.dumps(body).encode()), {}, "req_1")
            run = RunAssembly(await prepare(request, service), service).run()
            await enqueue(service, run)
            await run.wait_for_end()
            return run.personal

        assert app.run(made()) is personal


def test_a_run_whose_secrets_are_not_stored_is_not_made_elsewhere(tmp_path: Path) -> None:
    """Its worker has stopped: it ends, and no upstream is asked without them."""
    with served(tmp_path) as (app, upstream):
        service = app.app.state.service
        original = app.call("POST", "/v1/responses", asked("m")).json
        asked_before = len(upstream.received)

        async def left_by_its_worker() -> Any:
            record = await service.store.get(original["id"], "")
            response = replace(record.response, id="resp_left", status="queued", output=[], usage=None)
            body = stored_request(decode_request(json.dumps(asked("m", background=True)).encode()), "openai")
            left = StoredResponse(response, [], owner=record.owner, request=body, lease=Lease("gone", 1.0))
            await service.store.put(left)
            await service.runs.settler.settle("resp_left")
            return (await service.store.get("resp_left", record.owner)).response

        ended = app.run(left_by_its_worker())
        assert len(upstream.received) == asked_before
    assert (ended.status, ended.error.code) == ("failed", "secrets_not_stored")

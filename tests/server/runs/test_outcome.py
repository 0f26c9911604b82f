"""Law S11: each response is a line in the log, on every surface, and a warning when it failed or was cut."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from openresponses_server.settings import Price, Settings, UpstreamSettings
from tests.support.processes import free_port
from tests.support.serving import call, opened, respond, serving, stream, wait_for
from tests.support.sockets import opened_socket
from tests.support.upstream import CUT, DONE, RESET, Script, ScriptedUpstream, chunk, frame, refusal, text
from tests.support.waiting import wait_until

Line = dict[str, Any]
PRIVATE = "private words"
MESSAGES = [{"role": "user", "content": PRIVATE}]


def lines_of(ask: Callable[[], Any], count: int = 1) -> list[Line]:
    """The lines of the responses that come of this, which have to be as many."""
    with capture_logs() as logs:
        ask()
        wait_until(lambda: len(_responses(logs)) >= count)
        time.sleep(0.05)  # for one too many
    lines = _responses(logs)
    assert len(lines) == count, logs
    assert PRIVATE not in repr(lines)
    return lines


def _responses(logs: list[Any]) -> list[Line]:
    return [line for line in list(logs) if line["event"] == "response"]


CHAT = {"model": "demo", "messages": MESSAGES, "max_tokens": 99}
SURFACES: dict[str, tuple[str, dict[str, Any]]] = {
    "responses": ("/v1/responses", {"model": "demo", "input": PRIVATE}),
    "responses streamed": ("/v1/responses", {"model": "demo", "input": PRIVATE, "stream": True}),
    "responses not stored": ("/v1/responses", {"model": "demo", "input": PRIVATE, "store": False}),
    "background": ("/v1/responses", {"model": "demo", "input": PRIVATE, "background": True}),
    "background streamed": (
        "/v1/responses",
        {"model": "demo", "input": PRIVATE, "background": True, "stream": True},
    ),
    "compact": ("/v1/responses/compact", {"model": "demo", "input": PRIVATE}),
    "chat": ("/v1/chat/completions", CHAT),
    "chat streamed": ("/v1/chat/completions", {**CHAT, "stream": True}),
    "messages": ("/v1/messages", CHAT),
    "messages streamed": ("/v1/messages", {**CHAT, "stream": True}),
    "vscode": (
        "/vscode/v1/chat",
        {"model": "demo", "messages": [{"role": 1, "content": [{"type": "text", "value": PRIVATE}]}]},
    ),
}


@pytest.mark.parametrize("surface", SURFACES)
def test_s11_each_surface_logs_one_line_per_response(demo: str, surface: str) -> None:
    path, body = SURFACES[surface]
    replies = []
    (line,) = lines_of(lambda: replies.append(call(demo, "POST", path, body)))
    assert replies[0].status == 200, replies[0].body
    assert {name: line[name] for name in ("model", "upstream", "status", "log_level")} == {
        "model": "demo",
        "upstream": "demo",
        "status": "completed",
        "log_level": "info",
    }
    assert line["response_id"].startswith("resp_")
    assert line["input_tokens"] > 0
    assert line["output_tokens"] > 0
    assert 0 < line["first_ms"] <= line["ms"] < 10_000
    assert line["request_id"] == replies[0].headers["x-request-id"]
    assert not {"cause", "address", "code"} & line.keys()


def test_s11_choices_are_a_line_each(demo: str) -> None:
    lines = lines_of(lambda: call(demo, "POST", "/v1/chat/completions", {**CHAT, "n": 3}), 3)
    assert len({line["response_id"] for line in lines}) == 3


def test_s11_turns_of_a_websocket_are_a_line_each(demo: str) -> None:
    def turns() -> None:
        with opened_socket(demo) as connection:
            connection.turn(input=PRIVATE, generate=False)
            connection.turn(input=PRIVATE)
            connection.turn(model="demo-failure", input=PRIVATE)

    lines = lines_of(turns, 3)
    assert [line["status"] for line in lines] == ["completed", "completed", "failed"]
    assert [line["log_level"] for line in lines] == ["info", "info", "warning"]


HELLO = chunk(role="assistant", content="Hel")
REPORTED = frame(error={"message": f"no {PRIVATE}", "code": "model_error"})
SENTENCE = frame(error={"message": "x", "code": PRIVATE})
CUTS: dict[str, tuple[Script, str, str, str]] = {
    "ended early": (Script([HELLO]), "failed", "upstream_cut", "its stream ended before the answer did"),
    "cut": (Script([HELLO, CUT]), "failed", "upstream_disconnected", "the connection was lost: "),
    "reset": (
        Script([HELLO, 0.05, RESET]),
        "failed",
        "upstream_disconnected",
        "the connection was lost: ",
    ),
    "silent": (Script([HELLO, "for ever"]), "failed", "upstream_timeout", "it went silent"),
    "reported": (Script([HELLO, REPORTED]), "failed", "model_error", "it reported an error in its stream"),
    "sentence": (Script([HELLO, SENTENCE]), "failed", "other", "it reported an error in its stream"),
    "nonsense": (
        Script([HELLO, b"data: private words\n\n"]),
        "failed",
        "upstream_invalid_json",
        "not JSON",
    ),
    "refused": (
        refusal(429, message=f"not for {PRIVATE}", code="slow_down"),
        "failed",
        "slow_down",
        "it answered with status 429",
    ),
    "page": (
        Script([b"<html>private words"], 200, {"content-type": "text/html"}),
        "failed",
        "upstream_invalid_response",
        "it answered with text/html",
    ),
    "empty": (Script([]), "failed", "upstream_invalid_response", "its stream was empty"),
}


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("case", CUTS)
def test_s11_what_failed_is_a_warning_with_address_and_cause(
    bridged_hasty: str, upstream: ScriptedUpstream, case: str, streamed: bool
) -> None:
    script, status, code, cause = CUTS[case]
    upstream.scripts["broken"] = script
    (line,) = lines_of(lambda: respond(bridged_hasty, model="broken", input=PRIVATE, stream=streamed))
    assert (line["log_level"], line["status"], line["code"]) == ("warning", status, code)
    assert line["upstream"] == "scripted"
    assert line["address"] == f"{upstream.url.removesuffix('/v1')}/v1"
    assert cause in line["cause"]


def test_s11_an_incomplete_answer_is_a_warning_with_its_reason(demo: str) -> None:
    (line,) = lines_of(lambda: stream(demo, model="demo-incomplete"))
    assert (line["log_level"], line["status"], line["code"]) == ("warning", "incomplete", "max_output_tokens")
    assert "cause" not in line


NOT_JSON = {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": "not json"}}
STRANGE = NOT_JSON | {"function": {"name": "gone", "arguments": "{}"}}
ODD: dict[str, tuple[list[Any], str]] = {
    "no output": ([chunk("stop")], "output: completed without any"),
    "undeclared": (
        [chunk(tool_calls=[STRANGE]), chunk("tool_calls")],
        "tool_call.name: not a tool of the request",
    ),
    "not JSON": (
        [chunk(tool_calls=[NOT_JSON]), chunk("tool_calls")],
        "tool_call.arguments: not JSON, sent as they are",
    ),
}


@pytest.mark.parametrize("case", ODD)
def test_s11_what_completes_oddly_has_its_warnings(
    bridged: str, upstream: ScriptedUpstream, case: str
) -> None:
    chunks, warning = ODD[case]
    upstream.scripts["odd"] = Script([*chunks, DONE])
    tools = [{"type": "function", "name": "look", "parameters": {"type": "object"}}]
    (line,) = lines_of(lambda: respond(bridged, model="odd", input=PRIVATE, tools=tools))
    assert line["status"] == "completed"
    assert warning in line["warnings"]
    assert "not json" not in repr(line)


def test_s11_an_upstream_that_is_not_there_is_named_without_its_password() -> None:
    port = free_port()
    upstream = UpstreamSettings(url=f"http://me:hunter2@127.0.0.1:{port}/v1", name="local", model="real")
    with serving(Settings(upstreams=[upstream], store="memory://")) as base:
        (line,) = lines_of(lambda: respond(base, model="mine"))
    assert (line["code"], line["upstream"], line["model"], line["upstream_model"]) == (
        "upstream_unreachable",
        "local",
        "mine",
        "real",
    )
    assert line["address"] == f"http://127.0.0.1:{port}/v1"
    assert line["cause"] == "Connection refused"
    assert "hunter2" not in repr(line)
    assert "first_ms" not in line


def test_s11_the_upstream_that_answered_is_named_after_a_failover(upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script(text("Hi"))
    away = UpstreamSettings(
        url=f"http://127.0.0.1:{free_port()}", name="away", models=["m"], failover=["here"]
    )
    here = UpstreamSettings(url=upstream.url, name="here", models=["other"])
    with serving(Settings(upstreams=[away, here], store="memory://")) as base:
        (line,) = lines_of(lambda: respond(base, model="m"))
    assert (line["upstream"], line["status"]) == ("here", "completed")


def test_s11_a_client_that_leaves_is_one_line(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["slow"] = Script([HELLO, "for ever"])

    def leave() -> None:
        body = {"model": "slow", "input": PRIVATE, "stream": True, "store": False}
        with opened(bridged, "POST", "/v1/responses", body) as response:
            response.read1()

    (line,) = lines_of(leave)
    assert (line["log_level"], line["status"], line["code"]) == ("info", "cancelled", "client_left")


def test_s11_a_response_that_is_cancelled_is_one_line(demo: str) -> None:
    def cancel() -> None:
        response_id = respond(demo, model="demo-slow", background=True).json["id"]
        wait_for(demo, response_id, "in_progress")
        assert call(demo, "POST", f"/v1/responses/{response_id}/cancel").status == 200

    (line,) = lines_of(cancel)
    assert (line["log_level"], line["status"]) == ("info", "cancelled")


def test_s11_a_defect_is_a_warning(demo: str) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError(PRIVATE)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("openresponses_bridge.dialects.chat_completions.Inbound.feed", broken)
        (line,) = lines_of(lambda: respond(demo, model="demo"))
    assert (line["log_level"], line["code"]) == ("warning", "internal_error")


def test_s11_a_refused_choice_is_a_line_and_its_neighbour_too(
    bridged: str, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["half"] = [Script(text("Hi")), refusal(429, message="no")]
    body = {"model": "half", "messages": MESSAGES, "n": 2}
    lines = lines_of(lambda: call(bridged, "POST", "/v1/chat/completions", body), 2)
    assert sorted(line["status"] for line in lines) == ["completed", "failed"]


def test_s11_a_request_that_never_becomes_a_response_is_none(bridged: str) -> None:
    assert lines_of(lambda: respond(bridged, model="m", input=3), 0) == []
    assert lines_of(lambda: call(bridged, "POST", "/v1/responses", b"{"), 0) == []


def test_s11_an_answer_has_its_cost_also_when_it_fails_and_a_refusal_has_none(
    upstream: ScriptedUpstream,
) -> None:
    upstream.scripts["m"] = [Script(text("Hi")), Script([HELLO, CUT]), refusal(400, message="no")]
    prices = {"m": Price(input=1e6, output=1e6)}  # a dollar for each token
    settings = Settings(upstreams=[UpstreamSettings(url=upstream.url)], prices=prices)
    with serving(settings) as base:
        answered, cut, refused = (lines_of(lambda: respond(base, model="m"))[0] for _ in range(3))
    assert (answered["status"], cut["status"]) == ("completed", "failed")
    for line in (answered, cut):
        assert line["cost_usd"] == str(line["input_tokens"] + line["output_tokens"])
    assert "cost_usd" not in refused


def test_s11_a_long_model_name_is_cut(bridged: str, upstream: ScriptedUpstream) -> None:
    longest = "x" * 1_024
    upstream.scripts[longest] = Script(text("Hi"))
    (line,) = lines_of(lambda: respond(bridged, model=longest))
    assert line["status"] == "completed"
    assert len(json.dumps(line)) < 1_000

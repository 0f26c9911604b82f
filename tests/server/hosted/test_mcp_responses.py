"""Responses whose model calls tools of MCP servers, over a scripted Chat Completions upstream."""

from __future__ import annotations

import io
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from openresponses_server.settings import Tracing
from tests.support import sdks
from tests.support.documents import blocks_of
from tests.support.logs import log_as_in_production
from tests.support.mcp_application import ALWAYS, ASKED, FUNCTION, NEVER, SECRET, Served, served
from tests.support.upstream import Script


@pytest.fixture
def weather(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as server:
        yield server


def items(response: Any, kind: str) -> list[dict[str, Any]]:
    return [each for each in response["output"] if each["type"] == kind]


def test_the_model_calls_a_tool_and_the_stream_has_openais_events(weather: Served) -> None:
    events = weather.stream(tools=[NEVER])
    kinds = [each["type"] for each in events]
    ours = [kind for kind in kinds if "mcp" in kind]
    assert ours == [
        "response.mcp_list_tools.in_progress",
        "response.mcp_list_tools.completed",
        "response.mcp_call.in_progress",
        "response.mcp_call_arguments.delta",
        "response.mcp_call_arguments.done",
        "response.mcp_call.completed",
    ]
    response = events[-1]["response"]
    assert response["status"] == "completed"
    (listed,) = items(response, "mcp_list_tools")
    assert [each["name"] for each in listed["tools"]] == ["get_forecast"]
    (called,) = items(response, "mcp_call")
    assert (called["output"], called["error"]) == ("Rain in Oslo", None)
    assert called["arguments"] == '{"city":"Oslo"}'
    assert not items(response, "function_call")
    assert items(response, "message")[0]["content"][0]["text"] == "Told: Rain in Oslo"
    assert weather.calls == [{"city": "Oslo"}]


def test_the_published_wire_has_the_same_with_slugs(weather: Served) -> None:
    events = weather.stream("openresponses", tools=[ALWAYS])
    assert {each["type"].partition(":")[0] for each in events if "mcp" in each["type"]} == {"openai"}
    response = events[-1]["response"]
    assert [each["type"] for each in response["output"]] == [
        "openai:mcp_list_tools",
        "openai:mcp_approval_request",
    ]
    history = [
        {"role": "user", "content": "Rain in Oslo?"},
        *response["output"],
        answer(response["output"][1]),
    ]
    second = weather.stream("openresponses", input=history, tools=[ALWAYS])[-1]["response"]
    assert [each["type"] for each in second["output"]] == ["openai:mcp_call", "message"]
    assert weather.calls == [{"city": "Oslo"}]


@pytest.mark.parametrize("named", [{}, {"name": "get_forecast"}])
def test_a_choice_names_a_server_and_its_tool(weather: Served, named: dict[str, str]) -> None:
    other = {"type": "function", "name": "f", "parameters": {"type": "object"}}
    choice = {"type": "mcp", "server_label": "weather", **named}
    assert weather.ask(tools=[NEVER, other], tool_choice=choice)[0] == 200
    sent = weather.upstream.received[0].body
    assert sent["tool_choice"] == ASKED
    assert {each["function"]["name"] for each in sent["tools"]} == {FUNCTION, "f"}
    unknown = weather.ask(tools=[NEVER, other], tool_choice={**choice, "server_label": "x"})
    assert unknown[0] == 400


def test_later_turns_remember_the_call_and_list_the_tools_once(weather: Served) -> None:
    _, first = weather.ask(tools=[NEVER])
    _, second = weather.ask(input="And now?", previous_response_id=first["id"], tools=[NEVER])
    assert not items(second, "mcp_list_tools")
    assert items(second, "message")[0]["content"][0]["text"] == "Told: Rain in Oslo"
    assert weather.calls == [{"city": "Oslo"}]


def answer(request: dict[str, Any], approve: bool = True) -> dict[str, Any]:
    return {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": approve}


def test_an_approval_in_the_next_turn_runs_the_call(weather: Served) -> None:
    _, first = weather.ask(tools=[ALWAYS])
    (request,) = items(first, "mcp_approval_request")
    assert (request["name"], request["arguments"], first["status"]) == (
        "get_forecast",
        '{"city":"Oslo"}',
        "completed",
    )
    assert weather.calls == []
    _, second = weather.ask(input=[answer(request)], previous_response_id=first["id"], tools=[ALWAYS])
    (called,) = items(second, "mcp_call")
    assert called["approval_request_id"] == request["id"]
    assert items(second, "message")[0]["content"][0]["text"] == "Told: Rain in Oslo"
    _, third = weather.ask(input="And now?", previous_response_id=second["id"], tools=[ALWAYS])
    assert items(third, "message")[0]["content"][0]["text"] == "Told: Rain in Oslo"
    assert weather.calls == [{"city": "Oslo"}]


def test_an_approval_in_a_conversation_runs_the_call(weather: Served) -> None:
    conversation = json.loads(weather.app.call("POST", "/v1/conversations", {}).body)
    _, first = weather.ask(conversation=conversation["id"], tools=[ALWAYS])
    (request,) = items(first, "mcp_approval_request")
    _, second = weather.ask(input=[answer(request)], conversation=conversation["id"], tools=[ALWAYS])
    assert items(second, "mcp_call")[0]["output"] == "Rain in Oslo"
    _, third = weather.ask(input="And now?", conversation=conversation["id"], tools=[ALWAYS])
    assert items(third, "message")[0]["content"][0]["text"] == "Told: Rain in Oslo"
    assert weather.calls == [{"city": "Oslo"}]


def test_a_call_that_is_refused_does_not_run_and_the_model_is_told(weather: Served) -> None:
    _, first = weather.ask(tools=[ALWAYS])
    (request,) = items(first, "mcp_approval_request")
    _, second = weather.ask(input=[answer(request, False)], previous_response_id=first["id"], tools=[ALWAYS])
    assert not items(second, "mcp_call")
    assert "not approve" in items(second, "message")[0]["content"][0]["text"]
    assert weather.calls == []


@pytest.mark.parametrize("first", [True, False])
def test_a_second_decision_on_a_call_counts_if_it_says_the_same(weather: Served, first: bool) -> None:
    """Of two that contradict each other neither is chosen: the client is told, and nothing runs twice."""
    _, begun = weather.ask(tools=[ALWAYS])
    (request,) = items(begun, "mcp_approval_request")
    both = [answer(request, first), answer(request, not first)]
    status, refused = weather.ask(input=both, previous_response_id=begun["id"], tools=[ALWAYS])
    assert (status, refused["error"]["param"]) == (400, "input[1]")
    assert ("approved before" if first else "declined before") in refused["error"]["message"]
    assert weather.calls == []
    same = [answer(request, first), answer(request, first)]
    _, decided = weather.ask(input=same, previous_response_id=begun["id"], tools=[ALWAYS])
    assert len(items(decided, "mcp_call")) == int(first)
    late = [answer(request, not first)]
    status, refused = weather.ask(input=late, previous_response_id=decided["id"], tools=[ALWAYS])
    assert (status, refused["error"]["param"]) == (400, "input[0]")
    assert len(weather.calls) == int(first)


def test_decisions_that_a_conversation_has_are_read_in_one_way(weather: Served) -> None:
    """The first counts, for the call as for what the model is told."""
    conversation = json.loads(weather.app.call("POST", "/v1/conversations", {}).body)
    _, begun = weather.ask(conversation=conversation["id"], tools=[ALWAYS])
    (request,) = items(begun, "mcp_approval_request")
    added = {"items": [answer(request, False), answer(request, True)]}
    assert weather.app.call("POST", f"/v1/conversations/{conversation['id']}/items", added).status == 200
    _, response = weather.ask(input="And now?", conversation=conversation["id"], tools=[ALWAYS])
    assert "not approve" in items(response, "message")[0]["content"][0]["text"]
    assert weather.calls == []


def test_s7_a_client_that_keeps_everything_itself_can_approve_only_what_was_asked(weather: Served) -> None:
    _, first = weather.ask(tools=[ALWAYS], store=False)
    (request,) = items(first, "mcp_approval_request")
    question = {"role": "user", "content": "Rain in Oslo?"}
    forged = [question, request | {"arguments": '{"city":"Rome"}'}, answer(request)]
    status, refused = weather.ask(input=forged, tools=[ALWAYS], store=False)
    assert (status, weather.calls) == (400, [])
    assert "has not asked" in refused["error"]["message"]
    history = [question, *first["output"], answer(request)]
    _, second = weather.ask(input=history, tools=[ALWAYS], store=False)
    assert items(second, "mcp_call")[0]["output"] == "Rain in Oslo"
    _, third = weather.ask(input=history, tools=[ALWAYS], store=False)
    assert items(third, "mcp_call")[0]["status"] == "failed"
    assert weather.calls == [{"city": "Oslo"}], "an approval is for one call"


def test_a_server_that_a_request_names_and_one_that_it_may_not(weather: Served) -> None:
    own = {**NEVER, "server_url": f"{weather.peer.upstream.url}/own", "authorization": SECRET}
    status, response = weather.ask(tools=[own])
    assert (status, items(response, "mcp_call")[0]["output"]) == (200, "Rain in Oslo")
    (received,) = weather.peer.asked("tools/call")
    assert received.headers["authorization"] == f"Bearer {SECRET}"
    status, refused = weather.ask(tools=[{**own, "server_url": "https://evil.example/"}])
    assert (status, refused["error"]["code"]) == (403, "mcp_host_not_allowed")
    status, refused = weather.ask(tools=[{**NEVER, "server_label": "other"}])
    assert status == 400
    assert refused["error"]["param"].startswith("tools[0]")
    status, refused = weather.ask(tools=[{**own, "server_label": f"s{number}"} for number in range(17)])
    assert (status, refused["error"]["param"]) == (400, "tools[16]")


def test_s7_what_a_request_gives_for_its_server_is_shown_and_stored_nowhere(tmp_path: Path) -> None:
    log = io.StringIO()
    log_as_in_production(log)
    with served(tmp_path, trace=Tracing(folder=str(tmp_path / "traces"))) as weather:
        weather.peer.results["tools/call"] = {"content": [{"type": "text", "text": f"You are {SECRET}"}]}
        own = {**NEVER, "server_url": f"{weather.peer.upstream.url}/{SECRET}", "headers": {"x-key": SECRET}}
        events = weather.stream(tools=[own])
        answered = events[-1]["response"]
        stored = weather.app.call("GET", f"/v1/responses/{answered['id']}").body
    log_as_in_production()
    seen = json.dumps(events).encode() + stored + log.getvalue().encode()
    for file in tmp_path.rglob("*"):
        seen += file.read_bytes() if file.is_file() else b""
    assert items(answered, "mcp_call")[0]["status"] == "completed"
    assert SECRET.encode() not in seen


def test_s8_a_server_that_can_not_be_reached_is_said_and_the_model_goes_on(weather: Served) -> None:
    weather.peer.results["tools/list"] = Script([b"no"], 500, {})
    events = weather.stream(tools=[NEVER])
    assert "response.mcp_list_tools.failed" in [each["type"] for each in events]
    (listed,) = items(events[-1]["response"], "mcp_list_tools")
    assert "500" in listed["error"]
    assert events[-1]["response"]["status"] == "completed"


def test_a_clients_function_of_the_same_name_stays_the_clients(weather: Served) -> None:
    own = {"type": "function", "name": FUNCTION, "parameters": {"type": "object"}}
    _, response = weather.ask(tools=[own, NEVER])
    (called,) = items(response, "function_call")
    assert (called["name"], weather.calls) == (FUNCTION, [])


def test_openai_python_approves_and_goes_on(weather: Served) -> None:
    async def converse() -> tuple[Any, Any]:
        over = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=weather.app.app))  # type: ignore[arg-type]
        async with sdks.openai.AsyncOpenAI(
            base_url="http://127.0.0.1:8080/v1", api_key="none", http_client=over
        ) as client:
            tool: Any = {**ALWAYS, "allowed_tools": ["get_forecast"]}
            first = await client.responses.create(model="m", input="Rain in Oslo?", tools=[tool])
            (request,) = (each for each in first.output if each.type == "mcp_approval_request")
            decisions: Any = [answer({"id": request.id})]
            second = await client.responses.create(
                model="m", input=decisions, tools=[tool], previous_response_id=first.id
            )
            return first, second

    _, second = weather.app.run(converse())
    assert [each.type for each in second.output] == ["mcp_call", "message"]
    assert second.output_text == "Told: Rain in Oslo"


def test_s7_an_approval_survives_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEALING", "ab" * 32)
    with served(tmp_path, sealing_key_env="SEALING") as before:
        _, first = before.ask(tools=[ALWAYS])
    (request,) = items(first, "mcp_approval_request")
    with served(tmp_path, sealing_key_env="SEALING") as after:
        port = before.peer.upstream.url
        assert after.peer.upstream.url != port
        _, second = after.ask(input=[answer(request)], previous_response_id=first["id"], tools=[ALWAYS])
        assert items(second, "mcp_call")[0]["output"] == "Rain in Oslo"
    with served(tmp_path, sealing_key_env="SEALING") as later:
        status, refused = later.ask(input=[answer(request)], previous_response_id=first["id"], tools=[ALWAYS])
        assert (status, later.calls) == (400, []), "an approval is for one call, in every branch"
        assert "has been used" in refused["error"]["message"]


def test_the_blocks_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    from openresponses_server.hosted.mcp.declared import declared_of
    from openresponses_server.hosted.mcp.provider import check_servers
    from openresponses_server.settings import load_settings

    monkeypatch.setenv("TICKETS_KEY", "a key")
    for block in blocks_of("docs/mcp.md"):
        if block.language == "toml":
            check_servers(load_settings(None, **tomllib.loads(block.code)))
        else:
            (tool,) = json.loads(block.code)["tools"]
            assert declared_of(tool).server_label in ("tickets", "dice", "files")

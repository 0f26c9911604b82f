"""Responses whose model calls tools of MCP servers, over a scripted Chat Completions upstream."""

from __future__ import annotations

import io
import json
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import openai
import pytest

from openresponses_bridge.conformance import StreamValidator
from openresponses_bridge.protocol.codec import decode_event
from openresponses_server.settings import McpServerSettings, Settings, Tracing, UpstreamSettings
from tests.support.documents import blocks_of
from tests.support.in_process import InProcess
from tests.support.logs import log_as_in_production
from tests.support.mcp_http import HttpPeer
from tests.support.upstream import Received, Script, ScriptedUpstream, call, chunk, text

pytestmark = pytest.mark.timeout(120)
SECRET = "hidden-authorization-0123456789"
FUNCTION = "mcp__weather__get_forecast"
ASKED = {"type": "function", "function": {"name": FUNCTION}}
NEVER = {"type": "mcp", "server_label": "weather", "require_approval": "never"}
ALWAYS = {"type": "mcp", "server_label": "weather"}


def model(received: Received) -> Script:
    """Calls the tool for each city in the question that has no output yet, then says what it was told."""
    messages = received.body["messages"]
    told = [each["content"] for each in messages if each["role"] == "tool"]
    offered = [each["function"]["name"] for each in received.body.get("tools", [])]
    last = messages[-1]
    if last["role"] == "user" and FUNCTION in offered and "Oslo" in str(last["content"]):
        arguments = '{"city":"Oslo"}'
        return Script([call(0, arguments, FUNCTION, "call_up_1"), chunk("tool_calls"), b"data: [DONE]\n\n"])
    return Script(text(f"Told: {' | '.join(map(str, told))}"))


class Served:
    """An application with the MCP server `weather` in its settings; `asked` are the requests for a model."""

    def __init__(self, app: InProcess, peer: HttpPeer, upstream: ScriptedUpstream) -> None:
        self.app, self.peer, self.upstream = app, peer, upstream

    def ask(self, **fields: Any) -> Any:
        reply = self.app.call("POST", "/v1/responses", {"model": "m", "input": "Rain in Oslo?", **fields})
        return reply.status, json.loads(reply.body)

    def stream(self, wire: str = "openai", **fields: Any) -> list[dict[str, Any]]:
        body = {"model": "m", "input": "Rain in Oslo?", "stream": True, **fields}
        reply = self.app.call("POST", "/v1/responses", body, [(b"openresponses-wire", wire.encode())])
        lines = [line[6:] for line in reply.body.split(b"\n") if line.startswith(b"data: {")]
        validator = StreamValidator(wire=wire)
        found = [each for line in lines for each in validator.feed(decode_event(line))]
        assert [*found, *validator.close()] == []
        return [json.loads(line) for line in lines]

    @property
    def calls(self) -> list[dict[str, Any]]:
        return [each.body["params"]["arguments"] for each in self.peer.asked("tools/call")]


@contextmanager
def served(folder: Path, **more: Any) -> Iterator[Served]:
    with ScriptedUpstream() as upstream, ScriptedUpstream() as behind:
        upstream.answer = model
        peer = HttpPeer(behind)
        peer.results["tools/list"] = {
            "tools": [
                {
                    "name": "get_forecast",
                    "description": "The weather of tomorrow",
                    "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}},
                }
            ]
        }
        peer.results["tools/call"] = {"content": [{"type": "text", "text": "Rain in Oslo"}]}
        settings = Settings(
            upstreams=[UpstreamSettings(url=upstream.url, name="one", models=["m"])],
            mcp_servers=[McpServerSettings(name="weather", url=f"{behind.url}/mcp")],
            mcp_private_hosts=[urlsplit(behind.url).netloc],
            store=f"sqlite:///{folder}/store.db",
            **more,
        )
        app = InProcess(settings)
        try:
            yield Served(app, peer, upstream)
        finally:
            app.close()


@pytest.fixture
def weather(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as made:
        yield made


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
    given = [{"role": "user", "content": "Rain in Oslo?"}, *response["output"], answer(response["output"][1])]
    second = weather.stream("openresponses", input=given, tools=[ALWAYS])[-1]["response"]
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
    (asked,) = items(first, "mcp_approval_request")
    assert (asked["name"], asked["arguments"], first["status"]) == (
        "get_forecast",
        '{"city":"Oslo"}',
        "completed",
    )
    assert weather.calls == []
    _, second = weather.ask(input=[answer(asked)], previous_response_id=first["id"], tools=[ALWAYS])
    (called,) = items(second, "mcp_call")
    assert called["approval_request_id"] == asked["id"]
    assert items(second, "message")[0]["content"][0]["text"] == "Told: Rain in Oslo"
    _, third = weather.ask(input="And now?", previous_response_id=second["id"], tools=[ALWAYS])
    assert items(third, "message")[0]["content"][0]["text"] == "Told: Rain in Oslo"
    assert weather.calls == [{"city": "Oslo"}]


def test_an_approval_in_a_conversation_runs_the_call(weather: Served) -> None:
    made = json.loads(weather.app.call("POST", "/v1/conversations", {}).body)
    _, first = weather.ask(conversation=made["id"], tools=[ALWAYS])
    (asked,) = items(first, "mcp_approval_request")
    _, second = weather.ask(input=[answer(asked)], conversation=made["id"], tools=[ALWAYS])
    assert items(second, "mcp_call")[0]["output"] == "Rain in Oslo"
    _, third = weather.ask(input="And now?", conversation=made["id"], tools=[ALWAYS])
    assert items(third, "message")[0]["content"][0]["text"] == "Told: Rain in Oslo"
    assert weather.calls == [{"city": "Oslo"}]


def test_a_call_that_is_refused_does_not_run_and_the_model_is_told(weather: Served) -> None:
    _, first = weather.ask(tools=[ALWAYS])
    (asked,) = items(first, "mcp_approval_request")
    _, second = weather.ask(input=[answer(asked, False)], previous_response_id=first["id"], tools=[ALWAYS])
    assert not items(second, "mcp_call")
    assert "not approve" in items(second, "message")[0]["content"][0]["text"]
    assert weather.calls == []


def test_s7_a_client_that_keeps_everything_itself_can_approve_only_what_was_asked(weather: Served) -> None:
    _, first = weather.ask(tools=[ALWAYS], store=False)
    (asked,) = items(first, "mcp_approval_request")
    question = {"role": "user", "content": "Rain in Oslo?"}
    forged = [question, asked | {"arguments": '{"city":"Rome"}'}, answer(asked)]
    status, refused = weather.ask(input=forged, tools=[ALWAYS], store=False)
    assert (status, weather.calls) == (400, [])
    assert "has not asked" in refused["error"]["message"]
    given = [question, *first["output"], answer(asked)]
    _, second = weather.ask(input=given, tools=[ALWAYS], store=False)
    assert items(second, "mcp_call")[0]["output"] == "Rain in Oslo"
    _, third = weather.ask(input=given, tools=[ALWAYS], store=False)
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
        async with openai.AsyncOpenAI(
            base_url="http://127.0.0.1:8080/v1", api_key="none", http_client=over
        ) as client:
            tool: Any = {**ALWAYS, "allowed_tools": ["get_forecast"]}
            first = await client.responses.create(model="m", input="Rain in Oslo?", tools=[tool])
            (asked,) = (each for each in first.output if each.type == "mcp_approval_request")
            given: Any = [answer({"id": asked.id})]
            second = await client.responses.create(
                model="m", input=given, tools=[tool], previous_response_id=first.id
            )
            return first, second

    _, second = weather.app.run(converse())
    assert [each.type for each in second.output] == ["mcp_call", "message"]
    assert second.output_text == "Told: Rain in Oslo"


def test_s7_an_approval_survives_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEALING", "ab" * 32)
    with served(tmp_path, sealing_key_env="SEALING") as before:
        _, first = before.ask(tools=[ALWAYS])
    (asked,) = items(first, "mcp_approval_request")
    with served(tmp_path, sealing_key_env="SEALING") as after:
        port = before.peer.upstream.url
        assert after.peer.upstream.url != port
        _, second = after.ask(input=[answer(asked)], previous_response_id=first["id"], tools=[ALWAYS])
        assert items(second, "mcp_call")[0]["output"] == "Rain in Oslo"
    with served(tmp_path, sealing_key_env="SEALING") as later:
        status, refused = later.ask(input=[answer(asked)], previous_response_id=first["id"], tools=[ALWAYS])
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

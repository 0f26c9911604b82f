"""openai-python and openai-agents with MCP servers made with the SDK, on stdio and over HTTP, which this
server calls for upstreams of each dialect; with approvals, given and refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from openresponses_server.settings import McpServerSettings, Settings, UpstreamSettings
from tests.support import dialect_scripts as scripts
from tests.support.in_process import InProcess
from tests.support.mcp_servers import weather_server
from tests.support.sdks import final_output
from tests.support.serving import serving_app
from tests.support.upstream import Received, Script, ScriptedUpstream

agents = pytest.importorskip("agents")
openai = pytest.importorskip("openai")
pytestmark = [pytest.mark.clients, pytest.mark.timeout(120)]
PROGRAM = Path(__file__).parents[1] / "support" / "mcp_sdk.py"
DIALECTS = ("chat", "anthropic", "responses")
SERVERS = ("program", "address")
RAIN = "Rain in Oslo tomorrow"
each_way = [
    pytest.mark.parametrize("server", SERVERS),
    pytest.mark.parametrize("dialect", DIALECTS),
    pytest.mark.parametrize("approval", ["never", "given", "refused"]),
]


def model(received: Received) -> Script:
    """Call the server's tool, then repeat the tool's output."""
    body = received.body
    dialect, sent = body["model"], json.dumps(body)
    for phrase in (RAIN, "did not approve"):
        if phrase in sent:
            return Script(scripts.text(dialect, "Told: ", phrase))
    label = next(each for each in SERVERS if f'"mcp__{each}__get_forecast"' in sent)
    return Script(scripts.call(dialect, ("call_1", f"mcp__{label}__get_forecast", '{"city":"Oslo"}')))


class Served:
    """The application, and the number of calls of the server over HTTP."""

    def __init__(self, app: InProcess, station: Any) -> None:
        self.app = app
        self.station = station

    def client(self) -> Any:
        over: Any = httpx2.ASGITransport(app=self.app.app)  # type: ignore[arg-type]
        inner = httpx2.AsyncClient(transport=over)
        return openai.AsyncOpenAI(base_url="http://127.0.0.1:8080/v1", api_key="none", http_client=inner)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    agents.set_tracing_disabled(True)
    station = weather_server()
    with ScriptedUpstream() as upstream, serving_app(station.streamable_http_app(), lifespan="on") as address:
        upstream.answer = model
        app = InProcess(
            Settings(
                upstreams=[
                    UpstreamSettings(url=upstream.url, name=f"up-{each}", dialect=each, models=[each])
                    for each in DIALECTS
                ],
                mcp_servers=[
                    McpServerSettings(name="program", command=sys.executable, args=[str(PROGRAM)]),
                    McpServerSettings(name="address", url=f"{address}/mcp"),
                ],
                store=f"sqlite:///{tmp_path_factory.mktemp('store')}/store.db",
            )
        )
        try:
            yield Served(app, station)
        finally:
            app.close()


def tool(server: str, approval: str) -> dict[str, Any]:
    required = "never" if approval == "never" else "always"
    return {
        "type": "mcp",
        "server_label": server,
        "allowed_tools": ["get_forecast"],
        "require_approval": required,
    }


def told(approval: str) -> str:
    return "Told: did not approve" if approval == "refused" else f"Told: {RAIN}"


def marked(test: Any) -> Any:
    for mark in each_way:
        test = mark(test)
    return test


@marked
@pytest.mark.parametrize("streamed", [False, True])
def test_openai_agents(served: Served, server: str, dialect: str, approval: str, streamed: bool) -> None:
    names: list[str] = []
    before = len(served.station.calls)

    def decide(request: Any) -> Any:
        names.append(request.data.name)
        return {"approve": approval == "given"}

    hosted = agents.HostedMCPTool(tool_config=tool(server, approval), on_approval_request=decide)
    responses = agents.OpenAIResponsesModel(model=dialect, openai_client=served.client())
    agent = agents.Agent(name="helper", model=responses, tools=[hosted])
    answer = final_output(agents, agent, "Rain in Oslo?", streamed=streamed)
    assert served.app.run(answer) == told(approval)
    assert names == ([] if approval == "never" else ["get_forecast"])
    ran = server == "address" and approval != "refused"
    assert len(served.station.calls) - before == ran


@marked
def test_openai_python(served: Served, server: str, dialect: str, approval: str) -> None:
    async def converse() -> Any:
        async with served.client() as client:
            options: dict[str, Any] = {"model": dialect, "tools": [tool(server, approval)]}
            first = await client.responses.create(input="Rain in Oslo?", **options)
            kinds = [each.type for each in first.output]
            if approval == "never":
                assert kinds == ["mcp_list_tools", "mcp_call", "message"]
                return first
            assert kinds == ["mcp_list_tools", "mcp_approval_request"]
            decision = {
                "type": "mcp_approval_response",
                "approval_request_id": first.output[-1].id,
                "approve": approval == "given",
            }
            async with client.responses.stream(
                input=[decision], previous_response_id=first.id, **options
            ) as events:
                seen = [event.type async for event in events]
            assert ("response.mcp_call.completed" in seen) is (approval == "given")
            return await events.get_final_response()

    final = served.app.run(converse())
    assert final.status == "completed"
    assert final.output_text == told(approval)

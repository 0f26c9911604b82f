"""openai-agents with hosted MCP servers, which this server calls, over a Chat Completions upstream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.mcp_application import ALWAYS, NEVER, Served, served
from tests.support.sdks import final_output

pytestmark = [pytest.mark.clients, pytest.mark.timeout(120)]


def agent_of(weather: Served, **fields: Any) -> tuple[Any, Any]:
    """The module, and an agent with the hosted server."""
    agents = pytest.importorskip("agents")
    openai = pytest.importorskip("openai")
    agents.set_tracing_disabled(True)
    over: Any = httpx2.ASGITransport(app=weather.app.app)  # type: ignore[arg-type]
    client = openai.AsyncOpenAI(
        base_url="http://127.0.0.1:8080/v1", api_key="none", http_client=httpx2.AsyncClient(transport=over)
    )
    model = agents.OpenAIResponsesModel(model="m", openai_client=client)
    return agents, agents.Agent(name="helper", model=model, tools=[agents.HostedMCPTool(**fields)])


@pytest.mark.parametrize("streamed", [False, True])
def test_a_hosted_server_is_called(tmp_path: Path, streamed: bool) -> None:
    with served(tmp_path) as weather:
        agents, agent = agent_of(weather, tool_config=NEVER)
        answer = final_output(agents, agent, "Rain in Oslo?", streamed=streamed)
        assert weather.app.run(answer) == "Told: Rain in Oslo"
        assert weather.calls == [{"city": "Oslo"}]


@pytest.mark.parametrize("approve", [True, False])
@pytest.mark.parametrize("kept", ["by the client", "by the server"])
def test_approvals_by_a_callback(tmp_path: Path, approve: bool, kept: str) -> None:
    with served(tmp_path) as weather:
        names: list[str] = []

        def decide(request: Any) -> Any:
            names.append(request.data.name)
            return {"approve": approve}

        agents, agent = agent_of(weather, tool_config=ALWAYS, on_approval_request=decide)
        more = {"auto_previous_response_id": True} if kept == "by the server" else {}
        result = weather.app.run(agents.Runner.run(agent, "Rain in Oslo?", **more))
        assert names == ["get_forecast"]
        assert weather.calls == ([{"city": "Oslo"}] if approve else [])
        assert (result.final_output == "Told: Rain in Oslo") is approve

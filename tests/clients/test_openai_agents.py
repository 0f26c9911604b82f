"""openai-agents for Python: text, tools, parallel tools, stored history, streaming."""

import asyncio
from typing import Any

import pytest

from tests.support.conversation_turns import InTurn, calls, results, said
from tests.support.upstream import ScriptedUpstream, refusal

agents = pytest.importorskip("agents")
openai = pytest.importorskip("openai")
pytestmark = [pytest.mark.clients, pytest.mark.timeout(60)]
LOOKED_UP = [("call_1", "get_weather", {"city": "Lima"}), ("call_2", "get_weather", {"city": "Oslo"})]


@pytest.fixture
def model(base: str) -> Any:
    agents.set_tracing_disabled(True)
    client = openai.AsyncOpenAI(base_url=base, api_key="none", max_retries=0)
    return agents.OpenAIResponsesModel(model="gpt-x", openai_client=client)


@pytest.fixture
def agent(model: Any) -> Any:
    @agents.function_tool
    def get_weather(city: str) -> str:
        """The weather in a city."""
        return f"12 degrees in {city}"

    return agents.Agent(name="helper", instructions="Be brief.", model=model, tools=[get_weather])


def test_text(agent: Any, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(said("Hel", "lo", reasoning="A greeting."))
    done = agents.Runner.run_sync(agent, "Hello")
    assert done.final_output == "Hello"
    assert done.context_wrapper.usage.total_tokens == 18


def test_one_tool(agent: Any, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(calls(LOOKED_UP[0]), said("It is cool."))
    assert agents.Runner.run_sync(agent, "Weather?").final_output == "It is cool."
    assert results(upstream) == {"call_1": "12 degrees in Lima"}


def test_two_tools_in_parallel_streamed(agent: Any, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(calls(*LOOKED_UP), said("It is ", "cool."))

    async def run() -> tuple[str, str]:
        streamed = agents.Runner.run_streamed(agent, "Weather?")
        pieces = [
            event.data.delta
            async for event in streamed.stream_events()
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
        ]
        return "".join(pieces), streamed.final_output

    assert asyncio.run(run()) == ("It is cool.", "It is cool.")
    assert results(upstream) == {"call_1": "12 degrees in Lima", "call_2": "12 degrees in Oslo"}


def test_continued_by_previous_response_id(agent: Any, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(said("Hello Alice."), said("Alice."))
    first = agents.Runner.run_sync(agent, "My name is Alice.")
    again = agents.Runner.run_sync(agent, "My name?", previous_response_id=first.last_response_id)
    assert again.final_output == "Alice."
    sent = [message["content"] for message in upstream.received[-1].body["messages"]]
    assert "Hello Alice." in str(sent)


def test_an_upstream_s_refusal_is_raised(agent: Any, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(refusal(429, message="Slow down", code="limit"))
    with pytest.raises(openai.RateLimitError):
        agents.Runner.run_sync(agent, "Hello")


def test_session_in_conversations(agent: Any, base: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(calls(LOOKED_UP[0]), said("It is cool."), said("In Lima."))
    client = openai.AsyncOpenAI(base_url=base, api_key="none", max_retries=0)
    session = agents.OpenAIConversationsSession(openai_client=client)

    async def run() -> list[str]:
        await agents.Runner.run(agent, "Weather?", session=session)
        done = await agents.Runner.run(agent, "Where?", session=session)
        assert done.final_output == "In Lima."
        return [item["type"] for item in await session.get_items()]

    kinds = ["message", "function_call", "function_call_output", "message", "message", "message"]
    assert asyncio.run(run()) == kinds

"""pydantic-ai: text, parallel tool calls, reasoning that is sent back, streaming."""

import asyncio
from typing import Any

import pytest

from tests.support.conversation_turns import InTurn, calls, results, said
from tests.support.upstream import ScriptedUpstream, refusal

pydantic_ai = pytest.importorskip("pydantic_ai")
pytestmark = [pytest.mark.clients, pytest.mark.timeout(60)]


@pytest.fixture
def agent(base: str) -> Any:
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIResponsesModel("gpt-x", provider=OpenAIProvider(base_url=base, api_key="none"))
    assistant = pydantic_ai.Agent(model, instructions="Be brief.", retries=0)

    @assistant.tool_plain
    def get_weather(city: str) -> str:
        """The weather in a city."""
        return f"12 degrees in {city}"

    return assistant


def test_text_and_usage(agent: Any, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(said("Hel", "lo"))
    done = agent.run_sync("Hello")
    assert done.output == "Hello"
    assert "output_tokens=7" in repr(done.usage() if callable(done.usage) else done.usage)


def test_two_tools_in_parallel(agent: Any, upstream: ScriptedUpstream) -> None:
    expected = [("call_1", "get_weather", {"city": "Lima"}), ("call_2", "get_weather", {"city": "Oslo"})]
    upstream.scripts = InTurn(calls(*expected), said("It is cool."))
    assert agent.run_sync("Weather?").output == "It is cool."
    assert results(upstream) == {"call_1": "12 degrees in Lima", "call_2": "12 degrees in Oslo"}


def test_reasoning_comes_and_goes_back(agent: Any, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(said("Hello.", reasoning="A greeting."), said("Bye."))
    first = agent.run_sync("Hello")
    again = agent.run_sync("Goodbye", message_history=first.all_messages())
    assert again.output == "Bye."
    assert "Hello." in str(upstream.received[-1].body["messages"])


def test_streamed(agent: Any, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(calls(("call_1", "get_weather", {"city": "Lima"})), said("It ", "is ", "cool."))

    async def run() -> str:
        async with agent.run_stream("Weather?") as streamed:
            return str(await streamed.get_output())

    assert asyncio.run(run()) == "It is cool."


def test_an_upstream_s_refusal_is_raised(agent: Any, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(*[refusal(400, message="Too much", code="invalid_prompt")] * 3)
    with pytest.raises(pydantic_ai.exceptions.ModelHTTPError) as refused:
        agent.run_sync("Hello")
    assert refused.value.status_code == 400

"""langchain-openai over the Responses API: text, parallel tool calls and their outputs, streaming."""

from typing import Any

import pytest

from tests.support.conversation_turns import InTurn, calls, results, said
from tests.support.upstream import ScriptedUpstream

langchain_openai = pytest.importorskip("langchain_openai")
pytestmark = [pytest.mark.clients, pytest.mark.timeout(60)]
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
WANTED = [("call_1", "get_weather", {"city": "Lima"}), ("call_2", "get_weather", {"city": "Oslo"})]


@pytest.fixture
def model(base: str) -> Any:
    return langchain_openai.ChatOpenAI(
        model="gpt-x", base_url=base, api_key="none", use_responses_api=True, max_retries=0
    )


def test_text_and_usage(model: Any, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(said("Hel", "lo"))
    message = model.invoke("Hello")
    assert _text(message) == "Hello"
    assert message.usage_metadata["total_tokens"] == 18


def test_streamed_text(model: Any, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(said("Hel", "lo", reasoning="A greeting."))
    assert "".join(_text(piece) for piece in model.stream("Hello")) == "Hello"


@pytest.mark.parametrize("streamed", [False, True])
def test_two_tools_in_parallel_and_their_answers(
    model: Any, upstream: ScriptedUpstream, streamed: bool
) -> None:
    from langchain_core.messages import HumanMessage, ToolMessage

    upstream.scripts = InTurn(calls(*WANTED), said("It is cool."))
    bound = model.bind_tools([TOOL])
    question = HumanMessage("Weather?")
    message = _sum(bound.stream([question])) if streamed else bound.invoke([question])
    assert [(call["id"], call["name"], call["args"]) for call in message.tool_calls] == WANTED
    answers = [
        ToolMessage(f"12 degrees in {call['args']['city']}", tool_call_id=call["id"])
        for call in message.tool_calls
    ]
    assert _text(bound.invoke([question, message, *answers])) == "It is cool."
    assert results(upstream) == {"call_1": "12 degrees in Lima", "call_2": "12 degrees in Oslo"}


def test_incomplete_is_reported(model: Any, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(said("Half", finish_reason="length"))
    message = model.invoke("Hello")
    assert message.response_metadata["status"] == "incomplete"


def _sum(pieces: Any) -> Any:
    whole = next(pieces)
    for piece in pieces:
        whole += piece
    return whole


def _text(message: Any) -> str:
    text = message.text
    return str(text() if callable(text) and not isinstance(text, str) else text)

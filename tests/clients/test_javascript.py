"""Clients on Node.js: openai-node, openai-agents, the AI SDK with both of its providers."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.conversation_turns import InTurn, calls, results, said
from tests.support.upstream import ScriptedUpstream, refusal

pytestmark = [pytest.mark.clients, pytest.mark.timeout(700)]
Run = Callable[[str, str], Any]
WANTED: list[Any] = [["call_1", "get_weather", {"city": "Lima"}], ["call_2", "get_weather", {"city": "Oslo"}]]
TURN_OF_CALLS = calls(*[(call_id, name, given) for call_id, name, given in WANTED])
ANSWERS = {"call_1": "12 degrees in Lima", "call_2": "12 degrees in Oslo"}


def test_openai_create_and_retrieve(run_js: Run, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(said("Hel", "lo"))
    assert run_js("openai.mjs", "create") == {"text": "Hello", "again": "Hello", "usage": 18}


def test_openai_stream_helper(run_js: Run, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(said("Hel", "lo", reasoning="A greeting."))
    sent = run_js("openai.mjs", "stream")
    assert sent == {"deltas": "Hello", "reasoning": "A greeting.", "text": "Hello"}


def test_openai_tools(run_js: Run, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(TURN_OF_CALLS, said("It is cool."))
    assert run_js("openai.mjs", "tools") == {"calls": WANTED, "text": "It is cool."}
    assert results(upstream) == {"call_1": "12 degrees", "call_2": "12 degrees"}


def test_openai_conversations(run_js: Run, upstream: ScriptedUpstream) -> None:
    """A conversation has a thousand items, in pages."""
    upstream.scripts = InTurn(said("Hel", "lo"))
    assert run_js("openai.mjs", "conversations") == {
        "topic": "b",
        "named": True,
        "first": ["Hi", "Hello", "Hello"],
        "inOrder": True,
        "count": 1003,
        "last": "999",
        "deleted": True,
        "gone": 404,
    }


def test_openai_error(run_js: Run, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(refusal(429, message="Slow down", code="rate_limit_exceeded"))
    assert run_js("openai.mjs", "error") == {
        "name": "RateLimitError",
        "status": 429,
        "code": "rate_limit_exceeded",
    }


def test_agents_whole(run_js: Run, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(TURN_OF_CALLS, said("It is ", "cool."))
    assert run_js("agents.mjs", "whole") == {"text": "It is cool."}
    assert results(upstream) == ANSWERS


def test_agents_streamed(run_js: Run, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(TURN_OF_CALLS, said("It is ", "cool.", reasoning="Both are cool."))
    assert run_js("agents.mjs", "streamed") == {"deltas": "It is cool.", "text": "It is cool."}
    assert results(upstream) == ANSWERS


@pytest.mark.parametrize("provider", ["openai", "open-responses"])
def test_ai_sdk_text(run_js: Run, upstream: ScriptedUpstream, provider: str) -> None:
    upstream.scripts = InTurn(said("Hel", "lo"))
    sent = run_js("ai_sdk.mjs", f"{provider} text")
    assert sent == {"text": "Hello", "finishReason": "stop", "output": 7}


@pytest.mark.parametrize("provider", ["openai", "open-responses"])
def test_ai_sdk_tools(run_js: Run, upstream: ScriptedUpstream, provider: str) -> None:
    upstream.scripts = InTurn(TURN_OF_CALLS, said("It is cool."))
    assert run_js("ai_sdk.mjs", f"{provider} tools") == {"text": "It is cool.", "calls": WANTED}
    assert results(upstream) == ANSWERS


@pytest.mark.parametrize("provider", ["openai", "open-responses"])
def test_ai_sdk_streamed(run_js: Run, upstream: ScriptedUpstream, provider: str) -> None:
    upstream.scripts = InTurn(TURN_OF_CALLS, said("It is ", "cool.", reasoning="Both are cool."))
    sent = run_js("ai_sdk.mjs", f"{provider} streamed")
    assert sent == {"deltas": "It is cool.", "finishReason": "stop"}
    assert results(upstream) == ANSWERS


@pytest.mark.parametrize("provider", ["openai", "open-responses"])
def test_ai_sdk_shows_reasoning(run_js: Run, upstream: ScriptedUpstream, provider: str) -> None:
    """One provider reads raw reasoning, the other summaries; neither requests them."""
    upstream.scripts = InTurn(said("Hel", "lo", reasoning="A greeting."))
    sent = run_js("ai_sdk.mjs", f"{provider} thinking")
    assert sent == {"deltas": "A greeting.", "reasoning": "A greeting.", "text": "Hello"}
    upstream.scripts = InTurn(said("Hel", "lo", reasoning="A greeting."))
    assert run_js("ai_sdk.mjs", f"{provider} thought") == {"reasoning": "A greeting.", "text": "Hello"}


@pytest.mark.parametrize(("case", "references"), [("referred", 2), ("continued", 1)])
def test_ai_sdk_sends_its_history_by_reference(
    run_js: Run, upstream: ScriptedUpstream, case: str, references: int
) -> None:
    """It does so for reasoning and text; also with `previous_response_id`, where the chain already has the
    text."""
    upstream.scripts = InTurn(TURN_OF_CALLS, said("It is cool.", reasoning="Both are cool."), said("Yes."))
    assert run_js("ai_sdk.mjs", f"openai {case}") == {"text": "Yes.", "references": references}
    assert results(upstream) == ANSWERS
    spoken = [each for each in upstream.received[-1].body["messages"] if each["role"] == "assistant"]
    assert [len(each.get("tool_calls") or ()) for each in spoken] == [2, 0]
    assert spoken[-1]["content"] == "It is cool."

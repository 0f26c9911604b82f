"""Reasoning of earlier turns in requests, for servers with different requirements."""

from typing import Any

import pytest

from openresponses_bridge.dialects.chat_completions import ChatOptions, to_chat
from openresponses_bridge.protocol.codec import decode_request, encode
from tests.support.machines import plain


def reasoning(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def call(name: str) -> list[dict[str, Any]]:
    return [
        {"type": "function_call", "call_id": name, "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": name, "output": "r"},
    ]


ASKED = {"type": "message", "role": "user", "content": "Again?"}
INPUT = [ASKED, reasoning("old"), *call("a"), ASKED, reasoning("new"), *call("b"), *call("c")]


def calling(**options: Any) -> list[dict[str, Any]]:
    """The messages that call tools."""
    request = decode_request(encode({"model": "m", "input": INPUT}))
    body, _ = to_chat(request, options=ChatOptions(**options))
    messages: list[dict[str, Any]] = plain(body)["messages"]
    return [message for message in messages if message.get("tool_calls")]


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({}, ["old", "new", None]),
        ({"reasoning_turns": "loop"}, [None, "new", None]),
        ({"missing_reasoning": ""}, ["old", "new", ""]),
        ({"reasoning_turns": "loop", "missing_reasoning": " "}, [" ", "new", " "]),
    ],
)
@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_which_reasoning_goes_back(field: Any, options: dict[str, Any], values: list[str | None]) -> None:
    assert [message.get(field) for message in calling(reasoning_field=field, **options)] == values


def test_reasoning_in_details() -> None:
    shown = [message.get("reasoning_details") for message in calling(reasoning_field="reasoning_details")]
    assert shown == [[{"type": "reasoning.text", "text": text}] for text in ("old", "new")] + [None]


def test_without_a_place_nothing_is_made_up() -> None:
    assert all(not any("reasoning" in name for name in message) for message in calling(missing_reasoning=""))


def test_a_message_without_calls_needs_none() -> None:
    request = decode_request(encode({"model": "m", "input": [ASKED, {**ASKED, "role": "assistant"}, ASKED]}))
    body, _ = to_chat(request, options=ChatOptions(reasoning_field="reasoning", missing_reasoning=""))
    assert all(message.get("reasoning") is None for message in plain(body)["messages"])

"""Options of the dialect leave out of a request what its server refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from openresponses_bridge.dialects.chat_completions import ChatOptions, to_chat
from openresponses_bridge.dialects.chat_completions.options import ThinkingFields
from openresponses_bridge.protocol.codec import decode_request, encode

ON, OFF = ThinkingFields(enable_thinking=True), ThinkingFields(enable_thinking=False)
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
FORCED: list[Any] = ["required", {"type": "function", "name": "f"}]


def sent(options: ChatOptions, **fields: Any) -> tuple[dict[str, Any], list[str], list[str]]:
    """(the body, the losses, the repairs)."""
    request = decode_request(encode({"model": "m", "input": "Hi", **fields}))
    chat, diagnostics = to_chat(request, options=options)
    losses, repairs = ([each.where for each in diagnostics.of(kind)] for kind in ("loss", "repair"))
    return json.loads(encode(chat)), losses, repairs


# ── a call that is forced while the model thinks ──────────────────────────────────────────────────────────


@pytest.mark.parametrize("choice", FORCED)
@pytest.mark.parametrize("effort", [None, "high"])
def test_thinking_is_turned_off_where_a_call_is_forced(choice: Any, effort: str | None) -> None:
    options = ChatOptions(thinking_on=ON, thinking_off=OFF, forced_while_thinking=False)
    reasoning = {} if effort is None else {"reasoning": {"effort": effort}}
    body, losses, _ = sent(options, tools=[TOOL], tool_choice=choice, **reasoning)
    assert body["enable_thinking"] is False
    assert "reasoning_effort" not in body
    assert body["tool_choice"] not in ("auto", None)
    assert losses == ["reasoning"]


@pytest.mark.parametrize("choice", FORCED)
def test_the_choice_is_the_model_s_where_thinking_can_t_be_turned_off(choice: Any) -> None:
    body, losses, _ = sent(ChatOptions(forced_while_thinking=False), tools=[TOOL], tool_choice=choice)
    assert (body["tool_choice"], losses) == ("auto", ["tool_choice"])


@pytest.mark.parametrize("choice", [None, "auto", "none"])
def test_nothing_changes_where_no_call_is_forced(choice: str | None) -> None:
    options = ChatOptions(thinking_on=ON, thinking_off=OFF, forced_while_thinking=False)
    fields = {} if choice is None else {"tool_choice": choice}
    body, losses, _ = sent(options, tools=[TOOL], reasoning={"effort": "high"}, **fields)
    assert (body["enable_thinking"], body["reasoning_effort"], losses) == (True, "high", [])


def test_a_forced_call_without_thinking_is_no_loss() -> None:
    options = ChatOptions(thinking_on=ON, thinking_off=OFF, forced_while_thinking=False)
    body, losses, _ = sent(options, tools=[TOOL], tool_choice="required", reasoning={"effort": "none"})
    assert (body["enable_thinking"], body["tool_choice"], losses) == (False, "required", [])


# ── tools that differ in `strict` ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("given", "expected", "lost"),
    [
        ([True, None], [False, False], True),
        ([True, False], [False, False], True),
        ([True, True], [True, True], False),
        ([False, None], [False, None], False),
    ],
)
def test_tools_agree_on_strict(given: list[bool | None], expected: list[bool | None], lost: bool) -> None:
    tools = [{**TOOL, "name": f"f{at}", "strict": strict} for at, strict in enumerate(given)]
    body, losses, _ = sent(ChatOptions(uniform_strict=True), tools=tools)
    assert [tool["function"].get("strict") for tool in body["tools"]] == expected
    assert losses == ["tools.strict"] * lost


# ── neighbours of one role ────────────────────────────────────────────────────────────────────────────────

CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "1"}


def said(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": text}


def test_neighbours_of_one_role_are_joined() -> None:
    options = ChatOptions(system_messages="one", alternating=True)
    items = [
        said("system", "s"),
        said("user", "a"),
        said("developer", "b"),
        said("user", "c"),
        said("assistant", "d"),
        said("assistant", "e"),
        CALL,
        OUTPUT,
        said("user", "f"),
    ]
    body, _, repairs = sent(options, input=items, tools=[TOOL])
    assert [each["role"] for each in body["messages"]] == ["system", "user", "assistant", "tool", "user"]
    reminder = "<system-reminder>\nb\n</system-reminder>"
    assert body["messages"][1]["content"] == f"a\n\n{reminder}\n\nc"
    assert body["messages"][2]["content"] == "d\n\ne"
    assert body["messages"][2]["tool_calls"][0]["id"] == "c"
    assert "messages" in repairs


def test_parts_are_joined_as_parts() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
    items = [said("user", "a"), {**said("user", ""), "content": [image]}]
    body, _, _ = sent(ChatOptions(alternating=True), input=items)
    (message,) = body["messages"]
    assert [part["type"] for part in message["content"]] == ["text", "image_url"]


def test_calls_stay_in_messages_of_their_own() -> None:
    second = {**CALL, "call_id": "d"}
    items = [said("user", "a"), CALL, OUTPUT, second, {**OUTPUT, "call_id": "d"}]
    body, _, repairs = sent(ChatOptions(alternating=True), input=items, tools=[TOOL])
    assert [each["role"] for each in body["messages"]] == ["user", "assistant", "tool", "assistant", "tool"]
    assert repairs == []


def test_joining_many_copies_each_text_once() -> None:
    items = [said("user", "x" * 1000) for _ in range(5000)]
    body, _, _ = sent(ChatOptions(alternating=True), input=items)
    assert len(body["messages"][0]["content"]) == 5000 * 1000 + 4999 * 2


# ── reasoning behind the outputs of calls ─────────────────────────────────────────────────────────────────


def test_a_message_behind_outputs_has_reasoning_where_it_is_required() -> None:
    options = ChatOptions(reasoning_field="reasoning_content", missing_reasoning="")
    items = [
        said("user", "a"),
        CALL,
        OUTPUT,
        said("assistant", "b"),
        said("user", "c"),
        said("assistant", "d"),
    ]
    body, _, _ = sent(options, input=[*items, said("user", "e")], tools=[TOOL])
    reasoning = [each.get("reasoning_content") for each in body["messages"] if each["role"] == "assistant"]
    assert reasoning == ["", "", None]

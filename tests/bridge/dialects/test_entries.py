"""The input as entries: one list with places, whatever dialect it goes out in."""

from typing import Any

import pytest

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.calls.presentation import CallView, OutputView
from openresponses_bridge.dialects.base import active_tools, before_own, entries_of, views_of
from openresponses_bridge.dialects.base.entries import HISTORY
from openresponses_bridge.dialects.bedrock_converse import to_converse
from openresponses_bridge.dialects.gemini import to_gemini
from openresponses_bridge.dialects.interactions import to_interactions
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import decode_request, encode
from openresponses_bridge.protocol.input_items import InputItem, MessageParam
from openresponses_bridge.protocol.items import Message
from openresponses_bridge.protocol.request import CreateResponse
from tests.support.upstream_requests import drive

HI = {"type": "message", "role": "user", "content": "Hi"}


def asked(*items: dict[str, Any], **fields: Any) -> CreateResponse:
    return decode_request(encode({"model": "m", "input": items, **fields}))


def items_like(*items: dict[str, Any]) -> list[InputItem]:
    input_items = asked(*items).input
    assert isinstance(input_items, list)
    return input_items


def test_earlier_turns_come_first_and_have_the_links_place() -> None:
    items = [MessageParam("user", "1"), MessageParam("assistant", "2")]
    request = decode_request(b'{"model":"m","input":[{"role":"user","content":"3"}]}')
    entries = entries_of(request, items)
    assert [getattr(entry.item, "content", None) for entry in entries] == ["1", "2", "3"]
    assert [entry.param for entry in entries] == [HISTORY, HISTORY, "input[0]"]
    assert [entry.where for entry in entries] == ["history[0]", "history[1]", "input[0]"]
    assert [entry.at("content") for entry in entries] == [HISTORY, HISTORY, "input[0].content"]


def test_a_text_is_a_users_message_and_has_no_fields() -> None:
    (entry,) = entries_of(CreateResponse(input="Hi"), ())
    assert entry.item == MessageParam("user", "Hi")
    assert (entry.param, entry.where, entry.at("content")) == ("input", "input", "input")


def test_no_input_is_no_entry() -> None:
    assert entries_of(CreateResponse(), ()) == entries_of(CreateResponse(input=[]), ()) == []


# ── what the entries hold ──────────────────────────────────────────────────────────────────────────────
def function(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name}


def declaring(*tools: dict[str, Any]) -> dict[str, Any]:
    return {"type": "additional_tools", "role": "developer", "tools": tools}


def test_the_tools_are_those_of_the_request_and_of_its_input() -> None:
    result = {"type": "tool_search_output", "call_id": "c", "tools": [function("c"), function("d")]}
    request = asked(HI, result, tools=[function("a")])
    active = active_tools(request, entries_of(request, items_like(declaring(function("b")))))
    assert [(tool.name, where) for tool, where in active] == [
        ("a", "tools[0]"),
        ("b", "history[0].tools[0]"),
        ("c", "input[1].tools[0]"),
        ("d", "input[1].tools[1]"),
    ]
    assert active_tools(asked(HI), entries_of(asked(HI), ())) == []


@pytest.mark.parametrize("dialect", ["chat", "anthropic", "gemini", "published"])
def test_a_tool_has_the_place_that_the_client_gave_it(dialect: str) -> None:
    """Items before it that do not go out count."""
    settings = {"type": "configuration_update", "reasoning": {"effort": "low"}}
    declared = declaring(function("f"), {"type": "custom", "name": "f"})
    with pytest.raises(InvalidRequestError, match="declared twice") as refused:
        drive(dialect, asked(settings, HI, declared))
    assert refused.value.param == "input[2].tools[1]"


def test_calls_and_outputs_are_seen_and_nothing_else() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "1"}
    message = Message("msg_1", "completed", "assistant", [])
    entries = entries_of(asked(HI, call, output, {"type": "acme:thing"}), [message])
    assert views_of(entries, ToolIdentityMap()) == [
        None,
        None,
        CallView("c", "f", "{}"),
        OutputView("c", "1"),
        None,
    ]


def test_places_hold_among_as_many_items_as_they_were_counted_in() -> None:
    entries = entries_of(asked(HI, HI), items_like(HI, HI, HI))
    assert (before_own(entries, 2), before_own(entries, 3), before_own(entries, 5)) == (3, None, None)
    assert (before_own([], 0), before_own(entries[3:], 2)) == (0, 0)


@pytest.mark.parametrize("column", ["chat", "anthropic", "gemini", "bedrock", "interactions", "responses"])
@pytest.mark.parametrize("said", [[], [{"type": "message", "role": "assistant", "content": "meanwhile"}]])
def test_a_result_comes_before_what_the_model_did_with_it(column: str, said: list[dict[str, Any]]) -> None:
    def called(number: int) -> list[dict[str, Any]]:
        call_id = f"call_{number}"
        arguments = f'{{"at":"called-{number}"}}'
        return [
            {"type": "function_call", "call_id": call_id, "name": "look", "arguments": arguments},
            {"type": "function_call_output", "call_id": call_id, "output": f"seen-{number}"},
        ]

    tools = [{"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}]
    body, _ = drive(column, asked(HI, *called(1), *said, *called(2), tools=tools))
    sent = encode(body).decode()
    words = ["called-1", "seen-1", *(each["content"] for each in said), "called-2", "seen-2"]
    assert sorted(words, key=sent.index) == words


@pytest.mark.parametrize("translate", [to_converse, to_gemini, to_interactions])
def test_an_output_that_comes_late_is_moved_up_to_its_call(translate: Any) -> None:
    calls = [
        {"type": "function_call", "call_id": f"call_{number}", "name": "look", "arguments": "{}"}
        for number in (1, 2)
    ]
    outputs = [
        {"type": "function_call_output", "call_id": f"call_{number}", "output": f"seen-{number}"}
        for number in (1, 2)
    ]
    between = {"type": "message", "role": "assistant", "content": "meanwhile"}
    tools = [{"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}]
    request = asked(HI, *calls, outputs[0], between, outputs[1], HI, tools=tools)
    body, diagnostics = translate(request, model="m")
    sent = encode(body).decode()
    assert sorted(words := ["seen-1", "seen-2", "meanwhile"], key=sent.index) == words
    assert "a tool output was moved up to its call" in [case.what for case in diagnostics.of("repair")]

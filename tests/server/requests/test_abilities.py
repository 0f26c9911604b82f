"""A request for a model that can't do all of it."""

from typing import Any

import pytest

from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import decode_request, encode
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_server.requests.abilities import FittedRequest, fit_to_model
from openresponses_server.settings import Capabilities

TOOL = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
CALLS: list[dict[str, Any]] = [
    {"type": "message", "role": "user", "content": "Look"},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at":"it"}'},
    {"type": "function_call_output", "call_id": "c1", "output": "a cat"},
    {"type": "function_call", "call_id": "c2", "name": "look", "arguments": ""},
    {
        "type": "function_call_output",
        "call_id": "c2",
        "output": [{"type": "input_text", "text": "a dog"}, IMAGE],
    },
    {"type": "custom_tool_call", "call_id": "c3", "name": "run", "input": "ls"},
    {"type": "additional_tools", "tools": [TOOL]},
]


def asked(**fields: Any) -> CreateResponse:
    return decode_request(encode(fields))


def fit(request: CreateResponse, **able: bool) -> FittedRequest:
    own = request.input if isinstance(request.input, list) else []
    return fit_to_model(request, own[:1], own[1:], Capabilities(**able))


def texts(items: Any) -> list[Any]:
    return [item.content for item in items]


@pytest.mark.parametrize("able", [{}, {"tools": True}, {"tools": True, "images": True}])
def test_what_a_model_has_or_may_have_passes(able: dict[str, bool]) -> None:
    request = asked(tools=[TOOL], input=CALLS)
    assert fit(request, **able) == FittedRequest(request, request.input[:1], request.input[1:])  # type: ignore[index]


def test_calls_and_outputs_become_messages_where_there_are_no_tools() -> None:
    request = asked(tools=[TOOL], tool_choice="auto", parallel_tool_calls=True, input=CALLS)
    fitted = fit(request, tools=False)
    assert (fitted.request.tools, fitted.request.tool_choice, fitted.request.parallel_tool_calls) == (
        None,
    ) * 3
    assert [item.type for item in (*fitted.earlier, *fitted.own)] == ["message"] * 6
    first, second, _third, fourth, fifth = texts(fitted.own)
    assert first == '[called look, c1]\n{"at":"it"}'
    assert second == "[output of c1]\na cat"
    assert [part.type for part in fourth] == ["input_text", "input_text", "input_image"]
    assert fifth.startswith("[called run, c3]")
    assert {where for where, _what in fitted.losses} == {"tools", "input", "additional_tools"}


def test_a_conversation_without_tools_is_not_touched_by_their_absence() -> None:
    request = asked(input=CALLS[:1])
    assert fit(request, tools=False) == FittedRequest(request, request.input, [])  # type: ignore[arg-type]


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "look"}])
def test_a_tool_that_must_be_called_can_not_be_left_out(choice: Any) -> None:
    with pytest.raises(InvalidRequestError, match="a tool must be called") as refused:
        fit(asked(tools=[TOOL], tool_choice=choice, input="Hi"), tools=False)
    assert refused.value.param == "tool_choice"


def test_images_are_left_out_wherever_they_are() -> None:
    message = {
        "type": "message",
        "role": "user",
        "content": [IMAGE, {"type": "input_text", "text": "See?"}, IMAGE],
    }
    fitted = fit(asked(input=[message, *CALLS]), images=False)
    assert "image_url" not in encode([*fitted.earlier, *fitted.own]).decode()
    assert [part.type for part in fitted.earlier[0].content] == ["input_text"] * 3  # type: ignore[union-attr]
    assert {where for where, _what in fitted.losses} == {"input.content", "input.output"}

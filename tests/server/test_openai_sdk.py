"""The official OpenAI Python SDK as a client, over the demo model and over a Chat Completions upstream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import sdks
from tests.support.upstream import DONE, Script, ScriptedUpstream, chunk, refusal, text
from tests.support.upstream import call as tool_call

TOOL: Any = {
    "type": "function",
    "name": "get_weather",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string"}},
        "required": ["location"],
        "additionalProperties": False,
    },
}


@pytest.fixture
def over_demo(demo: str) -> Iterator[sdks.openai.OpenAI]:
    with sdks.openai.OpenAI(base_url=f"{demo}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def over_chat(bridged: str) -> Iterator[sdks.openai.OpenAI]:
    with sdks.openai.OpenAI(base_url=f"{bridged}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_create(over_demo: sdks.openai.OpenAI) -> None:
    response = over_demo.responses.create(model="demo", input="Hello")
    assert response.output_text == "You said: Hello"
    assert response.usage is not None
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens


def test_create_streamed(over_demo: sdks.openai.OpenAI) -> None:
    events = list(over_demo.responses.create(model="demo", input="Hello", stream=True))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == "You said: Hello"
    assert [event.sequence_number for event in events] == list(range(len(events)))
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response.output_text == "You said: Hello"


def test_stream_helper_text(over_demo: sdks.openai.OpenAI) -> None:
    with over_demo.responses.stream(model="demo", input="Hello") as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert "response.output_text.delta" in kinds
    assert final.output_text == "You said: Hello"


def test_stream_helper_tools(over_demo: sdks.openai.OpenAI) -> None:
    question: Any = {"role": "user", "content": "Weather in Lima?"}
    with over_demo.responses.stream(model="demo", input=[question], tools=[TOOL]) as stream:
        deltas = [each.delta for each in stream if each.type == "response.function_call_arguments.delta"]
        final = stream.get_final_response()
    (call,) = final.output
    assert call.type == "function_call"
    assert json.loads(call.arguments) == json.loads("".join(deltas)) == {"location": "Lima"}
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "12 degrees"}
    answer = over_demo.responses.create(model="demo", input=[question, call.to_dict(), result], tools=[TOOL])
    assert answer.output_text == "The tool answered: 12 degrees"


def test_parse_into_a_model(over_demo: sdks.openai.OpenAI) -> None:
    from pydantic import BaseModel

    class Trip(BaseModel):
        city: str
        days: int

    parsed = over_demo.responses.parse(model="demo", input="A trip to Oslo", text_format=Trip)
    assert parsed.output_parsed == Trip(city="Oslo", days=1)


def test_reasoning_in_openai_s_spelling(over_demo: sdks.openai.OpenAI) -> None:
    events = list(over_demo.responses.create(model="demo-reasoning", input="Hello", stream=True))
    assert "response.reasoning_text.delta" in [event.type for event in events]


def test_refusal(over_demo: sdks.openai.OpenAI) -> None:
    response = over_demo.responses.create(model="demo-refusal", input="Hello")
    (message,) = response.output
    assert message.type == "message"
    assert message.content[0].type == "refusal"


def test_incomplete(over_demo: sdks.openai.OpenAI) -> None:
    response = over_demo.responses.create(model="demo-incomplete", input="Hello")
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"


def test_failure_in_the_stream(over_demo: sdks.openai.OpenAI) -> None:
    events = list(over_demo.responses.create(model="demo-failure", input="Hello", stream=True))
    assert [event.type for event in events[-2:]] == ["error", "response.failed"]
    last = events[-1]
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert last.response.error.code == "demo_failure"


def test_retrieve_delete_and_chain(over_demo: sdks.openai.OpenAI) -> None:
    first = over_demo.responses.create(model="demo", input="One")
    assert over_demo.responses.retrieve(first.id).output_text == first.output_text
    second = over_demo.responses.create(model="demo", input="Two", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    assert "Before that you said: One" in second.output_text
    over_demo.responses.delete(first.id)
    with pytest.raises(sdks.openai.NotFoundError):
        over_demo.responses.retrieve(first.id)


def test_errors_are_the_sdk_s_own_kinds(over_demo: sdks.openai.OpenAI) -> None:
    with pytest.raises(sdks.openai.NotFoundError) as unknown:
        over_demo.responses.create(model="nothing", input="x")
    assert unknown.value.code == "model_not_found"
    with pytest.raises(sdks.openai.BadRequestError) as wrong:
        over_demo.responses.create(model="demo", input="x", max_output_tokens=1)
    assert wrong.value.param == "max_output_tokens"
    with pytest.raises(sdks.openai.RateLimitError) as limited:
        over_demo.responses.create(model="demo-overloaded", input="x", stream=True)
    assert limited.value.response.headers["retry-after"] == "1"


def test_models(over_demo: sdks.openai.OpenAI) -> None:
    assert "demo" in [model.id for model in over_demo.models.list()]
    assert over_demo.models.retrieve("demo").owned_by == "demo"


def test_text_over_a_chat_upstream(over_chat: sdks.openai.OpenAI, upstream: ScriptedUpstream) -> None:
    upstream.scripts["gpt-x"] = Script(text("Hel", "lo"))
    assert over_chat.responses.create(model="gpt-x", input="x").output_text == "Hello"
    with over_chat.responses.stream(model="gpt-x", input="x") as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_text == "Hello"


def test_tools_over_a_chat_upstream(over_chat: sdks.openai.OpenAI, upstream: ScriptedUpstream) -> None:
    script = [tool_call(0, "", "get_weather", "call_1"), tool_call(0, '{"location": "Lima"}')]
    upstream.scripts["gpt-x"] = Script([*script, chunk("tool_calls"), DONE])
    with over_chat.responses.stream(model="gpt-x", input="x", tools=[TOOL]) as stream:
        for _ in stream:
            pass
        (call,) = stream.get_final_response().output
    assert call.type == "function_call"
    assert (call.call_id, call.arguments) == ("call_1", '{"location": "Lima"}')


def test_images_over_a_chat_upstream(over_chat: sdks.openai.OpenAI, upstream: ScriptedUpstream) -> None:
    upstream.scripts["gpt-seeing"] = Script(text("A dot."))
    url = "data:image/png;base64,iVBORw0KGgo="
    prompt: Any = [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "What is it?"},
                {"type": "input_image", "image_url": url, "detail": "low"},
            ],
        }
    ]
    assert over_chat.responses.create(model="gpt-seeing", input=prompt).output_text == "A dot."
    sent = next(each.body for each in upstream.received if each.body["model"] == "gpt-seeing")
    assert sent["messages"][0]["content"][1] == {
        "type": "image_url",
        "image_url": {"url": url, "detail": "low"},
    }


def test_upstream_s_refusal_is_the_sdk_s_error(
    over_chat: sdks.openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["gpt-x"] = refusal(429, {"retry-after": "3"}, message="Slow down", code="limit")
    with pytest.raises(sdks.openai.RateLimitError) as limited:
        over_chat.responses.create(model="gpt-x", input="x", stream=True)
    assert limited.value.code == "limit"

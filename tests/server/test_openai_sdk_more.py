"""The official OpenAI Python SDK over the rest of the surface: WebSocket, compact, input_items,
input_tokens, cancel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import sdks

TOOL: Any = {"type": "function", "name": "get_weather", "strict": True, "parameters": {"type": "object"}}


@pytest.fixture
def client(demo: str) -> Iterator[sdks.openai.OpenAI]:
    with sdks.openai.OpenAI(base_url=f"{demo}/v1", api_key="none", max_retries=0) as client:
        yield client


def turn(connection: Any, **request: Any) -> list[Any]:
    """The events of one turn."""
    connection.response.create(**{"model": "demo", **request})
    events = []
    for event in connection:
        events.append(event)
        if event.type in ("response.completed", "response.failed", "response.incomplete", "error"):
            break
    return events


def test_websocket_turns(client: sdks.openai.OpenAI) -> None:
    with client.responses.connect() as connection:
        first = turn(connection, input="One", store=False)
        deltas = [event.delta for event in first if event.type == "response.output_text.delta"]
        assert "".join(deltas) == first[-1].response.output_text == "You said: One"
        second = turn(connection, input="Two", store=False, previous_response_id=first[-1].response.id)
        assert "Before that you said: One" in second[-1].response.output_text


def test_websocket_tools(client: sdks.openai.OpenAI) -> None:
    with client.responses.connect() as connection:
        called = turn(connection, input="What's the weather?", tools=[TOOL])[-1].response
        (call,) = called.output
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "12 degrees"}
        sent = turn(connection, input=[result], tools=[TOOL], previous_response_id=called.id)
    assert sent[-1].response.output_text == "The tool answered: 12 degrees"


def test_websocket_errors(client: sdks.openai.OpenAI) -> None:
    with client.responses.connect() as connection:
        (error,) = turn(connection, model="nobody", input="x")
        assert error.type == "error"
        assert turn(connection, input="still there")[-1].type == "response.completed"
        assert turn(connection, model="demo-failure", input="x")[-1].type == "response.failed"


@pytest.mark.anyio
async def test_websocket_of_the_asynchronous_client(demo: str) -> None:
    async with (
        sdks.openai.AsyncOpenAI(base_url=f"{demo}/v1", api_key="none", max_retries=0) as client,
        client.responses.connect() as connection,
    ):
        await connection.response.create(model="demo", input="Hello")
        async for event in connection:
            if event.type == "response.completed":
                assert event.response.output_text == "You said: Hello"
                break


def test_compact_and_go_on(client: sdks.openai.OpenAI) -> None:
    history: Any = [
        {"role": "user", "content": "My name is Ada"},
        {"role": "assistant", "content": "Hello Ada"},
    ]
    compacted = client.responses.compact(model="demo", input=history)
    assert [item.type for item in compacted.output] == ["message", "compaction"]
    assert compacted.usage.total_tokens > 0
    # The SDK's type of a window has no text of a user, which OpenAI's windows have: it warns.
    with pytest.warns(UserWarning, match="input_text"):
        window: Any = [item.to_dict() for item in compacted.output]
    follow: Any = {"role": "user", "content": "Go on"}
    for begun in (window, [item.to_dict(warnings=False) for item in compacted.output]):
        answer = client.responses.create(model="demo", input=[*begun, follow])
        assert "My name is Ada" in answer.output_text
        first: Any = next(iter(client.responses.input_items.list(answer.id, order="asc")))
        assert first.to_dict()["content"] == [{"type": "input_text", "text": "My name is Ada"}]


def test_input_items(client: sdks.openai.OpenAI) -> None:
    messages: Any = [{"role": "user", "content": str(number)} for number in range(25)]
    response = client.responses.create(model="demo", input=messages)
    items: list[Any] = list(client.responses.input_items.list(response.id, order="asc"))
    assert [item.content[0].text for item in items] == [str(number) for number in range(25)]


def test_input_tokens(client: sdks.openai.OpenAI) -> None:
    counted = client.responses.input_tokens.count(model="demo", input="How long is this?")
    assert counted.object == "response.input_tokens"
    assert counted.input_tokens > 3


def test_cancel(client: sdks.openai.OpenAI) -> None:
    stream = client.responses.create(model="demo-slow", input="1000 words", stream=True)
    events: Any = iter(stream)
    response_id = next(events).response.id
    cancelled = client.responses.cancel(response_id)
    assert cancelled.status in ("cancelled", "incomplete")
    last = list(events)[-1]
    assert last.type == "response.incomplete"
    assert client.responses.retrieve(response_id).output_text == last.response.output_text
    with pytest.raises(sdks.openai.NotFoundError):
        client.responses.cancel("resp_nobody")


def test_compaction_by_threshold_is_streamed_and_sent_back(client: sdks.openai.OpenAI) -> None:
    compact: Any = [{"type": "compaction", "compact_threshold": 1000}]
    talk: Any = [{"role": "user", "content": "A word. " * 900}, {"role": "assistant", "content": "Yes."}]
    history: Any = [*talk, {"role": "user", "content": "Which?"}]
    with client.responses.stream(model="demo", input=history, context_management=compact) as streamed:
        events = [event.type for event in streamed]
        final = streamed.get_final_response()
    assert "response.compaction.compacting" in events
    assert [item.type for item in final.output] == ["compaction", "message"]
    output: Any = [item.to_dict() for item in final.output]
    again = client.responses.create(model="demo", input=[*history, *output, *history[-1:]])
    assert again.status == "completed"


def test_conversations(client: sdks.openai.OpenAI) -> None:
    conversations = client.conversations
    begun: Any = [{"role": "user", "content": "My name is Ada"}]
    conversation = conversations.create(items=begun, metadata={"topic": "names"})
    assert conversations.retrieve(conversation.id) == conversation
    assert conversations.update(conversation.id, metadata={"topic": "other"}).metadata == {"topic": "other"}
    answer = client.responses.create(model="demo", input="Who am I?", conversation=conversation.id)
    assert answer.conversation is not None
    assert answer.conversation.id == conversation.id
    with client.responses.stream(
        model="demo", input="Sure?", conversation={"id": conversation.id}
    ) as streamed:
        assert streamed.get_final_response().status == "completed"
    more: Any = [{"role": "user", "content": str(number)} for number in range(40)]
    added = conversations.items.create(conversation.id, items=more, include=["message.output_text.logprobs"])
    assert len(added.data) == 40
    items: list[Any] = list(conversations.items.list(conversation.id, order="asc", limit=20))
    texts = [item.content[0].text for item in items]
    assert texts[:2] + texts[5:] == ["My name is Ada", "Who am I?", *map(str, range(40))]
    assert (
        conversations.items.retrieve(items[2].id, conversation_id=conversation.id).to_dict()
        == items[2].to_dict()
    )
    assert conversations.items.delete(items[0].id, conversation_id=conversation.id).id == conversation.id
    gone = conversations.delete(conversation.id)
    assert (gone.id, gone.object, gone.deleted) == (conversation.id, "conversation.deleted", True)
    with pytest.raises(sdks.openai.NotFoundError):
        conversations.retrieve(conversation.id)

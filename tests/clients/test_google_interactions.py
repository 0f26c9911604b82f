"""google-genai's `client.interactions`, unmodified, over a Chat and an Anthropic upstream: streamed and whole
answers, tools, reasoning, images, formats, stored interactions and their streams again, errors."""

from collections.abc import Iterator
from typing import Any

import pytest

from openresponses_server.settings import Settings, UpstreamSettings
from tests.support import dialect_scripts as scripts
from tests.support.conversation_turns import InTurn, calls, said
from tests.support.interactions_fields import fields_in_list, fields_of_sdk
from tests.support.serving import serving
from tests.support.upstream import CUT, HANG, Script, ScriptedUpstream, chunk
from tests.support.waiting import wait_until

genai = pytest.importorskip("google.genai")
types = pytest.importorskip("google.genai.types")
interactions = pytest.importorskip("google.genai._interactions")
pytest.importorskip("google.genai._gaos")  # the API with steps
pytestmark = [pytest.mark.clients, pytest.mark.timeout(120)]

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
WANTED = (("call_1", "weather", {"city": "Lima"}), ("call_2", "weather", {"city": "Oslo"}))


def made(base: str) -> Any:
    options = types.HttpOptions(base_url=base.removesuffix("/v1"))
    return genai.Client(api_key="none", http_options=options)


@pytest.fixture
def client(base: str) -> Any:
    return made(base)


@pytest.fixture(scope="module")
def demo() -> Iterator[Any]:
    with serving(Settings(store="memory://", checkpoint_interval=0.1)) as base:
        yield made(base)


def known(events: Any) -> list[Any]:
    """The events of a stream; asserts that the SDK knows each of them."""
    found = list(events)
    assert not [each for each in found if getattr(each, "is_unknown", False)]
    assert not [
        each for each in found if each.event_type == "step.delta" and getattr(each.delta, "is_unknown", False)
    ]
    return found


def test_the_demo_model(demo: Any) -> None:
    first = demo.interactions.create(model="demo", input="Hello")
    assert (first.output_text, first.status) == ("You said: Hello", "completed")
    second = demo.interactions.create(model="demo", input="Again", previous_interaction_id=first.id)
    assert second.output_text == "You said: Again\nBefore that you said: Hello"
    assert demo.interactions.get(second.id).steps == second.steps
    demo.interactions.delete(second.id)
    with pytest.raises(interactions.NotFoundError):
        demo.interactions.get(second.id)
    with pytest.raises(interactions.NotFoundError):
        demo.interactions.create(model="nothing", input="Hello")


def test_a_stream_and_its_rest_behind_each_event(demo: Any) -> None:
    events = known(demo.interactions.create(model="demo", input="Hello there", stream=True))
    pieces = [each.delta.text for each in events if each.event_type == "step.delta"]
    assert "".join(pieces) == "You said: Hello there"
    id = events[0].interaction.id
    for number, event in enumerate(events):
        rest = demo.interactions.get(id, stream=True, last_event_id=event.event_id)
        assert list(rest) == events[number + 1 :]
    with pytest.raises(interactions.BadRequestError):
        list(demo.interactions.get(id, stream=True, last_event_id="99999.0"))


def test_in_the_background(demo: Any) -> None:
    queued = demo.interactions.create(model="demo", input="Later", background=True)
    assert queued.status == "queued"
    wait_until(lambda: demo.interactions.get(queued.id).status == "completed")
    assert demo.interactions.get(queued.id).output_text == "You said: Later"
    events = known(demo.interactions.create(model="demo", input="Later", background=True, stream=True))
    assert events[-1].interaction.status == "completed"


def test_one_in_progress_is_cancelled(client: Any, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(Script([chunk(role="assistant"), chunk(content="Hel"), HANG]))
    running = client.interactions.create(model="m", input="Hi", background=True)
    wait_until(lambda: client.interactions.get(running.id).output_text == "Hel")
    assert client.interactions.cancel(running.id).status == "cancelled"


@pytest.mark.parametrize("stream", [False, True])
def test_tools_in_parallel(client: Any, upstream: ScriptedUpstream, *, stream: bool) -> None:
    upstream.scripts = InTurn(calls(*WANTED), said("It is cool."))
    options = {"model": "m", "input": "Weather?", "tools": [WEATHER]}
    if stream:
        events = known(client.interactions.create(**options, stream=True))
        first = client.interactions.get(events[0].interaction.id)
        starts = [each.step.name for each in events if each.event_type == "step.start"]
        assert starts == ["weather", "weather"]
    else:
        first = client.interactions.create(**options)
    function_calls = [
        (step.id, step.name, step.arguments) for step in first.steps if step.type == "function_call"
    ]
    assert (function_calls, first.status) == ([*WANTED], "requires_action")
    results = [
        {
            "type": "function_result",
            "call_id": id,
            "name": name,
            "result": [{"type": "text", "text": f"12 degrees in {arguments['city']}"}],
        }
        for id, name, arguments in function_calls
    ]
    last = client.interactions.create(
        model="m", input=results, tools=[WEATHER], previous_interaction_id=first.id
    )
    assert last.output_text == "It is cool."
    sent = str(upstream.received[-1].body["messages"])
    assert "12 degrees in Lima" in sent
    assert "12 degrees in Oslo" in sent


def test_thoughts_come_and_go_back(client: Any, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(said("Hello.", reasoning="A greeting."), said("Bye."))
    config = {"thinking_level": "low", "thinking_summaries": "auto"}
    first = client.interactions.create(model="m", input="Hello", generation_config=config, store=False)
    (thought, *_), steps = first.steps, first.steps
    assert thought.type == "thought"
    assert "".join(each.text for each in thought.summary) == "A greeting."
    question = {"type": "user_input", "content": [{"type": "text", "text": "Hello"}]}
    more = {"type": "user_input", "content": [{"type": "text", "text": "Goodbye"}]}
    carried = [question, *(step.model_dump(exclude_none=True) for step in steps), more]
    again = client.interactions.create(model="m", input=carried, store=False)
    assert again.output_text == "Bye."
    assert "Hello." in str(upstream.received[-1].body["messages"])


def test_summaries_are_not_sent_to_who_did_not_ask(client: Any, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(said("Hello.", reasoning="A greeting."))
    events = known(client.interactions.create(model="m", input="Hello", stream=True))
    assert "A greeting." not in str(events)


def test_an_image_and_a_schema(client: Any, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(said('{"name": "cat"}'))
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    done = client.interactions.create(
        model="m",
        input=[
            {"type": "text", "text": "What is it?"},
            {"type": "image", "data": PIXEL, "mime_type": "image/png"},
        ],
        response_format={"type": "text", "mime_type": "application/json", "schema": schema},
    )
    assert done.output_text == '{"name": "cat"}'
    assert f"data:image/png;base64,{PIXEL}" in str(upstream.received[-1].body)


def test_a_failure_in_the_stream(client: Any, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(Script([chunk(role="assistant"), chunk(content="Hel"), CUT]))
    *_, error, end = known(client.interactions.create(model="m", input="Hello", stream=True))
    assert error.event_type == "error"
    assert "closed the connection" in error.error.message
    assert end.interaction.status == "failed"


def test_a_client_that_leaves_is_answered_later(client: Any, upstream: ScriptedUpstream) -> None:
    """A stored interaction goes on without its client, and its stream can be read again."""
    upstream.scripts = InTurn(said("Hello."))
    with client.interactions.create(model="m", input="Hello", stream=True) as stream:
        first = next(stream)
    wait_until(lambda: client.interactions.get(first.interaction.id).status == "completed")
    rest = client.interactions.get(first.interaction.id, stream=True, last_event_id=first.event_id)
    assert "".join(each.delta.text for each in rest if each.event_type == "step.delta") == "Hello."


async def test_asynchronously(base: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(said("Hello."), said("Bye."))
    client = made(base).aio
    first = await client.interactions.create(model="m", input="Hello")
    assert first.output_text == "Hello."
    stream = await client.interactions.create(
        model="m", input="Bye", stream=True, previous_interaction_id=first.id
    )
    events = [event async for event in stream]
    assert events[-1].interaction.status == "completed"


@pytest.fixture
def google(upstream: ScriptedUpstream) -> Iterator[Any]:
    """The SDK with a server over an upstream that speaks the same API."""
    reached = UpstreamSettings(name="g", url=upstream.url, dialect="interactions")
    with serving(Settings(store="memory://", upstreams=[reached])) as base:
        yield made(base)


def test_n1_the_list_is_that_of_the_newest_types() -> None:
    assert fields_of_sdk() == fields_in_list()


@pytest.mark.parametrize("stream", [False, True])
def test_over_itself(google: Any, upstream: ScriptedUpstream, *, stream: bool) -> None:
    function_calls = [(id, name, f'{{"city": "{arguments["city"]}"}}') for id, name, arguments in WANTED]
    upstream.scripts = InTurn(
        Script(scripts.call("interactions", *function_calls)),
        Script(scripts.text("interactions", "It is ", "cool.")),
    )
    tools = [WEATHER, {"type": "google_search"}, {"type": "url_context"}]
    config = {
        "thinking_level": "low",
        "tool_choice": {"allowed_tools": {"mode": "any", "tools": ["weather"]}},
    }
    options: Any = {"model": "m", "input": "Weather?", "tools": tools, "generation_config": config}
    if stream:
        events = known(google.interactions.create(**options, stream=True))
        first = google.interactions.get(events[0].interaction.id)
    else:
        first = google.interactions.create(**options)
    assert [(step.id, step.name, step.arguments) for step in first.steps] == [*WANTED]
    sent = upstream.received[-1].body
    assert (sent["tools"], sent["generation_config"], sent["store"]) == (tools, config, False)
    results = [{"type": "function_result", "call_id": id, "result": "mild"} for id, _, _ in WANTED]
    last = google.interactions.create(
        model="m", input=results, tools=tools, previous_interaction_id=first.id, stream=False
    )
    assert last.output_text == "It is cool."
    kinds = [step["type"] for step in upstream.received[-1].body["input"]]
    assert kinds == ["user_input", "function_call", "function_call", "function_result", "function_result"]

"""google-genai, unmodified, over the demo model and over upstreams of Chat and of Anthropic."""

from collections.abc import Iterator
from typing import Any

import pytest

from openresponses_server.settings import Settings
from tests.support.conversation_turns import InTurn, calls, said
from tests.support.serving import serving
from tests.support.upstream import CUT, HANG, Script, ScriptedUpstream, chunk
from tests.support.waiting import wait_until

genai = pytest.importorskip("google.genai")
types = pytest.importorskip("google.genai.types")
errors = pytest.importorskip("google.genai.errors")
pytestmark = [pytest.mark.clients, pytest.mark.timeout(120)]

PIXEL = bytes(range(256))  # its base64 has the characters that differ between the two alphabets
WANTED = (("call_1", "weather", {"city": "Lima"}), ("call_2", "weather", {"city": "Oslo"}))


def made(base: str) -> Any:
    options = types.HttpOptions(base_url=base.removesuffix("/v1"))
    return genai.Client(api_key="none", http_options=options)


@pytest.fixture
def client(base: str) -> Any:
    return made(base)


@pytest.fixture(scope="module")
def demo() -> Iterator[Any]:
    with serving(Settings(store="memory://")) as base:
        yield made(base)


def weather(city: str) -> str:
    """The weather in a city."""
    return f"12 degrees in {city}"


def test_the_demo_model(demo: Any) -> None:
    assert demo.models.generate_content(model="demo", contents="Hello").text == "You said: Hello"
    pieces = [each.text or "" for each in demo.models.generate_content_stream(model="demo", contents="Hello")]
    assert ("".join(pieces), len(pieces) > 2) == ("You said: Hello", True)
    assert demo.models.count_tokens(model="demo", contents="Hello").total_tokens > 0
    assert "models/demo" in [model.name for model in demo.models.list()]
    assert demo.models.get(model="demo").name == "models/demo"
    two = types.GenerateContentConfig(candidate_count=2)
    assert len(demo.models.generate_content(model="demo", contents="Hello", config=two).candidates) == 2
    with pytest.raises(errors.ClientError) as caught:
        demo.models.generate_content(model="nothing", contents="Hello")
    assert (caught.value.code, caught.value.status) == (404, "NOT_FOUND")


def test_tools_in_parallel(client: Any, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(calls(*WANTED), said("It is cool."))
    chat = client.chats.create(model="m", config=types.GenerateContentConfig(tools=[weather]))
    assert chat.send_message("Weather?").text == "It is cool."
    sent = str(upstream.received[-1].body["messages"])
    assert "12 degrees in Lima" in sent
    assert "12 degrees in Oslo" in sent


def test_thoughts_come_and_go_back(client: Any, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(said("Hello.", reasoning="A greeting."), said("Bye."))
    config = types.GenerateContentConfig(thinking_config=types.ThinkingConfig(include_thoughts=True))
    chat = client.chats.create(model="m", config=config)
    chunks = list(chat.send_message_stream("Hello"))
    parts = [part for each in chunks for part in each.candidates[0].content.parts or ()]
    assert "".join(part.text for part in parts if part.thought) == "A greeting."
    assert "".join(part.text for part in parts if not part.thought) == "Hello."
    assert chat.send_message("Goodbye").text == "Bye."
    assert "Hello." in str(upstream.received[-1].body["messages"])


def test_an_image_and_a_schema(client: Any, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(said('{"name": "cat", "legs": 4}'))
    schema = {
        "type": "OBJECT",
        "properties": {"name": {"type": "STRING"}, "legs": {"type": "INTEGER"}},
        "required": ["name", "legs"],
    }
    config = types.GenerateContentConfig(response_mime_type="application/json", response_schema=schema)
    image = types.Part.from_bytes(data=PIXEL, mime_type="image/png")
    done = client.models.generate_content(model="m", contents=["What is it?", image], config=config)
    assert done.parsed == {"name": "cat", "legs": 4}
    assert "data:image/png;base64,AAECAwQF" in str(upstream.received[-1].body)


def test_a_failure_in_the_stream(client: Any, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(Script([chunk(role="assistant"), chunk(content="Hel"), CUT]))
    stream = client.models.generate_content_stream(model="m", contents="Hello")
    assert next(stream).text == "Hel"
    with pytest.raises(errors.ServerError) as caught:
        list(stream)
    assert "closed the connection" in caught.value.message


def test_a_client_that_leaves_stops_the_model(client: Any, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(Script([chunk(role="assistant"), chunk(content="Hel"), HANG]))
    stream = client.models.generate_content_stream(model="m", contents="Hello")
    assert next(stream).text == "Hel"
    stream.close()
    client.close()
    wait_until(lambda: upstream.received[-1].gone_at is not None)

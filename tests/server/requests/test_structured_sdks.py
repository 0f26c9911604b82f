"""The official SDKs read structured answers into models of Pydantic, in every way and over every dialect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from openresponses_server.requests.answer_format import ANSWER
from openresponses_server.settings import Settings, UpstreamSettings
from tests.support import dialect_scripts as scripts
from tests.support import sdks
from tests.support.serving import serving
from tests.support.upstream import Script, ScriptedUpstream, text
from tests.support.upstream import call as tool_call

HELLO: Any = [{"role": "user", "content": "Where to?"}]
GOOD = '{"city": "Oslo", "days": 3}'
BAD = '{"city": "Oslo"}'


class Trip(BaseModel):
    """A trip."""

    city: str
    days: int


TRIP = Trip(city="Oslo", days=3)
# the upstream's settings, its model, how that says something
WAYS: dict[str, tuple[dict[str, Any], str, Callable[[str], Script]]] = {
    "native": ({"dialect": "chat"}, "m", lambda said: Script(text(said))),
    "instructed": (
        {"dialect": "chat", "options": {"json_schema": "json_object"}},
        "m",
        lambda said: Script(text(f"Here:\n```json\n{said}\n```")),
    ),
    "function": (
        {"dialect": "chat", "options": {"json_schema": "function"}},
        "m",
        lambda said: Script([tool_call(0, said, ANSWER, "call_1"), *text(finish_reason="tool_calls")]),
    ),
    "anthropic": (
        {"dialect": "anthropic"},
        "claude-opus-4-6",
        lambda said: Script(scripts.text("anthropic", said)),
    ),
    "older anthropic": (
        {"dialect": "anthropic"},
        "claude-3-7-sonnet",
        lambda said: Script(scripts.call("anthropic", ("toolu_1", ANSWER, said))),
    ),
    "gemini": ({"dialect": "gemini"}, "m", lambda said: Script(scripts.text("gemini", said))),
    "responses": ({"dialect": "responses"}, "m", lambda said: Script(scripts.text("responses", said))),
}


@pytest.fixture(scope="module")
def base(upstream: ScriptedUpstream) -> Iterator[str]:
    names = {name: name.replace(" ", "-") for name in WAYS}
    upstreams = [
        UpstreamSettings(name=names[name], url=upstream.url, **settings)
        for name, (settings, _, _) in WAYS.items()
    ]
    with serving(Settings(upstreams=upstreams)) as url:
        yield url


@pytest.fixture
def openai(base: str) -> Iterator[sdks.openai.OpenAI]:
    with sdks.openai.OpenAI(base_url=f"{base}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(params=WAYS)
def model(request: pytest.FixtureRequest, upstream: ScriptedUpstream) -> str:
    """The name of a model that answers right at its second try."""
    _, name, script = WAYS[request.param]
    upstream.scripts[name] = [script(BAD), script(GOOD)]
    if request.param in ("function", "older anthropic"):  # it is instructed at the second
        second = WAYS["native" if request.param == "function" else "anthropic"][2](GOOD)
        upstream.scripts[name] = [script(BAD), second]
    return f"{request.param.replace(' ', '-')}/{name}"


@pytest.fixture(params=WAYS)
def right(request: pytest.FixtureRequest, upstream: ScriptedUpstream) -> str:
    """The name of a model that answers right at once."""
    _, name, script = WAYS[request.param]
    upstream.scripts[name] = script(GOOD)
    return f"{request.param.replace(' ', '-')}/{name}"


def test_responses_parse(openai: sdks.openai.OpenAI, model: str) -> None:
    parsed = openai.responses.parse(model=model, input="Where to?", text_format=Trip)
    assert parsed.output_parsed == TRIP


def test_responses_stream(openai: sdks.openai.OpenAI, right: str) -> None:
    with openai.responses.stream(model=right, input="Where to?", text_format=Trip) as stream:
        kinds = [event.type for event in stream]
        assert stream.get_final_response().output_parsed == TRIP
    assert "response.output_text.delta" in kinds


def test_chat_parse(openai: sdks.openai.OpenAI, model: str) -> None:
    parsed = openai.chat.completions.parse(model=model, messages=HELLO, response_format=Trip)
    assert parsed.choices[0].message.parsed == TRIP
    assert parsed.choices[0].finish_reason == "stop"


def test_chat_stream(openai: sdks.openai.OpenAI, right: str) -> None:
    with openai.chat.completions.stream(model=right, messages=HELLO, response_format=Trip) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == TRIP


def test_messages_parse(base: str, model: str) -> None:
    with sdks.anthropic.Anthropic(base_url=base, api_key="none", max_retries=0) as client:
        parsed = client.messages.parse(model=model, max_tokens=99, messages=HELLO, output_format=Trip)
    assert parsed.parsed_output == TRIP
    assert parsed.stop_reason == "end_turn"


def test_messages_stream(base: str, right: str) -> None:
    with (
        sdks.anthropic.Anthropic(base_url=base, api_key="none", max_retries=0) as client,
        client.messages.stream(model=right, max_tokens=99, messages=HELLO, output_format=Trip) as stream,
    ):
        assert stream.get_final_message().parsed_output == TRIP


def test_what_does_not_fit_is_an_error_of_the_sdk(
    base: str, openai: sdks.openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["m"] = Script(text(BAD))
    with pytest.raises(sdks.openai.APIError):
        openai.chat.completions.parse(model="instructed/m", messages=HELLO, response_format=Trip)
    failed = openai.responses.create(
        model="instructed/m",
        input="Where to?",
        text={"format": {"type": "json_schema", "name": "trip", "schema": Trip.model_json_schema()}},
    )
    assert failed.status == "failed"
    assert failed.error is not None
    with (
        sdks.anthropic.Anthropic(base_url=base, api_key="none", max_retries=0) as client,
        pytest.raises(sdks.anthropic.APIError),
    ):
        client.messages.parse(model="instructed/m", max_tokens=99, messages=HELLO, output_format=Trip)

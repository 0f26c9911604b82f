"""One iterator behind three routes, read by the official SDKs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from fastapi import Body, FastAPI

from openresponses_bridge import CreateResponse, HttpError
from openresponses_bridge.backend import Output, Reasoning, ToolCall, Usage
from openresponses_server.backend import BackendResponse, endpoint
from tests.support import sdks
from tests.support.serving import call, serving_app

ASKED: list[Any] = [{"role": "user", "content": "Weather?"}]


async def generate(request: CreateResponse) -> AsyncIterator[Output]:
    if request.model == "busy":
        raise HttpError(429, "Try again in a minute.")
    yield Reasoning("Hm.")
    yield "Let me "
    if request.model == "broken":
        raise OSError("secret")
    yield "look."
    yield ToolCall("get_weather", {"city": "Paris"}, call_id="call_1")
    yield Usage.of(12, 20)


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    app = FastAPI()
    app.post("/v1/responses")(endpoint(generate))
    app.post("/v1/chat/completions")(endpoint(generate, dialect="chat"))
    app.post("/v1/messages")(endpoint(generate, dialect="anthropic"))
    for version in ("v1", "v1beta"):
        app.post(f"/google/{version}/models/{{call:path}}")(endpoint(generate, dialect="gemini"))

    @app.post("/parsed", response_model=None)
    async def parsed(body: dict[str, Any] = Body()) -> BackendResponse:  # noqa: B008
        return BackendResponse(body, generate)

    with serving_app(app) as address:
        yield address


@pytest.fixture
def client(base: str) -> Iterator[sdks.openai.OpenAI]:
    with sdks.openai.OpenAI(base_url=f"{base}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def claude(base: str) -> Iterator[sdks.anthropic.Anthropic]:
    with sdks.anthropic.Anthropic(base_url=base, api_key="none", max_retries=0) as client:
        yield client


def test_chat_completions(client: sdks.openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="m", messages=ASKED)
    assert whole.choices[0].message.content == "Let me look."
    assert whole.choices[0].finish_reason == "tool_calls"
    assert whole.usage is not None
    assert whole.usage.total_tokens == 32
    with client.chat.completions.stream(model="m", messages=ASKED) as stream:
        final = stream.get_final_completion().choices[0].message
    assert final.content == "Let me look."
    assert final.tool_calls is not None
    assert [each.function.name for each in final.tool_calls] == ["get_weather"]


def test_gemini(base: str) -> None:
    body = {"contents": [{"role": "user", "parts": [{"text": "Weather?"}]}]}
    at = "/google/v1beta/models/"
    whole = call(base, "POST", f"{at}mine:generateContent", body)
    assert [sorted(part) for part in whole.json["candidates"][0]["content"]["parts"]] == [
        ["text"],
        ["functionCall"],
    ]
    assert whole.json["modelVersion"] == "mine"
    stream = call(base, "POST", f"{at}mine:streamGenerateContent?alt=sse", body)
    assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert stream.body.count(b"data: ") > 2
    busy = call(base, "POST", f"{at}busy:generateContent", body)
    assert (busy.status, busy.json["error"]["status"]) == (429, "RESOURCE_EXHAUSTED")
    counted = call(base, "POST", f"{at}mine:countTokens", body)
    assert (counted.status, counted.json["error"]["code"]) == (404, 404)


@pytest.mark.parametrize("version", [None, "v1beta"], ids=["its own", "v1beta"])
def test_google_genai(base: str, version: str | None) -> None:
    genai = pytest.importorskip("google.genai")
    types = pytest.importorskip("google.genai.types")
    options = types.HttpOptions(base_url=f"{base}/google", api_version=version)
    client = genai.Client(api_key="none", http_options=options)
    whole = client.models.generate_content(model="m", contents="Weather?")
    assert (whole.text, whole.function_calls[0].args) == ("Let me look.", {"city": "Paris"})
    pieces = [
        each.text or "" for each in client.models.generate_content_stream(model="m", contents="Weather?")
    ]
    assert "".join(pieces) == "Let me look."


def test_messages(claude: sdks.anthropic.Anthropic) -> None:
    whole = claude.messages.create(model="m", max_tokens=100, messages=ASKED)
    assert [block.type for block in whole.content] == ["thinking", "text", "tool_use"]
    with claude.messages.stream(model="m", max_tokens=100, messages=ASKED) as stream:
        final = stream.get_final_message()
    assert (final.stop_reason, final.usage.output_tokens) == ("tool_use", 20)
    assert [block.type for block in final.content] == ["thinking", "text", "tool_use"]


def test_a_failure_in_mid_stream_reaches_every_sdk(
    client: sdks.openai.OpenAI, claude: sdks.anthropic.Anthropic
) -> None:
    *_, error, last = client.responses.create(model="broken", input="Weather?", stream=True)
    assert (error.type, last.type) == ("error", "response.failed")
    assert last.response.error.message == "The server failed."  # type: ignore[union-attr]
    assert last.response.output_text == "Let me "  # type: ignore[union-attr]
    with pytest.raises(sdks.openai.APIError, match="The server failed"):
        list(client.chat.completions.create(model="broken", messages=ASKED, stream=True))
    with (
        pytest.raises(sdks.anthropic.APIStatusError, match="The server failed"),
        claude.messages.stream(model="broken", max_tokens=100, messages=ASKED) as stream,
    ):
        stream.get_final_message()


def test_a_failure_at_once_reaches_every_sdk(
    client: sdks.openai.OpenAI, claude: sdks.anthropic.Anthropic
) -> None:
    with pytest.raises(sdks.openai.RateLimitError, match="in a minute"):
        client.chat.completions.create(model="busy", messages=ASKED, stream=True)
    with pytest.raises(sdks.anthropic.RateLimitError, match="in a minute"):
        claude.messages.create(model="busy", max_tokens=100, messages=ASKED)


def test_fastapi_may_parse_the_body_and_describes_its_routes(base: str) -> None:
    assert call(base, "POST", "/parsed", {"input": "Weather?"}).json["output"][1]["type"] == "message"
    assert call(base, "POST", "/parsed", {"input": 5}).error["param"] == "input"
    assert "/v1/messages" in call(base, "GET", "/openapi.json").json["paths"]

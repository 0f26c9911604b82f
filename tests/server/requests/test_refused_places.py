"""What an upstream can't be sent is refused in the words of the client's own request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from openresponses_server.settings import Settings, UpstreamSettings
from tests.support.in_process import InProcess
from tests.support.upstream import ScriptedUpstream

NOT_BASE64 = "data:image/png,AAAA"
CHAT = {"type": "image_url", "image_url": {"url": NOT_BASE64}}
MESSAGES = {"type": "image", "source": {"type": "url", "url": NOT_BASE64}}
GEMINI = {"fileData": {"fileUri": NOT_BASE64, "mimeType": "image/png"}}
CONVERSE = {"image": {"format": "png", "source": {"s3Location": {"uri": "s3://bucket/a.png"}}}}
ASKED: dict[str, tuple[dict[str, Any], str]] = {
    "/v1/responses": (
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": NOT_BASE64}]}]},
        "input[0].content[0].image_url",
    ),
    "/v1/chat/completions": ({"messages": [{"role": "user", "content": [CHAT]}]}, "messages"),
    "/v1/messages": ({"max_tokens": 9, "messages": [{"role": "user", "content": [MESSAGES]}]}, "messages"),
    "/v1beta/models/{model}:generateContent": (
        {"contents": [{"role": "user", "parts": [GEMINI]}]},
        "contents[0].parts[0].fileData.fileUri",
    ),
    "/v1beta/interactions": ({"input": [{"type": "image", "uri": NOT_BASE64}]}, "input[0].uri"),
    "/model/{model}/converse": ({"messages": [{"role": "user", "content": [CONVERSE]}]}, "messages"),
}


@pytest.fixture(scope="module")
def app(upstream: ScriptedUpstream) -> Iterator[InProcess]:
    others = {"bedrock": {"api_key": "k"}}
    upstreams = [
        UpstreamSettings(name=name, url=upstream.url, dialect=name, models=[name], **others.get(name, {}))
        for name in ("gemini", "bedrock")
    ]
    running = InProcess(Settings(upstreams=upstreams))
    yield running
    running.close()


@pytest.mark.parametrize("path", ASKED)
def test_an_item_that_an_upstream_cant_be_sent_is_named_as_the_client_calls_it(
    app: InProcess, path: str
) -> None:
    body, place = ASKED[path]
    model = "bedrock" if "converse" in path else "gemini"
    named = {} if "{model}" in path else {"model": model}
    reply = app.call("POST", path.format(model=model), body | named)
    assert reply.status == 400
    assert reply.error["message"].startswith(f"{place}: ")

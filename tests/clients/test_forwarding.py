"""openai-python's embeddings, completions, images, audio and moderations over a scripted upstream."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import pytest

from openresponses_server.settings import Settings, UpstreamSettings
from tests.support import sdks
from tests.support.serving import serving
from tests.support.upstream import JSON, Script, ScriptedUpstream

pytestmark = [pytest.mark.clients, pytest.mark.timeout(120)]
USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def client(upstream: ScriptedUpstream) -> Iterator[sdks.openai.OpenAI]:
    ours = UpstreamSettings(url=upstream.url, name="ours", model="real", models=["mine"])
    forwarding = ["audio", "completions", "embeddings", "images", "moderations"]
    settings = Settings(upstreams=[ours], forwarding=forwarding)  # type: ignore[arg-type]
    with (
        serving(settings) as base,
        sdks.openai.OpenAI(base_url=f"{base}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


def answers(upstream: ScriptedUpstream, path: str, value: object) -> None:
    upstream.pages[f"/v1/{path}"] = Script([json.dumps(value).encode()], 200, JSON)


def test_embeddings(client: sdks.openai.OpenAI, upstream: ScriptedUpstream) -> None:
    one = {"object": "embedding", "index": 0, "embedding": [0.25, 0.5]}
    answers(upstream, "embeddings", {"object": "list", "data": [one], "model": "real", "usage": USAGE})
    response = client.embeddings.create(model="mine", input="x", encoding_format="float")
    assert response.data[0].embedding == [0.25, 0.5]
    assert upstream.received[-1].body["model"] == "real"


def test_completions(client: sdks.openai.OpenAI, upstream: ScriptedUpstream) -> None:
    completion = {"id": "c", "object": "text_completion", "created": 1, "model": "real"}
    choice = {"index": 0, "text": "a + b", "finish_reason": "stop", "logprobs": None}
    answers(upstream, "completions", {**completion, "choices": [choice], "usage": USAGE})
    whole = client.completions.create(model="mine", prompt="def f(a, b): return ", suffix="\n")
    assert whole.choices[0].text == "a + b"
    frames = [
        b"data: %b\n\n" % json.dumps({**completion, "choices": [{**choice, "text": each}]}).encode()
        for each in "ab"
    ]
    upstream.pages["/v1/completions"] = Script([*frames, b"data: [DONE]\n\n"])
    stream = client.completions.create(model="mine", prompt="x", stream=True)
    assert "".join(each.choices[0].text for each in stream) == "ab"
    broken = [*frames, b'data: {"error": {"message": "it broke"}}\n\n']
    upstream.pages["/v1/completions"] = Script(broken)
    with pytest.raises(sdks.openai.APIError, match="it broke"):
        list(client.completions.create(model="mine", prompt="x", stream=True))


def test_images(client: sdks.openai.OpenAI, upstream: ScriptedUpstream) -> None:
    for path in ("generations", "edits", "variations"):
        answers(upstream, f"images/{path}", {"created": 1, "data": [{"b64_json": "eA=="}]})
    picture = ("a.png", io.BytesIO(b"\x89PNG" + bytes(1_000_000)), "image/png")
    for response in (
        client.images.generate(model="mine", prompt="a cat"),
        client.images.edit(model="mine", prompt="a cat", image=picture),
        client.images.create_variation(model="mine", image=picture),
    ):
        assert response.data is not None
        assert response.data[0].b64_json == "eA=="
    assert b"real" in upstream.received[-1].raw


def test_audio(client: sdks.openai.OpenAI, upstream: ScriptedUpstream) -> None:
    answers(upstream, "audio/transcriptions", {"text": "hello"})
    answers(upstream, "audio/translations", {"text": "hello"})
    sound = ("a.wav", io.BytesIO(b"RIFF" + bytes(1_000_000)), "audio/wav")
    assert client.audio.transcriptions.create(model="mine", file=sound).text == "hello"
    assert client.audio.translations.create(model="mine", file=sound).text == "hello"
    spoken = b"\xff\xfb" * 100_000
    upstream.pages["/v1/audio/speech"] = Script([spoken], 200, {"content-type": "audio/mpeg"})
    with client.audio.speech.with_streaming_response.create(
        model="mine", voice="alloy", input="hello"
    ) as speech:
        assert b"".join(speech.iter_bytes()) == spoken


def test_moderations_and_errors(client: sdks.openai.OpenAI, upstream: ScriptedUpstream) -> None:
    answers(upstream, "moderations", {"id": "m", "model": "real", "results": []})
    assert client.moderations.create(model="mine", input="x").results == []
    with pytest.raises(sdks.openai.NotFoundError, match="nobody"):
        client.embeddings.create(model="nobody", input="x")

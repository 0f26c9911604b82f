"""The programs in docs/examples do what they say, with the official SDK as their client."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from openresponses_bridge import CreateResponse
from openresponses_bridge.backend import Output
from tests.support import sdks
from tests.support.debug_mode import without_durations
from tests.support.examples import EXAMPLES, example, lines_of_code
from tests.support.serving import call, opened, serving_app, violations
from tests.support.upstream import DONE, Script, ScriptedUpstream, chunk, frame
from tests.support.upstream import call as call_chunk
from tests.support.waiting import wait_until

BACKENDS = {"own_model": "app", "own_model_fastapi": "app", "django_view": "application"}
PROGRAMS = {"chat_upstream", "recorder", "parts"}


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    module = example(request.param)
    with serving_app(getattr(module, BACKENDS[request.param]), lifespan="off") as base:
        yield base


def client_of(base: str) -> sdks.openai.OpenAI:
    return sdks.openai.OpenAI(base_url=f"{base}/v1", api_key="none", max_retries=0)


def test_every_example_is_tried_here() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == BACKENDS.keys() | PROGRAMS


@pytest.mark.parametrize("name", ["own_model", "own_model_fastapi"])
def test_a_whole_backend_is_twelve_lines(name: str) -> None:
    assert lines_of_code(EXAMPLES / f"{name}.py") <= 12


def test_the_sdk_streams_text_and_a_call_from_it(backend: str) -> None:
    with client_of(backend) as client, client.responses.stream(model="m", input="Weather?") as stream:
        types = [event.type for event in stream]
        final = stream.get_final_response()
    assert types[0] == "response.created"
    assert {"response.output_text.delta", "response.function_call_arguments.done"} <= set(types)
    assert types[-1] == "response.completed"
    assert final.output_text == "Let me look that up."
    called = final.output[1]
    assert (called.type, called.name) == ("function_call", "get_weather")  # type: ignore[union-attr]
    assert json.loads(called.arguments) == {"city": "Paris"}  # type: ignore[union-attr]


def test_the_sdk_gets_the_same_whole(backend: str) -> None:
    with client_of(backend) as client:
        whole = client.responses.create(model="m", input="Weather?")
    assert (whole.status, whole.output_text, len(whole.output)) == ("completed", "Let me look that up.", 2)


@pytest.mark.parametrize("stream", [False, True])
def test_the_sdk_raises_what_the_model_raised(backend: str, stream: bool) -> None:
    with (
        client_of(backend) as client,
        pytest.raises(sdks.openai.RateLimitError, match="in a minute") as caught,
    ):
        client.responses.create(model="busy", input="Hello", stream=stream)
    assert caught.value.code == "rate_limit_exceeded"


def test_a_wrong_body_is_a_400_that_names_the_field(backend: str) -> None:
    reply = call(backend, "POST", "/v1/responses", {"input": 5})
    assert (reply.status, reply.error["param"], reply.error["type"]) == (
        400,
        "input",
        "invalid_request_error",
    )


def test_a_client_of_django_that_leaves_ends_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    async def endless(_request: CreateResponse) -> AsyncIterator[Output]:
        try:
            while True:
                yield "word "
                await asyncio.sleep(0.01)
        except BaseException as error:
            ended.append(type(error).__name__)
            raise

    module = example("django_view")
    monkeypatch.setattr(module, "generate", endless)
    with serving_app(module.application, lifespan="off") as base:
        body = {"input": "Hello", "stream": True}
        with opened(base, "POST", "/v1/responses", body) as response:
            assert response.read(100)
        wait_until(lambda: bool(ended))
    assert ended[0] in ("CancelledError", "GeneratorExit")


@pytest.fixture
def relayed(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, ScriptedUpstream]]:
    with ScriptedUpstream() as upstream, serving_app(example("chat_upstream").app) as base:
        monkeypatch.setenv("UPSTREAM", upstream.url)
        yield base, upstream


def test_a_chat_upstream_by_hand(relayed: tuple[str, ScriptedUpstream]) -> None:
    base, upstream = relayed
    upstream.scripts["m"] = Script(
        [
            chunk(role="assistant", reasoning_content="Weather?"),
            chunk(content="One mo"),
            chunk(content="ment."),
            call_chunk(0, "", "get_weather", "call_1"),
            call_chunk(0, '{"city":"Paris"}'),
            chunk("tool_calls"),
            frame(choices=[], usage={"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}),
            DONE,
        ]
    )
    tools = [{"type": "function", "name": "get_weather"}]
    body = {"model": "m", "input": "Weather?", "tools": tools, "stream": True}
    reply = call(base, "POST", "/v1/responses", body)
    assert violations(reply) == []
    assert [item["type"] for item in reply.final["output"]] == ["reasoning", "message", "function_call"]
    assert reply.final["usage"]["total_tokens"] == 7
    assert upstream.received[0].body["tools"][0]["function"]["name"] == "get_weather"


@pytest.mark.parametrize(
    ("script", "status"), [(Script([chunk(content="Hi")]), 200), (Script(status=500), 502), (Script(), 502)]
)
def test_a_chat_upstream_that_fails(
    relayed: tuple[str, ScriptedUpstream], script: Script, status: int
) -> None:
    base, upstream = relayed
    upstream.scripts["m"] = script
    reply = call(base, "POST", "/v1/responses", {"model": "m", "input": "Hi", "stream": True})
    assert reply.status == status
    if status == 200:
        assert reply.final["error"]["message"] == "The upstream's stream was cut."


def run(program: str, *arguments: str, stdin: bytes = b"") -> str:
    command = [sys.executable, str(EXAMPLES / f"{program}.py"), *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, check=True)
    assert without_durations(done.stderr) == b""
    return done.stdout.decode()


def test_a_recorded_stream_and_its_parts_in_a_terminal(tmp_path: Path) -> None:
    capture = tmp_path / "capture.sse"
    with serving_app(example("own_model").app) as base:
        output = run("recorder", f"{base}/v1", str(capture), "Weather?")
    assert "completed: Let me look that up." in output
    assert capture.read_bytes().endswith(b"data: [DONE]\n\n")
    shown = run("parts", stdin=capture.read_bytes())
    assert shown.startswith("Let me look that up.\n")
    assert "get_weather({'city': 'Paris'})" in shown


def test_a_recorder_reports_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorder: ModuleType = example("recorder")

    async def lying(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b'event: error\ndata: {"type":"error"}\n\n'})

    with serving_app(lying, lifespan="off") as base:
        assert recorder.record(f"{base}/v1", str(tmp_path / "capture.sse"), "Hello").response is None
    assert "stream.first_created" in capsys.readouterr().err

"""boto3, unmodified, over a Chat and an Anthropic upstream: streamed and whole answers, tools, reasoning,
images, formats, errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.support.bedrock_client import message_of, text_in
from tests.support.conversation_turns import InTurn, calls, said
from tests.support.converse_fields import fields_in_list, fields_of_sdk
from tests.support.upstream import CUT, Script, ScriptedUpstream, chunk, refusal

boto3 = pytest.importorskip("boto3")
exceptions = pytest.importorskip("botocore.exceptions")
pytestmark = [pytest.mark.clients, pytest.mark.timeout(120)]

Json = dict[str, Any]
HELLO: list[Json] = [{"role": "user", "content": [{"text": "Weather?"}]}]
SCHEMA: Json = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER: Json = {"tools": [{"toolSpec": {"name": "weather", "inputSchema": {"json": SCHEMA}}}]}
WANTED = (("call_1", "weather", {"city": "Lima"}), ("call_2", "weather", {"city": "Oslo"}))
PIXEL = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def client(base: str) -> Iterator[Any]:
    runtime = boto3.client(
        "bedrock-runtime",
        endpoint_url=base.removesuffix("/v1"),
        region_name="us-east-1",
        aws_access_key_id="none",
        aws_secret_access_key="none",
    )
    with closing(runtime):
        yield runtime


def streamed(client: Any, **asked: Any) -> list[Any]:
    with closing(client.converse_stream(**asked)["stream"]) as stream:
        return list(stream)


def test_n1_the_list_is_that_of_the_newest_description() -> None:
    assert fields_of_sdk() == fields_in_list()


@pytest.mark.parametrize("stream", [False, True])
def test_tools_in_parallel(client: Any, upstream: ScriptedUpstream, *, stream: bool) -> None:
    upstream.scripts = InTurn(calls(*WANTED), said("It is cool."))
    options: Json = {"modelId": "m", "toolConfig": WEATHER}
    if stream:
        message = message_of(streamed(client, messages=HELLO, **options))
    else:
        first = client.converse(messages=HELLO, **options)
        message = first["output"]["message"]
        assert first["stopReason"] == "tool_use"
    tool_uses = [block["toolUse"] for block in message["content"]]
    assert [(each["toolUseId"], each["name"], each["input"]) for each in tool_uses] == [*WANTED]
    results = [
        {"toolResult": {"toolUseId": id, "content": [{"text": f"12 degrees in {arguments['city']}"}]}}
        for id, _, arguments in WANTED
    ]
    turns = [*HELLO, message, {"role": "user", "content": results}]
    answer = client.converse(messages=turns, **options)
    assert answer["output"]["message"]["content"] == [{"text": "It is cool."}]
    assert "12 degrees in Oslo" in json.dumps(upstream.received[-1].body)


@pytest.mark.parametrize("stream", [False, True])
def test_thoughts_come_before_the_answer(client: Any, upstream: ScriptedUpstream, *, stream: bool) -> None:
    upstream.scripts = InTurn(said("So ", "it is.", reasoning="Hm, so."))
    options: Json = {"modelId": "m", "messages": HELLO}
    if stream:
        content = message_of(streamed(client, **options))["content"]
    else:
        content = client.converse(**options)["output"]["message"]["content"]
    thought, answer = content
    assert thought["reasoningContent"]["reasoningText"]["text"] == "Hm, so."
    assert answer == {"text": "So it is."}


def test_an_image_and_a_format(client: Any, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(said('{"city": "Lima"}'))
    schema = {"schema": json.dumps(SCHEMA), "name": "place"}
    reply = client.converse(
        modelId="m",
        messages=[
            {
                "role": "user",
                "content": [{"text": "Where?"}, {"image": {"format": "png", "source": {"bytes": PIXEL}}}],
            }
        ],
        outputConfig={"textFormat": {"type": "json_schema", "structure": {"jsonSchema": schema}}},
        inferenceConfig={"maxTokens": 99, "temperature": 0.5},
    )
    assert json.loads(reply["output"]["message"]["content"][0]["text"]) == {"city": "Lima"}
    assert "iVBORw0KGgo" in json.dumps(upstream.received[-1].body)


def test_what_is_refused_and_what_breaks(client: Any, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(refusal(400, message="No such thing."))
    with pytest.raises(client.exceptions.ValidationException, match="No such thing"):
        client.converse(modelId="m", messages=HELLO)
    upstream.scripts = InTurn(Script([chunk(role="assistant"), chunk(content="Hel"), CUT]))
    events: list[Any] = []
    stream = client.converse_stream(modelId="m", messages=HELLO)["stream"]
    with closing(stream), pytest.raises(exceptions.EventStreamError):
        events.extend(event for event in stream)
    assert text_in(events) == "Hel"

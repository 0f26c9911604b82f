"""Claude Code, Anthropic's SDK and boto3, unmodified, as clients of Bedrock's InvokeModel."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from openresponses_server.settings import Settings, UpstreamSettings
from openresponses_server.settings.files import hashed
from tests.clients.claude_code import USES_BEDROCK, does_the_task
from tests.support import dialect_scripts as scripts
from tests.support.anthropic import add_up
from tests.support.bedrock_client import chunks
from tests.support.conversation_turns import InTurn, calls, said
from tests.support.serving import serving
from tests.support.upstream import CUT, Received, Script, ScriptedUpstream, chunk, refusal

anthropic = pytest.importorskip("anthropic")
boto3 = pytest.importorskip("boto3")
exceptions = pytest.importorskip("botocore.exceptions")
pytestmark = [pytest.mark.clients, pytest.mark.timeout(700)]

Json = dict[str, Any]
ACCOUNT = {"aws_access_key": "none", "aws_secret_key": "none", "aws_region": "us-east-1"}
HELLO: list[Json] = [{"role": "user", "content": "Weather?"}]
SCHEMA: Json = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ASKED: Json = {
    "model": "m",
    "max_tokens": 99,
    "messages": HELLO,
    "tools": [{"name": "weather", "input_schema": SCHEMA}],
}
WANTED = (("call_1", "weather", {"city": "Lima"}), ("call_2", "weather", {"city": "Oslo"}))
COMMAND = "echo marked-$((40+2))"
CLAUDE = "us.anthropic.claude-opus-4-6-v1:0"


@pytest.fixture(params=["AnthropicBedrock, signed", "AnthropicBedrock, bearer", "Mantle"])
def client(request: pytest.FixtureRequest, base: str) -> Iterator[Any]:
    root = base.removesuffix("/v1")
    if request.param == "Mantle":
        bedrock = anthropic.AnthropicBedrockMantle(base_url=root, aws_region="us-east-1", api_key="none")
    elif request.param.endswith("bearer"):
        bedrock = anthropic.AnthropicBedrock(base_url=root, aws_region="us-east-1", api_key="none")
    else:
        bedrock = anthropic.AnthropicBedrock(base_url=root, **ACCOUNT)
    with bedrock:
        yield bedrock


@pytest.mark.parametrize("stream", [False, True])
def test_anthropic_s_sdk_runs_tools(client: Any, upstream: ScriptedUpstream, *, stream: bool) -> None:
    upstream.scripts = InTurn(calls(*WANTED), said("It is ", "cool."))

    def ask(**fields: Any) -> Any:
        if not stream:
            return client.messages.create(**{**ASKED, **fields})
        with client.messages.stream(**{**ASKED, **fields}) as events:
            return events.get_final_message()

    message = ask()
    assert [(each.name, each.input) for each in message.content] == [each[1:] for each in WANTED]
    results = [
        {"type": "tool_result", "tool_use_id": each.id, "content": f"12 degrees in {each.input['city']}"}
        for each in message.content
    ]
    turns = [*HELLO, {"role": "assistant", "content": message.content}, {"role": "user", "content": results}]
    assert ask(messages=turns).content[0].text == "It is cool."
    assert "12 degrees in Oslo" in json.dumps(upstream.received[-1].body)


def test_anthropic_s_sdk_is_refused_and_cut(client: Any, upstream: ScriptedUpstream) -> None:
    once = client.with_options(max_retries=0)
    upstream.scripts = InTurn(refusal(400, message="No such thing."))
    with pytest.raises(anthropic.BadRequestError, match="No such thing"):
        once.messages.create(**ASKED)
    upstream.scripts = InTurn(Script([chunk(role="assistant"), chunk(content="Hel"), CUT]))
    texts: list[str] = []
    with once.messages.stream(**ASKED) as stream, pytest.raises(anthropic.APIError):
        texts.extend(stream.text_stream)
    assert "".join(texts) == "Hel"


def test_boto3_invokes_without_saying_what_it_sends(base: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(calls(*WANTED), said("It is ", "cool."))
    account = {"aws_access_key_id": "none", "aws_secret_access_key": "none", "region_name": "us-east-1"}
    body = {name: value for name, value in ASKED.items() if name != "model"}
    body["anthropic_version"] = "bedrock-2023-05-31"
    with closing(boto3.client("bedrock-runtime", endpoint_url=base.removesuffix("/v1"), **account)) as aws:
        message = add_up(list(chunks(aws, modelId="m", body=json.dumps(body))))
        assert [(each["name"], each["input"]) for each in message["content"]] == [each[1:] for each in WANTED]
        answer = json.loads(aws.invoke_model(modelId="m", body=json.dumps(body))["body"].read())
        assert answer["content"] == [{"type": "text", "text": "It is cool."}]
        with pytest.raises(aws.exceptions.ValidationException, match="Converse"):
            aws.invoke_model(modelId="m", body=json.dumps({"inputText": "Hi"}))


@pytest.mark.parametrize("name", ["chat", "anthropic", "gemini", "responses"])
def test_claude_code_does_a_task(node: Path, tmp_path: Path, name: str) -> None:
    def answer(asked: Received) -> Script:
        text = asked.raw.decode()
        if "marked-42" in text:
            return Script(scripts.text(name, "All done"))
        if "Do the task" in text and '"Bash"' in text:
            call = ("toolu_1", "Bash", json.dumps({"command": COMMAND, "description": "Mark"}))
            return Script(scripts.call(name, call))
        return Script(scripts.text(name, "ok"))

    with ScriptedUpstream() as upstream:
        upstream.answer = answer
        reached = UpstreamSettings(name=name, url=upstream.url, dialect=name)
        with serving(Settings(upstreams=[reached])) as base:
            flags = ("--allowedTools", "Bash", "--model", CLAUDE)
            done = does_the_task(
                node, tmp_path, base, *flags, **USES_BEDROCK, ANTHROPIC_BEDROCK_BASE_URL=base
            )
        assert done["result"] == "All done"
        last = upstream.received[-1]
    assert "marked-42" in last.raw.decode()
    if name == "anthropic":
        assert last.body["model"] == CLAUDE
        assert last.headers["anthropic-beta"]


def test_claude_code_brings_a_key_of_the_server_s(node: Path, tmp_path: Path) -> None:
    key = {"CLAUDE_CODE_USE_BEDROCK": "1", "AWS_REGION": "us-east-1", "AWS_BEARER_TOKEN_BEDROCK": "key-1"}
    with serving(Settings(store="memory://", api_keys=[hashed("key-1")])) as base:
        flags = ("--model", "demo")
        done = does_the_task(node, tmp_path, base, *flags, **key, ANTHROPIC_BEDROCK_BASE_URL=base)
    assert done["result"].startswith("You said: ")

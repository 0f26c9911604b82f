"""Reasoning goes back to the model that made it, over each surface, and to no other; and is shown in the form
that a client reads."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.seal import Sealer
from openresponses_server.settings import Settings, UpstreamSettings
from tests.support import upstream as chat
from tests.support.in_process import InProcess
from tests.support.serving import Reply, violations
from tests.support.upstream import DONE, Received, Script, ScriptedUpstream, refusal

THOUGHT = "Which city? Lima."
ENCRYPTED = ["reasoning.encrypted_content"]
PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}
TOOL = {"type": "function", "name": "f", "parameters": PARAMETERS}
QUESTION: dict[str, Any] = {"type": "message", "role": "user", "content": "Weather?"}


class Particular(ScriptedUpstream):
    """Thinks and calls a tool, then answers; refuses a conversation whose calls have lost their reasoning."""

    def _script(self, received: Received) -> Script:
        messages = received.body.get("messages", [])
        called = [each for each in messages if each.get("tool_calls")]
        if not called:
            pieces = [THOUGHT[:7], THOUGHT[7:]]
            thought = [chat.chunk(reasoning_content=piece) for piece in pieces]
            return Script([*thought, chat.call(0, "{}", "f", "call_1"), chat.chunk("tool_calls"), DONE])
        if any(each.get("reasoning_content") != THOUGHT for each in called):
            return refusal(400, message="The reasoning_content has to be passed back.")
        return Script(chat.text("It is cool."))


@pytest.fixture(scope="module")
def particular() -> Iterator[Particular]:
    with Particular() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def app(particular: Particular) -> Iterator[InProcess]:
    def reached(name: str, **options: Any) -> UpstreamSettings:
        return UpstreamSettings(name=name, url=particular.url, models=[name], options=options)

    upstreams = [
        reached("thinks", reasoning_field="reasoning_content"),
        reached("other", reasoning_field="reasoning_content"),
        reached("plain"),
        UpstreamSettings(name="summed", url=particular.url, models=["summed"], reasoning_as="summary"),
    ]
    running = InProcess(Settings(upstreams=upstreams))
    yield running
    running.close()


def post(app: InProcess, path: str, headers: dict[str, str] | None = None, **body: Any) -> Reply:
    raw_headers = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    return app.call("POST", path, {"model": "thinks", **body}, raw_headers)


def first(app: InProcess, **fields: Any) -> dict[str, Any]:
    reply = post(app, "/v1/responses", input=[QUESTION], tools=[TOOL], **fields)
    assert reply.status == 200, reply.body
    response: dict[str, Any] = reply.json
    return response


def replayed(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The history of a client that drops what it can read of reasoning, as Codex does."""
    items = [
        {k: v for k, v in item.items() if k != "content"} if item["type"] == "reasoning" else item
        for item in output
    ]
    return [QUESTION, *items, {"type": "function_call_output", "call_id": "call_1", "output": "12 degrees"}]


@pytest.mark.parametrize("stream", [False, True])
def test_sealed_reasoning_of_a_client_that_keeps_its_history(app: InProcess, stream: bool) -> None:
    if stream:
        streamed = post(
            app, "/v1/responses", input=[QUESTION], tools=[TOOL], store=False, include=ENCRYPTED, stream=True
        )
        assert violations(streamed) == []
        output = streamed.final["output"]
    else:
        output = first(app, store=False, include=ENCRYPTED)["output"]
    assert [item["type"] for item in output] == ["reasoning", "function_call"]
    assert THOUGHT not in output[0]["encrypted_content"]
    answer = post(app, "/v1/responses", input=replayed(output), tools=[TOOL], store=False)
    assert answer.status == 200, answer.body
    assert answer.json["output"][-1]["content"][0]["text"] == "It is cool."


def test_stored_reasoning_of_a_response_that_is_continued(app: InProcess) -> None:
    response = first(app)
    assert "encrypted_content" not in response["output"][0]
    result = {"type": "function_call_output", "call_id": "call_1", "output": "12 degrees"}
    answer = post(app, "/v1/responses", input=[result], tools=[TOOL], previous_response_id=response["id"])
    assert answer.status == 200, answer.body


@pytest.mark.parametrize("stream", [False, True])
def test_reasoning_that_a_chat_client_echoes(app: InProcess, stream: bool) -> None:
    messages: list[Any] = [{"role": "user", "content": "Weather?"}]
    tools = [{"type": "function", "function": {"name": "f", "parameters": PARAMETERS}}]
    message = post(app, "/v1/chat/completions", messages=messages, tools=tools).json["choices"][0]["message"]
    assert message["reasoning_content"] == THOUGHT
    result = {"role": "tool", "tool_call_id": "call_1", "content": "12 degrees"}
    answer = post(
        app, "/v1/chat/completions", messages=[*messages, message, result], tools=tools, stream=stream
    )
    assert answer.status == 200, answer.body


def test_thinking_blocks_of_a_messages_client(app: InProcess) -> None:
    messages: list[Any] = [{"role": "user", "content": "Weather?"}]
    fields: dict[str, Any] = {"max_tokens": 1000, "tools": [{"name": "f", "input_schema": PARAMETERS}]}
    content = post(app, "/v1/messages", messages=messages, **fields).json["content"]
    assert (content[0]["type"], content[0]["thinking"]) == ("thinking", THOUGHT)
    assert content[0]["signature"]
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": "12 degrees"}
    turns = [*messages, {"role": "assistant", "content": content}, {"role": "user", "content": [result]}]
    answer = post(app, "/v1/messages", messages=turns, **fields)
    assert answer.status == 200, answer.body


def test_reasoning_goes_to_no_other_upstream(app: InProcess, particular: Particular) -> None:
    output = first(app, store=False, include=ENCRYPTED)["output"]
    history = replayed(output)
    for model in ("other", "plain"):
        readable = [QUESTION, *output, history[-1]]
        for items in (history, readable):
            reply = post(app, "/v1/responses", model=model, input=items, tools=[TOOL], store=False)
            assert reply.status == 400  # it wants what it must not get
            assert THOUGHT not in json.dumps(particular.last(model).body)


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_altered_or_of_another_server_is_left_out(
    app: InProcess, particular: Particular, stream: bool
) -> None:
    output = first(app, store=False, include=ENCRYPTED)["output"]
    sealed = output[0]["encrypted_content"]
    forged = encode({"by": "another", "text": THOUGHT})
    of_others = Sealer(b"k" * 32).seal(forged, "raw-reasoning"), Sealer().seal(forged, "raw-reasoning")
    for each in (sealed[:-8] + "A" * 8, "orb2." + sealed[5:], *of_others):
        output[0]["encrypted_content"] = each
        history = [*replayed(output)[:1], output[0], {"role": "user", "content": "Go on."}]
        reply = post(app, "/v1/responses", input=history, store=False, stream=stream)
        assert reply.status == 200, reply.body
        assert "reasoning: can't be opened here" in reply.headers["openresponses-losses"]
        sent = json.dumps(particular.last("thinks").body)
        assert THOUGHT not in sent
        assert each not in sent


def test_nothing_is_sealed_unasked(app: InProcess) -> None:
    assert "encrypted_content" not in first(app, store=False)["output"][0]
    plain = first(app, model="plain", store=False, include=ENCRYPTED)["output"][0]
    assert "encrypted_content" not in plain


# ── the form in which it is shown ──────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("model", "header", "content", "summary"),
    [
        ("thinks", None, True, False),
        ("thinks", "summary", False, True),
        ("thinks", "both", True, True),
        ("summed", None, False, True),
        ("summed", "raw", True, False),
    ],
)
@pytest.mark.parametrize("agent", ["curl/8", "codex_exec/0.169.0"])
def test_form_of_raw_reasoning(
    app: InProcess, model: str, header: str | None, content: bool, summary: bool, agent: str
) -> None:
    headers = {"user-agent": agent} | ({"openresponses-reasoning-as": header} if header else {})
    body = {"model": model, "input": [QUESTION], "tools": [TOOL]}
    streamed = post(app, "/v1/responses", headers, **body, stream=True)
    assert violations(streamed) == []
    item = streamed.final["output"][0]
    assert [part["text"] for part in item.get("content") or ()] == [THOUGHT] * content
    assert [part["text"] for part in item["summary"]] == [THOUGHT] * summary
    whole = post(app, "/v1/responses", headers, **body).json["output"][0]
    assert {**whole, "id": ""} == {**item, "id": ""}


def test_summed_reasoning_goes_back_as_it_was(app: InProcess) -> None:
    headers = {"openresponses-reasoning-as": "summary"}
    fields: dict[str, Any] = {"tools": [TOOL], "store": False, "include": ENCRYPTED}
    output = post(app, "/v1/responses", headers, input=[QUESTION], **fields).json["output"]
    answer = post(app, "/v1/responses", headers, input=replayed(output), **fields)
    assert answer.status == 200, answer.body


def test_unknown_form_is_refused(app: InProcess) -> None:
    reply = post(app, "/v1/responses", {"openresponses-reasoning-as": "loud"}, input=[QUESTION])
    assert (reply.status, reply.error["param"]) == (400, "openresponses-reasoning-as")

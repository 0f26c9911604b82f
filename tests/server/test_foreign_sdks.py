"""OpenAI's SDK on `/v1/chat/completions` and Anthropic's on `/v1/messages`, over the demo model and over
upstreams of each dialect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import dialect_scripts as scripts
from tests.support import sdks
from tests.support.dialect_scripts import DIALECTS
from tests.support.upstream import Script, ScriptedUpstream, refusal

SCHEMA: Any = {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]}
CHAT_TOOL: Any = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}
MESSAGES_TOOL: Any = {"name": "get_weather", "input_schema": SCHEMA}
HELLO: Any = [{"role": "user", "content": "Hello"}]
WEATHER: Any = [{"role": "user", "content": "Weather in Lima and in Oslo?"}]
CALLS = (
    ("call_1", "get_weather", '{"location": "Lima"}'),
    ("call_2", "get_weather", '{"location": "Oslo"}'),
)


@pytest.fixture
def chat_demo(demo: str) -> Iterator[sdks.openai.OpenAI]:
    with sdks.openai.OpenAI(base_url=f"{demo}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def chat(many: str) -> Iterator[sdks.openai.OpenAI]:
    with sdks.openai.OpenAI(base_url=f"{many}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def claude_demo(demo: str) -> Iterator[sdks.anthropic.Anthropic]:
    with sdks.anthropic.Anthropic(base_url=demo, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def claude(many: str) -> Iterator[sdks.anthropic.Anthropic]:
    with sdks.anthropic.Anthropic(base_url=many, api_key="none", max_retries=0) as client:
        yield client


def test_chat_over_the_demo_model(chat_demo: sdks.openai.OpenAI) -> None:
    whole = chat_demo.chat.completions.create(model="demo", messages=HELLO)
    assert whole.choices[0].message.content == "You said: Hello"
    assert whole.choices[0].finish_reason == "stop"
    assert whole.usage is not None
    chunks = list(chat_demo.chat.completions.create(model="demo", messages=HELLO, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "You said: Hello"
    assert all(chunk.usage is None for chunk in chunks)


def test_chat_stream_reports_usage_when_asked(chat_demo: sdks.openai.OpenAI) -> None:
    options: Any = {"include_usage": True}
    stream = chat_demo.chat.completions.create(
        model="demo", messages=HELLO, stream=True, stream_options=options
    )
    last = list(stream)[-1]
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.total_tokens == last.usage.prompt_tokens + last.usage.completion_tokens


@pytest.mark.parametrize("dialect", DIALECTS)
def test_chat_over_each_dialect(chat: sdks.openai.OpenAI, upstream: ScriptedUpstream, dialect: str) -> None:
    model = f"{dialect}-text"
    upstream.scripts[model] = Script(scripts.text(dialect, "Hel", "lo"))
    whole = chat.chat.completions.create(model=model, messages=HELLO)
    assert whole.choices[0].message.content == "Hello"
    assert whole.model == model
    stream = chat.chat.completions.create(model=model, messages=HELLO, stream=True)
    assert [chunk.choices[0].delta.content for chunk in stream if chunk.choices[0].delta.content] == [
        "Hel",
        "lo",
    ]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_chat_tools_over_each_dialect(
    chat: sdks.openai.OpenAI, upstream: ScriptedUpstream, dialect: str
) -> None:
    model = f"{dialect}-tools"
    upstream.scripts[model] = Script(scripts.call(dialect, *CALLS))
    with chat.chat.completions.stream(model=model, messages=WEATHER, tools=[CHAT_TOOL]) as stream:
        streamed = stream.until_done().get_final_completion()
    whole = chat.chat.completions.create(model=model, messages=WEATHER, tools=[CHAT_TOOL])
    for answer in (streamed, whole):
        choice = answer.choices[0]
        assert choice.finish_reason == "tool_calls"
        shown = [
            (call.id, call.function.name, call.function.arguments) for call in choice.message.tool_calls or ()
        ]  # type: ignore[union-attr]
        assert shown == list(CALLS)
    history = [*WEATHER, whole.choices[0].message.to_dict()]
    history += [{"role": "tool", "tool_call_id": id, "content": "12 degrees"} for id, _, _ in CALLS]
    upstream.scripts[model] = Script(scripts.text(dialect, "Mild."))
    answer = chat.chat.completions.create(model=model, messages=history, tools=[CHAT_TOOL])
    assert answer.choices[0].message.content == "Mild."
    assert json.dumps(upstream.last(model).body).count("12 degrees") == 2


def test_chat_errors_are_the_sdk_s_own_kinds(chat: sdks.openai.OpenAI, upstream: ScriptedUpstream) -> None:
    with pytest.raises(sdks.openai.NotFoundError) as unknown:
        chat.chat.completions.create(model="nothing", messages=HELLO)
    assert unknown.value.code == "model_not_found"
    with pytest.raises(sdks.openai.BadRequestError) as empty:
        chat.chat.completions.create(model="chat-x", messages=[])
    assert empty.value.param == "messages"
    upstream.scripts["chat-busy"] = refusal(429, {"retry-after": "3"}, message="Slow down")
    with pytest.raises(sdks.openai.RateLimitError) as limited:
        chat.chat.completions.create(model="chat-busy", messages=HELLO, stream=True)
    assert limited.value.response.headers["retry-after"] == "3"


def test_chat_failure_in_the_stream(chat: sdks.openai.OpenAI, upstream: ScriptedUpstream) -> None:
    upstream.scripts["chat-cut"] = Script(scripts.piece("chat"))
    stream = chat.chat.completions.create(model="chat-cut", messages=HELLO, stream=True)
    pieces: list[str] = []
    with pytest.raises(sdks.openai.APIError):
        pieces.extend(chunk.choices[0].delta.content or "" for chunk in stream)


def test_messages_over_the_demo_model(claude_demo: sdks.anthropic.Anthropic) -> None:
    whole = claude_demo.messages.create(model="demo", max_tokens=100, messages=HELLO)
    assert whole.content[0].type == "text"
    assert whole.content[0].text == "You said: Hello"
    assert whole.stop_reason == "end_turn"
    assert whole.usage.output_tokens > 0
    with claude_demo.messages.stream(model="demo", max_tokens=100, messages=HELLO) as stream:
        assert "".join(stream.text_stream) == "You said: Hello"
        assert stream.get_final_message().stop_reason == "end_turn"


def test_messages_max_tokens_is_a_stop_reason(claude_demo: sdks.anthropic.Anthropic) -> None:
    shown = claude_demo.messages.create(model="demo-incomplete", max_tokens=100, messages=HELLO)
    assert shown.stop_reason == "max_tokens"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_messages_over_each_dialect(
    claude: sdks.anthropic.Anthropic, upstream: ScriptedUpstream, dialect: str
) -> None:
    model = f"{dialect}-text"
    upstream.scripts[model] = Script(scripts.text(dialect, "Hel", "lo"))
    whole = claude.messages.create(model=model, max_tokens=100, system="Be brief.", messages=HELLO)
    assert [block.text for block in whole.content if block.type == "text"] == ["Hello"]
    assert "Be brief." in json.dumps(upstream.last(model).body)
    with claude.messages.stream(model=model, max_tokens=100, messages=HELLO) as stream:
        assert list(stream.text_stream) == ["Hel", "lo"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_messages_tools_over_each_dialect(
    claude: sdks.anthropic.Anthropic, upstream: ScriptedUpstream, dialect: str
) -> None:
    model = f"{dialect}-tools"
    upstream.scripts[model] = Script(scripts.call(dialect, *CALLS))
    options: Any = {"model": model, "max_tokens": 100, "messages": WEATHER, "tools": [MESSAGES_TOOL]}
    with claude.messages.stream(**options) as stream:
        streamed = stream.get_final_message()
    whole = claude.messages.create(**options)
    for answer in (streamed, whole):
        assert answer.stop_reason == "tool_use"
        shown = [(each.name, each.input) for each in answer.content if each.type == "tool_use"]
        assert shown == [(name, json.loads(arguments)) for _, name, arguments in CALLS]
    ids = [each.id for each in whole.content if each.type == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": id, "content": "12 degrees"} for id in ids]
    history: Any = [
        *WEATHER,
        {"role": "assistant", "content": whole.content},
        {"role": "user", "content": results},
    ]
    upstream.scripts[model] = Script(scripts.text(dialect, "Mild."))
    answer = claude.messages.create(model=model, max_tokens=100, messages=history, tools=[MESSAGES_TOOL])
    assert [block.text for block in answer.content if block.type == "text"] == ["Mild."]
    assert json.dumps(upstream.last(model).body).count("12 degrees") == 2


def test_case_30_signed_thinking_comes_back_to_its_upstream_byte_exact(
    claude: sdks.anthropic.Anthropic, upstream: ScriptedUpstream
) -> None:
    from tests.support import anthropic as made

    frames = [
        made.start(),
        *made.thinking(0, "Hm", "m", signature="c2lnbmVk"),
        *made.text(1, "Hi"),
        *made.stop(),
    ]
    upstream.scripts["anthropic-thinks"] = Script(scripts.named(*frames))
    options: Any = {"model": "anthropic-thinks", "max_tokens": 3000}
    thinking: Any = {"type": "enabled", "budget_tokens": 1024}
    first = claude.messages.create(**options, messages=HELLO, thinking=thinking)
    assert [block.type for block in first.content] == ["thinking", "text"]
    history: Any = [*HELLO, {"role": "assistant", "content": first.content}, *HELLO]
    claude.messages.create(**options, messages=history, thinking=thinking)
    (sent,) = [
        block
        for message in upstream.last("anthropic-thinks").body["messages"]
        for block in message["content"]
        if block["type"] == "thinking"
    ]
    assert (sent["thinking"], sent["signature"]) == ("Hmm", "c2lnbmVk")


def test_messages_errors_are_the_sdk_s_own_kinds(
    claude: sdks.anthropic.Anthropic, upstream: ScriptedUpstream
) -> None:
    with pytest.raises(sdks.anthropic.NotFoundError) as unknown:
        claude.messages.create(model="nothing", max_tokens=100, messages=HELLO)
    assert unknown.value.body["error"]["type"] == "not_found_error"  # type: ignore[index]
    upstream.scripts["anthropic-busy"] = refusal(529, message="Overloaded", type="overloaded_error")
    with pytest.raises(sdks.anthropic.APIStatusError) as busy:
        claude.messages.create(model="anthropic-busy", max_tokens=100, messages=HELLO)
    assert busy.value.status_code == 529
    assert busy.value.body["error"]["type"] == "overloaded_error"  # type: ignore[index]
    upstream.scripts["chat-cut"] = Script(scripts.piece("chat"))
    stream = claude.messages.create(model="chat-cut", max_tokens=100, messages=HELLO, stream=True)
    with pytest.raises(sdks.anthropic.APIStatusError):
        list(stream)

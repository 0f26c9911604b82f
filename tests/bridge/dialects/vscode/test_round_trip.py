"""Parts → events → parts, and events → parts → events: the same up to what is documented as lost."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openresponses_bridge.decoder import (
    LanguageModelDataPart,
    LanguageModelTextPart,
    LanguageModelThinkingPart,
    LanguageModelToolCallPart,
    LanguageModelToolResultPart,
    Part,
    encode_part,
    strip_call_id,
)
from openresponses_bridge.dialects import chat_completions
from openresponses_bridge.dialects.vscode import (
    ChatMessage,
    ChatRequest,
    Inbound,
    Outbound,
    Role,
    conversation_digest,
    from_vscode,
    to_vscode,
)
from openresponses_bridge.sse import SSEDecoder
from tests.support.checked_inbound import CheckedInbound
from tests.support.machines import Run
from tests.support.parts import decode_part
from tests.support.scale import FACTOR, with_many_examples
from tests.support.shared import shared_files

CHAT = [*shared_files("chat", "*"), *shared_files("chat-irespdelta", "*.sse")]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
INPUT = st.dictionaries(TEXT, st.integers(-9, 9) | TEXT | st.none(), max_size=3)


@st.composite
def answers(draw: st.DrawFn) -> list[Part]:
    """What the decoder may give: thinking ends with one mark before what comes next, ids are unique."""
    parts: list[Part] = []
    kinds = draw(st.lists(st.sampled_from(["text", "thinking", "call", "image"]), min_size=1, max_size=5))
    for number, (kind, following) in enumerate(zip(kinds, [*kinds[1:], ""], strict=True)):
        if kind == "thinking":
            block = f"rs_{number}"
            pieces = draw(st.lists(TEXT, min_size=1, max_size=3))
            parts += [LanguageModelThinkingPart(piece, block) for piece in pieces]
            if following != "thinking":
                parts.append(LanguageModelThinkingPart("", block, {"vscode_reasoning_done": True}))
        elif kind == "call":
            parts.append(LanguageModelToolCallPart(f"gw-call_{number}", "find", draw(INPUT)))
        elif kind == "image":
            parts.append(LanguageModelDataPart(b"\x89PNG\r\n\x1a\n" + bytes([number]), "image/png"))
        else:
            parts.append(LanguageModelTextPart(draw(TEXT)))
    return parts


def outgoing(fed: Any, **options: Any) -> list[dict[str, Any]]:
    """The parts of a stream, without the marker, which names the response."""
    outbound = Outbound(**options)
    lines = [line for event in fed.events for line in outbound.feed(event)] + outbound.close()
    parts = [json.loads(line) for line in lines]
    assert all(line.endswith(b"\n") for line in lines)
    return [part for part in parts if part.get("mimeType") != "stateful_marker"]


@settings(max_examples=60 * FACTOR)
@given(answers())
def test_parts_to_events_to_parts(parts: list[Part]) -> None:
    fed = CheckedInbound(Inbound, [encode_part(part) for part in parts])
    assert outgoing(fed) == [json.loads(encode_part(part)) for part in parts]


@pytest.mark.parametrize("path", CHAT)
@pytest.mark.untraced
def test_recorded_streams_say_the_same_through_parts(path: Path) -> None:
    first = CheckedInbound(chat_completions.Inbound, recorded(path))
    lines = outgoing(first, errors="none")
    again = CheckedInbound(Inbound, [json.dumps(line).encode() for line in lines])
    assert outgoing(again) == lines


def recorded(path: Path) -> list[bytes]:
    raw = path.read_bytes()
    if path.suffix == ".txt":
        return [line for line in raw.splitlines() if line.strip()]
    decoder = SSEDecoder()
    body = raw if b"\n\n" in raw else raw.replace(b"\n", b"\n\n")
    return [frame.data for frame in decoder.feed(body) + decoder.close()]


def test_what_parts_cannot_say_is_lost_and_nothing_else() -> None:
    run = Run("openai")
    run("reasoning_summary", "sum", 0)
    run("reasoning_encrypted", "x")
    run("text", "Hi")
    run("refusal", "No")
    run("usage", {"input_tokens": 3, "output_tokens": 2})
    run("finish")
    lines = outgoing(run, include_encrypted_thinking=True)
    again = CheckedInbound(Inbound, [json.dumps(line).encode() for line in lines])
    reasoning, message = again.output
    # a summary comes back as raw reasoning, a refusal as text
    assert (reasoning["content"][0]["text"], reasoning["encrypted_content"]) == ("sum", "x")
    assert message["content"][0]["text"] == "Hi*No*"
    assert again.response.usage is not None
    assert again.response.usage.total_tokens == 5


def test_outbound_tells_what_the_decoder_found() -> None:
    run = Run()
    run("text", "a")
    outbound = Outbound(thinking="drop")
    for event in run.events:
        outbound.feed(event)
    assert b"**Error:**" in b"".join(outbound.close())
    assert outbound.result.finish_reason == "error"
    assert outbound.diagnostics is outbound.result.diagnostics


# ── messages → items → messages ────────────────────────────────────────────────────────────────────────
WORDS = st.text("abc é✓", min_size=1, max_size=6).filter(str.strip)
IMAGE = LanguageModelDataPart(b"\x89PNG\r\n\x1a\n1", "image/png")


@st.composite
def chats(draw: st.DrawFn) -> list[ChatMessage]:
    """A conversation: calls are answered before the next answer, in any order and among anything else, over
    any number of messages."""
    messages = [ChatMessage(Role.USER, [LanguageModelTextPart(draw(WORDS))])]
    for turn in range(draw(st.integers(1, 4))):
        content: list[Any] = []
        calls: list[str] = []
        for kind in draw(st.lists(st.sampled_from(["text", "thinking", "call"]), min_size=1, max_size=5)):
            if kind == "text":
                content.append(LanguageModelTextPart(draw(WORDS)))
            elif kind == "thinking":
                content.append(LanguageModelThinkingPart(draw(WORDS), f"rs_{turn}_{len(content)}"))
            else:
                calls.append(f"{draw(st.sampled_from(['gw-', '', 'toolu_']))}call_{turn}_{len(calls)}")
                content.append(LanguageModelToolCallPart(calls[-1], "find", draw(INPUT)))
        messages.append(ChatMessage(Role.ASSISTANT, content))
        for call in draw(st.permutations(calls)):
            inner = draw(st.lists(st.sampled_from([LanguageModelTextPart("18"), "plain", IMAGE]), max_size=2))
            result = LanguageModelToolResultPart(call, inner, draw(st.booleans()))
            before = [LanguageModelTextPart(draw(WORDS))] if draw(st.booleans()) else []
            messages.append(ChatMessage(Role.USER, [*before, result]))
        if draw(st.booleans()):
            messages.append(ChatMessage(Role.SYSTEM, [LanguageModelTextPart(draw(WORDS))]))
        shown = [IMAGE] if draw(st.booleans()) else []
        messages.append(ChatMessage(Role.USER, [LanguageModelTextPart(draw(WORDS)), *shown]))
    return messages


def facts(messages: list[ChatMessage]) -> list[Any]:
    """What is said, in order: by whom, and which call or result; texts that follow each other are one."""
    result: list[Any] = []
    for message in messages:
        for part in message.content:
            if isinstance(part, LanguageModelTextPart):
                if result and result[-1][:2] == [message.role, "text"]:
                    result[-1][2] += part.value
                else:
                    result.append([message.role, "text", part.value])
            elif isinstance(part, LanguageModelToolCallPart):
                result.append([message.role, "call", strip_call_id(part.call_id), part.name, part.input])
            elif isinstance(part, LanguageModelToolResultPart):
                content = [getattr(each, "value", each) for each in part.content]
                texts = "\n\n".join(each for each in content if isinstance(each, str) and each)
                images = [each for each in content if isinstance(each, LanguageModelDataPart)]
                result.append(
                    [message.role, "result", strip_call_id(part.call_id), texts, images, part.is_error]
                )
            elif isinstance(part, LanguageModelDataPart):
                result.append([message.role, "data", part.data, part.mime_type])
    return result


@settings(max_examples=100 * FACTOR)
@given(chats())
def test_messages_to_items_to_messages_keep_calls_results_roles_and_order(
    messages: list[ChatMessage],
) -> None:
    request, there = from_vscode(ChatRequest("m", messages))
    again, back = to_vscode(request)
    assert facts(again.messages) == facts(messages)
    assert not list(there)
    assert not list(back)


@settings(max_examples=60 * FACTOR)
@given(chats(), st.data())
def test_a_digest_is_that_of_what_is_said(messages: list[ChatMessage], data: st.DataObject) -> None:
    """The same without its reasoning and however the model's texts are cut; another for any other text."""

    def digest(chat: list[ChatMessage]) -> str:
        request, _ = from_vscode(ChatRequest("m", chat))
        assert isinstance(request.input, list)
        return conversation_digest(request.input)

    variant = [
        ChatMessage(
            message.role,
            [
                piece
                for part in message.content
                if not isinstance(part, LanguageModelThinkingPart)
                for piece in (halves(part) if message.role is Role.ASSISTANT else [part])
            ],
        )
        for message in messages
    ]
    assert digest(variant) == digest(messages)
    at = data.draw(st.integers(0, len(messages) - 1))
    added = ChatMessage(messages[at].role, [*messages[at].content, LanguageModelTextPart("!")])
    assert digest([*messages[:at], added, *messages[at + 1 :]]) != digest(messages)
    assert digest(messages[:-1]) != digest(messages)


def halves(part: Any) -> list[Any]:
    if not isinstance(part, LanguageModelTextPart):
        return [part]
    middle = len(part.value) // 2
    return [LanguageModelTextPart(each) for each in (part.value[:middle], part.value[middle:]) if each]


@settings(max_examples=60 * FACTOR)
@given(answers())
def test_a_stored_answer_has_the_digest_of_its_parts(parts: list[Part]) -> None:
    fed = CheckedInbound(Inbound, [encode_part(part) for part in parts])
    shown: list[Part] = [decode_part(json.dumps(line)) for line in outgoing(fed)]
    request, _ = from_vscode(ChatRequest("m", [ChatMessage(Role.ASSISTANT, list(shown))]))
    assert isinstance(request.input, list)
    assert conversation_digest(request.input) == conversation_digest(fed.response.output)


test_many_parts = with_many_examples(test_parts_to_events_to_parts, answers())

"""Parts → events → parts, and events → parts → events: the same up to what is documented as lost."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.decoder import (
    LanguageModelDataPart,
    LanguageModelTextPart,
    LanguageModelThinkingPart,
    LanguageModelToolCallPart,
    Part,
    encode_part,
)
from bridge.dialects import chat_completions
from bridge.dialects.vscode import Inbound, Outbound
from bridge.sse import SSEDecoder
from tests.support.fed import Fed
from tests.support.machines import Run
from tests.support.scale import FACTOR
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
    fed = Fed(Inbound, [encode_part(part) for part in parts])
    assert outgoing(fed) == [json.loads(encode_part(part)) for part in parts]


@pytest.mark.parametrize("path", CHAT)
def test_recorded_streams_say_the_same_through_parts(path: Path) -> None:
    first = Fed(chat_completions.Inbound, recorded(path))
    lines = outgoing(first, errors="none")
    again = Fed(Inbound, [json.dumps(line).encode() for line in lines])
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
    again = Fed(Inbound, [json.dumps(line).encode() for line in lines])
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

"""chat → events → chat: the answer stays the same except for the losses that are reported."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openresponses_bridge.dialects.chat_completions import Inbound, Outbound, encode
from tests.support import chat
from tests.support.chat_folds import Folded, Json, chunks, recorded
from tests.support.machines import WIRES
from tests.support.scale import with_many_examples
from tests.support.shared import shared_files

RECORDED = [
    *shared_files("chat", "*.sse", "*.txt"),
    *shared_files("chat-irespdelta", "*.sse"),
]
DONE = b"[DONE]"


def through(frames: list[bytes], wire: str = "openai", **options: Any) -> tuple[list[Json], Outbound]:
    """The chunks that come of these, and the outbound that made them."""
    machine = chat.new_machine(wire=wire)
    inbound = Inbound(machine)
    outbound = Outbound(include_usage=True, **options)
    data = b""
    for frame in frames:
        for event in inbound.feed(frame):
            data += encode(outbound.feed(event))
    for event in inbound.close():
        data += encode(outbound.feed(event))
    return chunks(data + encode(outbound.close())), outbound


def first_choice(frames: list[bytes]) -> Folded:
    return Folded(json.loads(frame) for frame in frames if frame.strip() != DONE)


def with_objects(calls: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """A call without arguments leaves with an empty object (law E6)."""
    return [(call_id, name, arguments or "{}") for call_id, name, arguments in calls]


# ── recorded ───────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("wire", ["openai", "openresponses"])
@pytest.mark.parametrize("path", RECORDED)
def test_a_recorded_stream_says_the_same_on_the_way_out(path: Path, wire: str) -> None:
    frames = recorded(path)
    sent, outbound = through(frames, wire)
    ours, theirs = Folded(sent), first_choice(frames)
    assert ours.error is None
    assert [list(outbound.diagnostics.of(kind)) for kind in ("loss", "ignored")] == [[], []]
    assert ours.words == theirs.words
    assert ours.message["calls"] == with_objects(theirs.message["calls"])
    assert ours.finish_reason == theirs.finish_reason
    assert len(ours.logprobs) == len(theirs.logprobs)


@pytest.mark.parametrize("path", RECORDED)
def test_a_recorded_streams_usage_comes_out(path: Path) -> None:
    frames = recorded(path)
    sent, _ = through(frames)
    ours, theirs = Folded(sent).usage, first_choice(frames).usage
    assert (ours is None) == (theirs is None)
    if ours is not None and theirs is not None:
        assert ours["prompt_tokens"] == theirs["prompt_tokens"]
        assert ours["total_tokens"] == theirs["total_tokens"]
        # xAI leaves its reasoning tokens out of the completion's
        assert ours["completion_tokens"] == theirs["total_tokens"] - theirs["prompt_tokens"]


@pytest.mark.parametrize("path", RECORDED)
def test_what_came_out_goes_through_again_unchanged(path: Path) -> None:
    once, _ = through(recorded(path))
    again, _ = through([json.dumps(chunk).encode() for chunk in once] + [DONE])
    assert Folded(again).message == Folded(once).message
    assert Folded(again).usage == Folded(once).usage


@pytest.mark.parametrize("path", RECORDED)
def test_the_official_types_accept_the_chunks(path: Path) -> None:
    from openai.types.chat import ChatCompletionChunk

    sent, _ = through(recorded(path))
    assert sent
    for chunk in sent:
        parsed = ChatCompletionChunk.model_validate(chunk, strict=True)
        assert parsed.to_dict(exclude_unset=True) == chunk


# ── generated ──────────────────────────────────────────────────────────────────────────────────────────────
words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6).filter(
    lambda text: text.strip() and "<" not in text
)
values = st.dictionaries(words, words | st.integers() | st.none(), max_size=2)
says = st.tuples(
    st.sampled_from(["content", "reasoning_content", "refusal"]), st.lists(words, min_size=1, max_size=3)
)
calling = st.tuples(st.just("calls"), st.lists(values, min_size=1, max_size=3))
scripts = st.lists(says | calling, max_size=6)
reasons = st.sampled_from(["stop", "length", "content_filter"])


def streamed(script: list[tuple[str, list[Any]]], reason: str) -> list[bytes]:
    """Chunks as OpenAI sends them: calls side by side get indexes of their own."""
    frames = [chat.chunk(role="assistant", content="")]
    begun = 0
    for kind, what in script:
        if kind != "calls":
            frames += [chat.chunk(**{kind: piece}) for piece in what]
            continue
        texts = [json.dumps(value) for value in what]
        for at, text in enumerate(texts):
            head = {"index": begun + at, "id": f"call_{begun + at}", "type": "function"}
            frames.append(chat.calls({**head, "function": {"name": "look", "arguments": text[:2]}}))
        for at, text in enumerate(texts):
            frames.append(chat.calls({"index": begun + at, "function": {"arguments": text[2:]}}))
        begun += len(texts)
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    ended = "tool_calls" if begun and reason == "stop" else reason
    return [*frames, chat.chunk(ended), chat.frame(choices=[], usage=usage), DONE]


@given(scripts, reasons, st.sampled_from(["openai", "openresponses"]))
def test_a_generated_stream_says_the_same_on_the_way_out(
    script: list[tuple[str, list[Any]]], reason: str, wire: str
) -> None:
    frames = streamed(script, reason)
    sent, outbound = through(frames, wire)
    ours, theirs = Folded(sent), first_choice(frames)
    assert ours.message == theirs.message
    assert ours.usage is not None
    assert ours.usage["total_tokens"] == 7
    assert list(outbound.diagnostics) == []


@given(scripts, reasons)
def test_where_text_ends_with_the_first_call_nothing_else_is_lost(
    script: list[tuple[str, list[Any]]], reason: str
) -> None:
    """seeds/003: "assistant text streaming ends exactly when tool call begins"."""
    before: list[tuple[str, list[Any]]] = []
    for kind, what in script:
        called = any(each == "calls" for each, _ in before)
        if kind in ("reasoning_content", "calls") or not called:
            before.append((kind, what))
    sent, outbound = through(streamed(script, reason), text_after_tool_call="drop")
    assert Folded(sent).message == Folded(through(streamed(before, reason))[0]).message
    assert (outbound.diagnostics.of("loss") != []) == (len(before) < len(script))


@given(scripts)
def test_a_cut_stream_is_an_error_and_no_finish(script: list[tuple[str, list[Any]]]) -> None:
    sent, _ = through(streamed(script, "stop")[:-3])
    ours = Folded(sent)
    assert ours.finish_reason is None
    assert ours.error is not None
    assert ours.error["code"] == "upstream_cut"


@given(scripts, reasons)
def test_the_official_types_accept_generated_chunks(script: list[tuple[str, list[Any]]], reason: str) -> None:
    from openai.types.chat import ChatCompletionChunk

    for chunk in through(streamed(script, reason))[0]:
        ChatCompletionChunk.model_validate(chunk, strict=True)


test_many_generated_streams = with_many_examples(
    test_a_generated_stream_says_the_same_on_the_way_out, scripts, reasons, st.sampled_from(WIRES)
)

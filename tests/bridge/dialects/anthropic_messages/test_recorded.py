"""Every recorded Anthropic stream: valid events, the recorded words and calls, and back again."""

import json

import pytest

from openresponses_bridge.decoder import LanguageModelToolCallPart, PartDecoder
from openresponses_bridge.sse import SSEDecoder
from tests.support.anthropic import CheckedAnthropic, Json, add_up, joined, recorded
from tests.support.machines import WIRES, plain
from tests.support.shared import shared_files

STREAMS = shared_files("anthropic", "*")

COUNTS = ("input_tokens", "cache_read_input_tokens", "output_tokens")


def original(path) -> Json:
    chunks = [json.loads(data) for data, _ in recorded(path)]
    message = add_up(chunks)
    message["content"] = joined(message["content"])
    return message


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("path", STREAMS)
def test_events_are_valid_and_hold_the_recorded_words_and_calls(path, wire):
    fed, message = CheckedAnthropic(recorded(path), wire=wire).close(), original(path)
    assert fed.response.output_text == "".join(b["text"] for b in message["content"] if b["type"] == "text")
    called = [(b["id"], b["name"], b["input"]) for b in message["content"] if b["type"] == "tool_use"]
    items = [item for item in fed.output if item["type"] == "function_call"]
    assert [(item["call_id"], item["name"], json.loads(item["arguments"])) for item in items] == called
    thought = [b["thinking"] for b in message["content"] if b["type"] == "thinking"]
    shown = [
        item["content"][0]["text"]
        for item in fed.output
        if item.get("content") and item["type"] == "reasoning"
    ]
    assert shown == thought
    refused = message["stop_reason"] == "refusal"
    assert fed.response.status == ("incomplete" if refused else "completed")


@pytest.mark.parametrize("path", STREAMS)
def test_parts_hold_the_recorded_calls(path):
    fed, message = CheckedAnthropic(recorded(path), wire="openai").close(), original(path)
    decoder = PartDecoder()
    parts = [part for event in fed.events for part in decoder.feed(event)] + decoder.close()
    called = [(b["name"], b["input"]) for b in message["content"] if b["type"] == "tool_use"]
    calls = [(part.name, part.input) for part in parts if isinstance(part, LanguageModelToolCallPart)]
    assert calls == called


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("path", STREAMS)
def test_anthropic_to_events_to_anthropic_is_the_identity(path, wire):
    fed = CheckedAnthropic(recorded(path), wire=wire).close()
    source, back = original(path), add_up(fed.chunks())
    back["content"] = joined(back["content"])
    assert not fed.notes("loss")
    assert back["content"] == source["content"]
    assert back["stop_reason"] == source["stop_reason"]
    assert back.get("context_management") == source.get("context_management")
    details = {name: value for name, value in (source.get("stop_details") or {}).items() if value is not None}
    sent = {name: value for name, value in (back.get("stop_details") or {}).items() if value is not None}
    assert sent == details
    assert [back["usage"].get(name) for name in COUNTS] == [source["usage"].get(name, 0) for name in COUNTS]


@pytest.mark.parametrize("path", STREAMS)
@pytest.mark.untraced
def test_bytes_split_anywhere_give_the_same_events(path):
    frames = recorded(path)
    data = b"".join(
        b"event: %s\ndata: %s\n\n" % (event.encode() or b"x", payload) for payload, event in frames
    )
    decoder = SSEDecoder()
    sse_frames = [each for index in range(len(data)) for each in decoder.feed(data[index : index + 1])]
    split = CheckedAnthropic((each.data, each.event) for each in sse_frames).close()
    assert split.events == CheckedAnthropic(frames).close().events


@pytest.mark.untraced
@pytest.mark.parametrize("path", STREAMS)
def test_case_26_a_stream_cut_after_any_frame_never_ends_as_completed(path):
    frames = recorded(path)
    reasons = [b'"stop_reason":"' in data for data, _ in frames]
    ended = reasons.index(True)
    for length in range(0, len(frames), max(len(frames) // 40, 1)):
        fed = CheckedAnthropic(frames[:length]).close()
        if length <= ended:
            assert fed.response.status == "failed", length
            assert "response.failed" in fed.events[-1].type


def test_the_duplicate_message_start_is_noted(shared):
    fed = CheckedAnthropic(recorded(shared / "fixtures/anthropic/duplicate-message-start.chunks.txt")).close()
    assert fed.notes("repair") == ["message_start"]
    assert plain(fed.response)["usage"]["output_tokens"] == 227

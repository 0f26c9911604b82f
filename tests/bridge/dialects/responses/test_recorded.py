"""Every recorded stream of another server through the dialect: valid, and with the content of its own
terminal event."""

import json
from pathlib import Path
from typing import Any

import pytest

from openresponses_bridge.protocol.codec import encode_sse
from openresponses_bridge.sse import Frame, SSEDecoder
from tests.support.checked_inbound import json_lines
from tests.support.damaged_responses import CheckedResponses, Json
from tests.support.machines import WIRES, plain
from tests.support.shared import shared_files

RECORDED = [
    *shared_files("responses", "*.sse", "*.txt"),
    *shared_files("responses-inline", "*.sse"),
    *shared_files("openresponses", "*.txt"),
]
TERMINAL = ("response.completed", "response.incomplete", "response.failed")


def frames_of(path: Path) -> list[Frame]:
    if path.suffix == ".sse":
        decoder = SSEDecoder()
        return decoder.feed(path.read_bytes()) + decoder.close()
    return [Frame("", line) for line in json_lines(path)]


def events_of(path: Path) -> list[Json]:
    """The events up to the first terminal one, as JSON."""
    events: list[Json] = []
    for frame in frames_of(path):
        if frame.data.strip() != b"[DONE]":
            events.append(json.loads(frame.data))
            if events[-1]["type"] in TERMINAL:
                break
    return events


def fed(path: Path, wire: str) -> CheckedResponses:
    foreign = CheckedResponses(wire=wire, close=False)
    for frame in frames_of(path):
        foreign.named(frame.event, frame.data)
    foreign.close()
    return foreign


def expected(events: list[Json]) -> tuple[list[str], list[tuple[str, str, str]]]:
    """(texts, calls): as the terminal event has them, else as the items' ends do."""
    output: list[Json] = events[-1].get("response", {}).get("output") or []
    if not output:
        output = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    texts = [
        "".join(part.get("text", part.get("refusal", "")) for part in item.get("content") or [])
        for item in output
        if item["type"] == "message"
    ]
    calls = [
        (item["call_id"], item["name"], item.get("arguments", item.get("input")))
        for item in output
        if item["type"] in ("function_call", "custom_tool_call")
    ]
    return texts, calls


def streamed(events: list[Json]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("path", RECORDED)
@pytest.mark.untraced
def test_a_recorded_stream_comes_out_valid_and_says_the_same(path: Path, wire: str) -> None:
    foreign = fed(path, wire)
    events = events_of(path)
    texts, calls = expected(events)
    if any(note.startswith("text done: differs") for note in foreign.notes("warning")):
        assert "".join(foreign.texts).startswith(streamed(events))  # its ends contradict each other
    else:
        assert [text for text in foreign.texts if text] == [text for text in texts if text]
    assert [call[:2] for call in foreign.calls] == [call[:2] for call in calls]
    if wire == "openai" or not any(event["type"].startswith("response.custom") for event in events):
        assert foreign.calls == calls


@pytest.mark.parametrize("path", RECORDED)
def test_a_recorded_stream_ends_as_it_ended(path: Path) -> None:
    foreign = fed(path, "openai")
    last = events_of(path)[-1]
    ended = {"error": "failed"}.get(last["type"], last["type"].removeprefix("response."))
    assert foreign.status == ended
    usage = last.get("response", {}).get("usage")
    if usage:
        assert foreign.response.usage is not None
        assert foreign.response.usage.output_tokens == usage["output_tokens"]


@pytest.mark.parametrize("path", RECORDED)
def test_items_that_the_upstream_finished_are_kept(path: Path) -> None:
    """Hosted calls whole, reasoning with what it had, in their order."""
    foreign = fed(path, "openai")
    finished = [event["item"] for event in events_of(path) if event["type"] == "response.output_item.done"]
    assert [item["type"] for item in foreign.output][: len(finished)] == [item["type"] for item in finished]
    for ours, theirs in zip(foreign.output, finished, strict=False):
        for field in ("encrypted_content", "summary", "action", "results", "output", "queries", "operation"):
            if theirs.get(field):
                assert ours[field] == theirs[field], field


@pytest.mark.untraced
@pytest.mark.parametrize("path", RECORDED)
def test_cut_at_every_byte_it_is_read_the_same(path: Path) -> None:
    raw = b"".join(
        (b"event: %b\n" % frame.event.encode() if frame.event else b"") + b"data: %b\n\n" % frame.data
        for frame in frames_of(path)
    )
    decoder, foreign = SSEDecoder(), CheckedResponses(close=False)
    inbound: Any = foreign.inbound
    events = []
    for at in range(len(raw)):
        for frame in decoder.feed(raw[at : at + 1]):
            events += inbound.feed(frame.data, frame.event)
    events += inbound.close()
    assert [unnamed(event) for event in plain(events)] == [
        unnamed(e) for e in plain(fed(path, "openresponses").events)
    ]


def unnamed(event: Json) -> Json:
    """Without the time at which the response ended here."""
    return event | ({"response": event["response"] | {"completed_at": 0}} if "response" in event else {})


@pytest.mark.parametrize("path", RECORDED)
@pytest.mark.untraced
def test_what_came_out_goes_in_again_unchanged(path: Path) -> None:
    """What was right is kept to the byte: our own output needs no repair."""
    for wire in WIRES:
        once = fed(path, wire)
        again = CheckedResponses(
            [line[6:] for line in encode_sse(once.events).split(b"\n") if line[:6] == b"data: "], wire
        )
        assert plain(again.events) == plain(once.events)
        assert again.repairs == []

"""Copilot's own expectations of its chat reader, recorded: chat stream → events → callback chunks, exact."""

import json
from pathlib import Path
from typing import Any

import pytest

from openresponses_bridge.dialects import chat_completions
from openresponses_bridge.dialects.copilot import Inbound, Outbound, as_dict, encode_chunk
from openresponses_bridge.emitter import ResponseStreamStateMachine
from openresponses_bridge.sse import SSEDecoder
from tests.support.checked_inbound import CheckedInbound
from tests.support.shared import shared_files

STREAMS = shared_files("chat-irespdelta", "*.sse")
OF_CHAT = {
    "system_fingerprint",
    "prompt_filter_results",
    "choice.content_filter_results",
    "choice.content_filter_offsets",
}
"""What Azure says in Chat Completions besides the answer, which Copilot's clients do not know."""


def expectation(stream: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(stream.with_suffix(".expected.json").read_bytes())
    return loaded


def opens(expected: dict[str, Any]) -> bool:
    """Whether the upstream's first chunk held a role and an empty text, which events do not show (E6)."""
    return bool(expected["finishedCallbackChunks"][0]["delta"] == {"text": ""})


def payloads(stream: Path) -> list[bytes]:
    decoder = SSEDecoder()
    # the recording has one line per frame and no blank lines between them
    frames = decoder.feed(stream.read_bytes().replace(b"\n", b"\n\n")) + decoder.close()
    return [frame.data for frame in frames]


def machine_for(expected: dict[str, Any]) -> ResponseStreamStateMachine:
    """A machine that names itself as the upstream did."""
    origin = expected["completionResults"][0]["requestId"]
    return ResponseStreamStateMachine(
        "m", response_id=origin["completionId"], clock=lambda: float(origin["created"])
    )


@pytest.mark.parametrize("stream", STREAMS)
def test_chat_to_events_to_deltas_is_what_copilot_expects(stream: Path) -> None:
    expected = expectation(stream)
    inbound = chat_completions.Inbound(machine_for(expected))
    outbound = Outbound(opening=opens(expected))
    events = [event for data in payloads(stream) for event in inbound.feed(data)] + inbound.close()
    *chunks, completion = [as_dict(chunk) for event in events for chunk in outbound.feed(event)]
    assert outbound.close() == []
    assert chunks == expected["finishedCallbackChunks"]
    assert [completion] == expected["completionResults"]
    assert {case.where for case in outbound.diagnostics} <= OF_CHAT


@pytest.mark.parametrize("stream", STREAMS)
def test_deltas_to_events_to_deltas_is_the_same(stream: Path) -> None:
    expected = expectation(stream)
    lines = expected["finishedCallbackChunks"] + expected["completionResults"]
    fed = CheckedInbound(Inbound, lines)
    outbound = Outbound(opening=opens(expected))
    again = [json.loads(encode_chunk(chunk)) for event in fed.events for chunk in outbound.feed(event)]
    origin = expected["completionResults"][0]["requestId"]
    again[-1]["requestId"] |= {name: origin[name] for name in ("completionId", "created")}
    assert again == lines
    # one recorded call has line ends within its strings, which JSON does not
    noted = {f"{case.where}: {case.what}" for case in fed.inbound.diagnostics}
    assert noted <= {"tool_call.arguments: not JSON, sent as they are"}


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.untraced
def test_case_26_deltas_that_are_cut_anywhere_never_end_as_completed(stream: Path) -> None:
    expected = expectation(stream)
    chunks = expected["finishedCallbackChunks"]
    for length in range(0, len(chunks), 7):
        fed = CheckedInbound(Inbound, chunks[:length])
        assert fed.status == "failed"
        assert fed.error[0] == "upstream_cut"

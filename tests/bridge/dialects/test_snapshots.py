"""The same scripts through every dialect: what its upstream sends and which events that gives, and what
events become in its words."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from syrupy.assertion import SnapshotAssertion

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects import (
    anthropic_messages,
    bedrock_converse,
    bedrock_invoke,
    chat_completions,
    codex,
    copilot,
    gemini,
    interactions,
    responses,
    vscode,
)
from openresponses_bridge.protocol.codec import encode_sse
from openresponses_bridge.sse import SSEDecoder
from tests.support.checked_inbound import Build, CheckedInbound
from tests.support.model_frames import frames
from tests.support.model_scripts import CUSTOM_TOOL, SCRIPTS, played
from tests.support.snapshots import snapshots
from tests.support.transcripts import Transcript, line

INBOUNDS: dict[str, Build] = {
    "chat_completions": chat_completions.Inbound,
    "anthropic_messages": anthropic_messages.Inbound,
    "codex": codex.Inbound,
    "responses": lambda machine: responses.Inbound(machine, adopt=True),
    "copilot": copilot.Inbound,
    "vscode": lambda machine: vscode.Inbound(machine, expects_marker=True),
    "gemini": gemini.Inbound,
    "interactions": interactions.Inbound,
    "bedrock_converse": bedrock_converse.Inbound,
    "bedrock_invoke": bedrock_invoke.Inbound,
}


@snapshots("{dialect}/inbound/{script}.txt", dialect=INBOUNDS, script=SCRIPTS)
def test_inbound(snapshot: SnapshotAssertion, dialect: str, script: str) -> None:
    """Each event is held to the laws as it comes (`CheckedInbound`), the end included."""
    stream, transcript = CheckedInbound(INBOUNDS[dialect], close=False), Transcript()
    sent = 0

    def events() -> None:
        nonlocal sent
        transcript.sent(stream.events[sent:])
        sent = len(stream.events)

    for frame in frames(dialect, SCRIPTS[script]):
        transcript.received(frame)
        stream.feed(frame)
        events()
    if script == "cancel" and stream.status == "in_progress":
        transcript.did("(the client cancels)")
        stream.run("cancel")
        events()
    transcript.did("(the upstream's stream ends)")
    stream.close()
    events()
    transcript.notes(stream.inbound.diagnostics)
    assert str(transcript) == snapshot


class Way(NamedTuple):
    """How events leave: the wire they come on, the translator, how its chunks are written, and how a reader
    gets the frames back."""

    wire: str
    build: Callable[[], Any]
    write: Callable[[list[Any]], bytes]
    read: Callable[[bytes], list[bytes]]


def payloads(data: bytes) -> list[bytes]:
    decoder = SSEDecoder()
    return [frame.data for frame in decoder.feed(data) + decoder.close()]


def copilot_lines(chunks: list[Any]) -> bytes:
    return b"".join(copilot.encode_chunk(chunk) + b"\n" for chunk in chunks)


def chat_outbound() -> Any:
    return chat_completions.Outbound(include_usage=True)


SSE_WAYS = {
    "chat_completions": Way("openai", chat_outbound, chat_completions.encode, payloads),
    "anthropic_messages": Way("openai", anthropic_messages.Outbound, anthropic_messages.encode_sse, payloads),
    "gemini": Way("openai", gemini.Outbound, gemini.encode_sse, payloads),
    "interactions": Way(
        "openai", lambda: interactions.Outbound(thoughts=True), interactions.encode_sse, payloads
    ),
    # as in a capture: clients get the same as binary messages
    "bedrock_converse": Way("openai", bedrock_converse.Outbound, bedrock_converse.encode_sse, payloads),
    "bedrock_invoke": Way("openai", bedrock_invoke.Outbound, bedrock_invoke.encode_sse, payloads),
    # the two spellings of the wire: what is emitted on one leaves on the other
    "responses": Way("openresponses", lambda: responses.Outbound("openai"), encode_sse, payloads),
}
LINE_WAYS = {
    "copilot": Way("openai", copilot.Outbound, copilot_lines, bytes.splitlines),
    "vscode": Way("openai", vscode.Outbound, b"".join, bytes.splitlines),
}
WAYS = SSE_WAYS | LINE_WAYS
OUTWARDS = SCRIPTS | {"custom_tool": CUSTOM_TOOL}
# an end that says that the model refused is read as filtered
READ_AS = {
    (dialect, "refusal"): "incomplete"
    for dialect in ("anthropic_messages", "bedrock_converse", "bedrock_invoke")
}


class Left:
    """What a script's events become. The stream has ended after them, also where it was cut."""

    def __init__(self, dialect: str, script: str) -> None:
        self.way, outbound = WAYS[dialect], WAYS[dialect].build()
        self.run = played(OUTWARDS[script], self.way.wire)
        chunks = [chunk for event in self.run.events for chunk in outbound.feed(event)]
        self.data = self.way.write([*chunks, *outbound.close()])
        self.diagnostics: Diagnostics = outbound.diagnostics


@snapshots("{dialect}/outbound/{script}.sse", dialect=SSE_WAYS, script=OUTWARDS)
@pytest.mark.untraced
def test_outbound_streams(snapshot: SnapshotAssertion, dialect: str, script: str) -> None:
    outbound(snapshot, dialect, script)


@snapshots("{dialect}/outbound/{script}.jsonl", dialect=LINE_WAYS, script=OUTWARDS)
def test_outbound_lines(snapshot: SnapshotAssertion, dialect: str, script: str) -> None:
    outbound(snapshot, dialect, script)


def outbound(snapshot: SnapshotAssertion, dialect: str, script: str) -> None:
    """What left is a stream that the dialect's own reader understands: the same calls, the same words."""
    left = Left(dialect, script)
    build = INBOUNDS[dialect] if dialect != "vscode" else vscode.Inbound
    again = CheckedInbound(build, left.way.read(left.data), wire="openai")
    if left.run.machine.snapshot.status == "completed":
        assert again.status == READ_AS.get((dialect, script), "completed")
        assert calls_of(again.output) == calls_of(left.run.output)
    else:
        assert again.status != "completed" or dialect == "vscode"  # parts have no word for it
    assert left.run.machine.snapshot.output_text.strip() in again.response.output_text
    assert left.data == snapshot


@snapshots("{dialect}/outbound/losses.txt", dialect=WAYS)
def test_losses(snapshot: SnapshotAssertion, dialect: str) -> None:
    """What each script's stream reports that the dialect can't express."""
    transcript = Transcript()
    for script in OUTWARDS:
        left = Left(dialect, script)
        if list(left.diagnostics):
            transcript.did(f"{script}:")
            transcript.notes(left.diagnostics)
    assert str(transcript) == snapshot


@snapshots(
    "{dialect}/trace/from_{upstream}.txt", dialect=WAYS, upstream=("anthropic_messages", "chat_completions")
)
def test_trace(snapshot: SnapshotAssertion, dialect: str, upstream: str) -> None:
    """Some words and two files to edit, from one end to the other: `<` the upstream's frame, `>` the lines
    that the client gets for it."""
    way, transcript = WAYS[dialect], Transcript()
    stream, outbound = CheckedInbound(INBOUNDS[upstream], wire=way.wire, close=False), way.build()
    sent = 0
    for frame in [*frames(upstream, SCRIPTS["edit_two_files"]), None]:
        if frame is None:
            transcript.did("(the upstream's stream ends)")
            stream.close()
        else:
            transcript.received(frame)
            stream.feed(frame)
        chunks = [chunk for event in stream.events[sent:] for chunk in outbound.feed(event)]
        sent = len(stream.events)
        for data in way.write(chunks if frame is not None else [*chunks, *outbound.close()]).splitlines():
            if data and not data.startswith(b"event:"):
                transcript.did(f"> {line(data)}")
    assert str(transcript) == snapshot


def calls_of(output: list[Any]) -> list[tuple[str, str, Any]]:
    """(call_id, name, input); a tool that takes free text has it under `input`."""
    return [
        (
            item["call_id"],
            item["name"],
            {"input": item["input"]} if "input" in item else json.loads(item["arguments"]),
        )
        for item in output
        if "call_id" in item
    ]

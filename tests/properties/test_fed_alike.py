"""The output does not depend on how the bytes of a stream are split: whole, frame by frame, byte by byte; nor
does the output of any outbound."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from openresponses_bridge import ResponseStreamStateMachine, SSEDecoder, encode_sse
from openresponses_bridge.dialects import (
    anthropic_messages,
    chat_completions,
    codex,
    copilot,
    gemini,
    responses,
)
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.sse import encode_data
from tests.support.machines import counting_ids
from tests.support.shared import shared_files

INBOUND: dict[str, Any] = {
    "chat": chat_completions.Inbound,
    "anthropic": anthropic_messages.Inbound,
    "responses": partial(responses.Inbound, adopt=True),
    "codex": codex.Inbound,
    "gemini": gemini.Inbound,
}
NAMED = ("anthropic", "responses")  # inbounds may need the frame's event name
FOLDERS = {
    "chat": ("chat",),
    "anthropic": ("anthropic",),
    "responses": ("responses", "responses-inline", "openresponses"),
    "codex": ("codex",),
    "gemini": ("gemini",),
}


def recorded() -> list[Any]:
    return [
        pytest.param(dialect, *file.values, id=f"{dialect}-{file.id}", marks=file.marks)
        for dialect, folders in FOLDERS.items()
        for folder in folders
        for file in shared_files(folder)
    ]


def stream_of(dialect: str, capture: Path) -> bytes:
    """The recorded stream as the server-sent events in which it arrived."""
    data = capture.read_bytes()
    if data.lstrip().startswith((b"data:", b"event:")):
        return data
    lines = [line for line in data.splitlines() if line.strip()]
    if dialect == "codex":
        sent = [json.loads(line) for line in lines]
        lines = [json.dumps(each["msg"]).encode() for each in sent if each["dir"] == "in"]
    return b"".join(encode_data(line) for line in lines)


def fed(dialect: str, pieces: Iterable[bytes]) -> list[Event]:
    machine = ResponseStreamStateMachine("m", ids=counting_ids(), clock=lambda: 5, wire="openai")
    inbound, frames = INBOUND[dialect](machine), SSEDecoder()
    events: list[Event] = []

    def take(found: Iterable[Any]) -> None:
        for frame in found:
            name = (frame.event,) if dialect in NAMED else ()
            events.extend(inbound.feed(frame.data, *name))

    for piece in pieces:
        take(frames.feed(piece))
    take(frames.close())
    events.extend(inbound.close())
    return events


def bytewise(data: bytes) -> Iterator[bytes]:
    return (data[at : at + 1] for at in range(len(data)))


def framewise(data: bytes) -> list[bytes]:
    return [piece + b"\n\n" for piece in data.split(b"\n\n")]


def outward(events: list[Event]) -> list[bytes]:
    """The output of each dialect's outbound."""
    chat, anthropic, deltas = chat_completions.Outbound(), anthropic_messages.Outbound(), copilot.Outbound()
    return [
        encode_sse(events),
        chat_completions.encode([chunk for event in events for chunk in chat.feed(event)] + chat.close()),
        anthropic_messages.encode_sse(
            [chunk for event in events for chunk in anthropic.feed(event)] + anthropic.close()
        ),
        b"".join(
            map(copilot.encode_chunk, [c for event in events for c in deltas.feed(event)] + deltas.close())
        ),
    ]


@pytest.mark.parametrize(("dialect", "capture"), recorded())
def test_a_recorded_stream_says_the_same_however_it_is_cut_into_pieces(dialect: str, capture: Path) -> None:
    data = stream_of(dialect, capture)
    whole = fed(dialect, [data])
    assert len(whole) > 2
    sent = outward(whole)
    assert outward(fed(dialect, bytewise(data))) == sent
    if b"\r" not in data:
        assert outward(fed(dialect, framewise(data))) == sent

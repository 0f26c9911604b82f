"""Times the way from each dialect's bytes to Responses bytes, one frame at a time, beside the floor: decode
one chat chunk and encode one event. All dialects stream text; those that stream a tool call's arguments do
that too."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import msgspec

from openresponses_bridge import ResponseStreamStateMachine, encode_sse
from openresponses_bridge.dialects import (
    anthropic_messages,
    chat_completions,
    codex,
    copilot,
    responses,
    vscode,
)
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.events import Event
from tests.benchmarks import in_process, streams
from tests.benchmarks.harness import Case, Measured, measure


class _Stream(NamedTuple):
    """A dialect's stream: the frames that open it, and then the frames by their number."""

    inbound: Any
    opening: list[bytes]
    frame: Callable[[int], bytes]


def _json(value: object) -> bytes:
    return msgspec.json.encode(value)


def _alike(frame: bytes) -> Callable[[int], bytes]:
    return lambda number: frame


def _responses(begin: Callable[[ResponseStreamStateMachine], list[Event]], more: Any) -> _Stream:
    machine = ResponseStreamStateMachine(model="m")
    opening = [encode(event) for event in machine.start() + begin(machine)]
    first = len(opening)
    delta = more(machine)[0]

    def frame(number: int) -> bytes:
        return encode(msgspec.structs.replace(delta, sequence_number=first + number))

    return _Stream(responses.Inbound, opening, frame)


def _responses_text() -> _Stream:
    return _responses(lambda machine: machine.text("first"), lambda machine: machine.text(streams.TOKEN))


def _responses_rotating() -> _Stream:
    """A stream in which each frame has another item id, as GitHub Copilot sends it."""
    stream = _responses_text()

    def frame(number: int) -> bytes:
        value = msgspec.json.decode(stream.frame(number))
        return _json(value | {"item_id": f"{number:032d}"})

    return stream._replace(frame=frame)


def _responses_arguments() -> _Stream:
    return _responses(
        lambda machine: machine.tool_call(0, "call_1", "lookup"),
        lambda machine: machine.tool_call(0, arguments=streams.TOKEN),
    )


def _anthropic(block: dict[str, object], delta: bytes) -> _Stream:
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "usage": {"input_tokens": 9, "output_tokens": 1},
    }
    opening = [
        _json({"type": "message_start", "message": message}),
        _json({"type": "content_block_start", "index": 0, "content_block": block}),
        delta,
    ]
    return _Stream(anthropic_messages.Inbound, opening, _alike(delta))


def _anthropic_text() -> _Stream:
    return _anthropic({"type": "text", "text": ""}, streams.anthropic_chunk())


def _anthropic_arguments() -> _Stream:
    delta = {"type": "input_json_delta", "partial_json": streams.TOKEN}
    frame = _json({"type": "content_block_delta", "index": 0, "delta": delta})
    return _anthropic({"type": "tool_use", "id": "toolu_1", "name": "lookup", "input": {}}, frame)


def _codex() -> _Stream:
    where = {"threadId": "0123456789", "turnId": "turn_1"}
    turn = {"id": "turn_1", "status": "inProgress", "items": [], "error": None}
    item = {"type": "agentMessage", "id": "msg_1", "text": "", "phase": None}

    def delta(text: str) -> bytes:
        return _json(
            {"method": "item/agentMessage/delta", "params": {**where, "itemId": "msg_1", "delta": text}}
        )

    opening = [
        _json({"method": "turn/started", "params": {"threadId": "0123456789", "turn": turn}}),
        _json({"method": "item/started", "params": {**where, "item": item}}),
        delta("first"),
    ]
    return _Stream(codex.Inbound, opening, _alike(delta(streams.TOKEN)))


def _copilot() -> _Stream:
    delta = _json({"text": streams.TOKEN, "index": 0, "delta": {"text": streams.TOKEN}})
    return _Stream(copilot.Inbound, [delta], _alike(delta))


def _vscode() -> _Stream:
    part = _json({"type": "LanguageModelTextPart", "$mid": 21, "value": streams.TOKEN})
    return _Stream(vscode.Inbound, [part], _alike(part))


def _chat_text() -> _Stream:
    return _Stream(chat_completions.Inbound, [streams.chat_chunk("first")], _alike(streams.chat_chunk()))


def _padded(stream: _Stream) -> _Stream:
    """A frame with padding, as OpenAI sends it, so that the bytes around the content differ in each frame."""
    value = msgspec.json.decode(stream.frame(0))
    return stream._replace(frame=lambda number: _json(value | {"obfuscation": f"{number:x}"}))


def _chat_arguments() -> _Stream:
    opening = [streams.chat_tool_chunk("", call_id="call_1", name="lookup")]
    return _Stream(chat_completions.Inbound, opening, _alike(streams.chat_tool_chunk(streams.TOKEN)))


STREAMS = {
    "chat text": _chat_text,
    "chat text, padded": lambda: _padded(_chat_text()),
    "anthropic text": _anthropic_text,
    "responses text": _responses_text,
    "responses text, ids rotating": _responses_rotating,
    "codex text": _codex,
    "copilot text": _copilot,
    "vscode text": _vscode,
    "chat arguments": _chat_arguments,
    "chat arguments, padded": lambda: _padded(_chat_arguments()),
    "anthropic arguments": _anthropic_arguments,
    "responses arguments": _responses_arguments,
}


def _translate(name: str, stream: _Stream) -> Case:
    @cache
    def frames(n: int) -> list[bytes]:
        return [stream.frame(number) for number in range(n)]

    def work(n: int) -> None:
        inbound = stream.inbound(ResponseStreamStateMachine(model="m"))
        for frame in stream.opening:
            inbound.feed(frame)
        feed = inbound.feed
        for frame in frames(n):
            encode_sse(feed(frame))

    return Case(f"{name} frame → SSE bytes", work, "frame")


def run(n: int, rounds: int) -> list[Measured]:
    """Time every dialect beside the common floor."""
    cases = [_translate(name, build()) for name, build in STREAMS.items()]
    return measure(in_process.floor(), cases, n, rounds)[1:]

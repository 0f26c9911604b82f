"""Each dialect's bytes → Responses bytes, one frame at a time, beside the floor: decode one chat chunk and
encode one event."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from bridge import ResponseStreamStateMachine, encode_sse
from bridge.dialects import anthropic_messages, chat_completions, codex, copilot, responses, vscode
from bridge.protocol.codec import encode
from tests.benchmarks import in_process, streams
from tests.benchmarks.harness import Case, Measured, measure


class _Stream(NamedTuple):
    """A dialect's stream: what opens it and the frame that then repeats."""

    inbound: Any
    opening: list[bytes]
    delta: bytes


def _json(value: object) -> bytes:
    return msgspec.json.encode(value)


def _responses() -> _Stream:
    machine = ResponseStreamStateMachine(model="m")
    opening = [encode(event) for event in machine.start() + machine.text("first")]
    return _Stream(responses.Inbound, opening, encode(machine.text(streams.TOKEN)[0]))


def _anthropic() -> _Stream:
    usage = {"input_tokens": 9, "output_tokens": 1}
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "usage": usage,
    }
    opening = [
        _json({"type": "message_start", "message": message}),
        _json({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        streams.anthropic_chunk("first"),
    ]
    return _Stream(anthropic_messages.Inbound, opening, streams.anthropic_chunk())


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
    return _Stream(codex.Inbound, opening, delta(streams.TOKEN))


def _copilot() -> _Stream:
    delta = _json({"text": streams.TOKEN, "index": 0, "delta": {"text": streams.TOKEN}})
    return _Stream(copilot.Inbound, [delta], delta)


def _vscode() -> _Stream:
    part = _json({"type": "LanguageModelTextPart", "$mid": 21, "value": streams.TOKEN})
    return _Stream(vscode.Inbound, [part], part)


def _chat() -> _Stream:
    return _Stream(chat_completions.Inbound, [streams.chat_chunk("first")], streams.chat_chunk())


STREAMS = {
    "chat": _chat,
    "anthropic": _anthropic,
    "responses": _responses,
    "codex": _codex,
    "copilot": _copilot,
    "vscode": _vscode,
}


def _translate(name: str, stream: _Stream) -> Case:
    def work(n: int) -> None:
        inbound = stream.inbound(ResponseStreamStateMachine(model="m"))
        for frame in stream.opening:
            inbound.feed(frame)
        feed = inbound.feed
        for _ in range(n):
            encode_sse(feed(stream.delta))

    return Case(f"{name} text frame → SSE bytes", work, "frame")


def run(n: int, rounds: int) -> list[Measured]:
    """Every dialect beside the floor that all are held to."""
    cases = [_translate(name, build()) for name, build in STREAMS.items()]
    return measure(in_process.floor(), cases, n, rounds)[1:]

"""The same answers in each dialect that an upstream may speak, as steps for `ScriptedUpstream`."""

import json
from typing import Any

from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.protocol.codec import encode_sse
from openresponses_bridge.sse import encode_data
from tests.support import anthropic
from tests.support import upstream as chat
from tests.support.upstream import DONE, Step

USAGE = {"input_tokens": 3, "output_tokens": 2}


def text(dialect: str, *pieces: str) -> list[Step]:
    """A whole stream of text."""
    return _TEXTS[dialect](*pieces)


def call(dialect: str, *calls: tuple[str, str, str]) -> list[Step]:
    """A whole stream of (id, name, arguments) calls."""
    return _CALLS[dialect](*calls)


def piece(dialect: str) -> list[Step]:
    """The beginning of a stream, with "Hel" in it."""
    steps = text(dialect, "Hel", "lo")
    at = next(at for at, step in enumerate(steps) if b'"Hel"' in bytes(step))  # type: ignore[arg-type]
    return steps[: at + 1]


def refusal_body(dialect: str, kind: str, code: str | None, message: str) -> bytes:
    """How a server of this dialect refuses."""
    error: dict[str, Any] = {"type": kind, "message": message}
    if dialect == "gemini":
        error = {"code": 400, "message": message, "status": code or kind}
        return json.dumps({"error": error}).encode()
    if dialect == "anthropic":
        return json.dumps({"type": "error", "error": error}).encode()
    return json.dumps({"error": {**error, "code": code, "param": None}}).encode()


def named(*payloads: bytes) -> list[Step]:
    """Anthropic's frames, with the events' names."""
    return [
        b"event: " + json.loads(payload)["type"].encode() + b"\ndata: " + payload + b"\n\n"
        for payload in payloads
    ]


def _anthropic_text(*pieces: str) -> list[Step]:
    return named(anthropic.start(), *anthropic.text(0, *pieces), *anthropic.stop())


def _anthropic_calls(*calls: tuple[str, str, str]) -> list[Step]:
    blocks = [
        frame
        for index, (id, name, arguments) in enumerate(calls)
        for frame in anthropic.tool(index, id, name, arguments[:5], arguments[5:])
    ]
    return named(anthropic.start(), *blocks, *anthropic.stop("tool_use"))


def _chat_calls(*calls: tuple[str, str, str]) -> list[Step]:
    frames: list[Step] = []
    for index, (id, name, arguments) in enumerate(calls):
        frames += [
            chat.call(index, "", name, id),
            chat.call(index, arguments[:5]),
            chat.call(index, arguments[5:]),
        ]
    return [*frames, chat.chunk("tool_calls"), DONE]


def _gemini(*parts: dict[str, Any]) -> list[Step]:
    frames: list[Step] = []
    for number, part in enumerate(parts, 1):
        candidate: dict[str, Any] = {"content": {"parts": [part], "role": "model"}, "index": 0}
        if number == len(parts):
            candidate["finishReason"] = "STOP"
        counts = {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5}
        frames.append(encode_data(json.dumps({"candidates": [candidate], "usageMetadata": counts}).encode()))
    return frames


def _gemini_text(*pieces: str) -> list[Step]:
    return _gemini(*({"text": piece} for piece in pieces), {"text": ""})


def _gemini_calls(*calls: tuple[str, str, str]) -> list[Step]:
    return _gemini(
        *(
            {"functionCall": {"id": id, "name": name, "args": json.loads(arguments)}}
            for id, name, arguments in calls
        )
    )


def _responses_text(*pieces: str) -> list[Step]:
    machine = _machine()
    events = [machine.start(), *(machine.text(each) for each in pieces)]
    machine.usage(USAGE)
    return [*(encode_sse(each) for each in [*events, machine.finish("stop")]), DONE]


def _responses_calls(*calls: tuple[str, str, str]) -> list[Step]:
    machine = _machine()
    events = [machine.start()]
    for index, (id, name, arguments) in enumerate(calls):
        events.append(machine.tool_call(index, id, name, arguments))
    machine.usage(USAGE)
    return [*(encode_sse(each) for each in [*events, machine.finish("tool_calls")]), DONE]


def _machine() -> ResponseStreamStateMachine:
    return ResponseStreamStateMachine("upstream-model", wire="openai")


_TEXTS = {
    "chat": chat.text,
    "anthropic": _anthropic_text,
    "responses": _responses_text,
    "gemini": _gemini_text,
}
_CALLS = {
    "chat": _chat_calls,
    "anthropic": _anthropic_calls,
    "responses": _responses_calls,
    "gemini": _gemini_calls,
}

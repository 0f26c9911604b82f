"""The same answers in each dialect that an upstream may speak, as steps for `ScriptedUpstream`."""

import json
from collections.abc import Sequence
from typing import Any

from openresponses_bridge.dialects import interactions
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.protocol.codec import encode_sse
from openresponses_bridge.sse import encode_data
from tests.support import anthropic, converse
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
    """The beginning of a stream with the text "Hel"."""
    steps = text(dialect, "Hel", "lo")
    at = next(at for at, step in enumerate(steps) if b'"Hel"' in bytes(step))  # type: ignore[arg-type]
    return steps[: at + 1]


def refusal_body(dialect: str, kind: str, code: str | None, message: str) -> bytes:
    """Return the body with which a server of this dialect refuses a request."""
    error: dict[str, Any] = {"type": kind, "message": message}
    if dialect == "gemini":
        error = {"code": 400, "message": message, "status": code or kind}
        return json.dumps({"error": error}).encode()
    if dialect == "anthropic":
        return json.dumps({"type": "error", "error": error}).encode()
    return json.dumps({"error": {**error, "code": code, "param": None}}).encode()


def named(*payloads: bytes) -> list[Step]:
    """Anthropic's frames with the names of their events."""
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


def _converse_text(*pieces: str) -> list[Step]:
    events = [converse.start(), *converse.text(0, *pieces), *converse.end()]
    return [encode_data(json.dumps(event).encode()) for event in events]


def _converse_calls(*calls: tuple[str, str, str]) -> list[Step]:
    blocks = [
        event
        for index, (id, name, arguments) in enumerate(calls)
        for event in converse.call(index, id, name, arguments[:5], arguments[5:])
    ]
    events = [converse.start(), *blocks, *converse.end("tool_use")]
    return [encode_data(json.dumps(event).encode()) for event in events]


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


def _interactions(*steps: tuple[dict[str, Any], Sequence[dict[str, Any]]], status: str) -> list[Step]:
    usage = {"total_input_tokens": 3, "total_output_tokens": 2, "total_tokens": 5}
    events: list[dict[str, Any]] = [
        {"event_type": "interaction.created", "interaction": {"id": "v1_a", "status": "in_progress"}}
    ]
    for index, (step, deltas) in enumerate(steps):
        events.append({"event_type": "step.start", "index": index, "step": step})
        events += [{"event_type": "step.delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"event_type": "step.stop", "index": index})
    ended = {"id": "v1_a", "status": status, "usage": usage}
    events.append({"event_type": "interaction.completed", "interaction": ended})
    return [*(interactions.encode_sse([event]) for event in events), interactions.types.sse_end()]


def _interactions_text(*pieces: str) -> list[Step]:
    deltas = [{"type": "text", "text": each} for each in pieces]
    return _interactions(({"type": "model_output"}, deltas), status="completed")


def _interactions_calls(*calls: tuple[str, str, str]) -> list[Step]:
    steps = [
        (
            {"type": "function_call", "id": id, "name": name, "arguments": {}},
            [{"type": "arguments_delta", "arguments": each} for each in (arguments[:5], arguments[5:])],
        )
        for id, name, arguments in calls
    ]
    return _interactions(*steps, status="requires_action")


def _machine() -> ResponseStreamStateMachine:
    return ResponseStreamStateMachine("upstream-model", wire="openai")


_TEXTS = {
    "chat": chat.text,
    "anthropic": _anthropic_text,
    "responses": _responses_text,
    "gemini": _gemini_text,
    "bedrock": _converse_text,
    "interactions": _interactions_text,
}
_CALLS = {
    "chat": _chat_calls,
    "anthropic": _anthropic_calls,
    "responses": _responses_calls,
    "gemini": _gemini_calls,
    "bedrock": _converse_calls,
    "interactions": _interactions_calls,
}


DIALECTS = ("chat", "anthropic", "responses")

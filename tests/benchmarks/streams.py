"""The streams to measure: written here in the shape of real providers' streams."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from openresponses_bridge import ResponseStreamStateMachine
from openresponses_bridge.protocol.events import Event

TOKEN = " token"


def chat_chunk(content: str = TOKEN) -> bytes:
    """One Chat Completions chunk with the fields that OpenAI sends."""
    return msgspec.json.encode(
        {
            "id": "chatcmpl-0123456789abcdefghijklmnopqrs",
            "object": "chat.completion.chunk",
            "created": 1_750_000_000,
            "model": "model-2026-01-01",
            "service_tier": "default",
            "system_fingerprint": "fp_0123456789",
            "choices": [{"index": 0, "delta": {"content": content}, "logprobs": None, "finish_reason": None}],
        }
    )


def chat_tool_chunk(arguments: str, call_id: str = "", name: str = "") -> bytes:
    """One fragment of a tool call; the first one has the id and the name."""
    call: dict[str, object] = {"index": 0, "function": {"arguments": arguments}}
    if call_id:
        call |= {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return msgspec.json.encode(
        {
            "id": "chatcmpl-0123456789abcdefghijklmnopqrs",
            "object": "chat.completion.chunk",
            "created": 1_750_000_000,
            "model": "model-2026-01-01",
            "choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}],
        }
    )


def anthropic_chunk(text: str = TOKEN) -> bytes:
    """One text delta of the Messages API."""
    return msgspec.json.encode(
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    )


def machine() -> ResponseStreamStateMachine:
    """A machine that has begun."""
    begun = ResponseStreamStateMachine(model="model-2026-01-01")
    begun.start()
    return begun


def text_stream(deltas: int) -> Iterator[Event]:
    """A whole response of so many text deltas."""
    emitting = ResponseStreamStateMachine(model="model-2026-01-01")
    yield from emitting.start()
    for _ in range(deltas):
        yield from emitting.text(TOKEN)
    yield from emitting.finish("stop")

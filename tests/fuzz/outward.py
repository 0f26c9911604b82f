"""Events on their way out, into every dialect there is."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from bridge import PartDecoder, encode_sse
from bridge.dialects import anthropic_messages, chat_completions, copilot, responses, vscode
from bridge.errors import BridgeError
from bridge.protocol.events import Event
from bridge.sse import SSEDecoder


def _fed(outbound: Any, events: Iterable[Event]) -> list[Any]:
    return [chunk for event in events for chunk in outbound.feed(event)] + outbound.close()


def sent_on(events: list[Event]) -> None:
    """Feed them to every outbound. What comes out is whole frames and lines of JSON, and nothing but a
    BridgeError is raised."""
    ways = (
        lambda: encode_sse(events),
        lambda: encode_sse(_fed(responses.Outbound(), events)),
        lambda: chat_completions.encode(_fed(chat_completions.Outbound(), events)),
        lambda: anthropic_messages.encode_sse(_fed(anthropic_messages.Outbound(), events)),
    )
    for way in ways:
        try:
            sent = way()
        except BridgeError:
            continue
        for frame in (decoder := SSEDecoder()).feed(sent) + decoder.close():
            if frame.data != b"[DONE]":
                json.loads(frame.data)
    lines = (
        lambda: b"\n".join(map(copilot.encode_chunk, _fed(copilot.Outbound(), events))),
        lambda: b"".join(_fed(vscode.Outbound(), events)),
    )
    for way in lines:
        try:
            sent = way()
        except BridgeError:
            continue
        for line in sent.split(b"\n"):
            if line:
                json.loads(line)
    for thinking in ("text", "drop"):
        try:
            _fed(PartDecoder(thinking=thinking), events)  # type: ignore[arg-type]
        except BridgeError:
            continue

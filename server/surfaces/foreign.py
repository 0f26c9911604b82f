"""The forms of other APIs: their dialects' outbounds, turned into bytes."""

from __future__ import annotations

from typing import Any, Final

from bridge.dialects import anthropic_messages, chat_completions, vscode
from bridge.protocol.codec import encode
from bridge.protocol.events import Event
from bridge.protocol.response import Response
from bridge.seal import Sealer
from bridge.tools.identity import ToolIdentityMap
from server.surfaces.base import KEEP_ALIVE, SSE_TYPE

_PING: Final = b'event: ping\ndata: {"type": "ping"}\n\n'
_LINES_TYPE: Final = b"application/jsonl; charset=utf-8"


class ChatForm:
    """Chat Completions: chunks, `[DONE]` last."""

    stream_type = SSE_TYPE
    keep_alive = KEEP_ALIVE

    def __init__(self, manner: chat_completions.Manner) -> None:
        self._outbound = chat_completions.Outbound(include_usage=manner.include_usage)

    def streamed(self, events: list[Event], ended: bool) -> bytes:
        chunks = [chunk for event in events for chunk in self._outbound.feed(event)]
        return chat_completions.encode([*chunks, *self._outbound.close()] if ended else chunks)

    def whole(self, response: Response) -> bytes | None:
        told = chat_completions.completion(response)
        return encode(told) if isinstance(told, chat_completions.ChatCompletion) else None


class MessagesForm:
    """Anthropic's Messages: named events, pings while nothing else is said."""

    stream_type = SSE_TYPE
    keep_alive = _PING

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer
        self._outbound = anthropic_messages.Outbound(sealer)

    def streamed(self, events: list[Event], ended: bool) -> bytes:
        chunks = [chunk for event in events for chunk in self._outbound.feed(event)]
        return anthropic_messages.encode_sse([*chunks, *self._outbound.close()] if ended else chunks)

    def whole(self, response: Response) -> bytes | None:
        told = anthropic_messages.message(response, self._sealer, ToolIdentityMap())
        return None if told.get("type") == "error" else encode(told)


class PartsForm:
    """VS Code's parts, one JSON line each; an empty line while nothing is said."""

    stream_type = _LINES_TYPE
    keep_alive = b"\n"

    def __init__(self, **options: Any) -> None:
        self._outbound = vscode.Outbound(**options)

    def streamed(self, events: list[Event], ended: bool) -> bytes:
        lines = [line for event in events for line in self._outbound.feed(event)]
        return b"".join([*lines, *self._outbound.close()] if ended else lines)

    def whole(self, response: Response) -> bytes | None:
        raise NotImplementedError("parts are always streamed")

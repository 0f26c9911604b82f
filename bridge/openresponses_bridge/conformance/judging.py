"""A whole stream at once: what is wrong with it, and the response that it ended with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from openresponses_bridge.conformance.published import WireName
from openresponses_bridge.conformance.registry import TERMINALS, Violation
from openresponses_bridge.conformance.validator import StreamValidator
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol import codec
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.sse import Frame, SSEDecoder

_ENDS = tuple(kind.encode() for kind in TERMINALS)
Piece = bytes | str | Event | Mapping[str, Any]


def judged(stream: bytes | str | Iterable[Piece], wire: WireName) -> tuple[list[Violation], dict[str, Any]]:
    """The violations, and the response of the last terminal event as a JSON object, empty when there is none.

    `stream` is one response's: text of server-sent events, whole or in pieces however it was cut, or events.
    Raises TypeError for what is neither, and for text among events.
    """
    if isinstance(stream, Mapping):
        raise TypeError("expected the events of a stream, got a single object")
    pieces = [stream] if isinstance(stream, bytes | str) else stream
    stream_of = _Reader(wire)
    for piece in pieces:
        if isinstance(piece, bytes | bytearray | str):
            stream_of.text(piece.encode() if isinstance(piece, str) else bytes(piece))
        else:
            stream_of.event(piece)
    return stream_of.close()


class _Reader:
    def __init__(self, wire: WireName) -> None:
        self._validator = StreamValidator(wire)
        self._decoder: SSEDecoder | None = None
        self._events = 0
        self._response: Any = None

    def text(self, data: bytes) -> None:
        if self._events:
            raise TypeError("expected an event as those before, got text")
        self._decoder = self._decoder or SSEDecoder()
        self._frames(self._decoder.feed(data))

    def event(self, event: Any) -> None:
        if self._decoder is not None:
            raise TypeError(f"expected text as before, got {type(event).__name__}")
        self._events += 1
        self._validator.feed(event)
        kind = event.get("type") if isinstance(event, Mapping) else event.type
        if kind in TERMINALS:
            self._response = codec.decode_json(codec.encode(event)).get("response")

    def close(self) -> tuple[list[Violation], dict[str, Any]]:
        if self._decoder is not None:
            self._frames(self._decoder.close())
        self._validator.close()
        found = self._response if isinstance(self._response, dict) else {}
        return self._validator.violations, found

    def _frames(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            self._validator.feed_frame(frame)
            if (event := _terminal(frame.data)) is not None:
                self._response = event.get("response")


def _terminal(data: bytes) -> dict[str, Any] | None:
    """The event, if it is one that ends a stream."""
    if not any(kind in data for kind in _ENDS):
        return None
    try:
        event = codec.decode_json(data)
    except WireError:
        return None
    return event if isinstance(event, dict) and event.get("type") in TERMINALS else None

"""What a capture may be turned into, as a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from bridge.decoder import PartDecoder, ResponseAccumulator, encode_parts
from bridge.protocol.codec import encode, encode_sse
from bridge.protocol.events import TERMINAL_EVENTS, Event
from bridge.sse import DONE
from server.captures.reader import Unreadable


class Sink(Protocol):
    """Events in, bytes out. `wire` is the spelling in which the events should come."""

    wire: str

    def feed(self, events: list[Event]) -> bytes: ...

    def close(self) -> bytes: ...


class _SseSink:
    """The stream, with `[DONE]` if it came to its end."""

    def __init__(self, wire: str) -> None:
        self.wire = wire
        self._ended = False

    def feed(self, events: list[Event]) -> bytes:
        self._ended = self._ended or any(type(event) in TERMINAL_EVENTS for event in events)
        return encode_sse(events)

    def close(self) -> bytes:
        return DONE if self._ended else b""


class _SnapshotSink:
    """The response that the events add up to, as one JSON."""

    wire = "openresponses"

    def __init__(self) -> None:
        self._accumulator = ResponseAccumulator()

    def feed(self, events: list[Event]) -> bytes:
        for event in events:
            self._accumulator.feed(event)
        return b""

    def close(self) -> bytes:
        response = self._accumulator.response
        if response is None:
            raise Unreadable(1, "there is no response in it")
        return encode(response) + b"\n"


class _PartsSink:
    """VS Code's parts, one JSON per line."""

    wire = "openai"  # tool calls of every kind keep their own names there

    def __init__(self) -> None:
        self._decoder = PartDecoder()

    def feed(self, events: list[Event]) -> bytes:
        return encode_parts([part for event in events for part in self._decoder.feed(event)])

    def close(self) -> bytes:
        return encode_parts(self._decoder.close())


SINKS: Final[dict[str, Callable[[], Sink]]] = {
    "responses": lambda: _SseSink("openresponses"),
    "openai": lambda: _SseSink("openai"),
    "vscode": _PartsSink,
    "snapshot": _SnapshotSink,
}

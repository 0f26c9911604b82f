"""What a capture may be turned into, as a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from bridge.decoder import PartDecoder, ResponseAccumulator, encode_parts
from bridge.dialects import anthropic_messages, chat_completions, copilot
from bridge.protocol.codec import encode, encode_sse
from bridge.protocol.events import TERMINAL_EVENTS, Event, ResponseCreated
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


class _ForeignSink:
    """Another dialect's stream: its outbound, and how its chunks are written."""

    wire = "openai"  # tool calls of every kind keep their own names there

    def __init__(self, outbound: Any, write: Callable[[list[Any]], bytes]) -> None:
        self._outbound = outbound
        self._write = write

    def feed(self, events: list[Event]) -> bytes:
        return self._write([chunk for event in events for chunk in self._outbound.feed(event)])

    def close(self) -> bytes:
        return self._write(self._outbound.close())


def _lines(chunks: list[Any]) -> bytes:
    return b"".join([copilot.encode_chunk(chunk) + b"\n" for chunk in chunks])


SINKS: Final[dict[str, Callable[[], Sink]]] = {
    "responses": lambda: _SseSink("openresponses"),
    "openai": lambda: _SseSink("openai"),
    "vscode": _PartsSink,
    "chat": lambda: _ForeignSink(chat_completions.Outbound(include_usage=True), chat_completions.encode),
    "anthropic": lambda: _ForeignSink(anthropic_messages.Outbound(), anthropic_messages.encode_sse),
    "copilot": lambda: _ForeignSink(copilot.Outbound(), _lines),
    "snapshot": _SnapshotSink,
}


class Sinks:
    """A sink of this name for each response of a capture, one after the other."""

    def __init__(self, name: str) -> None:
        self._build = SINKS[name]
        self._sink = self._build()
        self._ended = False
        self.wire = self._sink.wire

    def feed(self, events: list[Event]) -> bytes:
        written = b""
        begin = 0
        for index, event in enumerate(events):
            if self._ended and type(event) is ResponseCreated:
                written += self._sink.feed(events[begin:index]) + self._sink.close()
                self._sink, self._ended, begin = self._build(), False, index
            self._ended = self._ended or type(event) in TERMINAL_EVENTS
        return written + self._sink.feed(events[begin:])

    def close(self) -> bytes:
        return self._sink.close()

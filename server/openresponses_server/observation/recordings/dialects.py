"""What a capture may be turned into, as a table."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from openresponses_bridge.decoder import ResponseAccumulator
from openresponses_bridge.dialects.base import ClientSide, Outbound
from openresponses_bridge.dialects.table import dialects
from openresponses_bridge.protocol.codec import encode, encode_sse
from openresponses_bridge.protocol.events import TERMINAL_EVENTS, Event, ResponseCreated
from openresponses_bridge.sse import DONE
from openresponses_server.observation.recordings.captures import Unreadable


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
            raise Unreadable(1, "the capture has no response")
        return encode(response) + b"\n"


class _ClientSink:
    """What a client of a dialect would get."""

    wire = "openai"  # tool calls of every kind keep their own names there

    def __init__(self, client: ClientSide, outbound: Callable[[], Outbound[Any]]) -> None:
        self._outbound = outbound()
        self._encode = client.encode

    def feed(self, events: list[Event]) -> bytes:
        return self._encode([chunk for event in events for chunk in self._outbound.feed(event)])

    def close(self) -> bytes:
        return self._encode(self._outbound.close())


_CLIENTS: Final = {name: each.client for name, each in dialects().items() if each.client is not None}
SINKS: Final[dict[str, Callable[[], Sink]]] = {
    "responses": partial(_SseSink, "openresponses"),
    "openai": partial(_SseSink, "openai"),
    **{name: partial(_ClientSink, client, client.outbound) for name, client in _CLIENTS.items()},
    "snapshot": _SnapshotSink,
}


_WITHOUT_TEXT_AFTER_TOOLS: Final[dict[str, Callable[[], Sink]]] = {
    name: partial(_ClientSink, client, client.without_text_after_tools)
    for name, client in _CLIENTS.items()
    if client.without_text_after_tools is not None
}


class Sinks:
    """A sink of this name for each response of a capture, one after the other. `text_after_tools` says
    whether clients of Chat Completions get text that comes after a tool call; None leaves it to the
    source."""

    def __init__(self, name: str, text_after_tools: bool | None = None) -> None:
        self._name = name
        self._wanted = text_after_tools
        self._fed = False
        self._ended = False
        self.begin(True)
        self.wire = self._sink.wire

    def begin(self, text_after_tools: bool) -> None:
        """What comes next is of a source that wants this of its text."""
        passes = text_after_tools if self._wanted is None else self._wanted
        build = SINKS[self._name]
        self._build = build if passes else _WITHOUT_TEXT_AFTER_TOOLS.get(self._name, build)
        if not self._fed:
            self._sink: Sink = self._build()

    def feed(self, events: list[Event]) -> bytes:
        written = b""
        begin = 0
        self._fed = self._fed or bool(events)
        for index, event in enumerate(events):
            if self._ended and type(event) is ResponseCreated:
                written += self._sink.feed(events[begin:index]) + self._sink.close()
                self._sink, self._ended, begin = self._build(), False, index
            self._ended = self._ended or type(event) in TERMINAL_EVENTS
        return written + self._sink.feed(events[begin:])

    def close(self) -> bytes:
        return self._sink.close()

"""What a capture may be turned into, as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from hashlib import blake2s
from itertools import count
from typing import Any, Final, Protocol

from openresponses_bridge.decoder import ResponseAccumulator
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import ClientSide, Dialect, Outbound
from openresponses_bridge.dialects.table import dialects
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.protocol.codec import encode, encode_sse
from openresponses_bridge.protocol.events import TERMINAL_EVENTS, Event, ResponseCreated
from openresponses_bridge.sse import DONE
from openresponses_bridge.state import TERMINAL_PHASES
from openresponses_server.observation.recordings.captures import Payload, Unreadable


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


# What a capture may hold: which dialect it is in, and how it is read into a machine.


class Source:
    """Payloads in, events out, through the machine on the wire that was asked for.

    Ids and times come from the capture, so that it is translated to the same bytes each time. A capture may
    hold several answers, one after the other: each is a response of its own.
    """

    def __init__(self, dialect: Dialect, first: Payload, wire: str) -> None:
        self.diagnostics = Diagnostics()
        self.text_after_tools = dialect.text_after_tools
        self._recording = dialect.recording
        self._wire = wire
        self._begin(first, first.data)

    def _begin(self, first: Payload, seed: bytes) -> None:
        self._concluded = False
        self._before: Mapping[str, Any] | None = None
        model, created = self._recording.head(first.value or {})
        self._machine = ResponseStreamStateMachine(
            model if isinstance(model, str) else "",
            ids=_ids_from(seed),
            clock=lambda: created if isinstance(created, int) else 0,
            wire=self._wire,
        )
        self._inbound = self._recording.inbound(self._machine)

    def feed(self, payload: Payload) -> list[Event]:
        """One payload of the capture → the events it caused."""
        events: list[Event] = []
        value = payload.value
        over = self._concluded or self._machine.phase in TERMINAL_PHASES
        if over and value is not None and self._recording.begins(value, self._before):
            events = self.close()
            self._begin(payload, b"%d:" % payload.line + payload.data)
        self._concluded = self._concluded or (value is not None and self._recording.concludes(value))
        self._before = value
        return events + self._inbound.feed(payload.data, payload.event or "")

    @property
    def cases(self) -> Diagnostics:
        """What was repaired, lost or ignored of the answer that is being read."""
        return self._machine.diagnostics

    def close(self) -> list[Event]:
        events = self._inbound.close()
        self.diagnostics.extend(self._machine.diagnostics)
        return events


def _ids_from(seed: bytes) -> Callable[[str], str]:
    digest = blake2s(seed, digest_size=8).hexdigest()
    number = count()
    return lambda prefix: f"{prefix}_{digest}{next(number):08x}"


DIALECTS: Final = dialects()
AUTO: Final = "auto"


def open_source(name: str, first: Payload, wire: str) -> Source:
    """The source for a capture that begins with this payload; `auto` looks at what it says.

    Raises Unreadable when no dialect knows it.
    """
    found = dialect_of(first) if name == AUTO else name
    if found is None:
        raise Unreadable(first.line, f"this is not one of: {', '.join(DIALECTS)}")
    return Source(DIALECTS[found], first, wire)


def dialect_of(first: Payload) -> str | None:
    """The name of the dialect whose captures begin like this; None when there is none."""
    for name, dialect in DIALECTS.items():
        if first.value is not None and dialect.recording.recognises(first.value):
            return name
    return None

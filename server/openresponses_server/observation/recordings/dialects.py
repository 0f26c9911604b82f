"""What a capture may be turned into, as a table."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from hashlib import blake2s
from itertools import count
from typing import Any, Final, NamedTuple, Protocol

from openresponses_bridge.decoder import ResponseAccumulator
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import ClientSide, Dialect, Outbound, Place, Recording
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


_NO_PLACE: Final = Place()
MOST_OPEN: Final = 1000  # answers of a capture that have begun and not ended


class Translated(NamedTuple):
    """What a payload became. Without a payload it is the end of the capture, or of an answer in it."""

    payload: Payload | None
    events: list[Event]


class CaptureTranslator:
    """Payloads in, events out, through the machine on the wire that was asked for.

    Ids and times come from the capture, so that it is translated to the same bytes each time. A capture may
    hold several answers: each is a response of its own, and they come out one after the other, in the order
    in which they began. What comes side by side waits until the answers before it have ended; memory is
    linear in that.
    """

    def __init__(self, dialect: Dialect, first: Payload, wire: str) -> None:
        self.diagnostics = Diagnostics()
        self.text_after_tools = dialect.text_after_tools
        self._recording = dialect.recording
        self._wire = wire
        self._before: Mapping[str, Any] | None = None
        self._open = 0
        self._answers: deque[_Answer] = deque()  # the first is the one that is given out
        self._named: dict[tuple[str, str], _Answer | None] = {}
        """By thread and turn, by turn and by thread (its last); None for those that were given out."""
        self._begin(first, first.data)

    def feed(self, payload: Payload) -> Iterator[Translated]:
        """One payload of the capture → what can be given out with it; `cases` are those of what was taken
        last. Raises Unreadable when too many answers are open at once."""
        answer = self._answer_of(payload)
        self._before = payload.value
        if answer is None:
            self.cases.ignored("turn", "notifications of another turn")
            return iter([Translated(payload, [])])
        was_open = not answer.over
        answer.feed(payload)
        if was_open and answer.over:
            self._open -= 1
        return self._release_ended()

    @property
    def cases(self) -> Diagnostics:
        """What was repaired, lost or ignored of the answer that is given out."""
        return self._answers[0].diagnostics

    def close(self) -> Iterator[Translated]:
        """The capture has ended, and with it the answers in it."""
        while True:
            yield from self._release_ended()
            yield self._end_answer()
            if len(self._answers) == 1:
                return
            self._answers.popleft()

    def _answer_of(self, payload: Payload) -> _Answer | None:
        """The answer that it belongs to; None for one that is over or was never heard of."""
        front, value = self._answers[0], payload.value
        place = _NO_PLACE if value is None else self._recording.place(value)
        if not place.turn:
            found = self._named.get((place.thread, ""), front)
            if found is front and front.over and value is not None:
                begins = self._recording.begins(value, self._before)
                return self._begin(payload, _seed(payload)) if begins else front
            return found
        name = (place.thread, place.turn)
        if name in self._named:
            return self._named[name]
        if not place.opens:
            return None
        opened = front if not (front.names or front.over) else self._begin(payload, _seed(payload))
        opened.names = [name, ("", place.turn), (place.thread, "")] if place.thread else [name]
        self._named.update(dict.fromkeys(opened.names, opened))
        return opened

    def _begin(self, payload: Payload, seed: bytes) -> _Answer:
        if self._open == MOST_OPEN:
            raise Unreadable(payload.line, f"more than {MOST_OPEN} answers are open at once")
        self._open += 1
        self._answers.append(_Answer(self._recording, payload, seed, self._wire))
        return self._answers[-1]

    def _release_ended(self) -> Iterator[Translated]:
        while True:
            front = self._answers[0]
            while front.waiting:
                yield front.waiting.popleft()
            if len(self._answers) == 1 or not front.over:
                return
            yield self._end_answer()
            self._answers.popleft()

    def _end_answer(self) -> Translated:
        """The end of the answer that is given out."""
        front = self._answers[0]
        events = front.close()
        self.diagnostics.extend(front.diagnostics)
        for name in front.names:
            if self._named[name] is front:
                self._named[name] = None
        return Translated(None, events)


class _Answer:
    """One answer on its way through a machine of its own. `names` are those by which payloads name it,
    `waiting` is what was not given out yet."""

    def __init__(self, recording: Recording, first: Payload, seed: bytes, wire: str) -> None:
        self.names: list[tuple[str, str]] = []
        self.waiting: deque[Translated] = deque()
        self._recording = recording
        self._concluded = False
        model, created = recording.head(first.value or {})
        self._machine = ResponseStreamStateMachine(
            model if isinstance(model, str) else "",
            ids=_ids_from(seed),
            clock=lambda: created if isinstance(created, int) else 0,
            wire=wire,
        )
        self._inbound = recording.inbound(self._machine)

    @property
    def over(self) -> bool:
        return self._concluded or self._machine.phase in TERMINAL_PHASES

    @property
    def diagnostics(self) -> Diagnostics:
        return self._machine.diagnostics

    def feed(self, payload: Payload) -> None:
        value = payload.value
        self._concluded = self._concluded or (value is not None and self._recording.concludes(value))
        events = self._inbound.feed(payload.data, payload.event or "")
        self.waiting.append(Translated(payload._replace(value=None), events))

    def close(self) -> list[Event]:
        return self._inbound.close()


def _seed(payload: Payload) -> bytes:
    return b"%d:" % payload.line + payload.data


def _ids_from(seed: bytes) -> Callable[[str], str]:
    digest = blake2s(seed, digest_size=8).hexdigest()
    number = count()
    return lambda prefix: f"{prefix}_{digest}{next(number):08x}"


DIALECTS: Final = dialects()
AUTO: Final = "auto"


def open_translator(name: str, first: Payload, wire: str) -> CaptureTranslator:
    """The source for a capture that begins with this payload; `auto` looks at what it says.

    Raises Unreadable when no dialect knows it.
    """
    found = dialect_of(first) if name == AUTO else name
    if found is None:
        raise Unreadable(first.line, f"this is not one of: {', '.join(DIALECTS)}")
    return CaptureTranslator(DIALECTS[found], first, wire)


def dialect_of(first: Payload) -> str | None:
    """The name of the dialect whose captures begin like this; None when there is none."""
    for name, dialect in DIALECTS.items():
        if first.value is not None and dialect.recording.recognises(first.value):
            return name
    return None

"""The steps in which captures of all dialects are read, and the encoders for their events."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import partial
from hashlib import blake2s
from itertools import count
from typing import Any, Final, NamedTuple, Protocol

from openresponses_bridge.decoder import ResponseAccumulator
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects import responses
from openresponses_bridge.dialects.base import CaptureFormat, ClientSide, Dialect, Outbound, Place, type_of
from openresponses_bridge.dialects.table import dialects
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.protocol.codec import encode, encode_sse
from openresponses_bridge.protocol.events import TERMINAL_EVENTS, Event
from openresponses_bridge.sse import DONE
from openresponses_bridge.state import TERMINAL_EVENT, TERMINAL_PHASES
from openresponses_server.observation.recordings.captures import Payload, UnreadableCapture


class StepKind(Enum):
    """The kind of a step in a capture."""

    PAUSE = "pause"
    """No result yet; yielded now and then, so that no step takes long."""
    TRANSLATED = "translated"
    """A payload and the events that it was translated into, if any."""
    EVENT = "event"
    """A Responses event as it was sent; it may be malformed, or the end of the stream, `[DONE]`."""
    ERROR = "error"
    """An error on a WebSocket, which ends the turn unless its events go on."""
    REQUEST = "request"
    """A client's request on a WebSocket."""
    RESPONSE = "response"
    """A whole response, not streamed."""
    END = "end"
    """The end of a response, with the events that it was translated into."""
    ABORTED = "aborted"
    """The end of a response with an error on a WebSocket."""


ENDS: Final = frozenset({StepKind.END, StepKind.ABORTED})


class CaptureStep(NamedTuple):
    """One step in reading a capture. `payload` is None for pauses and ends."""

    kind: StepKind
    payload: Payload | None
    events: list[Event]


PAUSE: Final = CaptureStep(StepKind.PAUSE, None, [])


# The forms into which a capture can be translated.


class CaptureEncoder(Protocol):
    """Encodes events as bytes. `wire` is the spelling that it expects of them."""

    wire: str

    def feed(self, events: list[Event]) -> bytes: ...

    def close(self) -> bytes: ...


class _SseEncoder:
    """Encodes events as a stream, with `[DONE]` if it is complete."""

    def __init__(self, wire: str) -> None:
        self.wire = wire
        self._ended = False

    def feed(self, events: list[Event]) -> bytes:
        self._ended = self._ended or any(type(event) in TERMINAL_EVENTS for event in events)
        return encode_sse(events)

    def close(self) -> bytes:
        return DONE if self._ended else b""


class _SnapshotEncoder:
    """Encodes the response that the events add up to, as one JSON object."""

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
            raise UnreadableCapture(1, "the capture has no response")
        return encode(response) + b"\n"


class _ClientEncoder:
    """Encodes what a client of a dialect would receive."""

    wire = "openai"  # there, tool calls of every kind keep their own names

    def __init__(self, client: ClientSide, outbound: Callable[[], Outbound[Any]]) -> None:
        self._outbound = outbound()
        self._encode = client.encode

    def feed(self, events: list[Event]) -> bytes:
        return self._encode([chunk for event in events for chunk in self._outbound.feed(event)])

    def close(self) -> bytes:
        return self._encode(self._outbound.close())


_CLIENTS: Final = {name: each.client for name, each in dialects().items() if each.client is not None}
ENCODERS: Final[dict[str, Callable[[], CaptureEncoder]]] = {
    "responses": partial(_SseEncoder, "openresponses"),
    "openai": partial(_SseEncoder, "openai"),
    **{name: partial(_ClientEncoder, client, client.outbound) for name, client in _CLIENTS.items()},
    "snapshot": _SnapshotEncoder,
}


_WITHOUT_TEXT_AFTER_TOOLS: Final[dict[str, Callable[[], CaptureEncoder]]] = {
    name: partial(_ClientEncoder, client, client.without_text_after_tools)
    for name, client in _CLIENTS.items()
    if client.without_text_after_tools is not None
}


class CaptureWriter:
    """Writes the responses of captures, each with an encoder of this `name`. `text_after_tools` is whether
    clients of Chat Completions get text that comes after a tool call; None: as the dialect of the capture
    says."""

    def __init__(self, name: str, text_after_tools: bool | None = None) -> None:
        self._name = name
        self._text_after_tools = text_after_tools
        self._encoder = ENCODERS[name]()
        self._begun = False
        self._ended = False
        self.wire = self._encoder.wire

    def feed(self, step: CaptureStep, text_after_tools: bool) -> bytes:
        """Encode a step of a capture whose dialect has this value of `text_after_tools`."""
        written = b""
        if step.events:
            if self._ended:
                written = self._encoder.close()
            if self._ended or not self._begun:
                self._encoder = self._build(text_after_tools)
            self._begun, self._ended = True, False
            written += self._encoder.feed(step.events)
        if step.kind in ENDS:
            self._ended = self._begun
        return written

    def close(self) -> bytes:
        return self._encoder.close()

    def _build(self, text_after_tools: bool) -> CaptureEncoder:
        passes = text_after_tools if self._text_after_tools is None else self._text_after_tools
        build = ENCODERS[self._name]
        return (build if passes else _WITHOUT_TEXT_AFTER_TOOLS.get(self._name, build))()


# Captures of all dialects, translated by one machine for each of their responses.


_NO_PLACE: Final = Place()
MOST_OPEN: Final = 1000  # responses of a capture that have begun and have not ended


class CaptureTranslator:
    """Translates the payloads of a capture to events in the spelling `wire`.

    Ids and times are derived from the capture, so that each translation gives the same bytes. A capture may
    have several responses, even interleaved ones. Their events are yielded one response after the other, in
    the order in which the responses began. The events of later responses are buffered, in linear memory,
    until the earlier ones have ended.
    """

    def __init__(self, dialect: Dialect, first: Payload, wire: str) -> None:
        self.diagnostics = Diagnostics()
        self.text_after_tools = dialect.text_after_tools
        self._format = dialect.capture
        self._wire = wire
        self._before: Mapping[str, Any] | None = None
        self._open = 0
        self._answers: deque[_Answer] = deque()  # the events of the first are yielded, others are buffered
        self._named: dict[tuple[str, str], _Answer | None] = {}
        """(thread, turn), ("", turn) and (thread, "") → the answer; None if it is complete."""
        self._begin(first, first.data)

    def feed(self, payload: Payload) -> Iterator[CaptureStep]:
        """Read the next payload. Yields the steps that are ready. Raises UnreadableCapture if too many
        responses are open at once."""
        answer = self._answer_of(payload)
        self._before = payload.value
        if answer is None:
            self.cases.ignored("turn", "notifications of another turn")
            return iter([CaptureStep(StepKind.TRANSLATED, payload, [])])
        was_open = not answer.over
        answer.feed(payload)
        if was_open and answer.over:
            self._open -= 1
        return self._release_ended()

    @property
    def cases(self) -> Diagnostics:
        """The repairs, losses and ignored fields of the last step's response."""
        return self._answers[0].diagnostics

    def close(self) -> Iterator[CaptureStep]:
        """End the capture, and so its responses. Yields the last steps."""
        while True:
            yield from self._release_ended()
            yield self._end_answer()
            if len(self._answers) == 1:
                return
            self._answers.popleft()

    def _answer_of(self, payload: Payload) -> _Answer | None:
        """Return the answer that a payload belongs to; None if the answer is complete or unknown."""
        front, value = self._answers[0], payload.value
        place = _NO_PLACE if value is None else self._format.place(value)
        if not place.turn:
            answer = self._named.get((place.thread, ""), front)
            if answer is front and front.over and value is not None:
                begins = self._format.begins(value, self._before)
                return self._begin(payload, _seed(payload)) if begins else front
            return answer
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
            raise UnreadableCapture(payload.line, f"more than {MOST_OPEN} answers are open at once")
        self._open += 1
        self._answers.append(_Answer(self._format, payload, seed, self._wire))
        return self._answers[-1]

    def _release_ended(self) -> Iterator[CaptureStep]:
        while True:
            front = self._answers[0]
            while front.waiting:
                yield front.waiting.popleft()
            if len(self._answers) == 1 or not front.over:
                return
            yield self._end_answer()
            self._answers.popleft()

    def _end_answer(self) -> CaptureStep:
        """End the first answer. Returns its last step."""
        front = self._answers[0]
        events = front.close()
        self.diagnostics.extend(front.diagnostics)
        for name in front.names:
            if self._named[name] is front:
                self._named[name] = None
        return CaptureStep(StepKind.END, None, events)


class _Answer:
    """One response, translated by a machine of its own."""

    def __init__(self, capture_format: CaptureFormat, first: Payload, seed: bytes, wire: str) -> None:
        self.names: list[tuple[str, str]] = []
        """The names by which payloads refer to the response."""
        self.waiting: deque[CaptureStep] = deque()
        """Buffered steps."""
        self._format = capture_format
        self._concluded = False
        model, created = capture_format.head(first.value or {})
        self._machine = ResponseStreamStateMachine(
            model if isinstance(model, str) else "",
            ids=_ids_from(seed),
            clock=lambda: created if isinstance(created, int) else 0,
            wire=wire,
        )
        self._inbound = capture_format.inbound(self._machine)

    @property
    def over(self) -> bool:
        return self._concluded or self._machine.phase in TERMINAL_PHASES

    @property
    def diagnostics(self) -> Diagnostics:
        return self._machine.diagnostics

    def feed(self, payload: Payload) -> None:
        value = payload.value
        self._concluded = self._concluded or (value is not None and self._format.concludes(value))
        events = self._inbound.feed(payload.data, payload.event or "")
        self.waiting.append(CaptureStep(StepKind.TRANSLATED, payload._replace(value=None), events))

    def close(self) -> list[Event]:
        return self._inbound.close()


def _seed(payload: Payload) -> bytes:
    return b"%d:" % payload.line + payload.data


def _ids_from(seed: bytes) -> Callable[[str], str]:
    digest = blake2s(seed, digest_size=8).hexdigest()
    number = count()
    return lambda prefix: f"{prefix}_{digest}{next(number):08x}"


# Captures of Responses, as they were sent.

_REQUEST: Final = "response.create"
_LAST: Final = frozenset({"error", *(event.type for event in TERMINAL_EVENT.values())})


class SentResponses:
    """Splits a capture of Responses, in frames or in the messages of a WebSocket, into its responses. The
    events are not changed."""

    text_after_tools = True

    def __init__(self) -> None:
        self.cases = self.diagnostics = Diagnostics()
        self._open = False
        self._ended = False
        self._error = False
        """True if the last message was an error on a WebSocket."""

    def feed(self, payload: Payload) -> list[CaptureStep]:
        """Read the next payload. Returns its steps. A response has ended when the next one begins."""
        steps: list[CaptureStep] = []
        kind = _kind_of(payload)
        begins = payload.value is not None and responses.DIALECT.capture.begins(payload.value, None)
        if kind is StepKind.RESPONSE or (begins and (self._ended or self._error)):
            steps = self.close()
        if kind is not StepKind.REQUEST:
            self._open = True
            self._ended = self._ended or kind is StepKind.RESPONSE or _ends(payload, kind)
            if payload.value is not None:
                self._error = kind is StepKind.ERROR
        return [*steps, CaptureStep(kind, payload, [])]

    def close(self) -> list[CaptureStep]:
        """End the capture. Returns the last steps."""
        kind = StepKind.ABORTED if self._error and not self._ended else StepKind.END
        steps = [CaptureStep(kind, None, [])] if self._open else []
        self._open = self._ended = self._error = False
        return steps


def _kind_of(payload: Payload) -> StepKind:
    value = payload.value
    if value is None:
        return StepKind.EVENT
    if "type" not in value and value.get("object") == "response":
        return StepKind.RESPONSE
    if payload.event is None and type_of(value) == _REQUEST:
        return StepKind.REQUEST
    # an error in a stream has a sequence number; one on a WebSocket, an HTTP status
    is_error = type_of(value) == "error" and "status" in value and "sequence_number" not in value
    return StepKind.ERROR if is_error and payload.event is None else StepKind.EVENT


def _ends(payload: Payload, kind: StepKind) -> bool:
    return kind is StepKind.EVENT and payload.value is not None and type_of(payload.value) in _LAST


DIALECTS: Final = dialects()


def dialect_of(first: Payload) -> str | None:
    """Return the name of the dialect whose captures begin like this; None if there is none."""
    for name, dialect in DIALECTS.items():
        if first.value is not None and dialect.capture.recognises(first.value):
            return name
    return None

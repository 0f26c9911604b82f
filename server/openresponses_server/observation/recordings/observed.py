"""A capture of any dialect, observed: Responses streams as they are, those of other dialects as the events
that they are translated into, beside the payloads these are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final

from msgspec import Raw

from openresponses_bridge.conformance import judge_response
from openresponses_bridge.dialects import responses
from openresponses_bridge.dialects.base import type_of
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.events import TERMINAL_EVENTS, Event, ResponseCreated
from openresponses_bridge.sse import Frame
from openresponses_server.observation.recordings.captures import (
    Check,
    Payload,
    begins_response,
    ends_response,
    payloads_and_pauses,
    takes_all,
)
from openresponses_server.observation.recordings.observing import (
    Observation,
    Observer,
    findings_of,
    json_or_text,
    line,
)
from openresponses_server.observation.recordings.sources import AUTO, Source, dialect_of, open_source

_OURS: Final = responses.DIALECT.name
_WIRE: Final = "openresponses"
_REQUEST: Final = "response.create"
Clock = Callable[[], float]
"""When the line that was read last was received, in seconds since the first."""


def observed(
    lines: Iterable[bytes], name: str = AUTO, clock: Clock = lambda: 0.0, check: Check = takes_all
) -> Iterator[bytes]:
    """The lines of a capture in this dialect, as `Observation`; `auto` looks at its first payload. `lines`
    may hold pauses (`with_pauses`), which come out as they are. Raises Unreadable, which may be after some
    lines, also for a payload that `check` refuses."""
    payloads = payloads_and_pauses(lines, check)
    for first in payloads:
        if first is None:
            yield b""
            continue
        rest = chain([first], payloads)
        if (dialect_of(first) if name == AUTO else name) == _OURS:
            yield from _AsItIs(clock).lines(rest)
        else:
            yield from _Translated(open_source(name, first, _WIRE), clock).lines(rest)


class _AsItIs:
    """Responses, one after the other, in frames or as the messages of a WebSocket."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._observer: Observer | None = None
        self._ended = False

    def lines(self, payloads: Iterable[Payload | None]) -> Iterator[bytes]:
        for payload in payloads:
            if payload is None:
                yield b""
                continue
            if self._ended and begins_response(payload):
                yield self._close()
            if shown := self._line(payload):
                yield shown
            self._ended = self._ended or ends_response(payload)
        yield self._close()

    def _line(self, payload: Payload) -> bytes:
        at, value = self._clock(), payload.value
        if value is not None and "type" not in value and value.get("object") == "response":
            found = findings_of(judge_response(value, "auto"))
            return line(Observation(at, "response", json_or_text(payload.data), payload.line, findings=found))
        if value is not None and payload.event is None and type_of(value) == _REQUEST:
            return line(Observation(at, _REQUEST, json_or_text(payload.data), payload.line))
        self._observer = self._observer or Observer()
        if payload.event is None:
            return b"" if value is None else self._observer.payload(payload.data, at, line=payload.line)
        return self._observer.frame(Frame(payload.event, payload.data), at, line=payload.line)

    def _close(self) -> bytes:
        observer, self._observer, self._ended = self._observer, None, False
        return b"" if observer is None else observer.close(self._clock())


class _Translated:
    """Answers of another dialect, one after the other: what each payload becomes."""

    def __init__(self, source: Source, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._observer: Observer | None = None
        self._ended = False
        self._payloads: list[Raw | str] = []
        """Those that no event has come of yet."""

    def lines(self, payloads: Iterable[Payload | None]) -> Iterator[bytes]:
        number = 0
        for payload in payloads:
            if payload is None:
                yield b""
                continue
            number = payload.line
            self._payloads.append(json_or_text(payload.data))
            for event in self._source.feed(payload):
                yield from self._line(event, number)
        for event in self._source.close():
            yield from self._line(event, number)
        yield self._close()

    def _line(self, event: Event, number: int) -> Iterator[bytes]:
        if self._ended and type(event) is ResponseCreated:
            yield self._close()
        if self._observer is None:
            self._observer = Observer(_WIRE, self._source.cases)
        self._ended = self._ended or type(event) in TERMINAL_EVENTS
        source, self._payloads = self._payloads, []
        yield self._observer.payload(encode(event), self._clock(), line=number, source=source)

    def _close(self) -> bytes:
        observer, self._observer, self._ended = self._observer, None, False
        source, self._payloads = self._payloads, []
        return b"" if observer is None else observer.close(self._clock(), source=source)

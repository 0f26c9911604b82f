"""A stream as the inspector shows it: a line of JSON for each event, with what is wrong with it, what was
repaired or lost at it, and the parts that VS Code gets of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from itertools import chain, islice
from typing import Any, Final

from msgspec import Raw, Struct

from openresponses_bridge.conformance import RULES, StreamValidator, Violation, WireName, validate_response
from openresponses_bridge.decoder import PartDecoder, encode_parts
from openresponses_bridge.diagnostics import Diagnostic, Diagnostics
from openresponses_bridge.dialects import responses
from openresponses_bridge.dialects.base import type_of
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_event, decode_json, encode
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.sse import Frame, is_done
from openresponses_server.observation.recordings.captures import (
    Check,
    Payload,
    Unreadable,
    accept_all,
    begins_response,
    ends_response,
    payloads_and_pauses,
    with_pauses,
)
from openresponses_server.observation.recordings.dialects import (
    AUTO,
    DIALECTS,
    CaptureTranslator,
    Translated,
    dialect_of,
    open_translator,
)
from openresponses_server.observation.recordings.reader import Clock, Exchange, Index, body_lines
from openresponses_server.observation.recordings.records import Record, decode_record, is_recording

# What of a report belongs to the event at hand: for whoever pins repairs and losses to the events at which
# they showed.


class Reported:
    """What is new in a report since the last look. Costs nothing while nothing is."""

    def __init__(self, report: Diagnostics) -> None:
        self._report = report
        self._seen = 0

    def new(self) -> list[Diagnostic]:
        """The cases that were noted for the first time since."""
        if len(self._report) == self._seen:
            return []
        found = list(islice(self._report, self._seen, None))
        self._seen += len(found)
        return found


_MOST_FINDINGS: Final = 50
"""Violations and cases that one line holds; a line says how many it leaves out."""
_LONGEST_CASE: Final = 500  # characters


class Finding(Struct, frozen=True):
    """Something pinned to an event: `kind` is `violation`, `repair`, `loss`, `ignored` or `warning`; `rule`
    is the id of a violated rule with the text of what it `asks`; `where` is a path or the name of a field."""

    kind: str
    where: str
    what: str
    rule: str = ""
    asks: str = ""


class Observation(Struct, frozen=True, omit_defaults=True):
    """One event. `at` is in seconds since the request was received, or else since the stream began; `data` is
    its JSON as it was sent, or a string with what was sent instead; `source` the payloads of another dialect
    that it was made of. `line` is where a capture has it. A line without `event` is what came at the end."""

    at: float
    event: str = ""
    data: Raw | str | None = None
    line: int = 0
    source: list[Raw | str] = []
    findings: list[Finding] = []
    left_out: int = 0
    parts: list[Raw] = []
    ended: bool = False


class Observer:
    """Observes one response's stream. Each call gives the line for what it was given, with its line feed."""

    def __init__(self, wire: WireName = "auto", *reports: Diagnostics) -> None:
        self._validator = StreamValidator(wire)
        self._decoder = PartDecoder(no_response=True)
        self._reports = [Reported(report) for report in (*reports, self._decoder.result.diagnostics)]

    def frame(self, frame: Frame, at: float, **more: Any) -> bytes:
        """The line of one frame as it was sent."""
        found = self._validator.feed_frame(frame)
        if is_done(frame):
            return line(Observation(at, "[DONE]", findings=findings_of(found, ()), **more)) if found else b""
        return self._observed(frame.data, found, at, more)

    def payload(self, data: bytes, at: float, **more: Any) -> bytes:
        """The line of an event that came without a frame."""
        return self._observed(data, self._validator.feed(data), at, more)

    def close(self, at: float, **more: Any) -> bytes:
        """The stream has ended: what is missing, and the parts that come of that."""
        parts = _parts(self._decoder.close())
        found = findings_of(self._validator.close(), self._noted())
        return line(Observation(at, findings=found, parts=parts, ended=True, **more))

    def _observed(self, data: bytes, found: list[Violation], at: float, more: dict[str, Any]) -> bytes:
        parts: list[Raw] = []
        shown: Raw | str
        try:
            event = decode_event(data)
            name, shown, parts = event.type, _in_one_line(data), _parts(self._decoder.feed(event))
        except WireError:
            name, shown = _name_of(data), json_or_text(data)
        findings = findings_of(found, self._noted())
        left_out = max(len(findings) - _MOST_FINDINGS, 0)
        return line(
            Observation(
                at,
                clean(name) or "not an event",
                shown,
                findings=findings[:_MOST_FINDINGS],
                left_out=left_out,
                parts=parts,
                **more,
            )
        )

    def _noted(self) -> Iterator[Diagnostic]:
        for report in self._reports:
            yield from report.new()


def line(observation: Observation) -> bytes:
    """As JSON, ended by a line feed."""
    return encode(observation) + b"\n"


def json_or_text(data: bytes) -> Raw | str:
    """JSON as it was sent where it is one line of it, else the text."""
    try:
        decode_json(data)
        return _in_one_line(data)
    except WireError:
        return data.decode("utf-8", "replace")


def clean(text: str) -> str:
    """Without halves of surrogate pairs, which no JSON can hold but as escapes."""
    return text.encode("utf-8", "replace").decode()


def _in_one_line(data: bytes) -> Raw:
    return Raw(data.replace(b"\n", b" ").replace(b"\r", b" "))


def _name_of(data: bytes) -> str:
    try:
        value = decode_json(data)
    except WireError:
        return ""
    name = value.get("type") if isinstance(value, dict) else None
    return name[:100] if isinstance(name, str) else ""


def findings_of(violations: Iterable[Violation], cases: Iterable[Diagnostic] = ()) -> list[Finding]:
    """Violations and cases in the form in which they are pinned to an event."""
    found = [
        Finding("violation", clean(each.path), clean(each.message), each.rule, RULES[each.rule].description)
        for each in violations
    ]
    return found + [
        Finding(case.kind, clean(case.where[:_LONGEST_CASE]), clean(case.what[:_LONGEST_CASE]))
        for case in cases
    ]


def _parts(parts: Iterable[Any]) -> list[Raw]:
    return [Raw(encode_parts((part,)).strip()) for part in parts]


# A capture of any dialect, observed: Responses streams as they are, those of other dialects as the events
# that they are translated into, beside the payloads these are made of.

_OURS: Final = responses.DIALECT.name
_WIRE: Final = "openresponses"
_REQUEST: Final = "response.create"
Now = Callable[[], float]
"""When the line that was read last was received, in seconds since the first."""


def observed(
    lines: Iterable[bytes], name: str = AUTO, clock: Now = lambda: 0.0, check: Check = accept_all
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
            yield from _Translated(open_translator(name, first, _WIRE), clock).lines(rest)


class _AsItIs:
    """Responses, one after the other, in frames or as the messages of a WebSocket."""

    def __init__(self, clock: Now) -> None:
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
            found = findings_of(validate_response(value, "auto"))
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

    def __init__(self, source: CaptureTranslator, clock: Now) -> None:
        self._source = source
        self._clock = clock
        self._observer: Observer | None = None
        self._payloads: list[Raw | str] = []
        """Those that no event has come of yet."""
        self._number = 0  # of the line that was translated last

    def lines(self, payloads: Iterable[Payload | None]) -> Iterator[bytes]:
        for payload in payloads:
            if payload is None:
                yield b""
                continue
            for translated in self._source.feed(payload):
                yield from self._lines(translated)
        for translated in self._source.close():
            yield from self._lines(translated)

    def _lines(self, translated: Translated) -> Iterator[bytes]:
        if translated.payload is not None:
            self._number = translated.payload.line
            self._payloads.append(json_or_text(translated.payload.data))
        for event in translated.events:
            yield self._line(event)
        if translated.payload is None:
            yield self._close()

    def _line(self, event: Event) -> bytes:
        self._observer = self._observer or Observer(_WIRE, self._source.cases)
        source, self._payloads = self._payloads, []
        return self._observer.payload(encode(event), self._clock(), line=self._number, source=source)

    def _close(self) -> bytes:
        observer, self._observer = self._observer, None
        source, self._payloads = self._payloads, []
        return b"" if observer is None else observer.close(self._clock(), source=source)


# A recording, observed: its answers one after the other, at the times at which they came.

_FIRST: Final = 4096  # bytes of the first line that say whether this is a recording
_SHOWN: Final = 2000  # characters of a refusal
_SHOWN_RECORDS: Final = 100


def observed_file(data: bytes, name: str = AUTO, check: Check = accept_all) -> Iterator[bytes]:
    """The lines of a capture, or of the answers in a recording, as `Observation`, and b"" wherever some time
    has passed without one: no step is long, whatever is in the file. `check` refuses payloads
    before they are decoded. Raises Unreadable, which may be after some lines."""
    file = BytesIO(data)
    if not is_recording(file.readline(_FIRST)):
        file.seek(0)
        yield from observed(with_pauses(file), name, check=check)
        return
    file.seek(0)
    index = Index()
    for read in with_pauses(file):
        if read:
            index.feed(read)
        else:
            yield b""
    exchanges = index.exchanges
    # what a client was sent is made of what upstreams sent
    shown = [each for each in exchanges if each.asked.leg == "upstream"] or exchanges
    if not shown:
        raise Unreadable(1, "the recording has no exchanges")
    for each in shown:
        yield from _exchange(data, each, name, shown[0].asked.at, check)


def _exchange(data: bytes, each: Exchange, name: str, begin: float, check: Check) -> Iterator[bytes]:
    clock = Clock(None)
    clock.reach(each.asked.at)
    lines = body_lines(_records(data, each), clock)

    def at() -> float:
        return max(round(clock.at - begin, 6), 0.0)

    if not 200 <= each.status < 300:
        said = b"".join(islice(lines, _SHOWN_RECORDS)).decode("utf-8", "replace")[:_SHOWN]
        what = f"refused with status {each.status}" if each.status else "no answer"
        found = [Finding("warning", f"exchange {each.asked.exchange}", what)]
        yield line(Observation(at(), "refused", said, each.line, findings=found))
        yield line(Observation(at(), ended=True))
        return
    spoken = each.asked.dialect if name == AUTO else name
    if spoken not in DIALECTS:
        raise Unreadable(each.line, f"dialect {spoken[:100]!r} is not one of: {', '.join(DIALECTS)}")
    try:
        yield from observed(with_pauses(lines), spoken, at, check)
    except Unreadable as error:
        what = f"the answer of exchange {each.asked.exchange} can't be read: {error}"
        raise Unreadable(each.line, what) from error


def _records(data: bytes, exchange: Exchange) -> Iterator[Record]:
    for begin, end in zip(exchange.places[::2], exchange.places[1::2], strict=True):
        for each in BytesIO(data[begin:end]):
            record = decode_record(each) if each.strip() else None
            if record is not None:
                yield record

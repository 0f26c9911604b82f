"""Streams, captures and recordings as the inspector shows them: a line of JSON for each event, with its
violations, its repairs and losses, and the parts that VS Code gets from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from io import BytesIO
from itertools import islice
from typing import Any, Final

from msgspec import Raw, Struct

from openresponses_bridge.conformance import (
    RULES,
    StreamValidator,
    Violation,
    WireName,
    validate_envelope,
    validate_response,
)
from openresponses_bridge.decoder import PartDecoder, encode_parts
from openresponses_bridge.diagnostics import Diagnostic, Diagnostics
from openresponses_bridge.dialects.base import type_of
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_event, decode_json, encode
from openresponses_bridge.sse import Frame, is_done
from openresponses_server.observation.recordings.captures import Check, Payload, UnreadableCapture, accept_all
from openresponses_server.observation.recordings.dialects import ENDS, CaptureStep, StepKind
from openresponses_server.observation.recordings.playing import (
    AUTO,
    CapturedAnswer,
    CaptureFile,
    CaptureReader,
)
from openresponses_server.observation.recordings.reader import Clock

# Repairs and losses belong to the events at which they were recorded.


class Reported:
    """Finds the new cases in a report. This costs almost nothing if there are none."""

    def __init__(self, report: Diagnostics) -> None:
        self._report = report
        self._seen = 0

    def new(self) -> list[Diagnostic]:
        """The cases that were recorded for the first time since the last call."""
        if len(self._report) == self._seen:
            return []
        cases = list(islice(self._report, self._seen, None))
        self._seen += len(cases)
        return cases


_MOST_FINDINGS: Final = 50
"""The most findings in one line, which has the number of those that are left out."""
_LONGEST_CASE: Final = 500  # characters


class Finding(Struct, frozen=True):
    """A finding at an event: `kind` is `violation`, `repair`, `loss`, `ignored` or `warning`; `rule` is the
    id of a violated rule and `asks` its text; `where` is a path or the name of a field."""

    kind: str
    where: str
    what: str
    rule: str = ""
    asks: str = ""


class Observation(Struct, frozen=True, omit_defaults=True):
    """One event. `at` is in seconds since the request was received, or else since the stream began; `data` is
    its JSON as it was sent, or a string with what was sent instead; `source` has the payloads of another
    dialect from which it was translated. `line` is its line in a capture. Without `event`, this is the end of
    the stream."""

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
    """Observes the stream of one response. Each method returns one line, with its line feed."""

    def __init__(self, wire: WireName = "auto", *reports: Diagnostics) -> None:
        self._validator = StreamValidator(wire)
        self._decoder = PartDecoder(no_response=True)
        self._reports = [Reported(report) for report in (*reports, self._decoder.result.diagnostics)]

    def frame(self, frame: Frame, at: float, **more: Any) -> bytes:
        """Return the line of one frame as it was sent."""
        violations = self._validator.feed_frame(frame)
        if is_done(frame):
            return (
                line(Observation(at, "[DONE]", findings=findings_of(violations, ()), **more))
                if violations
                else b""
            )
        return self._observed(frame.data, violations, at, more)

    def payload(self, data: bytes, at: float, error: Mapping[str, Any] | None = None, **more: Any) -> bytes:
        """Return the line of an event that came without a frame; with `error`, of an error on a WebSocket,
        which is not an event of the stream."""
        violations = self._validator.feed(data) if error is None else validate_envelope(error)
        return self._observed(data, violations, at, more)

    def close(self, at: float, *, aborted: bool = False, **more: Any) -> bytes:
        """Return the line of the stream's end, with what is missing; nothing is missing if an error `aborted`
        it."""
        parts = _parts(self._decoder.close())
        missing = [] if aborted else self._validator.close()
        findings = findings_of(missing, self._new_diagnostics())
        return line(Observation(at, findings=findings, parts=parts, ended=True, **more))

    def _observed(self, data: bytes, violations: list[Violation], at: float, more: dict[str, Any]) -> bytes:
        parts: list[Raw] = []
        shown: Raw | str
        try:
            event = decode_event(data)
            name, shown, parts = event.type, _in_one_line(data), _parts(self._decoder.feed(event))
        except WireError:
            name, shown = _name_of(data), json_or_text(data)
        findings = findings_of(violations, self._new_diagnostics())
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

    def _new_diagnostics(self) -> Iterator[Diagnostic]:
        for report in self._reports:
            yield from report.new()


def line(observation: Observation) -> bytes:
    """Encode an observation as a line of JSON."""
    return encode(observation) + b"\n"


def json_or_text(data: bytes) -> Raw | str:
    """Return the data as JSON on one line if they are JSON, else as text."""
    try:
        decode_json(data)
        return _in_one_line(data)
    except WireError:
        return data.decode("utf-8", "replace")


def clean(text: str) -> str:
    """Return the text with lone surrogates replaced, which JSON can only contain as escapes."""
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
    """Return the findings for violations and cases."""
    findings = [
        Finding("violation", clean(each.path), clean(each.message), each.rule, RULES[each.rule].description)
        for each in violations
    ]
    return findings + [
        Finding(case.kind, clean(case.where[:_LONGEST_CASE]), clean(case.what[:_LONGEST_CASE]))
        for case in cases
    ]


def _parts(parts: Iterable[Any]) -> list[Raw]:
    return [Raw(encode_parts((part,)).strip()) for part in parts]


# A capture of any dialect, or a recording, as the inspector shows it: Responses as they were sent; other
# dialects as the events into which they are translated, with the payloads of each event.

_WIRE: Final = "openresponses"
_REFUSAL: Final = 2000  # characters
Now = Callable[[], float]
"""Returns when the last line was received, in seconds since the first."""


def observed(
    lines: Iterable[bytes], name: str = AUTO, now: Now = lambda: 0.0, check: Check = accept_all
) -> Iterator[bytes]:
    """Yield the lines of a capture in this dialect, as `Observation`; with `auto`, in that of its first
    payload. Pauses among `lines` (`with_pauses`) are yielded as b"". Raises UnreadableCapture, perhaps after
    some lines, also for a payload that `check` refuses."""
    yield from _observed_answer(CapturedAnswer(iter(lines)), name, now, check)


def observed_file(data: bytes, name: str = AUTO, check: Check = accept_all) -> Iterator[bytes]:
    """Yield the lines of a capture, or of the answers in a recording, as `Observation`; and b"" at times, so
    that no step takes long, whatever is in the file. `check` refuses payloads before they are decoded. Raises
    UnreadableCapture, perhaps after some lines."""
    clock = Clock(None)
    begin: float | None = None
    for answer in CaptureFile(BytesIO(data)).answers(clock):
        if answer is None:
            yield b""
            continue
        begin = clock.at if begin is None else begin
        yield from _observed_answer(answer, name, partial(_since, clock, begin), check)
    if begin is None:
        raise UnreadableCapture(1, "the recording has no exchanges")


def _since(clock: Clock, begin: float) -> float:
    return max(round(clock.at - begin, 6), 0.0)


def _observed_answer(answer: CapturedAnswer, name: str, now: Now, check: Check) -> Iterator[bytes]:
    if answer.exchange is not None and answer.refusal:
        body = answer.beginning(_REFUSAL)
        findings = [Finding("warning", f"exchange {answer.exchange.asked.exchange}", answer.refusal)]
        yield line(Observation(now(), "refused", body, answer.exchange.line, findings=findings))
        yield line(Observation(now(), ended=True))
        return
    reader = CaptureReader(answer.dialect(name), _WIRE, as_sent=True)
    lines = _ObservedSteps(reader, now)
    for step in answer.steps(reader, check):
        yield from lines.feed(step)


class _ObservedSteps:
    """Turns the steps of a capture into lines."""

    def __init__(self, reader: CaptureReader, now: Now) -> None:
        self._reader = reader
        self._now = now
        self._observer: Observer | None = None
        self._sources: list[Raw | str] = []
        """The payloads since the last translated event."""
        self._number = 0
        """The line number of the last payload."""

    def feed(self, step: CaptureStep) -> Iterator[bytes]:
        if step.payload is not None:
            self._number = step.payload.line
            yield from self._payload(step.kind, step.payload)
        for event in step.events:
            observer = self._observer = self._observer or Observer(_WIRE, self._reader.cases)
            yield observer.payload(encode(event), self._now(), line=self._number, source=self._source())
        if step.kind is StepKind.PAUSE:
            yield b""
        elif step.kind in ENDS:
            ended, self._observer = self._observer, None
            source = self._source()
            if ended is not None:
                yield ended.close(self._now(), aborted=step.kind is StepKind.ABORTED, source=source)

    def _payload(self, kind: StepKind, payload: Payload) -> Iterator[bytes]:
        match kind:
            case StepKind.TRANSLATED:
                self._sources.append(json_or_text(payload.data))
            case StepKind.RESPONSE:
                yield self._line("response", payload, validate_response(payload.value or {}, "auto"))
            case StepKind.REQUEST:
                yield self._line(type_of(payload.value or {}), payload)
            case _:
                if shown := self._sent(kind, payload):
                    yield shown

    def _sent(self, kind: StepKind, payload: Payload) -> bytes:
        observer = self._observer = self._observer or Observer()
        if payload.event is not None:
            return observer.frame(Frame(payload.event, payload.data), self._now(), line=payload.line)
        if payload.value is None:
            return b""
        error = payload.value if kind is StepKind.ERROR else None
        return observer.payload(payload.data, self._now(), error, line=payload.line)

    def _line(self, name: str, payload: Payload, violations: Iterable[Violation] = ()) -> bytes:
        findings = findings_of(violations)
        return line(
            Observation(self._now(), name, json_or_text(payload.data), payload.line, findings=findings)
        )

    def _source(self) -> list[Raw | str]:
        source, self._sources = self._sources, []
        return source

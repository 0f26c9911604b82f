"""A stream as the inspector shows it: a line of JSON for each event, with what is wrong with it, what was
repaired or lost at it, and the parts that VS Code gets of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from msgspec import Raw, Struct

from openresponses_bridge.conformance import RULES, StreamValidator, Violation, WireName
from openresponses_bridge.decoder import PartDecoder, encode_parts
from openresponses_bridge.diagnostics import Diagnostic, Diagnostics
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_event, decode_json, encode
from openresponses_bridge.sse import Frame, is_done
from openresponses_server.observation.recordings.reported import Reported

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

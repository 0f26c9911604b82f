"""Checks the steps of a Responses capture against the protocol."""

from __future__ import annotations

from typing import Any

from openresponses_bridge.conformance import (
    StreamValidator,
    Violation,
    WireName,
    validate_envelope,
    validate_response,
)
from openresponses_bridge.dialects import responses
from openresponses_bridge.dialects.base import type_of
from openresponses_bridge.sse import Frame
from openresponses_server.observation.recordings.captures import Payload, UnreadableCapture
from openresponses_server.observation.recordings.dialects import (
    DIALECTS,
    ENDS,
    CaptureStep,
    StepKind,
    dialect_of,
)


class CaptureJudge:
    """Judges the steps of what one client was sent. Each response is judged by itself, with its events
    counted from 0. On a WebSocket an error may end the turn (specification, "WebSocket"); the client's own
    messages are skipped."""

    def __init__(self, wire: WireName = "auto") -> None:
        self._wire: WireName = wire
        self._validator: StreamValidator | None = None
        self._begun = False

    def feed(self, step: CaptureStep) -> list[Violation]:
        """Return the violations at the next step. Raises UnreadableCapture for a capture of something
        else."""
        payload = step.payload
        if payload is None:
            return self._end(step.kind)
        value = payload.value
        if value is not None and not self._begun:
            self._begun = True
            if step.kind is not StepKind.RESPONSE:
                _refuse_others(payload, value)
        if value is not None and step.kind is StepKind.RESPONSE:
            return validate_response(value, self._wire)
        if value is not None and step.kind is StepKind.ERROR:
            return validate_envelope(value)
        return self._event(payload) if step.kind is StepKind.EVENT else []

    def _end(self, kind: StepKind) -> list[Violation]:
        if kind not in ENDS:
            return []
        validator, self._validator = self._validator, None
        return validator.close() if validator is not None and kind is StepKind.END else []

    def _event(self, payload: Payload) -> list[Violation]:
        if payload.event is None and payload.value is None:
            return []
        self._validator = self._validator or StreamValidator(self._wire)
        if payload.event is None:
            return self._validator.feed(payload.data)
        return self._validator.feed_frame(Frame(payload.event, payload.data))


def _refuse_others(first: Payload, value: dict[str, Any]) -> None:
    if "type" not in value and "choices" not in value and isinstance(value.get("error"), dict):
        what = str(value["error"].get("message"))[:200]
        raise UnreadableCapture(first.line, f"this is the body of an HTTP error, not a response: {what}")
    name = dialect_of(first)
    # what calls itself an event of a response is judged as one, even if little else is right
    if name is None or name == responses.DIALECT.name or type_of(value).startswith("response."):
        return
    other = DIALECTS[name]
    whole = other.upstream is not None and other.upstream.whole(value)
    what = "answer" if whole else "stream"
    raise UnreadableCapture(first.line, f"this is a {other.title} {what}: use replay")

"""Holding a capture to the protocol: streams one after the other, WebSocket errors, whole responses."""

from __future__ import annotations

from typing import Any, Final

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
from openresponses_server.observation.recordings.captures import (
    Payload,
    Unreadable,
    begins_response,
    ends_response,
)
from openresponses_server.observation.recordings.dialects import DIALECTS, dialect_of

_REQUEST: Final = "response.create"


class CaptureJudge:
    """Judges what one client was sent. Each response starts afresh, its events counted from 0. On a WebSocket
    an error may end the turn (specification, "WebSocket"); what the client itself sent is passed over."""

    def __init__(self, wire: WireName = "auto") -> None:
        self._wire: WireName = wire
        self._validator: StreamValidator | None = None
        self._ended = False
        self._excused = False  # the last message was an error: a turn that stops there is over
        self._seen = False

    def feed(self, payload: Payload) -> list[Violation]:
        """What is wrong with the next payload. Raises Unreadable for a capture of something else."""
        value = payload.value
        if value is None:
            return self._frame(payload)
        whole = value.get("object") == "response" and "type" not in value
        if not self._seen and not whole:
            _refuse_others(payload, value)
        self._seen = True
        if whole:
            return self.close() + validate_response(value, self._wire)
        if payload.event is None and value.get("type") == _REQUEST:
            return []
        if payload.event is None and _is_envelope(value):
            self._excused = True
            return validate_envelope(value)
        over = self._ended or self._excused
        found = self.close() if over and begins_response(payload) else []
        self._excused = False
        self._ended = self._ended or ends_response(payload)
        return found + self._frame(payload)

    def close(self) -> list[Violation]:
        """The capture, or a response in it, has ended."""
        validator, excused = self._validator, self._excused and not self._ended
        self._validator, self._ended, self._excused = None, False, False
        return [] if validator is None or excused else validator.close()

    def _frame(self, payload: Payload) -> list[Violation]:
        if payload.event is None and payload.value is None:
            return []
        self._validator = self._validator or StreamValidator(self._wire)
        if payload.event is None:
            return self._validator.feed(payload.data)
        return self._validator.feed_frame(Frame(payload.event, payload.data))


def _is_envelope(value: dict[str, Any]) -> bool:
    """An error of a stream has a sequence number, one of a WebSocket an HTTP status."""
    return value.get("type") == "error" and "status" in value and "sequence_number" not in value


def _refuse_others(first: Payload, value: dict[str, Any]) -> None:
    if "type" not in value and "choices" not in value and isinstance(value.get("error"), dict):
        what = str(value["error"].get("message"))[:200]
        raise Unreadable(first.line, f"this is the body of an HTTP error, not a response: {what}")
    name = dialect_of(first)
    # what calls itself an event of a response is judged as one, however little it is
    if name is None or name == responses.DIALECT.name or type_of(value).startswith("response."):
        return
    other = DIALECTS[name]
    whole = other.upstream is not None and other.upstream.whole(value)
    what = "answer" if whole else "stream"
    raise Unreadable(first.line, f"this is a {other.title} {what}: use replay")

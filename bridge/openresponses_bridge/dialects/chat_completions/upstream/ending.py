"""Why an upstream's answer ended, as far as is known."""

from __future__ import annotations

from typing import Any

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import (
    EMPTY,
    NO_MESSAGE,
    UPSTREAM_ERROR,
    cut_after,
    error_text,
    failure,
    name,
)
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.protocol.errors import ErrorPayload

_NO_REASON = frozenset({"null", "none"})
# finish reasons that stand for a failure → its message
FAILING_REASONS: dict[str, str] = {
    "error": "the upstream ended with an error",
    "network_error": "the upstream lost the connection to its model",
    "insufficient_system_resource": "the upstream ran out of resources",
    "abort": "the upstream aborted the generation",
    "aborted": "the upstream aborted the generation",
    "timeout": "the upstream's model ran out of time",
    "malformed_function_call": "the upstream's model made a function call that could not be read",
    "unexpected_tool_call": "the upstream's model called a tool it was not given",
}


class FinishState:
    """`reason` is the first finish reason that was one, `failure` what went wrong; both None at first."""

    __slots__ = ("_diagnostics", "failure", "reason")

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self.reason: str | None = None
        self.failure: ErrorPayload | None = None

    def take(self, reason: str) -> None:
        """A finish reason, wherever it stood."""
        known = reason.strip().lower()
        if known in _NO_REASON:
            return
        if known in FAILING_REASONS:
            self.failure = self.failure or failure(known, FAILING_REASONS[known])
        elif self.reason is None:
            self.reason = reason
        elif known != self.reason.strip().lower():
            self._diagnostics.ignored("finish_reason", "another one after the first")

    def conclude(self, said_done: bool, frames: int, machine: ResponseStream) -> None:
        """The stream is over, as the upstream said if `said_done`. Without any reason it was cut or was
        empty, or it passes as a stop (field case 26)."""
        if self.failure is not None or self.reason is not None:
            return
        if not said_done:
            self.failure = cut_after(frames)
        elif not machine.snapshot.output:
            self.failure = failure(EMPTY, "the upstream ended without output or finish reason")
        else:
            self._diagnostics.repair("finish_reason", "missing, taken as stop")
            self.reason = "stop"


def reported(error: Any) -> ErrorPayload:
    """An error that the upstream reported: text, or an object with any of type, code, message, param."""
    if isinstance(error, dict):
        inner = error.get("error")
        if isinstance(inner, dict | str):
            return reported(inner)
        kind = name(error.get("type"))
        code = name(error.get("code")) or name(error.get("status")) or kind or UPSTREAM_ERROR
        message = error_text(error.get("message")) or error_text(error.get("detail")) or NO_MESSAGE
        return ErrorPayload(kind or "server_error", code, message, name(error.get("param")))
    return failure(UPSTREAM_ERROR, error_text(error) or NO_MESSAGE)


def is_error_object(frame: dict[str, Any]) -> bool:
    """A frame that is an error itself instead of holding one (older vLLM, FastAPI, gateways)."""
    return frame.get("object") == "error" or "detail" in frame or ("message" in frame and "code" in frame)

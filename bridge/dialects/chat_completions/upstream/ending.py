"""Why an upstream's answer ended, as far as it has been told."""

from __future__ import annotations

from bridge.diagnostics import Diagnostics
from bridge.dialects.base import CUT, EMPTY, failure
from bridge.dialects.chat_completions.upstream.failures import FAILING_REASONS
from bridge.emitter.stream import ResponseStream
from bridge.protocol.errors import ErrorPayload

_NO_REASON = frozenset({"null", "none"})


class Ending:
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
            after = f"after {frames} frames" if frames else "before its first frame"
            self.failure = failure(CUT, f"the upstream's stream was cut {after}")
        elif not machine.snapshot.output:
            self.failure = failure(EMPTY, "the upstream ended without output or finish reason")
        else:
            self._diagnostics.repair("finish_reason", "missing, taken as stop")
            self.reason = "stop"

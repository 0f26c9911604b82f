"""Why an incoming message ended, as far as is known."""

from __future__ import annotations

from typing import Any

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import NO_MESSAGE, UPSTREAM_ERROR, error_text, name
from openresponses_bridge.emitter.finish_reasons import outcome
from openresponses_bridge.protocol.errors import ErrorPayload

END_TURN = "end_turn"
_REPLACED = {
    "pause_turn": "reported as completed; the turn can be continued",
    "model_context_window_exceeded": "reported as max_output_tokens",
}
_READ = frozenset({"type", "explanation"})


class StopState:
    """`reason` is None until one was given, `sequence` is empty until one was met; `explanation` is the API's
    own when it refused."""

    __slots__ = ("_diagnostics", "explanation", "reason", "sequence")

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self.reason: str | None = None
        self.sequence = ""
        self.explanation = ""

    @property
    def whole(self) -> bool:
        """Whether the model ended by itself, so that what was not closed is whole."""
        return outcome(self.reason)[0] is None

    def take(self, reason: Any, sequence: Any, details: Any) -> None:
        """`stop_reason`, `stop_sequence` and `stop_details`, wherever they stood; null says nothing."""
        if isinstance(reason, str):
            self.reason = reason
            if reason in _REPLACED:
                self._diagnostics.loss(f"stop_reason.{reason}", _REPLACED[reason])
        if isinstance(sequence, str):
            self.sequence = sequence
        if isinstance(details, dict):
            explanation = details.get("explanation")
            self.explanation = explanation if isinstance(explanation, str) else ""
            for name in sorted(details.keys() - _READ):
                if details[name] is not None:
                    self._diagnostics.loss(f"stop_details.{name}", "no place for it")

    def forget(self) -> None:
        """Another message follows in the same stream."""
        self.reason, self.sequence, self.explanation = None, "", ""


def reported(error: dict[str, Any] | None) -> ErrorPayload:
    """An error that the upstream reported: its type is the code too, for Anthropic has no other."""
    given = error or {}
    kind = name(given.get("type"))
    code = name(given.get("code")) or kind or UPSTREAM_ERROR
    message = error_text(given.get("message")) or NO_MESSAGE
    return ErrorPayload(kind or "server_error", code, message, name(given.get("param")))

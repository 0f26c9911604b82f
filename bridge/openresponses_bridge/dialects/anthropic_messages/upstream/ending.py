"""The end of an incoming message: its usage, its stop reason, its error."""

from __future__ import annotations

from typing import Any

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import NO_MESSAGE, UPSTREAM_ERROR, error_text
from openresponses_bridge.dialects.base import name as name_of
from openresponses_bridge.emitter.failures import outcome
from openresponses_bridge.protocol.response import ErrorPayload
from openresponses_bridge.protocol.usage import Usage

_WRITTEN = "cache_creation_input_tokens"
_CACHE_READ = "cache_read_input_tokens"
_INPUT = ("input_tokens", _WRITTEN, _CACHE_READ)
_SHOWN = frozenset({"web_search_requests"})  # each is an item


class UsageCounter:
    """The usage of one message, corrected and, after a splice, added up. Anthropic counts cached input beside
    `input_tokens`, the protocol within it."""

    __slots__ = ("_base", "_begun", "_diagnostics", "_now")

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self._base: dict[str, int] = {}
        self._now: dict[str, int] = {}
        self._begun = 0

    def begin(self, usage: dict[str, Any]) -> Usage:
        """The usage at the beginning of a message. The input is counted; the output is not yet
        (`output_tokens` is one or a few), and its count is used only if no other follows."""
        self._begun = _count(usage.get("output_tokens")) or 0
        return self.update(usage | {"output_tokens": None})

    def end(self) -> Usage | None:
        """The usage at the end of the message; None when nothing was counted."""
        if self._begun:
            self._now.setdefault("output_tokens", self._begun)
        return self._total() if self._now or self._base else None

    def update(self, usage: dict[str, Any]) -> Usage:
        """Counts are cumulative: a count that is given replaces the earlier one. Zeros do not replace a
        count: there is always input."""
        for names in (_INPUT, ("output_tokens",)):
            if any(map(self._now.get, names)) and not any(map(usage.get, names)):
                continue
            for name in names:
                self._update_count(name, usage.get(name))
        details = usage.get("output_tokens_details")
        if isinstance(details, dict):
            self._update_count("thinking", details.get("thinking_tokens"))
        hosted = usage.get("server_tool_use")
        if isinstance(hosted, dict) and any(hosted[name] for name in hosted if name not in _SHOWN):
            self._diagnostics.loss("usage.server_tool_use", "can't be expressed")
        iterations = usage.get("iterations")
        if isinstance(iterations, list) and len(iterations) > 1:
            self._diagnostics.loss("usage.iterations", "only the last one's tokens are counted")
        return self._total()

    def _update_count(self, name: str, given: Any) -> None:
        count = _count(given)
        if count is not None:
            self._now[name] = count
        elif given is not None:
            self._diagnostics.repair(f"usage.{name}", "can't be a count, left out")

    def splice(self) -> None:
        """Another message follows in the same stream: the model generated both."""
        self.end()
        for name, count in self._now.items():
            self._base[name] = self._base.get(name, 0) + count
        self._now, self._begun = {}, 0

    def _total(self) -> Usage:
        def count(name: str) -> int:
            return self._base.get(name, 0) + self._now.get(name, 0)

        cached = count(_CACHE_READ)
        return Usage.of(
            count("input_tokens") + count(_WRITTEN) + cached,
            count("output_tokens"),
            cached_tokens=cached,
            reasoning_tokens=count("thinking"),
            cache_write_tokens=count(_WRITTEN),
        )


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


END_TURN = "end_turn"
_REPLACED = {
    "pause_turn": "reported as completed; the turn can be continued",
    "model_context_window_exceeded": "reported as max_output_tokens",
}
_READ = frozenset({"type", "explanation"})


class StopState:
    """The stop reason, None until one came; the stop `sequence`, "" until one was met; the API's
    `explanation` of a refusal."""

    __slots__ = ("_diagnostics", "explanation", "reason", "sequence")

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self.reason: str | None = None
        self.sequence = ""
        self.explanation = ""

    @property
    def whole(self) -> bool:
        """Whether the model ended by itself, so that items that are still open are whole."""
        return outcome(self.reason)[0] is None

    def update(self, reason: Any, sequence: Any, details: Any) -> None:
        """Update with `stop_reason`, `stop_sequence` and `stop_details` of any frame; null keeps a value."""
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
                    self._diagnostics.loss(f"stop_details.{name}", "can't be expressed")

    def reset(self) -> None:
        """Another message follows in the same stream."""
        self.reason, self.sequence, self.explanation = None, "", ""


def error_payload(error: dict[str, Any] | None) -> ErrorPayload:
    """An error that the upstream reported. Its type is also the code, since Anthropic has no codes."""
    given = error or {}
    kind = name_of(given.get("type"))
    code = name_of(given.get("code")) or kind or UPSTREAM_ERROR
    message = error_text(given.get("message")) or NO_MESSAGE
    return ErrorPayload(kind or "server_error", code, message, name_of(given.get("param")))

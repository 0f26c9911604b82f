"""The end of an incoming message: its usage, its stop reason, its error."""

from __future__ import annotations

from typing import Any, Final

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import TIER, object_in, other_fields
from openresponses_bridge.emitter.failures import outcome
from openresponses_bridge.protocol.usage import UNBOUNDED, Usage, count_of

_WRITTEN = "cache_creation_input_tokens"
_CACHE_READ = "cache_read_input_tokens"
_INPUT = ("input_tokens", _WRITTEN, _CACHE_READ)


class UsageCounter:
    """The usage of one message, corrected and, after a splice, added up. Anthropic counts cached input
    separately from `input_tokens`, the protocol within it."""

    __slots__ = ("_base", "_begun", "_diagnostics", "_now")

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self._base: dict[str, int] = {}
        self._now: dict[str, int] = {}
        self._begun = 0

    def begin(self, usage: dict[str, Any]) -> Usage:
        """Return the usage at the beginning of a message. The input is counted; the output is not yet
        (`output_tokens` is one or a few), and its count is used only if no other one follows."""
        self._begun = count_of(usage.get("output_tokens"), UNBOUNDED) or 0
        return self.update(usage | {"output_tokens": None})

    def end(self) -> Usage | None:
        """Return the usage at the end of the message; None if nothing was counted."""
        if self._begun:
            self._now.setdefault("output_tokens", self._begun)
        return self._total() if self._now or self._base else None

    def update(self, usage: dict[str, Any]) -> Usage:
        """Update with cumulative counts: a given count replaces the earlier one. A zero does not, since there
        is always input."""
        for names in (_INPUT, ("output_tokens",)):
            if any(map(self._now.get, names)) and not any(map(usage.get, names)):
                continue
            for name in names:
                self._update_count(name, usage.get(name))
        details = usage.get("output_tokens_details")
        if isinstance(details, dict):
            self._update_count("thinking", details.get("thinking_tokens"))
        return self._total()

    def _update_count(self, name: str, value: Any) -> None:
        count = count_of(value, UNBOUNDED)
        if count is not None:
            self._now[name] = count
        elif value is not None:
            self._diagnostics.repair(f"usage.{name}", "can't be a count, left out")

    def splice(self) -> None:
        """Continue with another message of the same stream: the model generated both."""
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


def counts_at_start(frame: dict[str, Any]) -> Usage | None:
    """Return the usage in the first frame, before it is read as a part of the stream; None if it has none."""
    usage = object_in(object_in(frame, "message") or frame, "usage")
    return UsageCounter(Diagnostics()).begin(usage) if usage else None


END_TURN = "end_turn"
_EXPRESSED: Final = frozenset({END_TURN, "max_tokens", "stop_sequence", "tool_use", "refusal"})
"""The stop reasons that the protocol expresses equally well."""
_READ: Final = frozenset(
    {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "stop_details", "usage"}
)
_AT_START: Final = ("diagnostics",)
"""The fields of a whole message that are only in the beginning of a stream."""
_IN_DELTA: Final = frozenset({"container", "safeguard_results"})
"""The fields of a whole message that a stream has in the `delta` of its end."""


def said_at_start(frame: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a stream's first frame that only clients of this API know
    (`ResponseStream.native`)."""
    message = object_in(frame, "message")
    return other_fields(message, _READ) | _usage(message)


def said_first(frame: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the first frame that only clients of this API know; for a whole message, those
    with which its stream would begin."""
    if isinstance(frame.get("message"), dict):
        return said_at_start(frame)
    return {name: frame[name] for name in _AT_START if frame.get(name) is not None} | _usage(frame)


def said_at_end(frame: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a `message_delta` that only clients of this API know."""
    delta = object_in(frame, "delta")
    inner = other_fields(delta, _READ) | _stopped(delta)
    return (
        other_fields(frame, {"type", "delta", "usage"}) | _usage(frame) | ({"delta": inner} if inner else {})
    )


def said_whole(message: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a whole message that only clients of this API know, where the end of a stream has
    them."""
    rest = other_fields(message, _READ)
    inner = {name: rest.pop(name) for name in _IN_DELTA & rest.keys()} | _stopped(message)
    return rest | _usage(message) | ({"delta": inner} if inner else {})


def _usage(frame: dict[str, Any]) -> dict[str, Any]:
    usage = other_fields(object_in(frame, "usage"), _COUNTS)
    hosted = object_in(usage, _HOSTED)
    if not any(each for name, each in hosted.items() if name != "web_search_requests"):  # those are items
        usage.pop(_HOSTED, None)
    tier = usage.pop(TIER, None)
    return ({"usage": usage} if usage else {}) | ({} if tier is None else {TIER: tier})


def _stopped(delta: dict[str, Any]) -> dict[str, Any]:
    reason, details = delta.get("stop_reason"), object_in(delta, "stop_details")
    is_more = other_fields(details, _DETAILS) or (details and not details.get("explanation"))
    stopped: dict[str, Any] = {"stop_details": details} if is_more else {}
    if isinstance(reason, str) and reason not in _EXPRESSED:
        stopped["stop_reason"] = reason
    return stopped


_DETAILS: Final = frozenset({"type", "explanation"})
_HOSTED: Final = "server_tool_use"
_COUNTS: Final = frozenset({*_INPUT, "output_tokens", "output_tokens_details"})


class StopState:
    """The stop reason, None until one came; the `sequence` at which the model stopped, "" without one; and
    the API's `explanation` of a refusal."""

    __slots__ = ("_diagnostics", "explanation", "reason", "sequence")

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self.reason: str | None = None
        self.sequence = ""
        self.explanation = ""

    @property
    def whole(self) -> bool:
        """True if the model ended by itself, so that items that are still open are whole."""
        return outcome(self.reason)[0] is None

    def update(self, reason: Any, sequence: Any, details: Any) -> None:
        """Update with the `stop_reason`, `stop_sequence` and `stop_details` of any frame; null changes
        nothing."""
        if isinstance(reason, str):
            self.reason = reason
        if isinstance(sequence, str):
            self.sequence = sequence
        if isinstance(details, dict):
            explanation = details.get("explanation")
            self.explanation = explanation if isinstance(explanation, str) else ""

    def reset(self) -> None:
        """Prepare for another message of the same stream."""
        self.reason, self.sequence, self.explanation = None, "", ""

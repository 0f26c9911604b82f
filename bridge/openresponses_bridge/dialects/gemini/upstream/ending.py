"""The end of an answer: its usage, its finish reason, its error."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import (
    EMPTY,
    cut_after,
    failure,
)
from openresponses_bridge.dialects.gemini.types import (
    BLOCK_REASONS,
    COUNTS,
    FAILURES,
    FILTERED,
    FINISH_REASONS,
    UsageMetadata,
    enum_name,
)
from openresponses_bridge.dialects.gemini.upstream.decoding import StrictUsage
from openresponses_bridge.emitter.failures import CONTENT_FILTER
from openresponses_bridge.protocol.response import ErrorPayload
from openresponses_bridge.protocol.usage import Usage

STOP: Final = "STOP"
_STOPPED: Final = "stop"
_WORDS: Final = {STOP: _STOPPED, "MAX_TOKENS": "max_tokens"}
_SAID: Final = (None, "SAFETY", *_WORDS, *FAILURES)
# ends with a reason of their own, which is the reason why the response is incomplete
_OTHER: Final = frozenset({"OTHER", "LANGUAGE", "NO_IMAGE", "IMAGE_OTHER", "FINISH_REASON_UNSPECIFIED"})


class FinishState:
    """The end of the answer: `reason` is the last finish reason in the machine's terms, None until there is
    one; `explanation` is the server's sentence about a refusal; `failure` is the error."""

    __slots__ = ("explanation", "failure", "incomplete", "reason")

    def __init__(self) -> None:
        self.reason: str | None = None
        self.explanation = ""
        self.failure: ErrorPayload | None = None
        self.incomplete = False

    @property
    def stopped(self) -> bool:
        """True if the model ended by itself, or continues, so that its calls are whole."""
        return self.failure is None and self.reason in (None, _STOPPED)

    def record(self, given: Any, message: str, diagnostics: Diagnostics) -> None:
        """Record a candidate's finish reason and the server's message about it."""
        reason = (enum_name(given, FINISH_REASONS) or "").strip().upper()
        if not reason:
            if given is not None:
                diagnostics.loss("finishReason", f"can't be read: {type(given).__name__}")
        elif reason in FAILURES:
            self.failure = failure(reason.lower(), message or FAILURES[reason])
        elif reason in FILTERED:
            self.reason, self.explanation, self.incomplete = CONTENT_FILTER, message, False
        elif self.reason in (None, _STOPPED):  # STOP may be sent with each chunk, before another reason
            self.reason, self.incomplete = _WORDS.get(reason) or reason.lower(), reason in _OTHER

    def native(self, candidate: dict[str, Any]) -> dict[str, Any]:
        """Return the reason and the message of a candidate that has both, if the response does not have them:
        it has one word for all withheld answers."""
        fields: dict[str, Any] = {}
        reason, message = candidate.get("finishReason"), candidate.get("finishMessage")
        if reason is not None and enum_name(reason, FINISH_REASONS) not in _SAID:
            fields["finishReason"] = reason
        if message and not (self.explanation or self.failure):
            fields["finishMessage"] = message
        return fields

    def block(self, feedback: dict[str, Any]) -> None:
        """Record that the request's own content was refused."""
        if enum_name(feedback.get("blockReason"), BLOCK_REASONS) is not None:
            message = feedback.get("blockReasonMessage")
            self.reason, self.incomplete = CONTENT_FILTER, False
            self.explanation = message if isinstance(message, str) else ""

    def conclude(self, chunks: int, has_output: bool) -> None:
        """Decide how an answer without a finish reason ended: it was cut off, or is empty."""
        if self.failure is None and self.reason is None:
            empty = failure(EMPTY, "the upstream ended without output or finish reason")
            self.failure = empty if chunks and not has_output else cut_after(chunks)


class UsageCounter:
    """The usage of one answer. Chunks have cumulative counts, but not each has all of them: counts with
    candidates replace earlier ones, others replace only the counts that they have."""

    __slots__ = ("_now", "_others")

    def __init__(self) -> None:
        self._now: UsageMetadata | None = None
        self._others: dict[str, Any] | None = None  # else the counts have them

    def update(self, usage: UsageMetadata, others: dict[str, Any] | None = None) -> None:
        """Update with the counts of a chunk and their further fields."""
        if self._now is None or usage.candidates_token_count is not None:
            self._now, self._others = usage, others
        else:
            self._others = {
                **self._said(),
                **(usage.others() if isinstance(usage, StrictUsage) else others or {}),
            }
            counts = {field: getattr(usage, field) for field in UsageMetadata.__struct_fields__}
            changes = {field: count for field, count in counts.items() if count is not None}
            self._now = replace(self._now, **changes)

    def _said(self) -> dict[str, Any]:
        if self._others is None and isinstance(self._now, StrictUsage):
            self._others = self._now.others()
        return self._others or {}

    def native(self) -> dict[str, Any]:
        """Return the fields that `total` leaves out, in the API's form."""
        now = self._now
        if now is None:
            return {}
        tools, total = now.tool_use_prompt_token_count, now.total_token_count
        counted = sum(
            count or 0
            for count in (now.prompt_token_count, tools, now.candidates_token_count, now.thoughts_token_count)
        )
        fields = {
            name: value for name, value in self._said().items() if name not in COUNTS and value is not None
        }
        fields |= {} if tools is None else {"toolUsePromptTokenCount": tools}
        return fields | ({} if total in (None, counted) else {"totalTokenCount": total})

    def total(self) -> Usage | None:
        """Return the last counts as usage; None if nothing was counted."""
        now = self._now
        if now is None or all(getattr(now, field) is None for field in UsageMetadata.__struct_fields__):
            return None
        thoughts = now.thoughts_token_count or 0
        return Usage.of(
            (now.prompt_token_count or 0) + (now.tool_use_prompt_token_count or 0),
            (now.candidates_token_count or 0) + thoughts,
            cached_tokens=now.cached_content_token_count or 0,
            reasoning_tokens=thoughts,
        )

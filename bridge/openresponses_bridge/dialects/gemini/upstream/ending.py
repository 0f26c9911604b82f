"""The end of an answer: its usage, its finish reason, its error."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import asdict, replace

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
from openresponses_bridge.dialects.gemini.types import (
    BLOCK_REASONS,
    FINISH_REASONS,
    UsageMetadata,
    enum_name,
    spelled,
)
from openresponses_bridge.emitter.failures import CONTENT_FILTER
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.protocol.response import ErrorPayload
from openresponses_bridge.protocol.usage import Usage

STOP: Final = "STOP"
_STOPPED: Final = "stop"
_WORDS: Final = {STOP: _STOPPED, "MAX_TOKENS": "max_tokens"}
_FILTERED: Final = frozenset(
    {
        "SAFETY",
        "RECITATION",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "MODEL_ARMOR",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
    }
)
_FAILED: Final = {
    "MALFORMED_FUNCTION_CALL": "the upstream's model made a function call that could not be read",
    "UNEXPECTED_TOOL_CALL": "the upstream's model called a tool it was not given",
    "TOO_MANY_TOOL_CALLS": "the upstream's model called too many tools one after the other",
    "MISSING_THOUGHT_SIGNATURE": "a call in the request had no thought signature",
    "MALFORMED_RESPONSE": "the upstream's model made an answer that could not be read",
}
# an end for a reason of its own: the response is incomplete for that very reason
_OTHER: Final = frozenset({"OTHER", "LANGUAGE", "NO_IMAGE", "IMAGE_OTHER", "FINISH_REASON_UNSPECIFIED"})


class FinishState:
    """How the answer ended: `reason` is the last finish reason in the machine's words, None until there was
    one; `explanation` what the server said about a refusal; `failure` its error."""

    __slots__ = ("explanation", "failure", "incomplete", "reason")

    def __init__(self) -> None:
        self.reason: str | None = None
        self.explanation = ""
        self.failure: ErrorPayload | None = None
        self.incomplete = False

    @property
    def stopped(self) -> bool:
        """Whether the model ended by itself, or goes on, so that its calls are whole."""
        return self.failure is None and self.reason in (None, _STOPPED)

    def record(self, given: Any, message: str, diagnostics: Diagnostics) -> None:
        """A candidate's finish reason and what the server says about it."""
        reason = (enum_name(given, FINISH_REASONS) or "").strip().upper()
        if not reason:
            if given is not None:
                diagnostics.loss("finishReason", f"can't be read: {type(given).__name__}")
        elif reason in _FAILED:
            self.failure = failure(reason.lower(), message or _FAILED[reason])
        elif reason in _FILTERED:
            self.reason, self.explanation, self.incomplete = CONTENT_FILTER, message, False
        elif self.reason in (None, _STOPPED):  # a server that stops with each chunk stops for no other reason
            self.reason, self.incomplete = _WORDS.get(reason) or reason.lower(), reason in _OTHER
            if message and reason != STOP:
                diagnostics.loss("finishMessage", "can't be expressed")

    def block(self, feedback: dict[str, Any]) -> None:
        """The request's own content was refused."""
        if enum_name(feedback.get("blockReason"), BLOCK_REASONS) is not None:
            message = feedback.get("blockReasonMessage")
            self.reason, self.incomplete = CONTENT_FILTER, False
            self.explanation = message if isinstance(message, str) else ""

    def conclude(self, chunks: int, machine: ResponseStream) -> None:
        """Decide how an answer without a finish reason ended: it was cut, or is empty."""
        if self.failure is None and self.reason is None:
            empty = failure(EMPTY, "the upstream ended without output or finish reason")
            self.failure = empty if chunks and not machine.snapshot.output else cut_after(chunks)


class UsageCounter:
    """The usage of one answer. Chunks count so far, and not every count is in each: counts with candidates
    replace those before them, others replace what they name."""

    __slots__ = ("_now",)

    def __init__(self) -> None:
        self._now: UsageMetadata | None = None

    def update(self, given: UsageMetadata) -> None:
        """The counts of a chunk."""
        if self._now is None or given.candidates_token_count is not None:
            self._now = given
        else:
            said = {field: count for field, count in asdict(given).items() if count is not None}
            self._now = replace(self._now, **said)

    def total(self) -> Usage | None:
        """What the last counts say; None when nothing was counted."""
        now = self._now
        if now is None or now == UsageMetadata():
            return None
        thoughts = now.thoughts_token_count or 0
        return Usage.of(
            (now.prompt_token_count or 0) + (now.tool_use_prompt_token_count or 0),
            (now.candidates_token_count or 0) + thoughts,
            cached_tokens=now.cached_content_token_count or 0,
            reasoning_tokens=thoughts,
        )


def error_payload(error: Any) -> ErrorPayload:
    """An error that the upstream reported: text, or an object with any of code, status and message. Its
    status is the code, as it says more than a number."""
    if not isinstance(error, dict):
        return failure(UPSTREAM_ERROR, error_text(error) or NO_MESSAGE)
    given = spelled(error)
    code = name(given.get("status")) or name(given.get("code")) or UPSTREAM_ERROR
    return failure(code, error_text(given.get("message")) or NO_MESSAGE)

"""The first and last frames of an outgoing message, and errors in Anthropic's format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec import UNSET

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.anthropic_messages import types as t
from openresponses_bridge.dialects.anthropic_messages.client.blocks import BlockWriter
from openresponses_bridge.dialects.anthropic_messages.types import DIALECT, TIERS
from openresponses_bridge.dialects.base import (
    CANCELLED,
    CODE_OF,
    CUT,
    ERROR_FIELDS,
    TIER,
    Cause,
    native_of,
    object_in,
    other_fields,
    refusal_for,
    report_native,
    searched,
    tier_for,
)
from openresponses_bridge.emitter.failures import outcome
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol.response import ErrorPayload, Response
from openresponses_bridge.protocol.usage import Usage

REFUSAL = "refusal"
_STOP_SEQUENCE: Final = "stop_sequence"
_STOPPED: Final = ("stop_reason", _STOP_SEQUENCE, "stop_details")
_HEAD: Final = ("id", "type", "role", "model", "content", *_STOPPED)
# incomplete reason → stop reason; None for an error, since Anthropic has no such reason
_STOP_REASONS: dict[str, str | None] = {
    "max_output_tokens": "max_tokens",
    "content_filter": REFUSAL,
    "cancelled": None,
}

# our codes and types → Anthropic's error types; Anthropic's own pass unchanged
_API_ERROR: Final = "api_error"
_TOO_MANY_BYTES: Final = "request_too_large"
_OWN_TYPES = frozenset(
    {
        "invalid_request_error",
        "authentication_error",
        "billing_error",
        "permission_error",
        "not_found_error",
        _TOO_MANY_BYTES,
        "rate_limit_error",
        "timeout_error",
        _API_ERROR,
        "overloaded_error",
        "conflict_error",
        "memory_path_conflict_error",
        "memory_precondition_failed_error",
    }
)
_TYPE_OF_CODE: dict[str, str] = {
    "rate_limit_exceeded": "rate_limit_error",
    "too_many_requests": "rate_limit_error",
    "insufficient_quota": "billing_error",
    "server_is_overloaded": "overloaded_error",
    "server_overloaded": "overloaded_error",
    "service_unavailable": "overloaded_error",
    "context_length_exceeded": "invalid_request_error",
    "invalid_prompt": "invalid_request_error",
    "invalid_request": "invalid_request_error",
    "not_found": "not_found_error",
    "model_not_found": "not_found_error",
    "invalid_api_key": "authentication_error",
}
_TOO_LONG: Final = ("prompt is too long", "exceed context limit")
# HTTP status → error type, for errors without a more precise code
_VAGUE: Final = frozenset({_API_ERROR, "invalid_request_error"})
_TYPE_OF_STATUS: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: _TOO_MANY_BYTES,
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


Reported = Callable[[], Usage | None]
"""Returns the usage that the upstream reported before its answer began."""


class MessageBounds:
    """Writes the first and the last frames of a message. `calls` is True if any call is whole."""

    def __init__(
        self, blocks: BlockWriter, diagnostics: Diagnostics, input_tokens: int, reported: Reported
    ) -> None:
        self._blocks = blocks
        self._reported = reported
        self._diagnostics = diagnostics
        self._input_tokens = input_tokens
        self._begun = False
        self._ended = False
        self._error: ErrorPayload | None = None
        self._at_start: dict[str, Any] = {}
        self.refusal: list[str] = []
        self.calls = False

    def begin(self, event: ev.ResponseCreated) -> list[t.Chunk]:
        """Return `message_start`, once."""
        return self._start(event.response)

    def error(self, event: ev.ErrorEvent) -> list[t.Chunk]:
        """Record the error: `response.failed` follows and ends the message."""
        self._error = event.payload
        return []

    def terminal(self, response: Response) -> list[t.Chunk]:
        """Return `message_delta` and `message_stop`, or `error`."""
        if self._ended:
            return []
        self._ended = True
        chunks = self._start(response)
        report_native(response, DIALECT, self._diagnostics)
        if response.status == "failed":
            error = response.error
            code, message = (error.code, error.message) if error else (None, "the response failed")
            native_error = native_of(error, DIALECT) if error else {}
            return [*chunks, *_paid(response), self._failed(code, message, native=native_error)]
        native = native_of(response, DIALECT)
        within = object_in(native, "delta")
        reason = self._stop_reason(response, within.get("stop_reason"))
        if reason is None:
            return [*chunks, *_paid(response), self._failed(CANCELLED.code, CANCELLED.message)]
        sequence = response.stop_sequence or None if reason == _STOP_SEQUENCE else None
        details: dict[str, Any] = {"stop_reason": reason, "stop_sequence": sequence}
        if self.refusal:
            chunks += self._refuse(response, details, object_in(within, "stop_details"))
        details = {**other_fields(within, _STOPPED), **details}
        if reason == REFUSAL and "stop_details" in within and not self.refusal:
            details["stop_details"] = within["stop_details"]
        usage = {**_searches(response), **_said_of_usage(native), **usage_body(response.usage)}
        if (tier := tier_for(response, DIALECT, self._diagnostics, TIERS)) is not None:
            usage[TIER] = tier
        rest = {
            name: value
            for name, value in other_fields(native, ("delta", "usage", TIER, *_HEAD)).items()
            if self._at_start.get(name) != value
        }
        delta = t.MessageDelta(delta=details, usage=usage, extra=rest or UNSET)
        return [*chunks, *self._blocks.stop(), *self._held(), delta, t.MessageStop()]

    def _held(self) -> list[t.Chunk]:
        """Return the chunks of the data that were sealed last; after a text, clients would take them for the
        answer."""
        if self._blocks.last != "text":
            return self._blocks.release()
        if self._blocks.held is not None:
            self._diagnostics.loss("item.reasoning", "sealed behind the text, left out")
        return []

    def close(self) -> list[t.Chunk]:
        """Return an error if no terminal event came."""
        if self._ended:
            return []
        self._ended = True
        error = self._error
        if error is not None:
            return [self._failed(error.code, error.message, error.type)]
        return [self._failed(CUT, "the response ended early")]

    def _start(self, response: Response) -> list[t.Chunk]:
        if self._begun:
            return []
        self._begun = True
        self._at_start = native_of(response, DIALECT)
        reported = self._reported()
        usage: dict[str, Any] = {"input_tokens": self._input_tokens, "output_tokens": 0}
        if reported is not None and reported.input_tokens:
            usage = usage_body(reported)
        head = message_head(response, _said_of_usage(self._at_start) | usage)
        return [t.MessageStart({**head, **other_fields(self._at_start, (*head, "delta", TIER))})]

    def _stop_reason(self, response: Response, own: Any) -> str | None:
        """Return the API's stop reason. `own` is the API's word for the end, if the protocol has none."""
        if isinstance(own, str) and _ending(response) == outcome(own)[0]:
            return own
        if response.status == "completed":
            ended = _STOP_SEQUENCE if response.stop_sequence else "end_turn"
            return "tool_use" if self.calls else REFUSAL if self.refusal else ended
        details = response.incomplete_details
        reason = details.reason if details is not None else response.status
        if reason not in _STOP_REASONS:
            self._diagnostics.loss("incomplete_details.reason", f"{reason[:64]} reported as max_tokens")
        return _STOP_REASONS.get(reason, "max_tokens")

    def _refuse(
        self, response: Response, details: dict[str, Any], stop_details: dict[str, Any]
    ) -> list[t.Chunk]:
        """Explain a refusal of the API, in addition to the stop reason; a refusal in the model's own words is
        sent as text."""
        text = "".join(self.refusal)
        if response.status == "incomplete" and details["stop_reason"] == REFUSAL:
            defaults = {"type": REFUSAL, "category": None, "explanation": text}
            details["stop_details"] = {**defaults, **stop_details, "explanation": text}
            return []
        self._diagnostics.loss("refusal", "sent as text")
        return self._blocks.whole({"type": "text", "text": ""}, t.TextDelta(text))

    def _failed(
        self,
        code: str | None,
        message: str,
        kind: str | None = None,
        native: Mapping[str, Any] = MappingProxyType({}),
    ) -> t.Chunk:
        kind = kind or (self._error.type if self._error is not None else None)
        return t.ErrorFrame(error_body(code, kind, message, native=native)["error"])


def _ending(response: Response) -> str | None:
    """Return why the response is incomplete; None for one that is completed."""
    details = response.incomplete_details
    return None if response.status == "completed" or details is None else details.reason


def _said_of_usage(native: Mapping[str, Any]) -> dict[str, Any]:
    """Return the further fields of the usage from an upstream of this API."""
    tier = native.get(TIER)
    return {**object_in(native, "usage"), **({} if tier is None else {TIER: tier})}


def _paid(response: Response) -> list[t.Chunk]:
    """Return the usage of a message that failed, which comes before its error."""
    if response.usage is None:
        return []
    ended = {"stop_reason": None, "stop_sequence": None}
    return [t.MessageDelta(delta=ended, usage=usage_body(response.usage) | _searches(response))]


def message_head(response: Response, usage: dict[str, Any]) -> dict[str, Any]:
    """Return a message without its content and end."""
    return {
        "id": response.id,
        "type": "message",
        "role": "assistant",
        "model": response.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }


def usage_body(usage: Usage | None) -> dict[str, Any]:
    """Return the counts under Anthropic's names; zeros if there are none."""
    if usage is None:
        return {"input_tokens": 0, "output_tokens": 0}
    cached, written = usage.input_tokens_details.cached_tokens, usage.cache_write_tokens
    body: dict[str, Any] = {
        "input_tokens": max(usage.input_tokens - cached - written, 0),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.output_tokens,
    }
    if usage.output_tokens_details.reasoning_tokens:
        body["output_tokens_details"] = {"thinking_tokens": usage.output_tokens_details.reasoning_tokens}
    if usage.estimated is True:
        body["estimated"] = True
    return body


def _searches(response: Response) -> dict[str, Any]:
    """Return the number of searches, which Anthropic counts separately from tokens; {} if there were none."""
    searches = [each for each in map(searched, response.output) if each is not None and each.kind == "search"]
    done = sum(not each.failed for each in searches)
    return {"server_tool_use": {"web_search_requests": done}} if searches else {}


def error_body(
    code: str | None,
    kind: str | None,
    message: str,
    status: int | None = None,
    native: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return an error in Anthropic's format, for a stream's `error` event or an HTTP body. The HTTP `status`
    decides the type if our code has no counterpart; `native` are the fields that the API itself sent."""
    candidates = (name if name in _OWN_TYPES else _TYPE_OF_CODE.get(name or "") for name in (code, kind))
    named = next(filter(None, candidates), _API_ERROR)
    if named in _VAGUE:
        named = _TYPE_OF_STATUS.get(status, named) if status else named
    if code == CODE_OF[Cause.TOO_LONG] and kind != _TOO_MANY_BYTES:
        message = _in_anthropics_words(message)
    return {
        "type": "error",
        "error": {"type": named, "message": message} | other_fields(native, ERROR_FIELDS),
    }


def _in_anthropics_words(message: str) -> str:
    """Put Anthropic's words for an input that is too long before those of another upstream: Anthropic's
    errors have no code, so clients that shorten a conversation rely on these words."""
    lowered = message.lower()
    if any(words in lowered for words in _TOO_LONG):
        return message
    refusal = refusal_for(Cause.TOO_LONG, None, (), message)
    if refusal is None or refusal.limit is None or refusal.given is None:
        return f"prompt is too long: {message}"
    return f"prompt is too long: {refusal.given} tokens > {refusal.limit} maximum: {message}"

"""Converts the reason for which an upstream stopped into the end of a response, and the error given to
`fail()` into its two forms on the wire."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.events import ErrorEvent
from openresponses_bridge.protocol.response import PROTOCOL, ErrorPayload, ResponseError
from openresponses_bridge.state import Wire
from openresponses_bridge.text import each_text, repair_surrogates

# Why an upstream stopped → how the response ends (law E7, field case 23).

MAX_OUTPUT_TOKENS = "max_output_tokens"
CONTENT_FILTER = "content_filter"
CANCELLED = "cancelled"
# our own reasons, for an upstream that ended by itself but left something unfinished, or gave no reason
INCOMPLETE_TOOL_CALL = "incomplete_tool_call"
INCOMPLETE_ITEM = "incomplete_item"
UNKNOWN = "unknown"
LONGEST_REASON: Final = 200  # characters of an upstream's own reason

# reason → the `incomplete_details.reason` it ends with, None for completed
_OUTCOMES: dict[str, str | None] = {
    **dict.fromkeys(
        (
            "stop",
            "end_turn",
            "stop_sequence",
            "tool_calls",
            "tool_call",
            "tool_use",
            "function_call",
            "completed",
            "complete",
            "eos",
            "eos_token",
            "finish",
            "done",
            "pause_turn",
            "normal",
        ),
        None,
    ),
    **dict.fromkeys(
        (
            "length",
            "max_tokens",
            MAX_OUTPUT_TOKENS,
            "max_completion_tokens",
            "max_length",
            "token_limit",
            "model_length",
            "model_context_window_exceeded",
        ),
        MAX_OUTPUT_TOKENS,
    ),
    **dict.fromkeys(
        (
            CONTENT_FILTER,
            "content_filtered",
            "content-filter",
            "safety",
            "refusal",
            "recitation",
            "blocklist",
            "prohibited_content",
            "spii",
            "image_safety",
            "sensitive",
            "guardrail_intervened",
        ),
        CONTENT_FILTER,
    ),
    **{reason: reason for reason in (CANCELLED, INCOMPLETE_TOOL_CALL, INCOMPLETE_ITEM)},
}


def outcome(reason: str | None) -> tuple[str | None, bool]:
    """Return (reason for an incomplete response, or None for a completed one; whether the reason is known).

    With an unknown reason the response is incomplete, for that reason.
    """
    if reason is None:
        return None, True
    key = reason if reason in _OUTCOMES else reason.strip().lower()
    if key in _OUTCOMES:
        return _OUTCOMES[key], True
    return upstream_reason(reason) or None, False


def upstream_reason(reason: str | None) -> str:
    """Return the upstream's own reason, at most `LONGEST_REASON` characters of it; empty without a reason."""
    return repair_surrogates((reason or "").strip()[:LONGEST_REASON])


DEFAULT_CODE = "server_error"
DEFAULT_TYPE = "server_error"
_TEXTS = ("type", "code", "message", "param")

Failure = ErrorPayload | ResponseError | BridgeError | Mapping[str, Any] | BaseException | str


def payload_of(error: Failure) -> ErrorPayload:
    """Return the error as the `error` event carries it. Of an unforeseen exception it has the class but not
    the message, which may contain secrets."""
    if isinstance(error, ErrorPayload):
        return error
    if isinstance(error, ResponseError):
        return ErrorPayload(DEFAULT_TYPE, error.code, error.message, None, native=error.native)
    if isinstance(error, BridgeError):
        return ErrorPayload(
            error.error_type, error.code, error.message, error.param, native=error.native or UNSET
        )
    if isinstance(error, Mapping):
        return ErrorPayload(
            _text(error.get("type")) or DEFAULT_TYPE,
            _text(error.get("code")),
            _text(error.get("message")) or "unknown error",
            _text(error.get("param")),
        )
    if isinstance(error, str):
        return ErrorPayload(DEFAULT_TYPE, DEFAULT_CODE, error, None)
    return ErrorPayload(DEFAULT_TYPE, DEFAULT_CODE, f"internal error ({type(error).__name__})", None)


Redact = Callable[[ErrorPayload], ErrorPayload]
"""Removes from an error what no client may see."""


def redacted(payload: ErrorPayload, redact: Callable[[str], str]) -> ErrorPayload:
    """Return the error with `redact` applied to each of its texts."""
    texts: dict[str, Any] = {name: redact(text) for name in _TEXTS if (text := getattr(payload, name))}
    if payload.native:
        texts["native"] = each_text(payload.native, redact)
    return replace(payload, **texts)


def error_event(number: int, payload: ErrorPayload, wire: Wire) -> ErrorEvent:
    """Return the `error` event with this sequence number, in the form of this wire (law E8)."""
    if wire.nested_error:
        return ErrorEvent(number, payload)
    return ErrorEvent(number, code=payload.code, message=payload.message, param=payload.param)


def response_error(payload: ErrorPayload, wire: Wire) -> ResponseError:
    """Return the error as a failed response carries it, with a code that is never null. If the wire has
    unknown fields, those that another server of the protocol sent in its error are fields of this error."""
    own = (payload.native or {}).get(PROTOCOL)
    if own is None or not wire.unknown_fields:
        return ResponseError(payload.code or payload.type or DEFAULT_CODE, payload.message, payload.native)
    return ResponseError(payload.code or payload.type or DEFAULT_CODE, payload.message, extra=own)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)

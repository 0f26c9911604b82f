"""The end of an outgoing message: its stop reason, its usage, and its further fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import native_of, object_in, other_fields, tier_for
from openresponses_bridge.dialects.bedrock_converse.types import (
    ADDITIONAL_RESPONSE,
    DIALECT,
    METADATA,
    STOP_REASON,
    TIERS,
    TOTAL,
    sum_of,
)
from openresponses_bridge.emitter.failures import outcome
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.protocol.usage import Usage

Json = dict[str, Any]
_FILTERED: Final = "content_filtered"
_STOPPED: Final = "stop_sequence"
# incomplete reason → stop reason; None for an error, since Converse has no such reason
_STOP_REASONS: Final[dict[str, str | None]] = {
    "max_output_tokens": "max_tokens",
    "content_filter": _FILTERED,
    "cancelled": None,
}


def stop_reason(response: Response, diagnostics: Diagnostics, *, calls: bool, refused: bool) -> str | None:
    """Return the stop reason of a response that did not fail: Bedrock's own if there is one; None for a
    cancelled response. `calls` is True if a call in it is whole, `refused` if it has a refusal."""
    own = native_of(response, DIALECT).get(STOP_REASON)
    details = response.incomplete_details
    ended = None if response.status == "completed" or details is None else details.reason
    if isinstance(own, str) and ended == outcome(own)[0]:
        return own
    if response.status == "completed":
        stopped = _STOPPED if response.stop_sequence else "end_turn"
        return "tool_use" if calls else _FILTERED if refused else stopped
    reason = details.reason if details is not None else response.status
    if reason not in _STOP_REASONS:
        diagnostics.loss("incomplete_details.reason", f"{reason[:64]} reported as max_tokens")
    return _STOP_REASONS.get(reason, "max_tokens")


def stop_fields(response: Response, reason: str) -> Json:
    """Return the fields of `messageStop`. The stop sequence at which the model ended is among the model's own
    fields."""
    fields: Json = {STOP_REASON: reason}
    own = native_of(response, DIALECT).get(ADDITIONAL_RESPONSE)
    if own is None and response.stop_sequence:
        own = {_STOPPED: response.stop_sequence}
    return fields if own is None else fields | {ADDITIONAL_RESPONSE: own}


def metadata(response: Response, diagnostics: Diagnostics) -> Json:
    """Return the fields of `metadata`: usage and time, and Bedrock's further fields."""
    native = native_of(response, DIALECT)
    rest = other_fields({name: native.get(name) for name in METADATA}, ("usage", "metrics", "serviceTier"))
    fields = rest | {
        "usage": usage_of(response.usage, object_in(native, "usage"), diagnostics),
        "metrics": {"latencyMs": latency(response), **object_in(native, "metrics")},
    }
    tier = tier_for(response, DIALECT, diagnostics, TIERS)
    return fields if tier is None else fields | {"serviceTier": {"type": tier}}


def latency(response: Response) -> int:
    """Return how many milliseconds a response took, in whole seconds."""
    return ((response.completed_at or response.created_at) - response.created_at) * 1000


def usage_of(usage: Usage | None, native: Mapping[str, Any], diagnostics: Diagnostics) -> Json:
    """Return the counts under Converse's names, zeros if there are none; it counts cached input separately
    from `inputTokens`. `native` has Bedrock's further fields; if a response has several answers, of the last
    one."""
    if usage is None:
        return {"inputTokens": 0, "outputTokens": 0, TOTAL: 0}
    cached, written = usage.input_tokens_details.cached_tokens, usage.cache_write_tokens
    if usage.output_tokens_details.reasoning_tokens:
        diagnostics.loss("usage.reasoning_tokens", "can't be expressed")
    counts = {
        "inputTokens": max(usage.input_tokens - cached - written, 0),
        "outputTokens": usage.output_tokens,
        "cacheReadInputTokens": cached,
        "cacheWriteInputTokens": written,
    }
    return {**counts, TOTAL: sum_of(counts), **({} if usage.rounds else native)}

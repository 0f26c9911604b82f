"""The end of an answer: its usage, its stop reason, and its fields that only clients of this API know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import TIER, failure, object_in, other_fields
from openresponses_bridge.dialects.bedrock_converse.types import (
    ADDITIONAL_RESPONSE,
    COUNTS,
    METADATA,
    STOP_REASON,
    TOTAL,
    sum_of,
)
from openresponses_bridge.emitter.failures import outcome
from openresponses_bridge.protocol.response import ErrorPayload
from openresponses_bridge.protocol.usage import Usage

_FAILED: Final = {
    "malformed_model_output": "the upstream's model made an answer that could not be read",
    "malformed_tool_use": "the upstream's model made a tool call that could not be read",
}
_EXPRESSED: Final = frozenset({"end_turn", "max_tokens", "tool_use", "content_filtered", *_FAILED})
"""The stop reasons that the protocol expresses equally well."""


def usage_of(usage: Mapping[str, Any], diagnostics: Diagnostics) -> Usage | None:
    """Return the usage; None if nothing was counted. Converse counts cached input separately from
    `inputTokens`, the protocol within it."""
    counts: dict[str, int] = {}
    for name in COUNTS:
        count = usage.get(name)
        if type(count) is int and count >= 0:
            counts[name] = count
        elif count is not None:
            diagnostics.repair(f"usage.{name}", "can't be a count, left out")
    if not counts:
        return None
    read, written = counts.get("cacheReadInputTokens", 0), counts.get("cacheWriteInputTokens", 0)
    return Usage.of(
        counts.get("inputTokens", 0) + read + written,
        counts.get("outputTokens", 0),
        cached_tokens=read,
        cache_write_tokens=written,
    )


class Ending:
    """What is known of the end: `reason` is the stop reason, None until one came; `failure` is the error."""

    __slots__ = ("_native", "failure", "reason")

    def __init__(self) -> None:
        self.reason: str | None = None
        self.failure: ErrorPayload | None = None
        self._native: dict[str, Any] = {}

    @property
    def is_whole(self) -> bool:
        """True if the model ended by itself, so that its open items are whole."""
        return self.failure is None and outcome(self.reason)[0] is None

    def stop(self, payload: Mapping[str, Any]) -> None:
        """Keep the reason of a `messageStop` or a whole answer, and the model's own fields."""
        reason = payload.get(STOP_REASON)
        if isinstance(reason, str) and reason:
            self.reason = reason
            if reason in _FAILED:
                self.failure = failure(reason, _FAILED[reason])
            elif reason not in _EXPRESSED:
                self._native[STOP_REASON] = reason
        if payload.get(ADDITIONAL_RESPONSE) is not None:
            self._native[ADDITIONAL_RESPONSE] = payload[ADDITIONAL_RESPONSE]

    @property
    def sequence(self) -> str:
        """The stop sequence at which the model ended, if it is among the model's own fields."""
        stop_sequence = object_in(self._native, ADDITIONAL_RESPONSE).get("stop_sequence")
        return stop_sequence if isinstance(stop_sequence, str) else ""

    def about(self, metadata: Mapping[str, Any]) -> str | None:
        """Keep the fields of the metadata besides the counts. Returns the service tier."""
        rest = other_fields({name: metadata.get(name) for name in METADATA}, ("usage", "serviceTier"))
        raw_usage = object_in(metadata, "usage")
        usage = other_fields(raw_usage, COUNTS)
        if raw_usage.get(TOTAL) not in (None, sum_of(raw_usage)):
            usage[TOTAL] = raw_usage[TOTAL]
        self._native |= rest | ({"usage": usage} if usage else {})
        tier = object_in(metadata, "serviceTier").get("type")
        if not isinstance(tier, str):
            return None
        self._native[TIER] = tier
        return tier

    def native(self) -> dict[str, Any]:
        """Return the value of `ResponseStream.native`."""
        return self._native

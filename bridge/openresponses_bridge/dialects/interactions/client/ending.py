"""The end of an outgoing interaction: its status, its usage, its error, and times."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

from openresponses_bridge.calls.presentation import CALL_TYPES
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import CANCELLED, other_fields
from openresponses_bridge.dialects.interactions.types import ACTION, COUNTS, CUT, ENDED, RUNNING
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.protocol.usage import Usage

_OF_TOOLS: Final = "total_tool_use_tokens"
_LAST_YEAR: Final = datetime(9999, 1, 1, tzinfo=UTC).timestamp()


def status_of(response: Response, native: Mapping[str, Any], diagnostics: Diagnostics) -> str:
    """Return the status of a response: Google's own if there is one."""
    status, own = response.status, native.get("status")
    if status == "completed":
        waits = response.output and any(item.type in CALL_TYPES for item in response.output)
        return ACTION if waits else "completed"
    if status != "incomplete":
        return status if status in ("queued", "failed", "cancelled") else RUNNING
    reason = response.incomplete_details.reason if response.incomplete_details else ""
    if reason == CANCELLED.code:
        return "cancelled"
    if reason == "max_output_tokens" and isinstance(own, str) and ENDED.get(own) == CUT:
        return own
    if reason != "max_output_tokens":
        diagnostics.loss("status", f"incomplete for {reason[:64] or 'no reason'}, reported as incomplete")
    return "incomplete"


def usage_of(usage: Usage, native: Mapping[str, Any], diagnostics: Diagnostics) -> dict[str, Any]:
    """Return the counts under Google's names, which count thoughts and the prompts of server tools
    separately, with Google's further fields; if a response has several answers, these are of the last one."""
    if usage.cache_write_tokens:
        diagnostics.loss("usage.cache_write_tokens", "can't be expressed")
    thoughts = usage.output_tokens_details.reasoning_tokens
    others = {} if usage.rounds else other_fields(native, COUNTS)
    tools = native.get(_OF_TOOLS)
    ran = tools if type(tools) is int and 0 <= tools <= usage.input_tokens and not usage.rounds else 0
    return others | {
        "total_input_tokens": usage.input_tokens - ran,
        "total_output_tokens": usage.output_tokens - thoughts,
        "total_thought_tokens": thoughts,
        "total_cached_tokens": usage.input_tokens_details.cached_tokens,
        _OF_TOOLS: ran,
        "total_tokens": usage.total_tokens,
    }


def error_fields(
    code: str | None, message: str, native: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Return an error in this API's form for streams and refusals; `native` are the fields that the API
    itself sent."""
    own = native.get("code")
    others = other_fields(native, ("code", "message"))
    return others | {"code": own if isinstance(own, str) else code or "internal", "message": message}


def error_body(error: BridgeError, native: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a refusal."""
    return {"error": error_fields(error.code, error.message, native)}


def time_of(seconds: float) -> str:
    """Return Unix seconds in the form of the API, without fractions."""
    within = min(max(seconds, 0), _LAST_YEAR)
    return datetime.fromtimestamp(within, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

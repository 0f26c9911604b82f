"""Why an upstream stopped → how the response ends (law E7, field case 23). A table, not branches."""

from __future__ import annotations

from typing import Final

from openresponses_bridge.surrogates import mended

MAX_OUTPUT_TOKENS = "max_output_tokens"
CONTENT_FILTER = "content_filter"
CANCELLED = "cancelled"
# what is known when an upstream that ended by itself left something unfinished, or gave no reason at all
INCOMPLETE_TOOL_CALL = "incomplete_tool_call"
INCOMPLETE_ITEM = "incomplete_item"
UNKNOWN = "unknown"
LONGEST_REASON: Final = 200  # characters of an upstream's own word

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
    """(incomplete reason or None for completed, whether the reason is one we know).

    An unknown reason ends as completed, since upstream said that it ended: the caller notes it.
    """
    if reason is None:
        return None, True
    key = reason if reason in _OUTCOMES else reason.strip().lower()
    return _OUTCOMES.get(key), key in _OUTCOMES


def own_word(reason: str | None) -> str:
    """An upstream's own reason as a response can carry it; empty when there is none."""
    return mended((reason or "").strip()[:LONGEST_REASON])

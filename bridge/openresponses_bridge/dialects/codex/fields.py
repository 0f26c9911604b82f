"""What becomes of each field of a request on its way to Codex, which is an agent with tools of its own."""

from __future__ import annotations

from typing import Final

from openresponses_bridge.dialects.base import OURS, Outcomes, built, honoured, loss

_UNSAID: Final = (
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "top_logprobs",
    "max_output_tokens",
    "text.verbosity",
    "reasoning.context",
    "reasoning.mode",
    "truncation",
    "service_tier",
    "safety_identifier",
    "user",
    "client_metadata",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
    "seed",
    "logit_bias",
    "prediction",
    "top_k",
)

FIELDS: Final[Outcomes] = {
    **OURS,
    **{name: loss("a turn of Codex has no such setting") for name in _UNSAID},
    **{name: loss("Codex calls tools of its own only") for name in ("tools", "tool_choice")},
    "parallel_tool_calls": loss("Codex decides by itself"),
    "max_tool_calls": loss("Codex's own calls are not counted"),
    "include": loss("Codex reports what it reports"),
    "model": built("model"),
    "input": built("input"),
    "instructions": built("instructions"),
    "text.format": built("output_schema"),
    "reasoning.effort": built("effort"),
    "reasoning.summary": built("summary"),
    "stop": honoured("the answer ends before the first of them"),
    "stream": honoured("a turn is always a stream"),
    "stream_options.include_obfuscation": loss("answers are not padded"),
}

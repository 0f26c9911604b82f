"""What becomes of each field of a request on its way to a server that speaks the Messages API."""

from __future__ import annotations

from typing import Final

from openresponses_bridge.dialects.base import NATIVE_OF_MESSAGES, OURS, Outcomes, built, honoured, loss, sent

_UNSAID: Final = (
    "presence_penalty",
    "frequency_penalty",
    "top_logprobs",
    "text.verbosity",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
    "reasoning.context",
    "reasoning.mode",
    "client_metadata",
    "seed",
    "logit_bias",
    "prediction",
)

FIELDS: Final[Outcomes] = {
    **OURS,
    **{name: loss() for name in _UNSAID},
    "model": built("model"),
    "input": built("messages"),
    "instructions": built("system"),
    "include": honoured("encrypted reasoning comes unasked, anything else is a loss"),
    "tools": built("tools"),
    "tool_choice": built("tool_choice"),
    "parallel_tool_calls": built("tool_choice"),
    "text.format": built("output_config"),
    "max_output_tokens": built("max_tokens"),
    "temperature": built("temperature"),
    "top_p": built("top_p"),
    "top_k": sent("top_k"),
    "stop": built("stop_sequences"),
    "reasoning.effort": built("thinking"),
    "reasoning.summary": built("thinking"),
    "service_tier": built("service_tier"),
    "safety_identifier": built("metadata"),
    "user": built("metadata"),
    "stream": built("stream"),
    "stream_options.include_obfuscation": loss("answers are not padded"),
    NATIVE_OF_MESSAGES: built("messages"),
    "truncation": loss("a conversation that is too long is not shortened"),
}

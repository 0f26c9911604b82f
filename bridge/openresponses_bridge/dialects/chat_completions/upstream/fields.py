"""What becomes of each field of a request on its way to a Chat Completions server."""

from __future__ import annotations

from typing import Final

from openresponses_bridge.dialects.base import (
    METADATA_OF_CHAT,
    OURS,
    STORE_OF_CHAT,
    Outcomes,
    built,
    loss,
    sent,
)

_SAME: Final = (
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "user",
    "stop",
    "seed",
    "logit_bias",
    "prediction",
)

FIELDS: Final[Outcomes] = {
    **OURS,
    **{name: sent(name) for name in _SAME},
    "model": built("model"),
    "input": built("messages"),
    "instructions": built("messages"),
    "include": built("logprobs"),
    "tools": built("tools"),
    "tool_choice": built("tool_choice"),
    "parallel_tool_calls": built("parallel_tool_calls"),
    "text.format": built("response_format"),
    "text.verbosity": built("verbosity"),
    "max_output_tokens": built("max_completion_tokens"),
    "top_logprobs": built("top_logprobs"),
    "stream": built("stream"),
    "stream_options.include_obfuscation": loss("answers are not padded"),
    "reasoning.effort": built("reasoning_effort"),
    "reasoning.summary": loss("summaries can't be asked for"),
    "reasoning.context": loss(),
    "reasoning.mode": loss(),
    "truncation": loss("a conversation that is too long is not shortened"),
    "prompt_cache_options": loss(),
    "client_metadata": loss(),
    "top_k": loss(),
    STORE_OF_CHAT: built("store"),
    METADATA_OF_CHAT: built("metadata"),
}

"""What becomes of each field of a request on its way to a server that itself speaks Responses."""

from __future__ import annotations

from typing import Final

from openresponses_bridge.dialects.base import (
    METADATA_OF_CHAT,
    OTHER,
    OURS,
    Outcomes,
    built,
    honoured,
    loss,
    refused,
    sent,
)
from openresponses_bridge.dialects.responses.options import ResponsesOptions

_PUBLISHED: Final = (
    "instructions",
    "metadata",
    "text.format",
    "text.verbosity",
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "parallel_tool_calls",
    "max_tool_calls",
    "reasoning.effort",
    "reasoning.summary",
    "safety_identifier",
    "prompt_cache_key",
    "truncation",
    "service_tier",
    "top_logprobs",
)
_OPENAI: Final = (
    "user",
    "client_metadata",
    "prompt",
    "context_management",
    "moderation",
    "prompt_cache_retention",
    "prompt_cache_options",
    "access_programs",
    "reasoning.context",
    "reasoning.mode",
)
_OF_OTHERS: Final = ("seed", "logit_bias", "prediction", "top_k")

_EVERYWHERE: Final[Outcomes] = {
    **{name: sent(name) for name in _PUBLISHED},
    **{name: loss("Responses has no such field") for name in _OF_OTHERS},
    **{name: built(name) for name in ("model", "input", "include", "tools", "tool_choice", "stream")},
    "max_output_tokens": built("max_output_tokens"),
    "stop": honoured("the answer ends before the first of them"),
    "stream_options.include_obfuscation": built("stream_options"),
    METADATA_OF_CHAT: built("metadata"),
}
FIELDS: Final[Outcomes] = {
    **OURS,
    **_EVERYWHERE,
    **{name: sent(name) for name in _OPENAI},
    OTHER: built("its own name"),
}
PUBLISHED_FIELDS: Final[Outcomes] = {
    **OURS,
    **_EVERYWHERE,
    **{name: loss("is not known there") for name in _OPENAI},
    "prompt": refused("stored prompts are not known to this upstream"),
}
# where the upstream keeps responses
_STATEFUL: Final[Outcomes] = {
    name: sent(name) for name in ("previous_response_id", "background", "store", "background_options")
}


def outcomes(options: ResponsesOptions) -> Outcomes:
    """The table of a server with these options."""
    table = FIELDS if options.supersets else PUBLISHED_FIELDS
    if not options.stateful:
        return table
    kept = {**table, **_STATEFUL}
    return {**kept, "conversation": sent("conversation")} if options.supersets else kept

"""Token counts and log probabilities of Chat Completions → the protocol's."""

from __future__ import annotations

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.chat_completions.types import (
    ChatLogProb,
    ChatTopLogProb,
    ChatUsage,
    CompletionTokensDetails,
    PromptTokensDetails,
)
from openresponses_bridge.protocol.content import LogProb, TopLogProb
from openresponses_bridge.protocol.usage import Usage

_NO_PROMPT_DETAILS = PromptTokensDetails()
_NO_COMPLETION_DETAILS = CompletionTokensDetails()


def usage_of(usage: ChatUsage, diagnostics: Diagnostics) -> Usage:
    """Counts in the schema's names; what is missing is 0."""
    prompt = usage.prompt_tokens_details or _NO_PROMPT_DETAILS
    completion = usage.completion_tokens_details or _NO_COMPLETION_DETAILS
    cached = prompt.cached_tokens or usage.prompt_cache_hit_tokens or usage.cached_tokens or 0
    reasoning = completion.reasoning_tokens or usage.reasoning_tokens or 0
    sent, made, total = usage.prompt_tokens or 0, usage.completion_tokens or 0, usage.total_tokens
    if reasoning and total == sent + made + reasoning:
        # xAI counts reasoning beside the completion, the schema within the output
        diagnostics.repair("usage.completion_tokens", "left the reasoning tokens out, added")
        made += reasoning
    return Usage.of(
        sent,
        made,
        cached_tokens=cached,
        reasoning_tokens=reasoning,
        total_tokens=total,
        cache_write_tokens=prompt.cache_write_tokens or 0,
        estimated=usage.estimated is True,
    )


def logprobs_of(tokens: list[ChatLogProb], diagnostics: Diagnostics) -> list[LogProb]:
    """Schema LogProb, all fields present: `bytes` are the token's own where upstream gave none."""
    found = []
    for each in tokens:
        if each.token is None or each.logprob is None:
            diagnostics.loss("logprobs", "a token without its log probability")
            continue
        alternatives = [
            TopLogProb(_clean(other.token), other.logprob, _bytes(other))
            for other in each.top_logprobs or ()
            if other.token is not None and other.logprob is not None
        ]
        found.append(LogProb(_clean(each.token), each.logprob, _bytes(each), alternatives))
    return found


def _bytes(token: ChatLogProb | ChatTopLogProb) -> list[int]:
    if token.bytes is not None:
        return token.bytes
    return list((token.token or "").encode("utf-8", "replace"))


def _clean(token: str) -> str:
    # half a surrogate pair can't be encoded
    return token.encode("utf-8", "replace").decode()

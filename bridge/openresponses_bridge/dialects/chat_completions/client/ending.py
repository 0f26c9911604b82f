"""How an answer ends, and what it cost, in Chat's fields."""

from __future__ import annotations

from collections.abc import Iterable

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import CANCELLED, failure
from openresponses_bridge.dialects.chat_completions.types import (
    ChatLogProb,
    ChatLogProbs,
    ChatTopLogProb,
    ChatUsage,
    CompletionTokensDetails,
    PromptTokensDetails,
)
from openresponses_bridge.protocol.content import LogProb
from openresponses_bridge.protocol.errors import ErrorPayload
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.protocol.usage import Usage

FAILED_CHOICE = "error"
"""The finish reason of a choice that failed where others go on."""

_INCOMPLETE = {"max_output_tokens": "length", "content_filter": "content_filter"}
_FAILED = failure("server_error", "the response failed")


def finish_reason(
    response: Response, calls: int, diagnostics: Diagnostics, called: str = "tool_calls"
) -> tuple[str | None, ErrorPayload | None]:
    """(finish_reason, None), or the error that stands for it. `calls`: how many were
    complete; `called`: the reason that says so."""
    if response.status == "failed":
        error = response.error
        return None, _FAILED if error is None else failure(error.code, error.message)
    if response.status == "completed":
        return (called if calls else "stop"), None
    reason = response.incomplete_details.reason if response.incomplete_details else ""
    if "cancelled" in (response.status, reason):
        return None, CANCELLED
    if reason not in _INCOMPLETE:
        diagnostics.loss("finish_reason", f"incomplete for {reason[:64] or 'no reason'}, reported as length")
    return _INCOMPLETE.get(reason, "length"), None


def usage_out(usage: Usage) -> ChatUsage:
    """Token counts in Chat's names."""
    return ChatUsage(
        usage.input_tokens,
        usage.output_tokens,
        usage.total_tokens,
        PromptTokensDetails(usage.input_tokens_details.cached_tokens, usage.cache_write_tokens or None),
        CompletionTokensDetails(usage.output_tokens_details.reasoning_tokens),
        estimated=usage.estimated is True or None,
    )


def summed(usages: Iterable[ChatUsage]) -> ChatUsage:
    """The cost of several choices: the prompt was paid for each."""
    sums = [0, 0, 0, 0, 0, 0]
    estimated = False
    for usage in usages:
        prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
        counts = (
            usage.prompt_tokens,
            usage.completion_tokens,
            usage.total_tokens,
            prompt and prompt.cached_tokens,
            completion and completion.reasoning_tokens,
            prompt and prompt.cache_write_tokens,
        )
        estimated = estimated or usage.estimated is True
        sums = [sum(pair) for pair in zip(sums, (count or 0 for count in counts), strict=True)]
    prompted, completed, total, cached, thought, written = sums
    return ChatUsage(
        prompted,
        completed,
        total,
        PromptTokensDetails(cached, written or None),
        CompletionTokensDetails(thought),
        estimated=estimated or None,
    )


def logprobs_out(tokens: list[LogProb]) -> ChatLogProbs:
    """Log probabilities of new tokens of the content."""
    return ChatLogProbs(
        [
            ChatLogProb(
                token.token,
                token.logprob,
                token.bytes,
                [ChatTopLogProb(other.token, other.logprob, other.bytes) for other in token.top_logprobs],
            )
            for token in tokens
        ]
    )

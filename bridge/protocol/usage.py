"""Token counts. All numbers are tokens; `total_tokens` is input plus output."""

from __future__ import annotations

from msgspec import Struct


class InputTokensDetails(Struct, frozen=True):
    """Schema InputTokensDetails."""

    cached_tokens: int


class OutputTokensDetails(Struct, frozen=True):
    """Schema OutputTokensDetails."""

    reasoning_tokens: int


class Usage(Struct, frozen=True):
    """Schema Usage: the counts of one response."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens_details: OutputTokensDetails

    @classmethod
    def of(
        cls,
        input_tokens: int,
        output_tokens: int,
        *,
        cached_tokens: int = 0,
        reasoning_tokens: int = 0,
        total_tokens: int | None = None,
    ) -> Usage:
        """Usage from plain counts; the total is their sum unless the upstream says otherwise."""
        total = input_tokens + output_tokens if total_tokens is None else total_tokens
        return cls(
            input_tokens,
            output_tokens,
            total,
            InputTokensDetails(cached_tokens),
            OutputTokensDetails(reasoning_tokens),
        )

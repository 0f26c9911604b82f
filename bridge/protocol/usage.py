"""Token counts. All numbers are tokens; `total_tokens` is input plus output."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from bridge.diagnostics import Diagnostics

MOST_TOKENS: Final = 10**12
"""More than any response has, and few enough that sums of them stay exact in every client's numbers."""


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


def within_bounds(usage: Usage, diagnostics: Diagnostics) -> Usage:
    """The same usage, each number a count: what is below 0 or no number becomes 0, what is above
    `MOST_TOKENS` becomes that, with a repair note."""
    given = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.input_tokens_details.cached_tokens,
        "reasoning_tokens": usage.output_tokens_details.reasoning_tokens,
        "total_tokens": usage.total_tokens,
    }
    if all(_is_count(number) for number in given.values()):
        return usage
    return Usage.of(**{name: _clamped(name, number, diagnostics) for name, number in given.items()})


def _is_count(number: Any) -> bool:
    return type(number) is int and 0 <= number <= MOST_TOKENS


def _clamped(name: str, number: Any, diagnostics: Diagnostics) -> int:
    if _is_count(number):
        return int(number)
    above = type(number) in (int, float) and number > MOST_TOKENS
    taken = MOST_TOKENS if above else 0
    diagnostics.repair(f"usage.{name}", f"can't be a count, taken as {taken}")
    return taken

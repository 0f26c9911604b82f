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
    """The same usage, each number a count and all of them in agreement, with a repair note for each that was
    not: what is below 0 or not a number becomes 0, what is above `MOST_TOKENS` becomes that; a part is at
    most its whole, and the total is the sum."""
    given = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.input_tokens_details.cached_tokens,
        "reasoning_tokens": usage.output_tokens_details.reasoning_tokens,
    }
    counts = {name: _clamped(name, number, diagnostics) for name, number in given.items()}
    for part, whole in _WHOLES.items():
        if counts[part] > counts[whole]:
            diagnostics.repair(
                f"usage.{part}", f"{counts[part]} of {counts[whole]} {whole}, taken as all of them"
            )
            counts[part] = counts[whole]
    total = counts["input_tokens"] + counts["output_tokens"]
    if usage.total_tokens != total or type(usage.total_tokens) is not int:
        diagnostics.repair("usage.total_tokens", f"it is not the sum of input and output, taken as {total}")
    elif counts == given:
        return usage
    return Usage.of(**counts)


# a count that is part of another → that other
_WHOLES: Final = {"cached_tokens": "input_tokens", "reasoning_tokens": "output_tokens"}


def _is_count(number: Any) -> bool:
    return type(number) is int and 0 <= number <= MOST_TOKENS


def _clamped(name: str, number: Any, diagnostics: Diagnostics) -> int:
    if _is_count(number):
        return int(number)
    above = type(number) in (int, float) and number > MOST_TOKENS
    taken = MOST_TOKENS if above else 0
    diagnostics.repair(f"usage.{name}", f"can't be a count, taken as {taken}")
    return taken

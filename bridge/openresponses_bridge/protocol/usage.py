"""Token counts. All numbers are tokens; `total_tokens` is input plus output."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import replace

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.protocol.unknown import OURS, Extensible

MOST_TOKENS: Final = 10**12
"""The most tokens: more than any response has, and few enough that their sums are exact in every client's
numbers."""
UNBOUNDED: Final = 2**63
"""The limit of a count that is limited later."""
DIGITS: Final = re.compile(r"[0-9]{1,15}")
"""Matches a number that a server writes as text, with few enough digits to be exact in every client's
numbers."""

# names of each count in the schema, Chat Completions and Anthropic; the first that is present counts
_INPUT: Final = ("input_tokens", "prompt_tokens")
_OUTPUT: Final = ("output_tokens", "completion_tokens")
_INPUT_DETAILS: Final = ("input_tokens_details", "prompt_tokens_details")
_OUTPUT_DETAILS: Final = ("output_tokens_details", "completion_tokens_details")
_CACHE_COUNTS: Final = ("cache_read_input_tokens", "cache_creation_input_tokens")
ROUNDS: Final = f"{OURS}rounds"
NAMES: Final = frozenset(
    {*_INPUT, *_OUTPUT, *_INPUT_DETAILS, *_OUTPUT_DETAILS, *_CACHE_COUNTS, "total_tokens"}
)


class InputTokensDetails(Extensible, frozen=True):
    """Schema InputTokensDetails, with `cache_write_tokens`: input that the upstream put into its cache, if it
    reports that."""

    cached_tokens: int
    cache_write_tokens: int | UnsetType = UNSET


class OutputTokensDetails(Extensible, frozen=True):
    """Schema OutputTokensDetails."""

    reasoning_tokens: int


class RoundUsage(Struct, frozen=True):
    """The counts of one of several answers, under the names of `Usage.of`."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    total_tokens: int
    cache_write_tokens: int
    estimated: bool | UnsetType = UNSET


COUNTS: Final = tuple(name for name in RoundUsage.__struct_fields__ if name != "estimated")
"""The names of the counts of `Usage.of`."""


class Usage(Extensible, frozen=True):
    """Schema Usage: the counts of one response. Our `estimated` is true when the upstream left out at least
    one of them; our `rounds` are those of each answer, if it is the sum of several."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens_details: OutputTokensDetails
    estimated: bool | UnsetType = UNSET
    rounds: list[RoundUsage] | UnsetType = field(default=UNSET, name=ROUNDS)

    @property
    def cache_write_tokens(self) -> int:
        """Input that was put into the upstream's cache; 0 if the upstream does not report it."""
        return self.input_tokens_details.cache_write_tokens or 0

    @property
    def has_only_total(self) -> bool:
        """True if the total is the only count."""
        return self.total_tokens > 0 == self.input_tokens == self.output_tokens

    @classmethod
    def of(
        cls,
        input_tokens: int,
        output_tokens: int,
        *,
        cached_tokens: int = 0,
        reasoning_tokens: int = 0,
        total_tokens: int | None = None,
        cache_write_tokens: int = 0,
        estimated: bool = False,
    ) -> Usage:
        """Return usage with plain counts. The total defaults to the sum of input and output."""
        total = input_tokens + output_tokens if total_tokens is None else total_tokens
        return cls(
            input_tokens,
            output_tokens,
            total,
            InputTokensDetails(cached_tokens, cache_write_tokens or UNSET),
            OutputTokensDetails(reasoning_tokens),
            estimated or UNSET,
        )

    def plus(self, other: Usage) -> Usage:
        """Return the sum of both, which is estimated if one of them is."""
        ours, theirs = self.input_tokens_details, other.input_tokens_details
        written = (ours.cache_write_tokens or 0) + (theirs.cache_write_tokens or 0)
        reasoning = self.output_tokens_details.reasoning_tokens + other.output_tokens_details.reasoning_tokens
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.total_tokens + other.total_tokens,
            InputTokensDetails(ours.cached_tokens + theirs.cached_tokens, written or UNSET),
            OutputTokensDetails(reasoning),
            self.estimated is True or other.estimated is True or UNSET,
        )


def sum_of(rounds: Sequence[Usage]) -> Usage:
    """Return the sum of the usage of at least two answers, with each of them in `rounds`."""
    total = rounds[0]
    for each in rounds[1:]:
        total = total.plus(each)
    shown = [RoundUsage(**numbers_of(each), estimated=each.estimated) for each in rounds]
    return replace(total, rounds=shown)


def counts_in(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Return the six counts of a mapping, unchecked, under the names of `Usage.of`; absent ones are None.
    Reads the names of the schema, of Chat Completions and of Anthropic, whose `input_tokens` do not include
    cached input: these counts are added."""
    input_name, output_name = _first(usage, _INPUT), _first(usage, _OUTPUT)
    incoming, outgoing = _first(usage, _INPUT_DETAILS), _first(usage, _OUTPUT_DETAILS)
    counts = {
        "input_tokens": usage.get(input_name),
        "output_tokens": usage.get(output_name),
        "cached_tokens": _detail(usage.get(incoming), ("cached_tokens",)),
        "reasoning_tokens": _detail(usage.get(outgoing), ("reasoning_tokens", "thinking_tokens")),
        "total_tokens": usage.get("total_tokens"),
        "cache_write_tokens": _detail(usage.get(incoming), ("cache_write_tokens",)),
    }
    cache_counts = [usage[name] for name in _CACHE_COUNTS if usage.get(name) is not None]
    if cache_counts and input_name == "input_tokens" and usage.get(incoming) is None:
        counts["input_tokens"] = _added([counts["input_tokens"] or 0, *cache_counts])
        counts["cached_tokens"] = usage.get(_CACHE_COUNTS[0])
        counts["cache_write_tokens"] = usage.get(_CACHE_COUNTS[1])
    return counts


def _first(mapping: Mapping[str, Any], names: tuple[str, ...]) -> str:
    return next((name for name in names if mapping.get(name) is not None), names[0])


def _detail(details: Any, names: tuple[str, ...]) -> Any:
    """Return the count of a detail; if the details are not an object, a value that can't be a count."""
    if isinstance(details, Mapping):
        return details.get(_first(details, names))
    return None if details is None else [details]


def _added(numbers: list[Any]) -> Any:
    """Return the sum; if one of the numbers can't be a count, that one, so that the check of counts reports
    it."""
    counts = [count_of(each) for each in numbers]
    return numbers[counts.index(None)] if None in counts else sum(filter(None, counts))


def count_of(number: Any, most: int = MOST_TOKENS) -> int | None:
    """Return a number as a count of tokens: whole (2.0 is), from 0 to `most`; some servers write it as text.
    None for anything else."""
    if (type(number) is float and number.is_integer()) or (type(number) is str and DIGITS.fullmatch(number)):
        number = int(number)
    return number if type(number) is int and 0 <= number <= most else None


def most_of(name: str) -> int:
    """Return the largest value of a count of `Usage.of`: the total is a sum of two."""
    return 2 * MOST_TOKENS if name == "total_tokens" else MOST_TOKENS


def within_bounds(usage: Usage, diagnostics: Diagnostics) -> Usage:
    """Return the usage with consistent counts, and report a repair for each that was not. A negative or
    non-numeric count becomes 0, one above `MOST_TOKENS` becomes that. A part is at most its whole. The total
    is the sum of input and output; if one of these is 0, it becomes the total minus the other; if both are 0,
    only the total is kept."""
    if is_consistent(usage):
        return usage
    numbers = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.input_tokens_details.cached_tokens,
        "reasoning_tokens": usage.output_tokens_details.reasoning_tokens,
        "cache_write_tokens": usage.input_tokens_details.cache_write_tokens or 0,
    }
    counts = {name: _clamped(name, number, diagnostics) for name, number in numbers.items()}
    total = nearest_count(usage.total_tokens)
    if total and not counts["input_tokens"] and not counts["output_tokens"]:
        return Usage.of(0, 0, total_tokens=total, estimated=usage.estimated is True)
    for missing, other in (("input_tokens", "output_tokens"), ("output_tokens", "input_tokens")):
        if not counts[missing] and total > counts[other]:
            counts[missing] = total - counts[other]
            diagnostics.repair(f"usage.{missing}", "left out, taken from the total")
    for part, whole in _WHOLES.items():
        if counts[part] > counts[whole]:
            diagnostics.repair(
                f"usage.{part}",
                f"{counts[part]}, more than the {counts[whole]} {whole}: taken as all of them",
            )
            counts[part] = counts[whole]
    total = counts["input_tokens"] + counts["output_tokens"]
    if usage.total_tokens != total or type(usage.total_tokens) is not int:
        diagnostics.repair("usage.total_tokens", f"it is not the sum of input and output, taken as {total}")
    return Usage.of(**counts, estimated=usage.estimated is True)


def is_consistent(usage: Usage) -> bool:
    """Return True if nothing needs repair, as in almost every usage."""
    # `type is int`: neither a bool nor a float is a count
    incoming, outgoing, total = usage.input_tokens, usage.output_tokens, usage.total_tokens
    cached, reasoning = usage.input_tokens_details.cached_tokens, usage.output_tokens_details.reasoning_tokens
    written = usage.input_tokens_details.cache_write_tokens or 0
    return (
        type(incoming) is type(outgoing) is type(total) is type(cached) is type(reasoning) is int
        and type(written) is int
        and 0 <= cached <= incoming <= MOST_TOKENS
        and 0 <= reasoning <= outgoing <= MOST_TOKENS
        and 0 <= written <= incoming
        and (total == incoming + outgoing or (0 < total <= MOST_TOKENS and not incoming and not outgoing))
    )


def latest(before: Usage | None, now: Usage | None) -> Usage | None:
    """Return the usage after a second report: its counts, and the earlier ones for those that are missing or
    0. A report of None discards the first."""
    if before is None or now is None or (now.input_tokens and now.output_tokens):
        return now
    if before.has_only_total or now.has_only_total:
        return now if before.has_only_total and not _is_empty(now) else before
    taken, made = (now if now.input_tokens else before), (now if now.output_tokens else before)
    return Usage(
        taken.input_tokens,
        made.output_tokens,
        taken.input_tokens + made.output_tokens,
        taken.input_tokens_details,
        made.output_tokens_details,
        taken.estimated is True or made.estimated is True or UNSET,
    )


def with_extra_of(usage: Usage, reported: Usage) -> Usage:
    """Return the usage with the unknown fields of an upstream's usage."""
    changed: dict[str, Any] = {"extra": reported.extra} if reported.extra else {}
    for name in ("input_tokens_details", "output_tokens_details"):
        if extra := getattr(reported, name).extra:
            changed[name] = replace(getattr(usage, name), extra=extra)
    return replace(usage, **changed) if changed else usage


def _is_empty(usage: Usage) -> bool:
    return not (usage.input_tokens or usage.output_tokens or usage.total_tokens)


# a count → the count that it is part of
_WHOLES: Final = {
    "cached_tokens": "input_tokens",
    "cache_write_tokens": "input_tokens",
    "reasoning_tokens": "output_tokens",
}


def numbers_of(usage: Usage) -> dict[str, Any]:
    """Return the counts under the names of `Usage.of`."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.input_tokens_details.cached_tokens,
        "reasoning_tokens": usage.output_tokens_details.reasoning_tokens,
        "total_tokens": usage.total_tokens,
        "cache_write_tokens": usage.input_tokens_details.cache_write_tokens or 0,
    }


def _clamped(name: str, number: Any, diagnostics: Diagnostics) -> int:
    taken = nearest_count(number)
    if count_of(number) is None or type(number) is str:
        what = "is text" if count_of(number) is not None else "can't be a count"
        diagnostics.repair(f"usage.{name}", f"{what}, taken as {taken}")
    return taken


def nearest_count(number: Any) -> int:
    """Return a number as a count: 0 if it is negative or not a number, `MOST_TOKENS` if it is larger."""
    count = count_of(number)
    if count is not None:
        return count
    return MOST_TOKENS if type(number) in (int, float) and number > MOST_TOKENS else 0

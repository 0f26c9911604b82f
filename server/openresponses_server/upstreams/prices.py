"""What responses cost, by the operator's prices: whole numbers of 10⁻¹² US dollars, never sums of floats."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Final

from msgspec import Struct

from openresponses_server.settings import Price, SettingsError
from openresponses_server.upstreams.catalog import best_match

_MOST_NAMES: Final = 1024  # names of models whose prices are kept, which clients may make up
_UNIT: Final = 12  # decimal places of a dollar
_PER_MILLION: Final = 6


class _Rates(Struct, frozen=True):
    """Units for one token."""

    input: int
    cached: int
    cache_write: int
    output: int
    reasoning: int


class Prices:
    """The prices of the settings, by the names that clients give models."""

    def __init__(self, prices: Mapping[str, Price]) -> None:
        """Raises SettingsError for a price that is not a number."""
        self._rates = {name: _rates(name, price) for name, price in prices.items()}
        self._of = lru_cache(_MOST_NAMES)(self._find)

    def has(self, model: str) -> bool:
        """Whether there is a price for this model."""
        return self._of(model) is not None

    def cost(self, model: str, counts: Mapping[str, int]) -> int | None:
        """The cost in units of tokens, counted under the names of `Usage.of`; None for a model without a
        price, and for tokens of which only the total is known. Tokens from the cache and written to it are
        part of the input, those of reasoning part of the output."""
        given, output = counts["input_tokens"], counts["output_tokens"]
        if not given and not output:
            return None if counts["total_tokens"] else 0
        rates = self._of(model)
        if rates is None:
            return None
        cached = min(counts["cached_tokens"], given)
        written = min(counts["cache_write_tokens"], given - cached)
        reasoning = min(counts["reasoning_tokens"], output)
        return (
            (given - cached - written) * rates.input
            + cached * rates.cached
            + written * rates.cache_write
            + (output - reasoning) * rates.output
            + reasoning * rates.reasoning
        )

    def _find(self, model: str) -> _Rates | None:
        pattern = best_match(model, self._rates)
        return None if pattern is None else self._rates[pattern]


def dollars(cost: int | None) -> str | None:
    """A cost in US dollars, exactly, as a decimal number; None if it is not known."""
    if cost is None:
        return None
    text = f"{Decimal(cost).scaleb(-_UNIT):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _rates(name: str, price: Price) -> _Rates:
    cached = price.input if price.cached_input is None else price.cached_input
    written = price.input if price.cache_write is None else price.cache_write
    reasoning = price.output if price.reasoning is None else price.reasoning
    given = (price.input, cached, written, price.output, reasoning)
    if not all(map(math.isfinite, given)):
        raise SettingsError("a price is a number", f"$.prices.{name}")
    return _Rates(
        *(int(Decimal(repr(each)).scaleb(_UNIT - _PER_MILLION).to_integral_value()) for each in given)
    )

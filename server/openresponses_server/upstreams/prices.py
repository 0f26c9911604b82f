"""What responses cost, by the operator's prices: whole numbers of 10⁻¹² US dollars, never sums of floats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from msgspec import UNSET, Struct
from msgspec.structs import asdict

from openresponses_bridge.protocol.usage import Usage, numbers_of
from openresponses_server.limits.money import UNIT, Counted, units
from openresponses_server.settings import Price, SettingsError, TokenPrice
from openresponses_server.upstreams.catalog import best_match

_MOST_NAMES: Final = 1024  # names of models whose prices are kept, which clients may make up
_PER_MILLION: Final = 6
_MILLION: Final = 10**_PER_MILLION
_OTHERS: Final = "`per_image`, `per_character`, `per_second` or `per_request`"


class _Rates(Struct, frozen=True):
    """Units for one token."""

    input: int
    cached: int
    cache_write: int
    output: int
    reasoning: int

    def cost(self, counts: Mapping[str, int]) -> int:
        """The cost of tokens that are counted under the names of `Usage.of`. Those from the cache and written
        to it are part of the input, those of reasoning part of the output."""
        input_tokens, output = counts["input_tokens"], counts["output_tokens"]
        if not input_tokens and not output:
            return counts["total_tokens"] * max(self.input, self.output)
        cached = min(counts["cached_tokens"], input_tokens)
        written = min(counts["cache_write_tokens"], input_tokens - cached)
        reasoning = min(counts["reasoning_tokens"], output)
        return (
            (input_tokens - cached - written) * self.input
            + cached * self.cached
            + written * self.cache_write
            + (output - reasoning) * self.output
            + reasoning * self.reasoning
        )


class _Tariff(Struct, frozen=True):
    """The prices of one model, in units. `tokens` are the rates of requests with more input tokens than each
    number, the highest number first, those of all others last; it is empty if tokens have no price."""

    tokens: tuple[tuple[int, _Rates], ...]
    image: int | None
    character: int | None
    second: int | None
    unreported_seconds: int | None
    request: int | None

    def counts(self, what: Counted) -> bool:
        """Return True if the cost of a request is known once this is counted."""
        if what == "seconds" and self.second is not None:
            return self.unreported_seconds is not None
        if self.request is not None:
            return True
        return bool(self.tokens) if what == "tokens" else self._of_one(what) is not None

    def cost(self, usage: Usage | None, what: Counted, number: int | Fraction | None) -> int | None:
        """The cost of what was counted, None if it is not known."""
        fee = self.request or 0
        if usage is not None and self.tokens:
            return fee + sum(map(self.cost_of_tokens, rounds_of(usage)))
        if (price := self._of_one(what)) is None:
            return self.request
        if number is None and what == "seconds" and self.unreported_seconds is not None:
            number = self.unreported_seconds
        return None if number is None else fee + round(number * price)

    def _of_one(self, what: Counted) -> int | None:
        match what:
            case "images":
                return self.image
            case "characters":
                return self.character
            case "seconds":
                return self.second
        return None

    def label(self) -> str:
        """What tokens and requests cost, in words; "" if neither has a price."""
        phrases: list[str] = []
        if self.tokens:
            *tiers, (_, rates) = self.tokens
            cached = [] if rates.cached == rates.input else [(rates.cached, "cached")]
            parts = [(rates.input, "in"), *cached, (rates.output, "out")]
            tokens = ", ".join(f"${dollars(each * _MILLION)} {what}" for each, what in parts)
            phrases.append(f"{tokens} per 1M tokens{' (long input: other prices)' if tiers else ''}")
        if self.request:
            phrases.append(f"${dollars(self.request)} per request")
        return ", ".join(phrases)

    def round_costs(self, usage: Usage) -> list[int]:
        """The cost of the tokens of each answer that a usage is the sum of."""
        return [self.cost_of_tokens(each) for each in rounds_of(usage)] if self.tokens else []

    def cost_of_tokens(self, counts: Mapping[str, int]) -> int:
        """The cost of the tokens of one answer."""
        tokens = counts["input_tokens"] or counts["total_tokens"]
        rates = next((rates for above, rates in self.tokens if tokens > above), self.tokens[-1][1])
        return rates.cost(counts)


class Prices:
    """The prices of the settings, by the names that clients give models, before those of the operator's file,
    by the names that upstreams give them."""

    def __init__(
        self, prices: Mapping[str, Price], filed: Mapping[str, Price] = MappingProxyType({})
    ) -> None:
        """Raises SettingsError for a price that is not a number, and for one without any price in it."""
        self._given = {name: _tariff(price, f"$.prices.{name}") for name, price in prices.items()}
        self._filed = {name: _tariff(price, f"$.{name}.price") for name, price in filed.items()}
        self._of = lru_cache(_MOST_NAMES)(self._find)

    def has(self, model: str, upstream_models: Iterable[str], what: Counted = "tokens") -> bool:
        """Return True if there is a price for this model, whichever of these names it has upstream."""
        tariffs = (self._of(model, each) for each in upstream_models)
        return all(tariff is not None and tariff.counts(what) for tariff in tariffs)

    def cost(
        self,
        model: str,
        upstream_model: str,
        usage: Usage | None,
        what: Counted = "tokens",
        number: int | Fraction | None = None,
    ) -> int | None:
        """The cost in units of a response; None if there is no price for it. It is that of `usage`, which is
        None if no tokens were counted, or else of this number of whatever is counted, which is None if it is
        unknown. Each round of the usage has the prices of its own length. Tokens of which only the total is
        known cost as much as the more expensive of input and output."""
        tariff = self._of(model, upstream_model)
        return None if tariff is None else tariff.cost(usage, what, number)

    def cost_of_rounds(self, model: str, upstream_models: Sequence[str], usage: Usage) -> int | None:
        """Return the cost in units of a response whose rounds were answered by these models of upstreams, one
        for each; None if one of them has no price."""
        tariffs = [self._of(model, each) for each in upstream_models]
        first = tariffs[0]
        if len(set(tariffs)) == 1:
            return None if first is None else first.cost(usage, "tokens", None)
        cost = 0 if first is None else first.request or 0
        for tariff, counts in zip(tariffs, rounds_of(usage), strict=True):
            if tariff is None or not tariff.tokens:
                return None
            cost += tariff.cost_of_tokens(counts)
        return cost

    def shown(self, model: str, upstream_models: Sequence[str], usage: Usage) -> CostShown:
        """The cost of a response of which only the names are known that its model may have upstream: it is
        known if all of them have the same prices."""
        tariffs = {self._of(model, each) for each in upstream_models}
        tariff = tariffs.pop() if len(tariffs) == 1 else None
        if tariff is None:
            return CostShown()
        cost = dollars(tariff.cost(usage, "tokens", None))
        rounds = tariff.round_costs(usage) if usage.rounds is not UNSET else []
        return CostShown(cost, [dollars(each) or "" for each in rounds])

    def label(self, model: str, upstream_models: Iterable[str]) -> str:
        """What tokens and requests cost, in words, if it is the same under all names that the model may have
        upstream; else ""."""
        tariffs = {self._of(model, each) for each in upstream_models}
        tariff = tariffs.pop() if len(tariffs) == 1 else None
        return "" if tariff is None else tariff.label()

    def _find(self, model: str, upstream_model: str) -> _Tariff | None:
        pattern = best_match(model, self._given)
        return self._filed.get(upstream_model) if pattern is None else self._given[pattern]


class CostShown(Struct, frozen=True):
    """A cost in US dollars, and that of the tokens of each round; None if it is not known."""

    usd: str | None = None
    rounds: list[str] = []


def rounds_of(usage: Usage) -> list[dict[str, Any]]:
    """The counts of each answer that a usage is the sum of."""
    return [numbers_of(usage)] if usage.rounds is UNSET else [asdict(each) for each in usage.rounds]


def dollars(cost: int | None) -> str | None:
    """A cost in US dollars, exactly, as a decimal number; None if it is not known."""
    if cost is None:
        return None
    text = f"{Decimal(f'{cost}e-{UNIT}'):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _tariff(price: Price, where: str) -> _Tariff:
    try:
        tokens = [] if price.input is None or price.output is None else [(0, _rates(price))]
        tiers = [(tier.above, _rates(tier)) for tier in price.tiers]
        image, character, second, request = others = [
            None if each is None else _unit_price(each)
            for each in (price.per_image, price.per_character, price.per_second, price.per_request)
        ]
    except ValueError as error:
        raise SettingsError(f"a price can't be used: {error}", where) from None
    if (price.input is None) != (price.output is None) or (not tokens and (tiers or _parts_of(price))):
        raise SettingsError("a price of tokens needs both `input` and `output`", where)
    if price.unreported_seconds is not None and price.per_second is None:
        raise SettingsError("`unreported_seconds` needs `per_second`", where)
    if not tokens and all(each is None for each in others):
        raise SettingsError(f"no price is given: set `input` and `output`, {_OTHERS}", where)
    if len({above for above, _ in tiers}) != len(tiers):
        raise SettingsError("two tiers begin at the same number of tokens", where)
    rates = tuple(sorted([*tokens, *tiers], key=lambda each: -each[0]))
    return _Tariff(rates, image, character, second, price.unreported_seconds, request)


def _parts_of(price: TokenPrice) -> bool:
    return any(each is not None for each in (price.cached_input, price.cache_write, price.reasoning))


def _rates(price: TokenPrice) -> _Rates:
    input_price, output = price.input or 0.0, price.output or 0.0
    cached = input_price if price.cached_input is None else price.cached_input
    written = input_price if price.cache_write is None else price.cache_write
    reasoning = output if price.reasoning is None else price.reasoning
    return _Rates(
        *(_unit_price(each, _PER_MILLION) for each in (input_price, cached, written, output, reasoning))
    )


def _unit_price(dollars: float, exponent: int = 0) -> int:
    """The units for one. Raises ValueError for a price that is not finite, or too small for one unit."""
    price = units(dollars, exponent)
    if dollars and not price:
        raise ValueError(f"it must be 0 or at least 10⁻¹² US dollars for one, not {dollars}")
    return price

"""The cost of each key's responses in a day, and the limit of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Final, Literal, Protocol

from openresponses_server.errors import HttpError
from openresponses_server.limits.counters import DAY, DayCounts, Workers
from openresponses_server.limits.owners import OwnerLimits
from openresponses_server.settings import SettingsError

UNIT: Final = 12
"""The decimal places of a dollar that are counted."""
_WHERE: Final = "$.limits.usd_per_day_per_key"
_MOST_PAID: Final = 10**18  # of one response: sums of these stay within 64 bits
Counted = Literal["tokens", "images", "characters", "seconds", "requests"]
"""What is counted of a request, at the latest when it has been answered."""
_NEEDED: Final[dict[Counted, str]] = {
    "tokens": "`input` and `output`",
    "images": "`per_image` or `per_request`, as its answers need not count tokens",
    "characters": "`per_character` or `per_request`, as its answers need not count tokens",
    "seconds": "`per_second` and `unreported_seconds`, or `per_request` alone, as its answers need not say "
    "how long a recording was",
    "requests": "`per_request`, as its answers need not count tokens",
}


class PriceList(Protocol):
    """The prices of models."""

    def has(self, model: str, upstream_models: Iterable[str], what: Counted) -> bool:
        """Return True if the cost of a request is known once `counted` is known, for a model that the client
        calls by this name and the upstream by any of these names."""
        ...


class UpstreamModel(Protocol):
    """An upstream and its model that a request goes to."""

    @property
    def model(self) -> str:
        """The model's name there."""
        ...

    @property
    def fallbacks(self) -> Sequence[UpstreamModel]:
        """The models that it may go to instead."""
        ...


class MoneyBudget:
    """The spending of each key today, in UTC. New requests are refused when it has reached `dollars` (None:
    no limit), or the limit that the owner has of its own. A response is counted when it has ended, so that
    those in progress may exceed the limit. With `others`, the workers count together; while those do not
    answer, each counts by itself and reports its count afterwards.

    Raises SettingsError for `dollars` without `prices`, and for `dollars` that are not a number or less than
    10⁻¹².
    """

    def __init__(
        self,
        dollars: float | None,
        prices: PriceList | None,
        others: Workers | None = None,
        clock: Callable[[], float] = time.time,
        owners: OwnerLimits | None = None,
    ) -> None:
        if dollars is not None and prices is None:
            raise SettingsError(
                "a budget in dollars needs the models' [prices], or a `models_file` with prices", _WHERE
            )
        if dollars is not None and not (math.isfinite(dollars) and units(dollars)):
            raise SettingsError(f"it must be a number of dollars of at least 10⁻¹², not {dollars}", _WHERE)
        self._dollars = dollars
        self._owners = OwnerLimits() if owners is None else owners
        self._prices = prices
        self._others = others
        self._clock = clock
        self._spent = DayCounts()

    async def accept(
        self,
        owner: str,
        model: str,
        target: UpstreamModel,
        counted: Counted = "tokens",
        apart: Callable[[], str | None] | None = None,
    ) -> None:
        """Raises HttpError 429 if this key has spent what it may. Raises HttpError 400 for a model without a
        price for what is counted, and for a request with a field, which `apart` returns, that asks for
        something with another price than the model: both would make the budget void."""
        dollars = self._most(owner)
        if dollars is None:
            return
        names = [target.model, *(each.model for each in target.fallbacks)]
        if self._prices is None or not self._prices.has(model, names, counted):
            raise HttpError(
                400,
                "This API key may spend a limited amount a day, and what this model costs could not be "
                f"counted: it has no price in [prices] with {_NEEDED[counted]}.",
                code="model_without_price",
                param="model",
            )
        if apart is not None and (field := apart()) is not None:
            raise without_price(field)
        await self._check(owner, dollars)

    async def check(self, owner: str) -> None:
        """Raises HttpError 429 if this key has spent what it may."""
        dollars = self._most(owner)
        if dollars is not None:
            await self._check(owner, dollars)

    def limits(self, owner: str) -> bool:
        """Return True if this owner may spend a limited amount."""
        return self._most(owner) is not None

    def _most(self, owner: str) -> float | None:
        own = self._owners.of(owner).usd_per_day
        return self._dollars if own is None else own

    async def _check(self, owner: str, dollars: float) -> None:
        most = units(dollars)
        now = self._clock()
        spent = self._spent.at(now).get(owner, 0)
        full = self._spent.has_no_room(owner)
        if spent < most and not full and self._others is not None:
            spent = max(spent, await self._others.spent(owner, self._spent.day) or 0)
        if spent < most and not full:
            return
        raise HttpError(
            429,
            f"One API key may spend {plain(dollars)} US dollars a day (UTC), and this one has: try again "
            "tomorrow.",
            code="budget_exceeded",
            headers={"retry-after": str(DAY - int(now) % DAY), "x-should-retry": "false"},
        )

    def pay(self, owner: str, cost: int) -> None:
        """Count what a response has cost, in 10⁻¹² US dollars, a million dollars at most: also for owners
        without a budget, who may get one before the day is over."""
        cost = min(cost, _MOST_PAID)
        here = self._spent.at(self._clock())
        if cost <= 0 or self._spent.has_no_room(owner):
            return
        here[owner] = here.get(owner, 0) + cost
        if self._others is not None:
            self._others.pay(owner, self._spent.day, cost)


def without_price(field: str) -> HttpError:
    """The error for a field with which a request asks for something with another price than its model."""
    return HttpError(
        400,
        f"This API key may spend a limited amount a day, and {field} asks for what [prices] has no price of.",
        code="field_without_price",
        param=field,
    )


@lru_cache(1024)
def units(dollars: float, exponent: int = 0) -> int:
    """Dollars for 10 to the power of `exponent` as whole units of 10⁻¹² for one. Raises ValueError if they
    are not finite."""
    if not math.isfinite(dollars):
        raise ValueError("not a number")
    return int(Decimal(repr(dollars)).scaleb(UNIT - exponent).to_integral_value())


def plain(dollars: float) -> str:
    """A number of dollars as a decimal number without an exponent."""
    return f"{Decimal(repr(dollars)).normalize():f}"

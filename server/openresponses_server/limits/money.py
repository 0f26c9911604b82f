"""What the responses of each key cost in a day, against the most that it may spend."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final, Protocol

from openresponses_server.errors import HttpError
from openresponses_server.limits.day_counts import DAY, DayCounts
from openresponses_server.settings import SettingsError

_UNIT: Final = 12  # decimal places of a dollar
_WHERE: Final = "$.limits.usd_per_day_per_key"


class PriceList(Protocol):
    """What models cost, in whole numbers of 10⁻¹² US dollars."""

    def has(self, model: str) -> bool:
        """Whether there is a price for this model."""
        ...

    def cost(self, model: str, counts: Mapping[str, int]) -> int | None:
        """The cost of tokens, counted under the names of `Usage.of`; None if it is not known."""
        ...


class AllSpending(Protocol):
    """What all workers spend together."""

    async def spent(self, owner: str, day: int) -> int | None:
        """What this key has spent on this day, in UTC since 1970. None if nobody knows."""
        ...

    def pay(self, owner: str, day: int, cost: int) -> None:
        """Count a cost of this day."""
        ...


class MoneyBudget:
    """What each key spends today, in UTC: new requests are refused when that is `dollars` or more. A response
    is paid when it has ended, so that those in progress may spend more. Workers that have `others` count
    together; while those do not answer, each counts by itself, and makes up for it afterwards.

    Raises SettingsError without `prices`, and for a number of dollars that is not one or is less than 10⁻¹².
    """

    def __init__(
        self,
        dollars: float,
        prices: PriceList | None,
        others: AllSpending | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if prices is None:
            raise SettingsError("a budget in dollars needs the models' [prices]", _WHERE)
        self._most = int(Decimal(repr(dollars)).scaleb(_UNIT)) if math.isfinite(dollars) else 0
        if not self._most:
            raise SettingsError("a budget is a number of dollars, more than nothing", _WHERE)
        self._dollars = f"{Decimal(repr(dollars)).normalize():f}"
        self._prices = prices
        self._others = others
        self._clock = clock
        self._spent = DayCounts()

    async def accept(self, owner: str, model: str) -> None:
        """Raises HttpError 400 for a model without a price, which would make the budget void, and 429 if this
        key has spent what it may."""
        if not self._prices.has(model):
            raise HttpError(
                400,
                "One API key may spend a limited amount a day (limits.usd_per_day_per_key), and this model "
                "has no price in [prices]: what it costs could not be counted.",
                code="model_without_price",
                param="model",
            )
        now = self._clock()
        spent = self._spent.at(now).get(owner, 0)
        full = self._spent.has_no_room(owner)
        if spent < self._most and not full and self._others is not None:
            spent = max(spent, await self._others.spent(owner, self._spent.day) or 0)
        if spent < self._most and not full:
            return
        raise HttpError(
            429,
            f"One API key may spend {self._dollars} US dollars a day (UTC), and this one has: try again "
            "tomorrow.",
            code="budget_exceeded",
            headers={"retry-after": str(DAY - int(now) % DAY), "x-should-retry": "false"},
        )

    def pay(self, owner: str, model: str, counts: Mapping[str, int]) -> None:
        """Count what a response has cost. Tokens of which only the total is known are paid as output. What
        one response costs beyond a day's budget is not counted."""
        cost = self._prices.cost(model, counts)
        if cost is None:
            all_output = dict.fromkeys(counts, 0) | {"output_tokens": counts["total_tokens"]}
            cost = self._prices.cost(model, all_output) or 0
        cost = min(max(cost, 0), self._most)
        here = self._spent.at(self._clock())
        if not cost or self._spent.has_no_room(owner):
            return
        here[owner] = here.get(owner, 0) + cost
        if self._others is not None:
            self._others.pay(owner, self._spent.day, cost)

"""Law S8 over time: requests and tokens a minute, calls of tools a day, and stored bytes, of each key.

Without keys every client is the same owner, and none of these counts but the calls.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from openresponses_bridge.dialects.base import LimitState, openai_limit_headers
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.protocol.usage import Usage
from openresponses_server.errors import HttpError
from openresponses_server.limits.call_budget import CallBudget
from openresponses_server.limits.gate import Gate
from openresponses_server.limits.money import Counted, MoneyBudget, PriceList, UpstreamModel
from openresponses_server.limits.owners import DEFAULT, WITHOUT_KEY, OwnerLimits
from openresponses_server.limits.rates import Buckets, Decision, Rates, decision, rates_of
from openresponses_server.limits.stock import Measure, Stock
from openresponses_server.settings import Settings
from openresponses_server.tasks import end_tasks

Form = Callable[[LimitState, float], Iterator[tuple[str, str]]]
"""The headers of an answer that name one limit of a key, in the form of its client's API; the second argument
is the time (Unix seconds)."""

_WHAT: Final = {
    "requests": "may make {limit} requests a minute",
    "tokens": "may use {limit} tokens a minute",
}
_FRAMES_PER_OUTPUT: Final = 3  # a stored stream contains its output about so many times


class Quotas:
    """The quotas of one application, which are counted while the context `going` lasts.

    Workers with a Redis count together, also for the limits of `gate`; without it each counts by itself.
    `prices` are for a budget in money. `stored` measures the stored bytes of the store of this name,
    `refused` is called with the name of each limit that a request exceeds, `failed` with the name of a call
    to Redis that failed and a code.
    """

    def __init__(
        self,
        settings: Settings,
        stored: Measure,
        gate: Gate,
        *,
        store: str,
        refused: Callable[[str], None],
        failed: Callable[[str, str], None],
        owners: OwnerLimits | None = None,
        prices: PriceList | None = None,
    ) -> None:
        limits = settings.limits
        self._owners = OwnerLimits() if owners is None else owners
        self._rates: Rates = rates_of(limits)
        self._buckets = Buckets(self.rates)
        self._refused = refused
        self._shared = measurements = None
        if settings.redis is not None:
            # Redis' client takes a while to load
            from openresponses_server.limits.redis_counts import SharedCounts
            from openresponses_server.limits.redis_measurements import SharedMeasurements
            from openresponses_server.limits.shared_redis import SharedRedis

            redis = SharedRedis(settings.redis, failed)
            self._shared, measurements = SharedCounts(redis, self.rates), SharedMeasurements(redis)
            for kind, limit in gate.shared_limits.items():
                self._shared.count(kind, limit)
        most = limits.stored_bytes_per_key
        self._stock = None if most is None else Stock(stored, most, store=store, others=measurements)
        self._calls = CallBudget(settings.tools.calls_per_day_per_key, self._shared, owners=self._owners)
        dollars = limits.usd_per_day_per_key
        self._money = None
        if dollars is not None or settings.managed_keys or settings.oidc:
            self._money = MoneyBudget(dollars, prices, self._shared, owners=self._owners)

    def rates(self, owner: str) -> Rates:
        """The rates of this owner."""
        own = self._owners.of(owner)
        if own is DEFAULT:
            return self._rates
        requests, tokens = own.requests_per_minute, own.tokens_per_minute
        return Rates(
            self._rates.requests if requests is None else requests,
            self._rates.tokens if tokens is None else tokens,
        )

    @asynccontextmanager
    async def going(self) -> AsyncIterator[None]:
        """Count with the other workers, and measure what is stored."""
        async with AsyncExitStack() as stack:
            if self._shared is not None:
                await stack.enter_async_context(self._shared.going())
            if self._stock is not None:
                measuring = asyncio.create_task(self._stock.measure_repeatedly())
                stack.push_async_callback(end_tasks, [measuring])
            yield

    async def accept(
        self,
        owner: str,
        *,
        model: str | None = None,
        target: UpstreamModel | None = None,
        counted: Counted = "tokens",
        size: Callable[[], int] | None = None,
        form: Form = openai_limit_headers,
        apart: Callable[[], str | None] | None = None,
    ) -> dict[str, str]:
        """Count one more request of this owner. `model` is None for a request that needs no model and so
        costs nothing; `target` has the model's names upstream, and `counted` is what it must have a price
        for. `size` returns how many bytes of it will be stored; None: it is not stored. `apart` is as in
        `MoneyBudget.accept`. Returns the headers of its answer. Raises HttpError 429 that names the limit,
        and 400 for a model or a field without a price if there is a budget."""
        if owner == WITHOUT_KEY:
            return {}
        if self._money is not None and model is not None and target is not None:
            try:
                await self._money.accept(owner, model, target, counted, apart)
            except HttpError as error:
                if error.http_status == 429:
                    self._refused("usd")
                raise
        if size is not None:
            self.store(owner, size)
        rates = self.rates(owner)
        if not any(rates):
            return {}
        verdict = await self._decide(owner, rates)
        headers = dict(pair for state in verdict.states for pair in form(state, time.time()))
        if verdict.over is None:
            return headers
        self._refused(verdict.over.name)
        raise HttpError(
            429,
            f"One API key {_WHAT[verdict.over.name].format(limit=verdict.over.limit)}; try again later.",
            code="rate_limit_exceeded",
            headers={"retry-after": str(max(1, math.ceil(verdict.wait))), **headers},
        )

    def has_budget(self, owner: str) -> bool:
        """Return True if this owner may spend a limited amount of money a day."""
        return self._money is not None and owner != WITHOUT_KEY and self._money.limits(owner)

    async def check_budget(self, owner: str) -> None:
        """Raises HttpError 429 if this owner's budget in money is spent."""
        if self._money is None or owner == WITHOUT_KEY:
            return
        try:
            await self._money.check(owner)
        except HttpError:
            self._refused("usd")
            raise

    def may_store(self, owner: str, size: Callable[[], int]) -> bool:
        """Return True if this many more bytes of this owner may be stored."""
        if self._stock is None or owner == WITHOUT_KEY:
            return True
        try:
            self._stock.check(owner, size())
        except HttpError:
            return False
        return True

    def store(self, owner: str, size: Callable[[], int]) -> None:
        """Count bytes of this owner that will be stored. Raises HttpError 429."""
        if self._stock is None or owner == WITHOUT_KEY:
            return
        more = size()
        try:
            self._stock.check(owner, more)
        except HttpError:
            self._refused("stored_bytes")
            raise
        self._stock.grow(owner, more)

    async def spend_call(self, owner: str) -> bool:
        """Count one more call of a tool that the server runs for this owner. Returns False if it has none
        left today. Without keys all clients share one owner."""
        if await self._calls.spend(owner):
            return True
        self._refused("calls")
        return False

    async def _decide(self, owner: str, rates: Rates) -> Decision:
        """Decide by the counts of this process first, which are part of all workers' counts: if they exceed a
        limit, Redis need not be asked."""
        here = decision(rates, self._buckets.used(owner))
        if here.over is not None:
            return here
        elsewhere = None if self._shared is None else await self._shared.accept(owner)
        if elsewhere is not None:
            admitted, used = elsewhere
            if admitted:
                self._buckets.begin(owner)
            return decision(rates, used, admitted=admitted)
        here = decision(rates, self._buckets.used(owner))
        if here.over is None:
            return decision(rates, self._buckets.begin(owner), admitted=True)
        return here

    def ended(
        self,
        owner: str,
        response: Response,
        tokens: Callable[[], Usage],
        *,
        stored: bool,
        cost: int | None = None,
    ) -> None:
        """Count a response that has ended and that an upstream had begun. `tokens` estimates its tokens if
        the upstream did not count them; `cost` is in 10⁻¹² US dollars, None if it is not known."""
        if owner == WITHOUT_KEY:
            return
        if self._money is not None and cost is not None:
            self._money.pay(owner, cost)
        if self.rates(owner).tokens is not None:
            used = tokens() if response.usage is None else response.usage
            spent = max(used.input_tokens, 0) + max(used.output_tokens, 0)
            self._buckets.spend(owner, spent)
            if self._shared is not None:
                self._shared.spend(owner, spent)
        if self._stock is not None and stored:
            self._stock.grow(owner, len(encode(response)) * _FRAMES_PER_OUTPUT)

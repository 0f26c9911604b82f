"""What each key may spend in a day."""

import asyncio
import math
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import pytest
import redis

from openresponses_server.errors import HttpError
from openresponses_server.limits.money import MoneyBudget
from openresponses_server.limits.redis_counts import SharedCounts
from openresponses_server.settings import Limits, Price, Settings, SettingsError, UpstreamSettings
from openresponses_server.settings.files import hashed
from openresponses_server.upstreams.prices import Prices
from tests.server.limits.test_calls_of_a_day import Clock, joined
from tests.server.limits.test_quotas import ONE, SURFACES, TWO, used
from tests.server.limits.test_shared import eventually
from tests.support.services import OwnRedis, own_redis
from tests.support.serving import call, respond, serving
from tests.support.upstream import Script, ScriptedUpstream, chunk
from tests.support.upstream import refusal as refusal_of

pytestmark = pytest.mark.timeout(120)
PRICES = Prices({"m": Price(input=1.0, output=3.0)})


@pytest.fixture(scope="module")
def server() -> Iterator[OwnRedis]:
    with own_redis() as started:
        yield started


def counts(given: int = 0, output: int = 0, total: int | None = None) -> dict[str, int]:
    named = {"input_tokens": given, "output_tokens": output, "cached_tokens": 0, "cache_write_tokens": 0}
    return {**named, "reasoning_tokens": 0, "total_tokens": given + output if total is None else total}


async def refused(budget: MoneyBudget, owner: str = "k", model: str = "m") -> HttpError | None:
    try:
        await budget.accept(owner, model)
    except HttpError as error:
        return error
    return None


async def test_a_day_ends_at_midnight_and_each_key_has_its_own() -> None:
    clock = Clock()
    clock.now = 20_000 * 86_400 + 86_400 - 90.5
    budget = MoneyBudget(0.3, PRICES, clock=clock)
    for _ in range(3):  # whose sum as floats is not 0.3
        assert await refused(budget) is None
        budget.pay("k", "m", counts(100_000))
    found = await refused(budget)
    assert found is not None
    assert (found.http_status, found.code, found.headers["retry-after"]) == (429, "budget_exceeded", "91")
    assert "0.3 US dollars a day" in found.message
    assert await refused(budget, "another") is None
    clock.now += 91
    assert await refused(budget) is None


async def test_one_unit_less_than_the_budget_is_not_the_budget() -> None:
    budget = MoneyBudget(1.0, Prices({"m": Price(input=1e-6, output=0.0)}))
    for tokens, over in ((10**12 - 1, False), (1, True)):
        budget.pay("k", "m", counts(tokens))
        assert (await refused(budget) is not None) == over


async def test_what_an_upstream_reports_wrongly_is_bounded_and_never_gives_money_back() -> None:
    budget = MoneyBudget(1.0, PRICES, clock=lambda: 0.0)
    budget.pay("k", "m", counts(-(10**9), -(10**9)))
    budget.pay("k", "m", counts(999_999))
    assert await refused(budget) is None
    budget.pay("total", "m", counts(total=333_334))
    assert await refused(budget, "total") is not None
    budget.pay("much", "m", counts(2**60, 2**60))
    assert budget._spent.at(0.0)["much"] == 10**12


@pytest.mark.parametrize("dollars", [0.0, 1e-13, math.nan, math.inf])
def test_a_budget_is_a_number_of_dollars(dollars: float) -> None:
    with pytest.raises(SettingsError, match="more than nothing"):
        MoneyBudget(dollars, PRICES)


async def test_workers_spend_the_budget_of_a_key_together(server: OwnRedis) -> None:
    async with AsyncExitStack() as stack:
        one, other = [
            MoneyBudget(1e6, PRICES, await joined(stack, server.url, "paid"), clock=Clock()) for _ in "ab"
        ]
        one.pay("k", "m", counts(10**12 - 1))
        client = redis.Redis.from_url(server.url)

        async def sent() -> bool:
            return client.keys("paid:usd:*:k") != []

        await eventually(sent)
        (key,) = client.keys("paid:usd:*:k")
        assert client.get(key) == str((10**12 - 1) * 10**6).encode()  # a float would round it
        assert 0 < client.pttl(key) <= 2 * 86_400_000
        assert await refused(other) is None
        one.pay("k", "m", counts(1))

        async def over() -> bool:
            return await refused(other) is not None

        await eventually(over)
        for _ in range(20):  # those in progress
            one.pay("k", "m", counts(2**60))
            await asyncio.sleep(0)
            await one._others._send()  # type: ignore[union-attr]
        assert 4 * 10**18 <= int(client.get(key)) < 2**63
        assert not one._others.alone  # type: ignore[union-attr]


async def test_what_was_spent_while_redis_did_not_answer_is_counted_afterwards(server: OwnRedis) -> None:
    async with AsyncExitStack() as stack:
        shared: list[SharedCounts] = [await joined(stack, server.url, "late") for _ in "ab"]
        one, other = [MoneyBudget(1.0, PRICES, each, clock=Clock()) for each in shared]
        shared[0].alone = True
        server.freeze()
        one.pay("k", "m", counts(600_000))
        await shared[0]._send()
        assert await refused(one) is None
        one.pay("k", "m", counts(400_000))
        assert await refused(one) is not None
        server.thaw()

        async def over() -> bool:
            return await refused(other) is not None

        await eventually(over)


@contextmanager
def budgeted(upstream: ScriptedUpstream, dollars: float, *, keys: bool = True) -> Iterator[str]:
    given: dict[str, Any] = {"api_keys": [hashed(name) for name in ("one", "two")]} if keys else {}
    settings = Settings(
        upstreams=[UpstreamSettings(url=upstream.url)],
        limits=Limits(usd_per_day_per_key=dollars),
        prices={"m": Price(input=1.0, output=3.0)},
        forwarding=["embeddings"],
        **given,
    )
    with serving(settings) as base:
        yield base


@pytest.mark.parametrize("path", SURFACES)
def test_every_surface_refuses_who_has_spent_the_budget(upstream: ScriptedUpstream, path: str) -> None:
    upstream.scripts["m"] = used(1_000_000, 1_000_000)
    with budgeted(upstream, 4.0) as base:
        assert call(base, "POST", path, {"model": "m", **SURFACES[path]}, ONE).status == 200
        reply = call(base, "POST", path, {"model": "m", **SURFACES[path]}, ONE)
        assert reply.status == 429
        assert "4 US dollars a day" in reply.error["message"]
        assert 1 <= int(reply.headers["retry-after"]) <= 86_400
        assert reply.headers["x-should-retry"] == "false"
        assert call(base, "POST", path, {"model": "m", **SURFACES[path]}, TWO).status == 200
        assert call(base, "POST", "/v1/embeddings", {"model": "m", "input": "x"}, ONE).status == 429
        metrics = call(base, "GET", "/metrics", None, ONE).body.decode()
        assert 'limit="usd"} 2.0' in metrics


def test_a_model_without_a_price_is_refused_before_it_is_asked(upstream: ScriptedUpstream) -> None:
    with budgeted(upstream, 1.0) as base:
        reply = respond(base, ONE, model="other")
        assert (reply.status, reply.error["code"], reply.error["param"]) == (
            400,
            "model_without_price",
            "model",
        )
        assert "limits.usd_per_day_per_key" in reply.error["message"]
        assert call(base, "POST", "/v1/embeddings", {"model": "other", "input": "x"}, ONE).status == 400
        assert upstream.received == []


def test_an_answer_without_usage_costs_what_is_estimated_and_a_refusal_nothing(
    upstream: ScriptedUpstream,
) -> None:
    with budgeted(upstream, 1e-6) as base:
        upstream.scripts["m"] = refusal_of(400, message="No.")
        assert [respond(base, ONE, model="m").status for _ in range(2)] == [400] * 2
        upstream.scripts["m"] = Script([chunk(content="word " * 50)])  # and no end
        assert respond(base, ONE, model="m").status != 429
        assert respond(base, ONE, model="m").status == 429


def test_without_keys_no_budget_is_counted(upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = used(1_000_000, 1_000_000)
    with budgeted(upstream, 1.0, keys=False) as base:
        assert [respond(base, model="m").status for _ in range(2)] == [200] * 2


def test_a_budget_needs_prices() -> None:
    limits = Limits(usd_per_day_per_key=1.0)
    with pytest.raises(SettingsError, match="prices"), serving(Settings(limits=limits)):
        pass

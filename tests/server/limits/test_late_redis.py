"""What workers count in a Redis whose answers come late, or never: each request, cost and call once."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

from openresponses_server.limits.call_budget import CallBudget
from openresponses_server.limits.money import MoneyBudget
from openresponses_server.limits.rates import Rates
from openresponses_server.limits.redis_counts import SharedCounts
from openresponses_server.limits.shared_redis import SharedRedis
from tests.support.relays import Relay
from tests.support.services import OwnRedis, own_redis
from tests.support.waiting import until

DOLLAR = 10**12
DAY = 20_000
NOW = DAY * 86_400.0
LONG = 60.0  # seconds that no answer takes, on a busy machine either


@pytest.fixture(scope="module")
def server() -> Iterator[OwnRedis]:
    with own_redis() as started:
        yield started


class Late:
    """The counts of one worker, behind a relay, and what its Redis has."""

    def __init__(self, relay: Relay, counts: SharedCounts, client: "redis.Redis[bytes]") -> None:
        self.relay, self.counts, self.client = relay, counts, client

    async def missed(self) -> None:
        """Have the worker give up what it waits for, as when its time is over, until it counts alone."""
        while not self.counts.redis.alone:
            for pending in set(self.counts.redis._calls):
                pending.cancel()
            await asyncio.sleep(0.005)

    async def back(self) -> None:
        """Have all pass again, and wait until the worker counts with the others."""
        self.relay.requests.set()
        self.relay.answers.set()
        await until(lambda: not self.counts.redis.alone)

    def spent(self, owner: str = "k") -> int:
        return int(self.client.get(f"{self.counts.redis.prefix}:usd:{DAY}:{owner}") or 0)

    def calls(self) -> int:
        return int(self.client.hget(f"{self.counts.redis.prefix}:calls:k", "calls") or 0)

    def minute(self, name: str) -> float:
        return float(self.client.hget(f"{self.counts.redis.prefix}:minute:k", name) or 0)


def prefix_of(request: Any) -> str:
    return f"late:{request.node.name}"


@pytest.fixture
async def late(server: OwnRedis, request: Any) -> AsyncIterator[Late]:
    relay = Relay(urlsplit(server.url).port or 0)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(relay.listening())
        url = f"redis://127.0.0.1:{relay.port}"
        shared = SharedRedis(url, lambda _call, _code: None, prefix_of(request), timeout=LONG, heartbeat=0.05)
        counts = SharedCounts(shared, lambda _owner: Rates(60, 6000))
        await stack.enter_async_context(counts.going())
        await until(lambda: not shared.alone)
        client = stack.enter_context(redis.Redis.from_url(server.url))
        made = Late(relay, counts, client)
        counts.pay("other", DAY, 1)  # so that Redis knows the scripts
        await CallBudget(10, counts, clock=lambda: NOW).spend("other")
        await until(lambda: client.exists(f"{shared.prefix}:usd:{DAY}:other") == 1)
        relay.late = lambda asked: any(each in asked for each in (b":usd:", b":calls:k", b":minute:"))
        yield made
        relay.answers.set()
        relay.requests.set()


async def test_s8_a_cost_whose_answer_is_late_is_counted_once(late: Late) -> None:
    budget = MoneyBudget(None, None, late.counts, clock=lambda: NOW)
    late.relay.answers.clear()
    budget.pay("k", DOLLAR)
    await until(lambda: late.spent() > 0)
    await late.missed()
    budget.pay("k", DOLLAR)
    await late.back()
    await until(lambda: late.spent() >= 2 * DOLLAR)
    budget.pay("last", DOLLAR)
    await until(lambda: late.spent("last") > 0)
    assert late.spent() == 2 * DOLLAR


async def test_s8_what_was_added_is_not_shown_twice_before_the_answer_is_known(late: Late) -> None:
    late.relay.answers.clear()
    late.relay.late = lambda asked: b":batch:" in asked and b"MGET" not in asked
    late.counts.pay("k", DAY, DOLLAR)
    await until(lambda: late.spent() > 0)
    asking = asyncio.create_task(late.counts.spent("k", DAY))
    await asyncio.wait([asking], timeout=0.1)  # its answer may be behind that of the batch
    await late.missed()
    assert await asking in (DOLLAR, None)
    await late.back()
    assert await late.counts.spent("k", DAY) == DOLLAR


async def test_s8_tokens_whose_answer_is_late_are_counted_once(late: Late) -> None:
    late.relay.answers.clear()
    late.counts.spend("k", 3000)
    await until(lambda: late.minute("tokens") > 0)
    await late.missed()
    await late.back()
    late.counts.pay("k", DAY, 1)
    await until(lambda: late.spent() == 1)
    assert late.minute("tokens") <= 30.0


async def test_s8_tokens_that_did_not_arrive_are_counted_afterwards(late: Late) -> None:
    late.relay.requests.clear()
    late.counts.spend("k", 5000)
    await late.missed()
    await late.back()
    await until(lambda: late.minute("tokens") > 0)


async def test_s8_a_cost_that_is_sent_while_the_worker_ends_is_counted(late: Late) -> None:
    url = f"redis://127.0.0.1:{late.relay.port}"
    shared = SharedRedis(url, lambda _call, _code: None, late.counts.redis.prefix, timeout=60.0)
    counts = SharedCounts(shared, lambda _owner: Rates(None, None))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(counts.going())
        late.relay.requests.clear()
        counts.pay("k", DAY, DOLLAR)
        await until(lambda: not counts._paid)  # it was sent
        ending = asyncio.create_task(stack.pop_all().aclose())
        await asyncio.sleep(0)
        late.relay.requests.set()
        await ending
    assert late.spent() == DOLLAR


async def test_s8_a_call_whose_answer_is_late_is_counted_once(late: Late) -> None:
    budget = CallBudget(10, late.counts, clock=lambda: NOW)
    late.relay.answers.clear()
    asking = asyncio.create_task(budget.spend("k"))
    await until(lambda: late.calls() == 1)
    await late.missed()
    assert await asking
    await late.back()
    assert await budget.spend("k")
    assert late.calls() == 2


async def test_s8_a_call_that_is_cancelled_while_redis_is_asked_is_not_counted_and_loses_none(
    late: Late,
) -> None:
    budget = CallBudget(10, late.counts, clock=lambda: NOW)
    late.counts.redis.alone = True
    late.relay.answers.clear()
    assert await budget.spend("k")  # Redis was not asked
    await late.back()
    late.relay.answers.clear()
    asking = asyncio.create_task(budget.spend("k"))
    await until(lambda: late.calls() == 2)
    asking.cancel()
    await asyncio.wait([asking])
    await late.back()
    for expected in (2, 3):
        assert await budget.spend("k")
        assert late.calls() == expected


async def test_s8_calls_of_one_moment_are_each_counted(late: Late) -> None:
    budget = CallBudget(7, late.counts, clock=lambda: NOW)
    assert sum(await asyncio.gather(*(budget.spend("k") for _ in range(20)))) == 7
    assert late.calls() == 7


async def test_s8_calls_of_both_releases_are_one_sum(late: Late) -> None:
    """The release before counts the day and the sum alone."""
    budget = CallBudget(4, late.counts, clock=lambda: NOW)
    assert await budget.spend("k")
    late.client.hincrby(f"{late.counts.redis.prefix}:calls:k", "calls", 2)
    assert await budget.spend("k")
    assert not await budget.spend("k")
    assert late.calls() == 4


async def test_s8_a_request_whose_answer_is_cut_off_is_counted_once(late: Late) -> None:
    await late.counts.accept("k")
    cuts = [True]
    late.relay.cut = lambda asked: b":minute:" in asked and bool(cuts) and cuts.pop()
    assert await late.counts.accept("k") is not None
    assert not cuts
    assert late.minute("requests") <= 2.0


async def test_no_call_and_no_connection_outlive_the_end(server: OwnRedis) -> None:
    relay = Relay(urlsplit(server.url).port or 0)
    async with relay.listening():
        before = asyncio.all_tasks()
        url = f"redis://127.0.0.1:{relay.port}"
        shared = SharedRedis(url, lambda _call, _code: None, "late:end", timeout=60.0)
        relay.late = lambda command: b"PING" in command
        relay.answers.clear()
        asking = asyncio.create_task(shared.ask("ping", shared.client.ping, always=True))
        await until(lambda: any(b"PING" in command for command in relay.asked))
        asking.cancel()
        await shared.close()
        relay.answers.set()
        await until(lambda: asyncio.all_tasks() == before)

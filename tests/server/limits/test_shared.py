"""Limits per key that several workers count together, in a Redis that fails in every way."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import redis

from openresponses_server.errors import HttpError
from openresponses_server.limits.gate import Gate
from openresponses_server.limits.rates import LONGEST_DEBT, MINUTE, Buckets, Rates, Used, decision
from openresponses_server.limits.redis_counts import SharedCounts
from openresponses_server.limits.shared_redis import SharedRedis
from openresponses_server.settings import Limits
from tests.support.services import OwnRedis, own_redis
from tests.support.waiting import eventually, until

FREE = Rates(None, None)
SHORT = 0.4  # seconds of a lease that is to end


@pytest.fixture(scope="module")
def server() -> Iterator[OwnRedis]:
    with own_redis() as started:
        yield started


@pytest.fixture
def own(server: OwnRedis) -> Iterator[OwnRedis]:
    """Empty, and as it was in the end."""
    redis.Redis.from_url(server.url).flushall()
    yield server
    server.thaw()


class Worker:
    """What one worker process counts with."""

    def __init__(self, url: str, per_key: int = 2, rates: Rates = FREE, **options: Any) -> None:
        self.gate = Gate(Limits(concurrent_per_key=per_key, readers_per_key=1))
        self.failures: list[str] = []
        options = {"timeout": 60.0, "heartbeat": 0.05, "lease": 60.0} | options  # however busy the machine is
        redis = SharedRedis(url, lambda call, _code: self.failures.append(call), **options)
        self.counts = SharedCounts(redis, lambda _owner: rates)
        for kind, limit in self.gate.shared_limits.items():
            self.counts.count(kind, limit)
        self._held: list[Any] = []

    async def take(self, owner: str = "k", *, waits: bool = False) -> None:
        place = self.gate.slot(owner, waits=waits)
        await place.__aenter__()
        self._held.append(place)

    async def give_back(self) -> None:
        await self._held.pop().__aexit__(None, None, None)

    async def refused(self, owner: str = "k") -> bool:
        try:
            await self.take(owner)
        except HttpError as error:
            return error.code == "too_many_concurrent_requests"
        await self.give_back()
        return False

    async def stop_like_a_killed_one(self) -> None:
        """It says nothing any more."""
        self.counts.redis.heartbeat = 1000.0
        self.counts._send = self.counts._send_heartbeat = _nothing  # type: ignore[method-assign,assignment]


async def _nothing(**_options: Any) -> None:
    return None


@asynccontextmanager
async def workers(url: str, count: int = 2, **options: Any) -> AsyncIterator[list[Worker]]:
    pool = [Worker(url, **options) for _ in range(count)]
    async with pool[0].counts.going():
        if count == 1:
            yield pool
            return
        async with pool[1].counts.going():
            yield pool


async def test_s8_what_a_key_has_at_once_is_counted_over_all_workers(own: OwnRedis) -> None:
    async with workers(own.url) as (one, other):
        await one.take()
        await other.take()
        assert await one.refused()
        assert await other.refused()
        assert not await other.refused("another key")
        assert (one.gate.runs.count, other.gate.runs.count) == (1, 1)
        await one.give_back()
        assert not await other.refused()  # at once: it was asked a second time
        await other.give_back()


async def test_s8_readers_and_sockets_are_counted_so_too(own: OwnRedis) -> None:
    async with workers(own.url) as (one, other), one.gate.readers.shared("k"):
        with pytest.raises(HttpError, match="at most 1 readers of stored responses"):
            async with other.gate.readers.shared("k"):
                pass
        async with other.gate.sockets.shared("k"):
            pass


async def test_s8_many_at_once_never_pass_the_limit(own: OwnRedis) -> None:
    async with workers(own.url, per_key=20) as both:
        results = await asyncio.gather(
            *(each.take() for _ in range(40) for each in both), return_exceptions=True
        )
        assert sum(each is None for each in results) <= 20
        assert (
            both[0].gate.runs.count + both[1].gate.runs.count == sum(each is None for each in results) >= 10
        )


async def test_s8_without_keys_redis_is_not_asked(own: OwnRedis) -> None:
    async with workers(own.url, per_key=1) as (one, other):
        for worker in (one, other, one):
            await worker.take("")
        assert redis.Redis.from_url(own.url).keys("*:runs:*") == []


async def test_s8_the_share_of_a_killed_worker_comes_back_within_its_lease(own: OwnRedis) -> None:
    async with workers(own.url, per_key=1, lease=SHORT) as (one, other):
        await one.take()
        await eventually(other.refused)
        await one.stop_like_a_killed_one()

        async def free() -> bool:
            return not await other.refused()

        await eventually(free)


async def test_s8_a_release_that_redis_missed_is_reported_again(own: OwnRedis) -> None:
    async with workers(own.url, per_key=1) as (one, other):
        await one.take()
        one.counts.redis.alone = True  # as after a call that failed
        await one.give_back()

        async def free() -> bool:
            return not await other.refused()

        await eventually(free)


async def test_s8_a_worker_that_was_frozen_counts_again_before_it_asks(own: OwnRedis) -> None:
    async with workers(own.url, per_key=2, lease=SHORT) as (one, other):
        await one.take()
        one.counts.redis.heartbeat = 1000.0
        with redis.Redis.from_url(own.url) as admin:
            await eventually(lambda: _is_gone(admin))
            one.counts.redis.lease = 60_000  # milliseconds
            await one.take()
            await eventually(lambda: _has(admin, b"2"))
        assert await other.refused()


async def _is_gone(admin: Any) -> bool:
    return bool(admin.zcard("openresponses-bridge:{limits}:gone"))


async def _has(admin: Any, total: bytes) -> bool:
    return bool(admin.hget("openresponses-bridge:{limits}:held:runs:k", "total") == total)


async def test_s8_what_the_release_before_counts_is_neither_changed_nor_counted(own: OwnRedis) -> None:
    prefix = "openresponses-bridge:{limits}"
    with redis.Redis.from_url(own.url) as admin:
        admin.zadd(f"{prefix}:workers", {"old": 1e15})
        admin.hset(f"{prefix}:runs:k", mapping={"old": "5 1"})
        async with workers(own.url, per_key=1) as (one, other):
            await one.take()
            assert await other.refused()
            await one.give_back()
            await other.take()
        assert admin.hgetall(f"{prefix}:runs:k") == {b"old": b"5 1"}
        assert admin.zrange(f"{prefix}:workers", 0, -1) == [b"old"]


async def test_s8_totals_are_what_the_living_have_after_all_kinds_of_stops(own: OwnRedis) -> None:
    """Workers come, leave, are killed or frozen, and Redis is frozen or restarts empty, all at random."""
    rng = random.Random(31)
    lasting: list[Worker] = []
    async with AsyncExitStack() as stack:
        for round_number in range(12):
            worker = Worker(own.url, per_key=50, timeout=1.0, lease=SHORT)
            await stack.enter_async_context(worker.counts.going())
            lasting.append(worker)
            for _ in range(20):
                each = rng.choice(lasting)
                if each._held and rng.random() < 0.4:
                    await each.give_back()
                else:
                    await each.take()
            if round_number % 4 == 1:
                await lasting.pop(0).stop_like_a_killed_one()
            elif round_number % 4 == 2:
                own.freeze()
                await asyncio.sleep(0.6)  # longer than leases
                own.thaw()
            elif round_number % 4 == 3:
                own.stop()
                own.start()
        total = sum(each.gate.runs.of("k") for each in lasting)
        with redis.Redis.from_url(own.url) as admin:
            # each use subtracts who is gone; the last of the killed ones may take as long as its lease
            async def right() -> bool:
                await lasting[0].refused()
                await asyncio.sleep(0.02)  # its release is reported soon
                return await _has(admin, str(total).encode())

            await eventually(right)


async def test_s8_background_runs_wait_while_the_others_have_all(own: OwnRedis) -> None:
    async with workers(own.url, per_key=1) as (one, other):
        await one.take()
        waiting = asyncio.create_task(other.take(waits=True))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        assert other.gate.runs.count == 0
        assert other.gate.runs.at_their_limit() == ["k"]
        assert not await other.refused("another key")
        await one.give_back()
        await waiting
        assert await one.refused()
        assert not other.gate.runs._suspended


async def test_s8_who_waits_for_other_workers_may_be_cancelled(own: OwnRedis) -> None:
    async with workers(own.url, per_key=1) as (one, other):
        await one.take()
        for pause in (0.0, 0.02, 0.06, 0.3):
            waiting = asyncio.create_task(other.take(waits=True))
            await asyncio.sleep(pause)
            waiting.cancel()
            await asyncio.wait([waiting])
        assert other.gate.runs.count == 0


async def test_s8_a_redis_that_lost_all_is_given_it_again(own: OwnRedis) -> None:
    async with workers(own.url, per_key=1) as (one, other):
        await one.take()
        own.stop()
        own.start()

        async def knows() -> bool:
            return not (one.counts.redis.alone or other.counts.redis.alone) and await other.refused()

        await eventually(knows)


async def test_s8_scripts_and_data_that_are_lost_are_sent_again(own: OwnRedis) -> None:
    rates = Rates(2, 100)
    async with workers(own.url, rates=rates) as (one, other):
        client = redis.Redis.from_url(own.url)
        client.script_flush()
        assert await one.counts.accept("k") == (True, Used(30.0, 0.0))
        client.flushall()
        assert await other.counts.accept("k") == (True, Used(30.0, 0.0))
        client.script_flush()
        begun = time.monotonic()
        one.counts.spend("k", 50)

        async def known() -> bool:
            return float(client.hget("openresponses-bridge:{limits}:minute:k", "tokens") or 0) > 0

        await eventually(known)
        result = await one.counts.accept("k")
        assert result is not None
        since = time.monotonic() - begun  # each second pays one
        assert result[1].tokens == pytest.approx(30.0, abs=0.1 + since)
        assert not one.failures


async def test_s8_a_redis_that_keeps_no_script_is_sent_each_with_its_call(
    own: OwnRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However short after a script was sent it is forgotten."""
    plain = redis.Redis.from_url(own.url)
    real = redis.asyncio.Redis.execute_command

    async def forgetful(client: Any, *words: Any, **options: Any) -> Any:
        plain.script_flush()
        return await real(client, *words, **options)

    monkeypatch.setattr(redis.asyncio.Redis, "execute_command", forgetful)
    async with workers(own.url, per_key=1, rates=Rates(2, 100)) as (one, other):
        assert await one.counts.accept("k") == (True, Used(30.0, 0.0))
        await one.take()
        assert await other.refused()
        one.counts.spend("k", 50)

        async def known() -> bool:
            return float(plain.hget("openresponses-bridge:{limits}:minute:k", "tokens") or 0) > 0

        await eventually(known)
        await one.give_back()
        assert not await other.refused()
    assert not one.failures
    assert not other.failures


async def test_s8_a_frozen_redis_holds_up_nobody(own: OwnRedis) -> None:
    async with workers(own.url, per_key=1, rates=Rates(100, None), timeout=0.3, lease=SHORT) as (one, other):
        own.freeze()
        await asyncio.gather(one.take("a"), other.take("b"))
        assert (one.counts.redis.alone, other.counts.redis.alone) == (True, True)
        one.counts.redis._timeout = 1000.0  # whoever waited for it again would wait for ever
        for number in range(50):
            assert await one.counts.accept("k") is None
            await one.take(f"key-{number}")
            await one.give_back()
        assert await one.refused("a")  # each counts by itself
        assert not await other.refused("a")
        own.thaw()

        async def together() -> bool:
            return await other.refused("a")

        await eventually(together)


async def test_s8_a_redis_that_is_not_there_at_the_start_is_joined_later(own: OwnRedis) -> None:
    own.stop()
    async with workers(own.url, 1) as (one,):
        assert one.counts.redis.alone
        await one.take()
        own.start()

        async def joined() -> bool:
            return not one.counts.redis.alone

        await eventually(joined)
        client = redis.Redis.from_url(own.url)

        async def known() -> bool:
            return await _has(client, b"1")

        await eventually(known)
    assert client.keys("*:runs:k") != []  # of a worker that left, which does not count
    assert client.zcard("openresponses-bridge:{limits}:alive") == 0


async def test_s8_a_redis_that_is_full_or_refuses_is_done_without(own: OwnRedis) -> None:
    async with workers(own.url, 1, rates=Rates(1, None)) as (one,):
        client = redis.Redis.from_url(own.url)
        client.config_set("maxmemory", "1")
        try:
            assert await one.counts.accept("k") is None
            await one.take()
            assert "accept" in one.failures
        finally:
            client.config_set("maxmemory", "0")


async def test_s8_minutes_are_counted_together_and_as_in_a_process(own: OwnRedis) -> None:
    rates = Rates(7, 1000)
    async with workers(own.url, rates=rates) as both:
        local = Buckets(lambda _owner: rates)
        begun = time.monotonic()
        for number in range(12):
            result = await both[number % 2].counts.accept("k")
            assert result is not None
            here = decision(rates, local.used("k"))
            assert result[0] == (here.over is None)
            used = local.begin("k") if here.over is None else local.used("k")
            since = time.monotonic() - begun  # each second pays one, in Redis and here at different moments
            assert result[1].requests == pytest.approx(used.requests, abs=0.1 + since)
        assert number > 7


async def test_s8_what_was_used_is_bounded_in_redis_too(own: OwnRedis) -> None:
    rates = Rates(None, 10)
    async with workers(own.url, rates=rates) as (one, other):
        for _ in range(3):
            one.counts.spend("k", 10**30)

        async def known() -> bool:
            result = await other.counts.accept("k")
            return result is not None and not result[0]

        await eventually(known)
        result = await other.counts.accept("k")
        assert result is not None
        assert result[1].tokens <= MINUTE + LONGEST_DEBT
        client = redis.Redis.from_url(own.url)
        (key,) = client.keys("*:minute:k")
        assert 0 < client.pttl(key) <= (MINUTE + LONGEST_DEBT + 2) * 1000


async def test_s8_a_clock_of_redis_that_was_set_back_locks_nobody_out(own: OwnRedis) -> None:
    rates = Rates(60, None)
    async with workers(own.url, rates=rates) as (one, _other):
        client = redis.Redis.from_url(own.url)
        key = "openresponses-bridge:{limits}:minute:k"
        ahead = round((time.time() + 1e6) * 1000)
        client.hset(key, mapping={"requests": "60", "tokens": "0", "at": str(ahead)})
        assert (await one.counts.accept("k") or (None,))[0] is False
        assert int(client.hget(key, "at") or 0) < ahead
        await asyncio.sleep(1.1)
        assert (await one.counts.accept("k") or (None,))[0] is True


async def test_s8_everything_in_redis_expires(own: OwnRedis) -> None:
    async with workers(own.url, rates=Rates(5, 5), per_key=3) as (one, other):
        for worker in (one, other):
            await worker.take("ключ:{}*\n")
            await worker.counts.accept("ключ:{}*\n")
            worker.counts.spend("ключ:{}*\n", 3)
        client = redis.Redis.from_url(own.url)

        async def known() -> bool:
            return len(client.keys("*")) == 7

        await eventually(known)
        assert all(client.pttl(key) > 0 for key in client.keys("*"))


async def test_s8_failures_of_a_connection_that_closed_meanwhile_are_not_seen(own: OwnRedis) -> None:
    async with workers(own.url, 1, rates=Rates(50, None), heartbeat=100.0) as (one,):
        assert await one.counts.accept("k") is not None
        client = redis.Redis.from_url(own.url)
        client.client_kill_filter(_type="normal", skipme=True)
        assert await one.counts.accept("k") is not None
        assert not one.failures


async def test_nothing_is_raised_when_redis_is_gone_at_the_end(own: OwnRedis) -> None:
    async with workers(own.url, 1) as (one,):
        await one.take()
        own.stop()
        await one.give_back()
        await until(lambda: one.counts.redis.alone)
    own.start()

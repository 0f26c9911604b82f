"""Limits per key that several workers count together, in Redis.

A request calls Redis once before it begins, once more if there is a budget in money, and once for its slot,
which is tried again before it is refused; while it runs there is one call for each call of a tool that the
server runs. Releases, spent tokens and costs are sent afterwards. Each worker reports how many slots it has
acquired, and from time to time reports all of them, so that a Redis that lost its data is complete again and
what did not reach it is corrected. A worker that stopped counts for at most the time of its lease. If Redis
does not answer in time, each worker counts by itself and sends only heartbeats until Redis answers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any, Final

from msgspec import Struct

from openresponses_server.limits.gate import ConcurrencyLimit
from openresponses_server.limits.rates import LONGEST_DEBT, MINUTE, SLACK, RatesOf, Used
from openresponses_server.limits.shared_redis import NOW, SharedRedis
from openresponses_server.redis_clients import Script
from openresponses_server.tasks import end_tasks, jittered

# A bucket: what is used up, in seconds, as it is now; a clock that was set back counts as one that stood
# still.
_BUCKET: Final = (
    NOW
    + """
local function used(key)
  local kept = redis.call('HMGET', key, 'requests', 'tokens', 'at')
  local gone = math.max(now - (tonumber(kept[3]) or now), 0) / 1000
  return math.max((tonumber(kept[1]) or 0) - gone, 0), math.max((tonumber(kept[2]) or 0) - gone, 0)
end
local function keep(key, requests, tokens)
  redis.call('HSET', key, 'requests', string.format('%.9f', requests),
    'tokens', string.format('%.9f', tokens), 'at', string.format('%.0f', now))
  redis.call('PEXPIRE', key, math.ceil(math.max(requests, tokens) * 1000) + 1000)
end
"""
)

ACCEPT: Final = (
    _BUCKET
    + """
local requests, tokens = used(KEYS[1])
local before = redis.call('GET', KEYS[2])
if before then return {tonumber(before), string.format('%.9f', requests), string.format('%.9f', tokens)} end
local needed, limited = tonumber(ARGV[1]), ARGV[2] == '1'
local minute, slack = tonumber(ARGV[3]), tonumber(ARGV[4])
local admitted = 1
if needed > 0 and requests + needed - minute > needed * slack then admitted = 0 end
if limited and tokens >= minute then admitted = 0 end
if admitted == 1 then requests = requests + needed end
keep(KEYS[1], requests, tokens)
redis.call('SET', KEYS[2], admitted, 'PX', ARGV[5])
return {admitted, string.format('%.9f', requests), string.format('%.9f', tokens)}
"""
)
"""Begin one more request: returns 1, or 0 if it is refused, and what is used of the minute. KEYS: the bucket,
and the name of this call, by which one that the client repeats is counted once."""

CALL: Final = (
    NOW
    + """
local today = string.format('%.0f', math.floor(now / 86400000))
local kept = redis.call('HMGET', KEYS[1], 'day', 'calls', ARGV[2])
local calls, day, own = 0, string.match(kept[3] or '', '^(%d+) (%d+)$')
if kept[1] == today then
  calls = tonumber(kept[2]) or 0
else
  local fields = redis.call('HGETALL', KEYS[1])
  for i = 1, #fields, 2 do
    local of = string.match(fields[i + 1], '^(%d+) %d+$')
    if of and tonumber(of) < tonumber(today) - 1 then redis.call('HDEL', KEYS[1], fields[i]) end
  end
end
own = day == ARGV[3] and tonumber(own) or 0
local sure, wanted, admitted = tonumber(ARGV[4]), tonumber(ARGV[5]), 1
if sure > own then calls, own = calls + sure - own, sure end
if wanted > own then
  if calls + wanted - own <= tonumber(ARGV[1]) then
    calls, own = calls + wanted - own, wanted
  else
    admitted = 0
  end
end
redis.call('HSET', KEYS[1], 'day', today, 'calls', string.format('%.0f', calls),
  ARGV[2], ARGV[3] .. ' ' .. string.format('%.0f', own))
redis.call('PEXPIRE', KEYS[1], 86400000)
return admitted
"""
)
"""KEYS: the calls of a day in UTC. A worker says how many it has made on its day, `sure`, and how many it
would have made with one more, `wanted`: 1 if all workers together are within the limit then, else 0. The sum
rises by what the worker said less before, so that a call is counted once however often it is said, and what
Redis was not asked for is made up for."""

ADD: Final = (
    _BUCKET
    + """
if (tonumber(redis.call('GET', KEYS[1])) or 0) >= tonumber(ARGV[1]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
local paid, most = tonumber(ARGV[3]), tonumber(ARGV[4])
for i = 2, #KEYS do
  local key, more = KEYS[i], ARGV[i + 3]
  if i <= paid + 1 then
    if tonumber(redis.call('GET', key) or 0) < 4e18 then redis.call('INCRBY', key, more) end
    redis.call('PEXPIRE', key, 2 * 86400000)
  else
    local requests, tokens = used(key)
    keep(key, requests, math.min(tokens + tonumber(more), most))
  end
end
return 1
"""
)
"""Add a batch of a worker: 1, or 0 if it was added before and only the answer was lost. KEYS: the number of
the worker's last batch, what keys have `paid` on a day, and buckets. A cost has up to 4·10¹⁸, and the sum
stays within 64 bits; a bucket gets the seconds of tokens that were used, up to a maximum."""

# Slots. KEYS: when the lease of each living worker ends, when each of the others was found gone, and, for
# reports, the hash of one key's counts: `count number` of each worker, their `total`, so that a request costs
# the same whatever the number of workers, and `seen`, up to which of the gone they are subtracted. Whatever
# uses a hash subtracts first who has gone since. What belongs together is one key of Redis, which is there as
# a whole or not at all.

_COUNTS_EXPIRE: Final = 60_000  # milliseconds after the last report
_WORKERS_EXPIRE: Final = 2 * _COUNTS_EXPIRE  # so that no count outlasts what is known of its worker

_GONE: Final = (
    NOW
    + f"local kept_for = {_WORKERS_EXPIRE}\n"
    + """
local function latest() return redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2] or '0' end
local function remove(worker)
  redis.call('ZREM', KEYS[1], worker)
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - kept_for)
  redis.call('ZADD', KEYS[2], string.format('%.0f', math.max(now, tonumber(latest()) + 1)), worker)
  redis.call('PEXPIRE', KEYS[2], kept_for)
end
local function remove_stopped()
  local stopped = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. string.format('%.0f', now))
  for i = 1, #stopped do
    if stopped[i] ~= ARGV[1] then remove(stopped[i]) end
  end
end
"""
)
"""A worker is removed once, by whoever finds it first, and noted with the time, or a greater number than
those noted before if Redis' clock was set back."""

# A report with a lower number is older, and ignored if it arrives late. A worker whose lease has ended, or
# that an empty Redis does not know, is not counted until it has sent a heartbeat.
_REPORT: Final = (
    _GONE
    + """
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 2 end
local kept = redis.call('HMGET', KEYS[3], 'total', 'seen', ARGV[1])
local total, seen, own, number = tonumber(kept[1]) or 0, kept[2] or latest(), 0, 0
if kept[3] then own, number = string.match(kept[3], '^(%d+) (%d+)$') end
local wanted = tonumber(ARGV[2])
local function subtract_gone()
  local last = latest()
  if last == seen then return end
  local since = tonumber(seen) < tonumber(last) and '(' .. seen or '-inf'
  local gone = redis.call('ZRANGEBYSCORE', KEYS[2], since, '+inf')
  for i = 1, #gone do
    local count = redis.call('HGET', KEYS[3], gone[i])
    if count and not redis.call('ZSCORE', KEYS[1], gone[i]) then
      total = total - tonumber(string.match(count, '^%d+'))
      redis.call('HDEL', KEYS[3], gone[i])
    end
  end
  seen = last
end
local function keep()
  redis.call('HSET', KEYS[3], 'total', string.format('%.0f', total), 'seen', seen)
  redis.call('PEXPIRE', KEYS[3], ARGV[4])
end
local function report()
  if tonumber(number) < tonumber(ARGV[3]) then
    total = total - own + wanted
    redis.call('HSET', KEYS[3], ARGV[1], ARGV[2] .. ' ' .. ARGV[3])
  end
  keep()
end
subtract_gone()
"""
)

REPORT: Final = (
    _REPORT
    + """
report()
return 1
"""
)
"""Report how many this worker has now: 1, or 2 if the worker has to send a heartbeat first."""

AGREE: Final = (
    _REPORT
    + """
local most = tonumber(ARGV[5])
if total - own + wanted > most then
  remove_stopped()
  subtract_gone()
end
if total - own + wanted > most then
  keep()
  return 0
end
report()
return 1
"""
)
"""Report how many this worker wants to have: 1 if they are within the limit together with those of the living
workers, 0 if they are not, 2 as `REPORT`."""

HEARTBEAT: Final = (
    _GONE
    + """
local new = redis.call('ZADD', KEYS[1], now + tonumber(ARGV[2]), ARGV[1])
remove_stopped()
redis.call('PEXPIRE', KEYS[1], kept_for)
return new
"""
)
"""This worker is alive for a time; 1 if it was not known as alive. Removes workers that have stopped."""

LEAVE: Final = (
    _GONE
    + """
remove(ARGV[1])
return 1
"""
)
"""This worker stops."""

_RETRY_DELAY: Final = 0.05  # seconds until another worker's release is known
_HEARTBEATS_PER_FULL_REPORT: Final = 10
_MOST_PAID: Final = 4 * 10**18  # by a key, until it has been sent
_ADDED_AT_ONCE: Final = 1000  # keys whose costs, or tokens, are sent together, well within the time of a call
_BATCHES_EXPIRE: Final = 2 * 86_400_000  # milliseconds: as what a batch adds to
_REPEATED_WITHIN: Final = 5_000  # milliseconds: longer than a call takes
_UNKNOWN: Final = 2  # what reports return to a worker that Redis does not know as alive


class _Batch(Struct, frozen=True):
    """An addition to Redis under a number: costs by owner and day, and seconds of tokens by owner."""

    number: int
    paid: dict[tuple[str, int], int]
    spent: dict[str, float]
    begun_at: float


class SharedCounts:
    """The counts of the workers of this Redis: `Workers`, and what they use of each minute."""

    def __init__(self, redis: SharedRedis, rates: RatesOf) -> None:
        self.redis = redis
        self._accept, self._call, self._add, self._agree, self._report = (
            Script(redis.client, each) for each in (ACCEPT, CALL, ADD, AGREE, REPORT)
        )
        self._heartbeat, self._leave = Script(redis.client, HEARTBEAT), Script(redis.client, LEAVE)
        self._rates = rates
        self._limits: dict[str, ConcurrencyLimit] = {}
        self._report_number = 0
        self._reported: dict[tuple[str, str], int] = {}
        self._changed: dict[tuple[str, str], None] = {}
        self._spent: dict[str, float] = {}
        self._paid: dict[tuple[str, int], int] = {}
        self._batch: _Batch | None = None
        """The batch that was sent and is not known to be added. It is sent again, and what comes meanwhile is
        the next one."""
        self._batch_number = 0
        self._accepted = 0
        self._wake = asyncio.Event()

    def count(self, kind: str, limit: ConcurrencyLimit) -> None:
        """Count this limit over all workers."""
        self._limits[kind] = limit
        limit.count_with(self, kind)

    async def accept(self, owner: str) -> tuple[bool, Used] | None:
        """Return the decision on one more request of this key, and its use of the minute; None if Redis does
        not answer."""
        rates = self._rates(owner)
        limited = int(rates.tokens is not None)
        arguments: list[str | int | float]
        arguments = [rates.request_seconds, limited, MINUTE, SLACK, _REPEATED_WITHIN]
        self._accepted += 1
        keys = [self._bucket(owner), f"{self.redis.prefix}:accepted:{self.redis.worker}:{self._accepted}"]
        answer: Any = await self.redis.ask("accept", lambda: self._accept(keys, arguments))
        if answer is None:
            return None
        return answer[0] == 1, Used(float(answer[1]), float(answer[2]))

    def spend(self, owner: str, tokens: int) -> None:
        """Count used tokens, which are sent to Redis soon."""
        self._spent[owner] = self._spent.get(owner, 0.0) + self._rates(owner).token_seconds(tokens)
        self._wake.set()

    async def spend_call(self, owner: str, most: int, day: int, sure: int, count: int) -> bool | None:
        """As `Workers.spend_call`; None if Redis does not answer."""
        arguments: list[str | int | float] = [most, self.redis.worker, day, sure, count]
        answer: Any = await self.redis.ask("call", lambda: self._call([self._calls_of(owner)], arguments))
        return None if answer is None else answer == 1

    async def spent(self, owner: str, day: int) -> int | None:
        """As `Workers.spent`; None if Redis does not answer."""
        waiting, batch, number = self._paid.get((owner, day), 0), self._batch, self._batch_number
        keys = [self._spent_on(owner, day), self._batches]
        values: Any = await self.redis.ask("spent", lambda: self.redis.client.mget(keys))
        if values is None:
            return None
        spent, added = (int(each or 0) for each in values)
        if batch is not None and batch.number > added:
            spent += batch.paid.get((owner, day), 0)
        return spent + (waiting if added <= number else 0)

    def pay(self, owner: str, day: int, cost: int) -> None:
        """Count a cost of this day, which is sent to Redis soon, or when it answers again."""
        self._add_paid(owner, day, cost)
        self._wake.set()

    def _add_paid(self, owner: str, day: int, cost: int) -> None:
        """Keep the costs of the latest day only: nobody asks for those of another day."""
        latest = next((each for _, each in self._paid), day)
        if day > latest:
            self._paid = {}
        if day >= latest:
            self._paid[owner, day] = min(self._paid.get((owner, day), 0) + cost, _MOST_PAID)

    async def agree(self, kind: str, owner: str) -> bool:
        """Return True if this key's count here is within the limit together with those of the other workers.
        True if Redis does not answer."""

        def call() -> Awaitable[Any]:
            arguments = (*self._arguments(kind, owner), self._limits[kind].most_of(owner))
            return self._agree(self._keys(kind, owner), arguments)

        for delay in (_RETRY_DELAY, None):
            answer = await self.redis.ask("agree", call)
            if answer == _UNKNOWN:  # this process was frozen, or Redis is empty: it knows less than all
                await self._send_heartbeat()
                answer = await self.redis.ask("agree", call)
            if answer != 0:
                return True
            if delay is not None:
                await asyncio.sleep(delay)
        return False

    def changed(self, kind: str, owner: str) -> None:
        """Report soon that this worker has fewer now."""
        self._changed[kind, owner] = None
        self._wake.set()

    @asynccontextmanager
    async def going(self) -> AsyncIterator[None]:
        """Count with the other workers while the context lasts."""
        await self._send_heartbeat()
        tasks = [asyncio.create_task(self._send_heartbeats()), asyncio.create_task(self._send_reports())]
        try:
            yield
        finally:
            await end_tasks(tasks)
            while await self._send():
                pass
            await self.redis.ask("leave", lambda: self._leave(self._workers, [self.redis.worker]))
            await self.redis.close()

    async def _send_heartbeats(self) -> None:
        sent = 0
        while True:
            await asyncio.sleep(jittered(self.redis.heartbeat))
            sent += 1
            await self._send_heartbeat(report_all=sent % _HEARTBEATS_PER_FULL_REPORT == 0)

    async def _send_heartbeat(self, *, report_all: bool = False) -> None:
        """Report that this worker is alive. If Redis did not know it, its other data may be lost too, and
        everything is reported again."""
        if self.redis.alone:
            await self.redis.reconnect()
        arguments: list[str | int | float] = [self.redis.worker, self.redis.lease]
        new: Any = await self.redis.ask(
            "heartbeat", lambda: self._heartbeat(self._workers, arguments), always=True
        )
        if new is None:
            return
        if new or report_all or self.redis.alone:
            pairs = [(kind, owner) for kind, limit in self._limits.items() for owner in limit.held_by()]
            self._changed.update(dict.fromkeys([*pairs, *self._reported]))
            self._wake.set()
        self.redis.answered()

    async def _send_reports(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._send()

    async def _send(self) -> bool:
        """Send what has changed, was spent and was paid. Returns whether there is more that can be sent now.
        If Redis does not answer, counts are sent with the next full report, and the batch when it answers."""
        changed, self._changed = self._changed, {}
        if self._batch is None and (self._paid or self._spent):
            self._batch = self._next_batch()
        batch = self._batch
        if not changed and batch is None:
            return False

        reports = []

        async def call() -> list[Any]:
            async with self.redis.client.pipeline(transaction=False) as pipe:
                for kind, owner in changed:
                    arguments = self._arguments(kind, owner)
                    reports.append((kind, owner, arguments))
                    self._report.queue(pipe, self._keys(kind, owner), arguments)
                if batch is not None:
                    self._add.queue(pipe, *self._added(batch))
                return await pipe.execute()

        answers = await self.redis.ask("send", call)
        if answers is None:
            return False
        if self._batch is batch:
            self._batch = None
        for (kind, owner, (_, count, number, _)), answer in zip(reports, answers, strict=False):
            if count == 0 and answer != _UNKNOWN and self._reported.get((kind, owner)) == number:
                del self._reported[kind, owner]
        more = bool(self._paid or self._spent)
        if more:
            self._wake.set()
        return more

    def _next_batch(self) -> _Batch:
        paid = dict(islice(self._paid.items(), _ADDED_AT_ONCE))
        spent = dict(islice(self._spent.items(), _ADDED_AT_ONCE))
        for each in paid:
            del self._paid[each]
        for owner in spent:
            del self._spent[owner]
        self._batch_number += 1
        return _Batch(self._batch_number, paid, spent, time.monotonic())

    def _added(self, batch: _Batch) -> tuple[list[str], list[str | int | float]]:
        """The keys and arguments of a batch. Of the seconds of tokens, those that have passed since it was
        begun are subtracted."""
        gone = time.monotonic() - batch.begun_at
        keys = [self._spent_on(*each) for each in batch.paid] + [self._bucket(each) for each in batch.spent]
        seconds = [max(each - gone, 0.0) for each in batch.spent.values()]
        head = [batch.number, _BATCHES_EXPIRE, len(batch.paid), MINUTE + LONGEST_DEBT]
        return [self._batches, *keys], [*head, *batch.paid.values(), *seconds]

    @property
    def _batches(self) -> str:
        return f"{self.redis.prefix}:batch:{self.redis.worker}"

    def _arguments(self, kind: str, owner: str) -> tuple[str, int, int, int]:
        """The arguments of a report. It is repeated until Redis has confirmed that there are none."""
        self._report_number += 1
        self._reported[kind, owner] = self._report_number
        return self.redis.worker, self._limits[kind].of(owner), self._report_number, _COUNTS_EXPIRE

    @property
    def _workers(self) -> list[str]:
        return [f"{self.redis.prefix}:alive", f"{self.redis.prefix}:gone"]

    def _keys(self, kind: str, owner: str) -> list[str]:
        return [*self._workers, f"{self.redis.prefix}:held:{kind}:{owner}"]

    def _calls_of(self, owner: str) -> str:
        return f"{self.redis.prefix}:calls:{owner}"

    def _spent_on(self, owner: str, day: int) -> str:
        return f"{self.redis.prefix}:usd:{day}:{owner}"

    def _bucket(self, owner: str) -> str:
        return f"{self.redis.prefix}:minute:{owner}"

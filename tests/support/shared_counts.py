"""Counts that workers share in Redis."""

from contextlib import AsyncExitStack

from openresponses_server.limits.rates import Rates
from openresponses_server.limits.redis_counts import SharedCounts
from openresponses_server.limits.shared_redis import SharedRedis


async def joined(stack: AsyncExitStack, url: str, prefix: str) -> SharedCounts:
    redis = SharedRedis(url, lambda _call, _code: None, prefix, timeout=5.0, heartbeat=0.05)
    counts = SharedCounts(redis, lambda _owner: Rates(None, None))
    await stack.enter_async_context(counts.going())
    return counts

"""The turns that workers take in measuring the stored bytes, in Redis: one measures for all."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_server.limits.shared_redis import NOW, SharedRedis
from openresponses_server.limits.stock import Look, Measurement
from openresponses_server.redis_clients import Script
from openresponses_server.tasks import jittered

# KEYS: one hash, with the number of the measurement that was `begun` last and the last `result` with its
# number (`published`). Nobody begins another one within the time `for` after `at`: that is the lease of the
# worker that measures (`by`), or then the pause after its result. Numbers only rise, also when Redis has lost
# its data or its clock was set back: a worker says the highest that it has.

_EXPIRES: Final = 60_000  # milliseconds, beyond the pause
_STOCK: Final = (
    NOW
    + f"local expires = {_EXPIRES}\n"
    + """
local function whole(number) return string.format('%.0f', number) end
"""
)

LOOK: Final = (
    _STOCK
    + """
local kept = redis.call('HMGET', KEYS[1], 'begun', 'published', 'at', 'for')
local known, lease = tonumber(ARGV[2]), tonumber(ARGV[3])
local begun, published = tonumber(kept[1]) or 0, tonumber(kept[2]) or 0
local at = tonumber(kept[3]) or 0
local left, turn, result = (tonumber(kept[4]) or 0) - (now - at), 0, false
if left <= 0 or at > now then
  begun, left, turn = math.max(begun + 1, known + 1, now), lease, 1
  redis.call('HSET', KEYS[1], 'begun', whole(begun), 'by', ARGV[1] .. ' ' .. whole(begun),
    'at', whole(now), 'for', whole(lease))
  redis.call('PEXPIRE', KEYS[1], expires)
elseif begun < known then
  begun = known
  redis.call('HSET', KEYS[1], 'begun', whole(begun))
end
if published > known then result = redis.call('HGET', KEYS[1], 'result') end
return {begun, turn, left, published, result}
"""
)
"""The number of the measurement that was begun last, 1 if this worker has to make it, the milliseconds until
another one may begin, and the number of the last result, with it if that is higher than the one given."""

HOLD: Final = (
    _STOCK
    + """
if redis.call('HGET', KEYS[1], 'by') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'at', whole(now))
redis.call('PEXPIRE', KEYS[1], expires)
return 1
"""
)
"""This worker measures still: 1, or 0 if it is not its turn any more."""

PUBLISH: Final = (
    _STOCK
    + """
if redis.call('HGET', KEYS[1], 'by') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'published', ARGV[2], 'result', ARGV[3], 'at', whole(now), 'for', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[4] + expires)
return 1
"""
)
"""What this worker has measured, and the pause after it: 1, or 0 if it is not its turn any more because Redis
was emptied or another worker measures: its number may then be lower than one that others have read."""

_MOST_PUBLISHED: Final = 1024 * 1024  # bytes of JSON, read by each worker, well within the time of a call
_TOO_LARGE: Final = b""


class SharedMeasurements:
    """`AllMeasurements` of the workers of this Redis."""

    def __init__(self, redis: SharedRedis) -> None:
        self._redis = redis
        self._look, self._hold, self._publish = (Script(redis.client, each) for each in (LOOK, HOLD, PUBLISH))

    async def look(self, store: str, known: int) -> Look | None:
        """As `AllMeasurements.look`: None if Redis does not answer."""
        arguments: list[str | int] = [self._redis.worker, known, self._redis.lease]
        answer: Any = await self._redis.ask("look", lambda: self._look([self._stock_of(store)], arguments))
        if answer is None:
            return None
        begun, turn, left, published, result = answer
        newer = None if result is None else Measurement(published, _sizes_in(result))
        return Look(begun, turn == 1, left / 1000, newer)

    async def hold(self, store: str, number: int) -> None:
        """As `AllMeasurements.hold`."""
        arguments = [self._turn(number)]
        while True:
            await asyncio.sleep(jittered(self._redis.heartbeat))
            await self._redis.ask("hold", lambda: self._hold([self._stock_of(store)], arguments))

    async def publish(self, store: str, number: int, sizes: dict[str, int], pause: float) -> None:
        """As `AllMeasurements.publish`."""
        data = encode({owner: size for owner, size in sizes.items() if size})
        result = data if len(data) <= _MOST_PUBLISHED else _TOO_LARGE
        arguments: list[str | int | bytes] = [self._turn(number), number, result, round(pause * 1000)]
        await self._redis.ask("publish", lambda: self._publish([self._stock_of(store)], arguments))

    def _turn(self, number: int) -> str:
        return f"{self._redis.worker} {number}"

    def _stock_of(self, store: str) -> str:
        return f"{self._redis.prefix}:stored:{store}"


def _sizes_in(data: bytes) -> dict[str, int] | None:
    """The bytes of each key; None if they were too many to be shared, or are not legible."""
    try:
        sizes = decode_json(data)
    except WireError:
        return None
    if isinstance(sizes, dict) and all(isinstance(size, int) for size in sizes.values()):
        return sizes
    return None

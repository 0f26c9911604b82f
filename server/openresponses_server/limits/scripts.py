"""The scripts that Redis runs for the limits, each as one step. Times are Redis' own, in milliseconds, so
that the clocks of workers do not matter. Every script can be sent again, and every key it writes expires."""

from __future__ import annotations

from typing import Final

_NOW: Final = "local t = redis.call('TIME'); local now = t[1] * 1000 + math.floor(t[2] / 1000)\n"

# KEYS: a bucket. What is used up, in seconds, as it is now; a clock that was set back counts as one that
# stood still.
_BUCKET: Final = (
    _NOW
    + """
local kept = redis.call('HMGET', KEYS[1], 'requests', 'tokens', 'at')
local gone = math.max(now - (tonumber(kept[3]) or now), 0) / 1000
local requests = math.max((tonumber(kept[1]) or 0) - gone, 0)
local tokens = math.max((tonumber(kept[2]) or 0) - gone, 0)
local function keep()
  redis.call('HSET', KEYS[1], 'requests', string.format('%.9f', requests),
    'tokens', string.format('%.9f', tokens), 'at', string.format('%.0f', now))
  redis.call('PEXPIRE', KEYS[1], math.ceil(math.max(requests, tokens) * 1000) + 1000)
end
"""
)

ADMIT: Final = (
    _BUCKET
    + """
local needed, limited = tonumber(ARGV[1]), ARGV[2] == '1'
local minute, slack = tonumber(ARGV[3]), tonumber(ARGV[4])
local admitted = 1
if needed > 0 and requests + needed - minute > needed * slack then admitted = 0 end
if limited and tokens >= minute then admitted = 0 end
if admitted == 1 then requests = requests + needed end
keep()
return {admitted, string.format('%.9f', requests), string.format('%.9f', tokens)}
"""
)
"""Begin one request more: 1 or 0, and what is used of the minute then."""

SPEND: Final = (
    _BUCKET
    + """
tokens = math.min(tokens + tonumber(ARGV[1]), tonumber(ARGV[2]))
keep()
return 1
"""
)
"""So many seconds' worth of tokens were used, at most so many are kept in mind."""

# KEYS: who has how many of one kind, as `count number`: what a worker said earlier, with a lower number, does
# not count when it comes later.
_SAY: Final = """
local function say()
  local said = redis.call('HGET', KEYS[1], ARGV[1])
  if not said or tonumber(string.match(said, '%d+$')) < tonumber(ARGV[3]) then
    redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. ARGV[3])
  end
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
end
"""

SAY: Final = (
    _SAY
    + """
say()
return 1
"""
)
"""This worker has so many now."""

AGREE: Final = (
    _NOW
    + _SAY
    + """
local sum = tonumber(ARGV[2])
local held = redis.call('HGETALL', KEYS[1])
for i = 1, #held, 2 do
  if held[i] ~= ARGV[1] then
    local alive = redis.call('ZSCORE', KEYS[2], held[i])
    if not alive then redis.call('HDEL', KEYS[1], held[i])
    elseif tonumber(alive) >= now then sum = sum + tonumber(string.match(held[i + 1], '^%d+')) end
  end
end
if sum > tonumber(ARGV[5]) then return 0 end
say()
return 1
"""
)
"""KEYS: that, and until when each worker counts as alive. This worker has so many with what it wants to take:
1 if those are not too many with what the living ones have."""

BEAT: Final = (
    _NOW
    + """
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[3]))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return redis.call('ZADD', KEYS[1], now + tonumber(ARGV[2]), ARGV[1])
"""
)
"""This worker is alive for so long; 1 when that was not known of it. Those long gone are forgotten."""

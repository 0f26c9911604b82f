"""What is in a log in Redis, read page by page: by who begins, and by who has fallen behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from redis.asyncio import Redis

from openresponses_server.store.frames import Frames
from openresponses_server.store.logs.base import CHUNK_BYTES, LogGap, LogGone
from openresponses_server.store.logs.redis_calls import Calls
from openresponses_server.store.logs.redis_entries import (
    CLOSED,
    Entry,
    frames_in,
    is_discard_mark,
    place_after,
)

_FIRST: Final = 16  # entries of the first page
_MOST: Final = 256
_BEYOND: Final = 2**63
"""More than any number of an event."""


class Pages:
    """A reader has one page in hand, which is about `CHUNK_BYTES` long or one entry. The pages of all readers
    come over the few connections of `redis`, and wait for one, however long."""

    def __init__(self, redis: Redis, calls: Calls) -> None:
        self._redis = redis
        self._calls = calls

    async def read(self, key: str, run_id: str, after: int, until: int = _BEYOND) -> AsyncIterator[Frames]:
        """The frames with a number above `after`, to one that has the number `until`, or else to the present
        end of the log. Raises LogGone, LogGap, LogError."""
        place, count = place_after(after), _FIRST
        while after < until:
            entries = await self._page(key, place, count)
            if not entries:
                if not await self._calls(lambda: self._redis.exists(key)):
                    raise LogGone(run_id)
                if until < _BEYOND:
                    raise LogGap(run_id, after + 1, until + 1)
                return
            place, discarded = entries[-1][0], is_discard_mark(entries[-1])
            ready = frames_in(entries)
            size = sum(len(frames.data) for frames in ready)
            count = max(1, min(_MOST, count * CHUNK_BYTES // max(size, 1)))
            del entries
            for frames in ready:
                rest = frames.after(after)
                if rest is None:
                    continue
                if rest.first != after + 1:
                    raise LogGap(run_id, after + 1, rest.first)
                after = rest.last
                yield rest
            if discarded:
                raise LogGone(run_id)
            if place == CLOSED:
                return

    async def last(self, key: str) -> list[Entry]:
        """The last two entries, the very last first; fewer when there are not so many. Raises LogError."""
        found: Any = await self._calls(lambda: self._redis.xrevrange(key, count=2))
        entries: list[Entry] = found
        return entries

    async def _page(self, key: str, place: bytes, count: int) -> list[Entry]:
        streams: Any = await self._calls(lambda: self._redis.xread({key: place}, count=count))
        entries: list[Entry] = streams[0][1] if streams else []
        return entries

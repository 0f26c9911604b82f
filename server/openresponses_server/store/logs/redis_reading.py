"""Reads the ends of live logs in Redis once for all readers of this process.

One task and one connection read all of them, so the cost for Redis does not depend on the number of readers.
Recent entries stay in a window per run; a reader that has fallen behind it reads pages of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, Final

import structlog
from redis.asyncio import Redis

from openresponses_server.store.frames import Frames
from openresponses_server.store.logs.base import CHUNK_BYTES, LogError, LogGap, LogGone
from openresponses_server.store.logs.redis_entries import (
    CLOSED,
    Calls,
    Entry,
    frames_in,
    is_discard_mark,
    last_number,
    place_after,
)
from openresponses_server.store.logs.window import FrameWindow

_FIRST: Final = 16  # entries of the first page
_MOST_ENTRIES: Final = 256
_BEYOND: Final = 2**63
"""A number above that of any event."""


class Pages:
    """Reads logs page by page, for readers that begin or have fallen behind. A reader holds one page of about
    `CHUNK_BYTES`, or one entry. The pages of all readers share the few connections of `redis`, and wait for
    one however long that takes."""

    def __init__(self, redis: Redis, calls: Calls) -> None:
        self._redis = redis
        self._calls = calls

    async def read(self, key: str, run_id: str, after: int, until: int = _BEYOND) -> AsyncIterator[Frames]:
        """Yield the frames with a number above `after`, up to the number `until`, or to the present end of
        the log. Raises LogGone, LogGap, LogError."""
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
            count = max(1, min(_MOST_ENTRIES, count * CHUNK_BYTES // max(size, 1)))
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
        """Return the last two entries, newest first; fewer if the log is shorter. Raises LogError."""
        reply: Any = await self._calls(lambda: self._redis.xrevrange(key, count=2))
        entries: list[Entry] = reply
        return entries

    async def _page(self, key: str, place: bytes, count: int) -> list[Entry]:
        streams: Any = await self._calls(lambda: self._redis.xread({key: place}, count=count))
        entries: list[Entry] = streams[0][1] if streams else []
        return entries


_ENTRIES_AT_ONCE: Final = 64  # of each log
_BLOCK: Final = 0.1  # seconds that Redis waits for entries; a log added to the reading waits as long
_CHECKED_EVERY: Final = 5.0  # seconds without an entry after which the log's existence is checked
_UNREAD: Final = 1.0  # seconds of reading after the last reader has left
_MOST: Final = 1024 * 1024  # bytes of one window
_LEAST: Final = 128 * 1024
_MOST_TOGETHER: Final = 64 * 1024 * 1024  # of all windows
_CANCELLED_AGAIN: Final = 0.5  # seconds
_log = structlog.get_logger(__name__)


class Tail:
    """The end of one log: the events after `start`, read from the position `place` on."""

    def __init__(self, run_id: str, start: int) -> None:
        self.start = start
        self.place = place_after(start)
        self.window = FrameWindow(run_id)
        self.unread_since = time.monotonic()
        self.seen_at = time.monotonic()
        self._readers = 0

    @contextmanager
    def reader(self) -> Iterator[None]:
        """Count a reader while the context lasts."""
        self._readers += 1
        try:
            yield
        finally:
            self._readers -= 1
            self.unread_since = time.monotonic()

    def wanted(self, now: float) -> bool:
        """Return True if anybody needs further entries."""
        unread = not self._readers and now - self.unread_since > _UNREAD
        return not (unread or self.window.ended)

    def feed(self, entries: list[Entry], most: int) -> None:
        """Add entries; the window keeps the newest, up to `most` bytes."""
        self.seen_at = time.monotonic()
        for frames in frames_in(entries):
            self.window.append(frames)
        self.place = entries[-1][0]
        if is_discard_mark(entries[-1]):
            self.window.empty(LogGone(self.window.run_id))
        elif self.place == CLOSED:
            self.window.end()
        if self.window.bytes > most:
            self.window.cut(most * 3 // 4)


class Tails:
    """The tails that have readers, by the keys of their streams. `pages` reads earlier events."""

    def __init__(self, redis: Redis, calls: Calls, pages: Pages) -> None:
        self._redis = redis
        self._calls = calls
        self._pages = pages
        self._tails: dict[str, Tail] = {}
        self._reading: asyncio.Task[None] | None = None

    async def read(self, key: str, run_id: str, after: int) -> AsyncIterator[Frames]:
        """Yield frames as `EventLog.read` does with `wait`."""
        tail = self._tails.get(key) or await self._begin(key, run_id, after)
        with tail.reader():
            until = tail.start
            while True:
                async for frames in self._pages.read(key, run_id, after, until):
                    after = frames.last
                    yield frames
                try:
                    async for frames in tail.window.read(after):
                        after = frames.last
                        yield frames
                    return
                except LogGap as gap:  # for this reader only, or in the log: then the pages raise it too
                    until = gap.found - 1

    async def close(self) -> None:
        """Stop reading; remaining readers get LogError."""
        reading = self._reading
        while reading is not None and not reading.done():
            reading.cancel()  # again, since the client may mistake a cancellation for its own timeout
            await asyncio.wait([reading], timeout=_CANCELLED_AGAIN)
        self._end_all(LogError())  # a task that was cancelled before its first step did not do this

    def _end_all(self, failure: Exception) -> None:
        self._reading = None
        tails, self._tails = self._tails, {}
        for tail in tails.values():
            tail.window.end(failure)

    async def _begin(self, key: str, run_id: str, after: int) -> Tail:
        """Return a new tail from that event on, or from the log's present end. Raises LogGone, LogError."""
        last = await self._pages.last(key)
        if not last or is_discard_mark(last[0]):
            raise LogGone(run_id)
        if key in self._tails:  # by another reader, meanwhile
            return self._tails[key]
        if last[0][0] == CLOSED:
            whole = Tail(run_id, last_number(last[-1][0]))
            whole.window.end()
            return whole
        tail = self._tails[key] = Tail(run_id, min(after, last_number(last[0][0])))
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_all())
        return tail

    async def _read_all(self) -> None:
        """Read while any tail is wanted."""
        failure: Exception = LogError()
        try:
            while self._look_over():
                places: dict[Any, Any] = {key: tail.place for key, tail in self._tails.items()}
                for key, entries in await self._calls(lambda at=places: self._next(at)):  # type: ignore[misc]
                    if (tail := self._tails.get(key.decode())) is not None:
                        tail.feed(entries, self._room)
                await self._check()
        except LogError as error:
            failure = error
        except Exception:
            _log.exception("event_log.reading_failed")
        finally:
            self._end_all(failure)

    async def _next(self, places: dict[Any, Any]) -> Any:
        return await self._redis.xread(places, count=_ENTRIES_AT_ONCE, block=round(_BLOCK * 1000)) or []

    @property
    def _room(self) -> int:
        """The limit in bytes of each window."""
        return min(_MOST, max(_LEAST, _MOST_TOGETHER // max(len(self._tails), 1)))

    def _look_over(self) -> bool:
        """Remove tails that nobody reads. Returns whether any is left."""
        now = time.monotonic()
        for key, tail in list(self._tails.items()):
            if not tail.wanted(now):
                del self._tails[key]
        return bool(self._tails)

    async def _check(self) -> None:
        """Check tails without recent entries: their logs may have been lost."""
        now = time.monotonic()
        quiet = {key: tail for key, tail in self._tails.items() if now - tail.seen_at > _CHECKED_EVERY}
        if not quiet:
            return

        async def there() -> list[bool]:
            async with self._redis.pipeline(transaction=False) as pipe:
                for key in quiet:
                    pipe.exists(key)
                found: list[bool] = await pipe.execute()
                return found

        for tail, found in zip(quiet.values(), await self._calls(there), strict=True):
            tail.seen_at = now
            if not found:
                tail.window.end(LogGone(tail.window.run_id))

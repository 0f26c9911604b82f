"""Event logs in this process: a list per run, and one event for all who wait at its end."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from typing import Final

from server.event_logs.base import CHUNK_BYTES, LIFETIME, LINGER, LogGap, LogGone
from server.frames import Frames, joined

_MAX_LOG_BYTES: Final = 32 * 1024 * 1024
_MAX_BYTES: Final = 256 * 1024 * 1024


class _Log:
    """Frames from `dropped` on: as many were there before them and were dropped, for the limit."""

    __slots__ = ("bytes", "changed", "closed_at", "discarded", "dropped", "frames", "opened_at")

    def __init__(self, opened_at: float) -> None:
        self.opened_at = opened_at
        self.frames: list[Frames] = []
        self.dropped = 0
        self.bytes = 0
        self.closed_at: float | None = None
        self.discarded = False
        self.changed: asyncio.Event | None = None

    async def wait(self) -> None:
        """Until something has been appended or the log has ended."""
        if self.changed is None:
            self.changed = asyncio.Event()
        await self.changed.wait()

    def wake(self) -> None:
        if self.changed is not None:
            self.changed.set()
            self.changed = None


class MemoryLog:
    """Logs of runs in this process. One log holds its last `max_log_bytes`, all of them together
    `max_bytes`: the oldest that are closed go first, then the first halves of the largest. A closed one goes
    after `linger` seconds, one that nobody closes after `lifetime`, also while nothing happens."""

    at_hand = True

    def __init__(
        self,
        linger: float = LINGER,
        max_log_bytes: int = _MAX_LOG_BYTES,
        max_bytes: int = _MAX_BYTES,
        clock: Callable[[], float] = time.monotonic,
        lifetime: float = LIFETIME,
    ) -> None:
        self._linger = linger
        self._lifetime = lifetime
        self._max_log_bytes = max_log_bytes
        self._max_bytes = max_bytes
        self._clock = clock
        self._logs: dict[str, _Log] = {}
        self._closed: OrderedDict[str, _Log] = OrderedDict()  # as they were closed
        self._discarded: dict[str, float] = {}  # when
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    async def check(self) -> None:
        return None

    async def open(self, run_id: str) -> None:
        if run_id in self._discarded:
            raise LogGone(run_id)
        self._forget(run_id)
        self._expire()
        self._logs[run_id] = _Log(self._clock())

    async def append(self, run_id: str, frames: Frames) -> None:
        log = self._logs.get(run_id)
        if log is None or log.closed_at is not None:
            raise LogGone(run_id)
        log.frames.append(frames)
        log.bytes += len(frames.data)
        self._bytes += len(frames.data)
        if log.bytes > self._max_log_bytes:
            self._cut(log, self._max_log_bytes * 3 // 4)
        if self._bytes > self._max_bytes:
            self._make_room()
        log.wake()

    async def read(self, run_id: str, after: int = -1, *, wait: bool = True) -> AsyncIterator[Frames]:
        self._expire()
        log = self._logs.get(run_id)
        if log is None:
            raise LogGone(run_id)
        place = _place(log, after)
        while not log.discarded:
            index = place - log.dropped
            if index < 0:
                raise LogGap(run_id, after + 1, log.frames[0].first)
            if index == len(log.frames):
                if log.closed_at is not None or not wait:
                    return
                await log.wait()
                continue
            ready, count = _together(log.frames, index)
            place += count
            rest = ready.after(after)
            if rest is not None:
                if rest.first != after + 1:
                    raise LogGap(run_id, after + 1, rest.first)
                after = rest.last
                yield rest
        raise LogGone(run_id)

    async def close(self, run_id: str) -> None:
        log = self._logs.get(run_id)
        if log is not None and log.closed_at is None:
            log.closed_at = self._clock()
            self._closed[run_id] = log
            log.wake()
            self._expire()

    async def discard(self, run_id: str) -> None:
        self._forget(run_id)
        self._discarded[run_id] = self._clock()
        self._expire()

    async def shutdown(self) -> None:
        for run_id in list(self._logs):
            self._forget(run_id)
        self._discarded.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _forget(self, run_id: str) -> None:
        log = self._logs.pop(run_id, None)
        if log is not None:
            self._closed.pop(run_id, None)
            self._bytes -= log.bytes
            log.discarded = True
            log.wake()

    def _make_room(self) -> None:
        """Closed logs first, then the first halves of the open ones, the largest first; all halves at most,
        so that this is not to be done again soon."""
        self._expire()
        if self._bytes <= self._max_bytes:
            return
        for log in sorted(self._logs.values(), key=lambda log: log.bytes, reverse=True):
            if self._bytes <= self._max_bytes * 7 // 8:
                return
            self._cut(log, log.bytes // 2)

    def _cut(self, log: _Log, keep: int) -> None:
        """Drop the front, a large part at once so that the list is not moved with every append."""
        count = 0
        while log.bytes > keep and count < len(log.frames) - 1:
            size = len(log.frames[count].data)
            log.bytes -= size
            self._bytes -= size
            count += 1
        del log.frames[:count]
        log.dropped += count

    def _expire(self) -> None:
        """Drop closed logs whose time is over, and more while there is too much. Readers that are
        within one keep it and read on."""
        now = self._clock()
        wait = min(self._linger, self._lifetime)
        while self._closed:
            run_id, log = next(iter(self._closed.items()))
            assert log.closed_at is not None
            left = log.closed_at + self._linger - now
            if left > 0 and self._bytes <= self._max_bytes:
                wait = min(wait, left)
                break
            del self._closed[run_id], self._logs[run_id]
            self._bytes -= log.bytes
        if self._timer is None and (self._logs or self._discarded):
            self._timer = asyncio.get_running_loop().call_later(wait, self._look_again)

    def _look_again(self) -> None:
        """When nothing else happens."""
        self._timer = None
        now = self._clock()
        for run_id, log in list(self._logs.items()):
            if log.opened_at + self._lifetime <= now:
                self._forget(run_id)
        for run_id, since in list(self._discarded.items()):
            if since + self._linger <= now:
                del self._discarded[run_id]
        self._expire()


def _place(log: _Log, after: int) -> int:
    """The index of the first frames to read: by halves, since a log may be long."""
    return log.dropped + bisect_right(log.frames, after, key=lambda frames: frames.last)


def _together(frames: list[Frames], index: int) -> tuple[Frames, int]:
    """What is there from `index` on as one, up to a size, and how many of the list that are."""
    end, size = index, 0
    while end < len(frames) and size < CHUNK_BYTES:
        size += len(frames[end].data)
        end += 1
    together = joined(frames[index:end])
    assert together is not None
    return together, end - index

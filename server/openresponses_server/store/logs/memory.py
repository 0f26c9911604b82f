"""Event logs in the memory of this process: a window per run."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Final

from openresponses_server.store.frames import Frames
from openresponses_server.store.logs.base import LIFETIME, LINGER, MARKED, Appender, Failed, LogGone
from openresponses_server.store.logs.window import FrameWindow

_MAX_LOG_BYTES: Final = 32 * 1024 * 1024
_MAX_BYTES: Final = 256 * 1024 * 1024


class _Log:
    """The frames of one run, and when its log was opened or closed."""

    __slots__ = ("closed_at", "opened_at", "window")

    def __init__(self, run_id: str, opened_at: float) -> None:
        self.opened_at = opened_at
        self.closed_at: float | None = None
        self.window = FrameWindow(run_id)


class MemoryLog:
    """Logs of runs in this process.

    A log keeps its last `max_log_bytes`, all logs together `max_bytes`: the oldest closed ones are dropped
    first, then the first halves of the largest. A closed log is dropped after `linger` seconds, one that
    nobody closes after `lifetime`, even while nothing happens.
    """

    at_hand = True
    shared = False

    def __init__(
        self,
        linger: float = LINGER,
        max_log_bytes: int = _MAX_LOG_BYTES,
        max_bytes: int = _MAX_BYTES,
        clock: Callable[[], float] = time.monotonic,
        lifetime: float = LIFETIME,
        marked: float = MARKED,
    ) -> None:
        self._linger = linger
        self._marked = marked
        self._lifetime = lifetime
        self._max_log_bytes = max_log_bytes
        self._max_bytes = max_bytes
        self._clock = clock
        self._logs: dict[str, _Log] = {}
        self._closed: OrderedDict[str, _Log] = OrderedDict()  # in the order of closing
        self._discarded: dict[str, float] = {}  # when each was discarded
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    async def check(self) -> None:
        return None

    async def open(self, run_id: str) -> None:
        if run_id in self._discarded:
            raise LogGone(run_id)
        self._remove(run_id)
        self._expire()
        self._logs[run_id] = _Log(run_id, self._clock())

    async def append(self, run_id: str, frames: Frames) -> None:
        self._add(run_id, frames)

    def appender(self, run_id: str) -> Appender:
        return partial(self._add, run_id)

    def _add(self, run_id: str, frames: Frames, _failed: Failed | None = None) -> None:
        log = self._logs.get(run_id)
        if log is None or log.closed_at is not None:
            raise LogGone(run_id)
        log.window.append(frames)
        self._bytes += len(frames.data)
        if log.window.bytes > self._max_log_bytes:
            # remove a large part at once, so that the list is not moved by every append
            self._bytes -= log.window.cut(self._max_log_bytes * 3 // 4)
        if self._bytes > self._max_bytes:
            self._make_room()

    async def read(self, run_id: str, after: int = -1, *, wait: bool = True) -> AsyncIterator[Frames]:
        self._expire()
        log = self._logs.get(run_id)
        if log is None:
            raise LogGone(run_id)
        async for frames in log.window.read(after, wait=wait):
            yield frames

    async def acquire(self, run_id: str) -> None:
        return None

    def leave(self, run_id: str) -> None:
        return None

    async def close(self, run_id: str) -> None:
        log = self._logs.get(run_id)
        if log is not None and log.closed_at is None:
            log.closed_at = self._clock()
            self._closed[run_id] = log
            log.window.end()
            self._expire()

    async def discard(self, run_id: str) -> None:
        self._remove(run_id)
        self._discarded[run_id] = self._clock()
        self._expire()

    async def shutdown(self) -> None:
        for run_id in list(self._logs):
            self._remove(run_id)
        self._discarded.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _remove(self, run_id: str) -> None:
        log = self._logs.pop(run_id, None)
        if log is not None:
            self._closed.pop(run_id, None)
            self._bytes -= log.window.bytes
            log.window.empty(LogGone(run_id))

    def _make_room(self) -> None:
        """Drop closed logs first, then the first halves of the open ones, the largest first; at most all
        halves, so that this is not needed again soon."""
        self._expire()
        if self._bytes <= self._max_bytes:
            return
        for window in sorted((log.window for log in self._logs.values()), key=lambda each: -each.bytes):
            if self._bytes <= self._max_bytes * 7 // 8:
                return
            self._bytes -= window.cut(window.bytes // 2)

    def _expire(self) -> None:
        """Drop expired closed logs, and more while there is too much. Readers of a dropped log keep it and
        read on."""
        now = self._clock()
        wait = min(self._linger, self._lifetime, self._marked)
        while self._closed:
            run_id, log = next(iter(self._closed.items()))
            assert log.closed_at is not None
            left = log.closed_at + self._linger - now
            if left > 0 and self._bytes <= self._max_bytes:
                wait = min(wait, left)
                break
            del self._closed[run_id], self._logs[run_id]
            self._bytes -= log.window.bytes
        if self._timer is None and (self._logs or self._discarded):
            self._timer = asyncio.get_running_loop().call_later(wait, self._look_again)

    def _look_again(self) -> None:
        """Drop logs while nothing else happens."""
        self._timer = None
        now = self._clock()
        for run_id, log in list(self._logs.items()):
            if log.opened_at + self._lifetime <= now:
                self._remove(run_id)
        for run_id, since in list(self._discarded.items()):
            if since + self._marked <= now:
                del self._discarded[run_id]
        self._expire()

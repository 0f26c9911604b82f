"""The writing end of one run's event log. A log is a convenience: when it fails, the run goes on, and
readers are served from the store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final

import structlog

from server.event_logs.base import CHUNK_BYTES, EventLog, LogError, LogGone
from server.frames import Frames, joined

_PATIENCE: Final = 0.5  # seconds that a run waits for its log, once
_FIRST_PAUSE: Final = 0.5  # seconds until a log that failed is tried again, twice as many each time
_LONGEST_PAUSE: Final = 10.0
_TRIES_AFTER_END: Final = 6
_MOST_WAITING: Final = 4 * 1024 * 1024  # bytes kept for a log that fails; readers find the rest in the store
_log = structlog.get_logger(__name__)


class LogWriter:
    """Appends in order; while the log works, a call returns when its frames are there. After a failure a task
    of its own tries again, and what comes meanwhile waits there, not the run."""

    def __init__(self, log: EventLog, run_id: str) -> None:
        self._log = log
        self._run_id = run_id
        self.opened = False
        self._gone = False
        self._ended = False
        self._waiting: list[Frames] = []
        self._waiting_bytes = 0
        self._failing = False
        self._catching_up: asyncio.Task[None] | None = None

    @property
    def at_hand(self) -> bool:
        """The log is in this process, so that to append waits for nothing."""
        return self._log.at_hand and self.opened

    async def open(self) -> None:
        """Begin the log."""
        self.opened = True
        self._failing = not await self._tried(self._log.open(self._run_id))

    async def append(self, frames: Frames) -> None:
        """Add these, unless the log was never opened or is gone."""
        if not self.opened or self._gone:
            return
        if self._log.at_hand:  # the usual case, once for each read of an upstream
            await self._add(frames)
            return
        self._wait_with(frames)
        await self._go_on()

    async def close(self) -> None:
        """The run has ended and is stored."""
        if self.opened and not self._gone:
            self._ended = True
            await self._go_on()

    async def give_up(self, *, keep: bool) -> None:
        """The run was deleted: nothing of it is to be read here. With `keep` it is another worker's, and
        a log that is shared is its log too."""
        if self.opened:
            self._leave()
            if self._log.at_hand or not keep:
                await self._tried(self._log.discard(self._run_id))

    async def _go_on(self) -> None:
        if not self._failing:
            self._failing = not await self._tried(self._pass_on())
        if self._failing and self._catching_up is None:
            self._catching_up = asyncio.create_task(self._catch_up())

    async def _catch_up(self) -> None:
        """Until all that waits is there, or there was time enough."""
        pause, tries = _FIRST_PAUSE, _TRIES_AFTER_END
        while self._failing and tries:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            tries -= self._ended
            self._failing = not await self._tried(self._pass_on())
        self._catching_up = None
        if self._failing:
            self._leave()

    async def _pass_on(self) -> None:
        """Append what waits, and close behind the last."""
        while self._waiting and not self._gone:
            together = self._portion()
            try:
                await self._add(together)
            except BaseException:
                later, self._waiting, self._waiting_bytes = self._waiting, [], 0
                for frames in (together, *later):
                    self._wait_with(frames)
                raise
        if self._ended and not self._gone:
            await self._log.close(self._run_id)

    def _portion(self) -> Frames:
        """The first of what waits, which does not wait any more: about as much as readers get at once."""
        count, size = 1, len(self._waiting[0].data)
        while count < len(self._waiting) and size + len(self._waiting[count].data) <= CHUNK_BYTES:
            size += len(self._waiting[count].data)
            count += 1
        together = joined(self._waiting[:count])
        assert together is not None
        del self._waiting[:count]
        self._waiting_bytes -= size
        return together

    def _wait_with(self, frames: Frames) -> None:
        self._waiting.append(frames)
        self._waiting_bytes += len(frames.data)
        if self._waiting_bytes > _MOST_WAITING:
            self._waiting = [frames]
            self._waiting_bytes = len(frames.data)

    async def _add(self, frames: Frames) -> None:
        try:
            await self._log.append(self._run_id, frames)
        except LogGone:
            self._leave()

    def _leave(self) -> None:
        self._gone = True
        self._waiting.clear()

    async def _tried(self, call: Awaitable[None]) -> bool:
        """Whether the log did it, in time."""
        try:
            async with asyncio.timeout(_PATIENCE):
                await call
        except LogGone:
            self._leave()
        except (LogError, TimeoutError):
            _log.warning("event_log.failed", response_id=self._run_id)
            return False
        return True

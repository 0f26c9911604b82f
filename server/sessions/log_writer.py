"""The writing end of one run's event log. A log is a convenience: when it fails, the run goes on, and
readers are served from the store."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from server.event_logs.base import EventLog, LogError, LogGone
from server.frames import Frames, joined

_PATIENCE: Final = 1.0  # seconds that a run waits for its log
_QUIET: Final = 2.0  # seconds until a log that failed is tried again
_log = structlog.get_logger(__name__)


class LogWriter:
    """Appends in order; what could not be appended goes with what comes next."""

    def __init__(self, log: EventLog, run_id: str) -> None:
        self._log = log
        self._run_id = run_id
        self.opened = False
        self._gone = False
        self._waiting: list[Frames] = []
        self._quiet_until = 0.0

    async def open(self) -> None:
        """Begin the log."""
        self.opened = True
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._log.open(self._run_id)
        except (LogError, TimeoutError):
            self._failed()

    async def append(self, frames: Frames) -> None:
        """Add these, unless the log was never opened or is gone."""
        if not self.opened or self._gone:
            return
        if self._log.at_hand:  # the usual case, once for each read of an upstream
            await self._add(frames)
            return
        self._waiting.append(frames)
        if asyncio.get_running_loop().time() < self._quiet_until:
            return
        together = joined(self._waiting)
        assert together is not None
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._add(together)
        except (LogError, TimeoutError):
            self._failed()
        else:
            self._waiting.clear()

    async def _add(self, frames: Frames) -> None:
        try:
            await self._log.append(self._run_id, frames)
        except LogGone:
            self._gone = True

    async def close(self) -> None:
        """The run has ended and is stored."""
        if self.opened and not self._gone:
            try:
                async with asyncio.timeout(_PATIENCE):
                    await self._log.close(self._run_id)
            except (LogError, TimeoutError):
                self._failed()

    def _failed(self) -> None:
        self._quiet_until = asyncio.get_running_loop().time() + _QUIET
        _log.warning("event_log.failed", response_id=self._run_id)

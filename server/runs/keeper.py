"""One task per process makes the checkpoints of all its runs, so that no stream waits for the store while
it streams."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Final

import structlog

from server.sessions.persistence import ResponseSessionPersistenceTransformer

_AT_ONCE: Final = 8
_UNSAVED_FOR: Final = 3600.0  # seconds that an end which could not be stored is kept to be stored later
_log = structlog.get_logger(__name__)


class Keeper:
    """Holds what has to be kept going: leases of runs that are quiet, frames that wait for their
    checkpoint, ends that the store did not take."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._kept: dict[str, ResponseSessionPersistenceTransformer] = {}
        self._left: dict[str, float] = {}
        self._woken = asyncio.Event()

    def add(self, kept: ResponseSessionPersistenceTransformer) -> None:
        """From now on."""
        self._kept[kept.response_id] = kept

    def leave(self, kept: ResponseSessionPersistenceTransformer, *, ended: bool) -> None:
        """Its run is over. One that was broken off has no end to store: its lease runs out, and then it
        is settled."""
        if ended and not kept.saved and not kept.lost:
            self._left[kept.response_id] = time.monotonic()
        else:
            self._kept.pop(kept.response_id, None)

    def wake(self) -> None:
        """A checkpoint is due now."""
        self._woken.set()

    async def keep(self) -> None:
        """For as long as the process lives."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval / 2):
                    await self._woken.wait()
            self._woken.clear()
            try:
                await self.pass_once()
            except Exception:
                _log.exception("keeper.failed")

    async def pass_once(self) -> None:
        """Make every checkpoint that is due."""
        now = time.time()
        due = [kept for kept in self._kept.values() if kept.due(now)]
        for start in range(0, len(due), _AT_ONCE):
            await asyncio.gather(*(kept.checkpoint() for kept in due[start : start + _AT_ONCE]))
        for response_id, since in list(self._left.items()):
            kept = self._kept[response_id]
            if kept.saved or kept.lost or time.monotonic() - since > _UNSAVED_FOR:
                del self._left[response_id], self._kept[response_id]

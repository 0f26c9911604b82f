"""One task per process makes the checkpoints of all its runs, so that no stream waits for the store while
it streams; another renews all their leases in one statement, so that no lease runs out while others'
checkpoints are made."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

import structlog

from openresponses_bridge.errors import BridgeError
from openresponses_server.store.base import ResponseStore, StoreError
from openresponses_server.store.persistence import ResponseSessionPersistenceTransformer

_AT_ONCE: Final = 8
_LAST_SECONDS: Final = 3.0
_UNSAVED_FOR: Final = 3600.0  # seconds that an end which could not be stored is kept to be stored later
_log = structlog.get_logger(__name__)


class Keeper:
    """Holds what has to be kept going: leases, frames that wait for their checkpoint, ends that the store
    did not take. A checkpoint is due every `interval` seconds, and a lease is for `lease` seconds."""

    def __init__(self, store: ResponseStore, interval: float, lease: float) -> None:
        self._store = store
        self._interval = interval
        self._lease = lease
        self._kept: dict[str, tuple[ResponseSessionPersistenceTransformer, Callable[[], None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._left: dict[str, float] = {}
        self._doubted: set[str] = set()
        self._renewing = asyncio.Lock()
        self._renewed_at = -math.inf
        self._woken = asyncio.Event()

    def start(self, making: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run this in a task of its own, which goes on when its waiter leaves."""
        task = asyncio.create_task(making)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, BridgeError):
            _log.error("run.internal_error", exc_info=error)

    async def drain(self) -> None:
        """Wait for the runs that are under way and break off the others; store what was not stored yet,
        and hand over the rest: another worker makes what waited for its turn and settles what was broken
        off."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_LAST_SECONDS)
        handed_over = {kept.response_id: kept.worker for kept, _ in self._kept.values() if kept.held}
        for task in self._tasks:
            task.cancel()
        try:
            async with asyncio.timeout(_LAST_SECONDS):
                await self.pass_once()
                if handed_over:
                    await self._store.renew(handed_over, await self._store.now())
        except (StoreError, TimeoutError):
            _log.warning("keeper.not_stored", responses=len(handed_over))

    def add(self, kept: ResponseSessionPersistenceTransformer, lose: Callable[[], None]) -> None:
        """From now on; `lose` is called when it turns out that nothing of it can be stored any more."""
        self._kept[kept.response_id] = kept, lose

    def leave(self, kept: ResponseSessionPersistenceTransformer, *, ended: bool) -> None:
        """Its run is over. One that was broken off has no end to store: its lease runs out, and then it
        is settled. One that ended with its first batch is stored already, and one whose beginning could not
        be stored has been refused."""
        if ended and kept.response_id in self._kept and kept.held:
            self._left[kept.response_id] = time.monotonic()
        else:
            self._kept.pop(kept.response_id, None)

    def look_at(self, response_id: str) -> None:
        """Something has happened to its record: see whether the run still holds it."""
        if response_id in self._kept:
            self._doubted.add(response_id)
            self.wake()

    def wake(self) -> None:
        """A checkpoint is due now."""
        self._woken.set()

    async def renew(self) -> None:
        """Renew the leases of all runs; many that ask for it at once are served at once. Raises
        StoreError."""
        asked_at = time.monotonic()
        async with self._renewing:
            if self._renewed_at > asked_at:
                return
            while True:
                begun_at = time.monotonic()
                await self._renew_held()
                if time.monotonic() - begun_at < self._lease / 2:
                    break  # else the store was slow to do it, and what it wrote is nearly over
            self._renewed_at = begun_at

    async def _renew_held(self) -> None:
        held = {kept.response_id: kept.worker for kept, _ in self._kept.values() if kept.held}
        if held:
            for response_id in await self._store.renew(held, await self._store.now() + self._lease):
                # It may have ended meanwhile, so that it is looked at once more.
                self.look_at(response_id)

    async def keep_leases(self) -> None:
        """For as long as the process lives."""
        while True:
            await asyncio.sleep(self._lease / 4)
            try:
                await self.renew()
            except StoreError as error:
                _log.warning("lease.not_renewed", code=error.code)
            except Exception:
                _log.exception("keeper.failed")

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
        now = time.monotonic()
        doubted, self._doubted = self._doubted, set()
        due = [each for name, each in self._kept.items() if name in doubted or each[0].due(now)]
        for start in range(0, len(due), _AT_ONCE):
            await asyncio.gather(*(_checkpoint(*each) for each in due[start : start + _AT_ONCE]))
        for response_id, since in list(self._left.items()):
            kept, _ = self._kept[response_id]
            if kept.saved or kept.lost or time.monotonic() - since > _UNSAVED_FOR:
                del self._left[response_id], self._kept[response_id]


async def _checkpoint(kept: ResponseSessionPersistenceTransformer, lose: Callable[[], None]) -> None:
    await kept.checkpoint()
    if kept.lost:
        lose()

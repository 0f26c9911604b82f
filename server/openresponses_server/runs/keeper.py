"""One task per process makes the checkpoints of all its runs, so that no stream waits for the store; another
renews all their leases in one statement, so that no lease runs out while checkpoints are made."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

import structlog
from msgspec import Struct

from openresponses_bridge.errors import BridgeError
from openresponses_server.errors import without_frames
from openresponses_server.store.base import WRITTEN_TOGETHER, ResponseStore, StoreError
from openresponses_server.store.persistence import ResponseSessionPersistenceTransformer
from openresponses_server.store.writers import LeaseTerm
from openresponses_server.tasks import jittered

_LAST_SECONDS: Final = 3.0
_UNSAVED_FOR: Final = 3600.0  # seconds that an end is kept which could not be stored yet
_log = structlog.get_logger(__name__)


class _Kept(Struct):
    persistence: ResponseSessionPersistenceTransformer
    on_lost: Callable[[], None]
    ended_at: float | None = None
    """When the run ended, if its end is not stored yet."""


class Keeper:
    """Makes the checkpoints of this process' runs, renews their leases, and stores the ends that the store
    refused before. A checkpoint is due every `interval` seconds, and a lease is for `lease` seconds, by the
    `clock` of the runs."""

    def __init__(
        self,
        store: ResponseStore,
        interval: float,
        lease: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._interval = interval
        self._lease = lease
        self._clock = clock
        self._kept: dict[tuple[str, str], _Kept] = {}
        """By the response and the worker that holds it: a run that was lost may come back to this process
        while its first attempt still ends."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._to_recheck: set[str] = set()
        self._renewing = asyncio.Lock()
        self._renewed_at = -math.inf
        self.term = LeaseTerm()
        """Until when the leases are held."""
        self._woken = asyncio.Event()

    def start(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run this in a task of its own, which continues if the caller is cancelled."""
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        try:
            task.result()  # by which, unlike `exception`, the task lets go of the frames
        except asyncio.CancelledError:
            pass
        except BridgeError as error:
            without_frames(error)
        except Exception as error:
            _log.error("run.internal_error", exc_info=error)

    async def drain(self) -> None:
        """Wait a little for the runs to end, and cancel the others; store what was not stored yet, and
        release the leases: another worker makes the queued runs and settles the cancelled ones."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_LAST_SECONDS)
        released = self._held()
        for task in self._tasks:
            task.cancel()
        try:
            async with asyncio.timeout(_LAST_SECONDS):
                await self.make_due_checkpoints()
                if released:
                    await self._store.renew(released, await self._store.now())
        except (StoreError, TimeoutError):
            _log.warning("keeper.not_stored", responses=len(released))

    def add(self, persistence: ResponseSessionPersistenceTransformer, on_lost: Callable[[], None]) -> None:
        """Make the checkpoints of this run from now on; `on_lost` is called when its record turns out to be
        another worker's."""
        self._kept[persistence.response_id, persistence.worker] = _Kept(persistence, on_lost)

    def remove(self, persistence: ResponseSessionPersistenceTransformer, *, ended: bool) -> None:
        """The run has ended here. It is kept until its end is stored; so is the failure of a run whose
        beginning the store may have without having confirmed it. Any other run needs nothing more: it is
        stored, or it was aborted, and is settled when its lease expires, or it was refused, since not even
        its beginning could be stored."""
        name = persistence.response_id, persistence.worker
        there = self._kept.get(name)
        if persistence.unsettled and not persistence.held:
            self.retract(persistence)
        elif ended and there is not None and persistence.held:
            there.ended_at = self._clock()
        else:
            self._kept.pop(name, None)

    def retract(self, persistence: ResponseSessionPersistenceTransformer) -> None:
        """The request of this run was refused because the store did not answer. If the store may have the
        response nevertheless, store that it failed as soon as the store answers: its client was sent that."""
        if persistence.unsettled:
            persistence.retract()
            self._kept[persistence.response_id, persistence.worker] = _Kept(
                persistence, _nothing, self._clock()
            )

    def recheck(self, response_id: str) -> None:
        """The record of this run has changed: check soon whether it still belongs to the run."""
        self._to_recheck.add(response_id)
        self.wake()

    def wake(self) -> None:
        """A checkpoint is due now."""
        self._woken.set()

    async def renew(self) -> None:
        """Renew the leases of all runs; callers that wait at the same time share one renewal. Raises
        StoreError."""
        asked_at = self._clock()
        async with self._renewing:
            if self._renewed_at > asked_at:
                return
            while True:
                begun_at = self._clock()
                await self._renew_held()
                if self._clock() - begun_at < self._lease / 2:
                    break  # else the store was so slow that the leases are nearly over again
            self._renewed_at = begun_at
            self.term.until = begun_at + self._lease

    async def _renew_held(self) -> None:
        if leases := self._held():
            for response_id in await self._store.renew(leases, await self._store.now() + self._lease):
                # The run may have ended meanwhile: check it once more.
                self.recheck(response_id)

    def _held(self) -> dict[str, str]:
        """The runs whose leases are this process's: response id → its worker, the latest of several."""
        runs = [each.persistence for each in self._kept.values()]
        return {each.response_id: each.worker for each in runs if each.held}

    async def renew_leases(self) -> None:
        """Renew them in time, until cancelled."""
        while True:
            await asyncio.sleep(jittered(self._lease / 4))
            try:
                await self.renew()
            except StoreError as error:
                _log.warning("lease.not_renewed", code=error.code)
            except Exception:
                _log.exception("keeper.failed")

    async def make_checkpoints(self) -> None:
        """Make those that are due, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval / 2):
                    await self._woken.wait()
            self._woken.clear()
            try:
                await self.make_due_checkpoints()
            except Exception:
                _log.exception("keeper.failed")

    async def make_due_checkpoints(self) -> None:
        """Make every checkpoint that is due."""
        now = self._clock()
        to_recheck, self._to_recheck = self._to_recheck, set()
        due = [
            each
            for each in self._kept.values()
            if each.persistence.response_id in to_recheck or each.persistence.due(now)
        ]
        for start in range(0, len(due), WRITTEN_TOGETHER):
            await asyncio.gather(*map(_checkpoint, due[start : start + WRITTEN_TOGETHER]))
        for name, each in list(self._kept.items()):
            since, persistence = each.ended_at, each.persistence
            if since is not None and (
                persistence.saved or persistence.lost or self._clock() - since > _UNSAVED_FOR
            ):
                del self._kept[name]


def _nothing() -> None:
    return None


async def _checkpoint(each: _Kept) -> None:
    await each.persistence.checkpoint()
    if each.persistence.lost:
        each.on_lost()

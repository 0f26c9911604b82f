"""The writing end of one run's record in the store: its progress, then its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from msgspec.structs import replace

from openresponses_bridge.protocol.response import Response
from openresponses_server.store.base import NOBODY, Lease, ResponseStore, StoredResponse, UpstreamResponse
from openresponses_server.store.errors import StoreError, no_answer
from openresponses_server.store.frames import Frames, joined
from openresponses_server.store.records import linked

WAITING: Final = 60.0
"""Seconds after which any worker takes a run that waits, whatever the queue says."""

_BEGINNING: Final = 15.0  # seconds that it may take: nothing has been sent, so there is time
_FIRST_PAUSE: Final = 0.05  # seconds before the end is stored again
_SHORTEST: Final = 1.0  # seconds that any attempt may take


class RecordWriter:
    """Stores what is `pending` with the response as `snapshot` gives it. A lease is for `lease` seconds;
    `patience` is how many the end may take; `upstream` gives the upstream's own response, where it keeps one,
    to be stored with the end. Every call raises StoreError, and
    LeaseLost when `worker` does not hold the run; each may be made again."""

    def __init__(
        self,
        record: StoredResponse,
        snapshot: Callable[[], Response],
        store: ResponseStore,
        worker: str,
        *,
        lease: float,
        patience: float,
        stored: bool,
        clock: Callable[[], float],
        upstream: Callable[[], UpstreamResponse | None],
    ) -> None:
        self._record = record
        self._snapshot = snapshot
        self._store = store
        self._worker = worker
        self._lease = lease
        self._patience = patience
        self._clock = clock
        self._upstream = upstream
        self._refusal: StoreError | None = None
        self.stored = stored
        """The record is stored."""
        self.saved = False
        """The end is durable."""
        self.pending: list[Frames] = []
        """The frames since the last checkpoint, in order."""

    async def offer(self) -> None:
        """Store the response for whichever worker takes its run."""
        lease = Lease(NOBODY, await self._store.now() + WAITING)
        await self._store.put(replace(self._record, response=self._snapshot(), lease=lease))

    async def progress(self) -> None:
        """Store how far the run is and renew its lease."""
        lease = Lease(self._worker, await self._store.now() + self._lease)
        passed = len(self.pending)
        frames = joined(self.pending)
        if self.stored:
            response = None if frames is None else self._snapshot()
            await self._store.checkpoint(self._record.response.id, lease, response, frames)
        else:
            try:
                await self._store.put(replace(self._record, response=self._snapshot(), lease=lease), frames)
            except StoreError as error:
                self._refusal = error
                raise
            self.stored = True
        del self.pending[:passed]

    def check(self) -> None:
        """Raises StoreError when the store refused the beginning."""
        if self._refusal is not None and not self.stored:
            raise self._refusal

    async def give_back(self) -> None:
        """Let whichever worker takes it make the response."""
        held = {self._record.response.id: self._worker}
        await self._in_time(self._give_back(held), self._patience)

    async def _give_back(self, held: dict[str, str]) -> None:
        await self._store.give_back(held, await self._store.now())

    async def begin_in_time(self) -> None:
        """Store that the run, which is stored as queued, has begun."""
        await self._in_time(self._begin(), max(self._patience, _BEGINNING))

    async def _begin(self) -> None:
        lease = Lease(self._worker, await self._store.now() + self._lease)
        begun = replace(self._snapshot(), status="in_progress")
        await self._store.checkpoint(self._record.response.id, lease, begun)

    async def progress_in_time(self) -> None:
        """Store how far the run is before anything of the response is sent."""
        await self._in_time(self.progress(), max(self._patience, _BEGINNING))

    async def end(self, response: Response) -> None:
        """Store how the run ended and give up its lease."""
        frames = joined(self.pending)
        response = linked(response, self._upstream())
        if self.stored:
            await self._store.finish(self._record.response.id, self._worker, response, frames)
        else:
            await self._store.put(replace(self._record, response=response, lease=None), frames)
        self.pending.clear()
        self.saved = True

    async def insist_on_end(self, response: Response, deadline: float) -> None:
        """Store the end, again and again until then; once where it is the beginning too, of which nothing was
        sent: then it can be refused."""
        if not self.stored:
            return await self._in_time(self.end(response), max(self._patience, _BEGINNING))
        pause = _FIRST_PAUSE
        while True:
            try:
                return await self._in_time(self.end(response), deadline - self._clock())
            except StoreError:
                if self._clock() + pause > deadline:
                    raise
            await asyncio.sleep(pause)
            pause *= 2

    async def _in_time(self, storing: Coroutine[Any, Any, None], seconds: float) -> None:
        """A store that does not answer counts as out of reach; what it did all the same is done again."""
        try:
            async with asyncio.timeout(max(seconds, _SHORTEST)):
                await storing
        except TimeoutError as error:
            raise no_answer() from error

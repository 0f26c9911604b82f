"""`ResponseSessionPersistenceTransformer`: the events of a run pass through it and are kept.

What passes goes to the event log at once, for those who read along, and to the store by checkpoints:
the snapshot and the frames since the last one. The end passes when it is durable, and not before
(law S1). Batches pass whole, and nothing is done per event but the encoding, which the client's answer
needs anyway.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable

import structlog

from bridge.protocol.codec import encode_sse
from bridge.protocol.events import TERMINAL_EVENTS, Event, OutputItemDone
from bridge.protocol.response import Response
from server.event_logs.base import EventLog
from server.frames import Frames
from server.sessions.base import ResponseStore, StoredResponse
from server.sessions.endings import LOST, failed_instead
from server.sessions.errors import LeaseLost, StoreError
from server.sessions.log_writer import LogWriter
from server.sessions.record_writer import RecordWriter

_log = structlog.get_logger(__name__)


def _nothing() -> None:
    return None


class ResponseSessionPersistenceTransformer:
    """Keeps one run's response.

    `record` is what is stored besides the response: input, owner, request, expiry. `snapshot` gives the
    response as it stands; `worker` is this run's own name (see `Lease`). A checkpoint is due `interval`
    seconds after the last one and at each finished item; the owner of this object calls `checkpoint()` then,
    and `wake` says that one is due now. `patience` is how many seconds the end may take to be stored before
    it is reported to the client as not stored. `stored`: the record is there already, held under `worker`.
    """

    def __init__(
        self,
        record: StoredResponse,
        snapshot: Callable[[], Response],
        store: ResponseStore,
        log: EventLog,
        worker: str,
        *,
        wire: str = "openresponses",
        interval: float = 1.0,
        lease: float = 10.0,
        patience: float = 5.0,
        stored: bool = False,
        wake: Callable[[], None] = _nothing,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.response_id = record.response.id
        self.worker = worker
        self.batch = Frames(0, -1, b"")
        """The frames of the batch that passed last: the bytes for those who read server-sent events."""
        self.lost = False
        """Another worker has settled the run, or it was deleted: nothing more can be stored."""
        self._record = RecordWriter(
            record, snapshot, store, worker, lease=lease, patience=patience, stored=stored, clock=clock
        )
        self._log = LogWriter(log, self.response_id)
        self._wire = wire
        self._interval = interval
        self._wake = wake
        self._clock = clock
        self._begun = False
        self._final: Response | None = None
        self._next_at = clock() + interval
        self._writing = asyncio.Lock()

    @property
    def held(self) -> bool:
        """There is a record, and it is this run's: it has a lease."""
        return self._record.stored and not self.saved and not self.lost

    @property
    def saved(self) -> bool:
        """The end is durable."""
        return self._record.saved

    async def transform(self, batches: AsyncIterable[list[Event]]) -> AsyncIterator[list[Event]]:
        """A whole stream, checkpoints made in passing."""
        async for events in batches:
            kept = await self.take(events)
            if self.due(self._clock()):
                await self.checkpoint()
            yield kept

    async def queue(self, *, for_anybody: bool = False) -> None:
        """Store the response before its run begins, here or, `for_anybody`, wherever a worker takes it.
        Raises StoreError."""
        if for_anybody:
            await self._log.open()
            await self._record.offer()
        else:
            await self.checkpoint(always=True)
            await self._log.open()

    async def take(self, events: list[Event]) -> list[Event]:
        """Keep a batch; what may leave instead of it, which differs when the end could not be stored.

        Raises StoreError when not even the beginning can be stored: no event has been sent then.
        """
        if type(events[-1]) in TERMINAL_EVENTS:
            return await self._end(events)
        self._note(events)
        if not self._begun:
            # Before any event is sent: a response that is stored as queued would be made once more.
            await self.checkpoint(always=True)
            self._begun = True
        elif any(type(event) is OutputItemDone for event in events):
            self._next_at = 0.0
            self._wake()
        if not self.lost:
            if not self._log.opened:
                await self._log.open()
            await self._log.append(self.batch)
        return events

    def due(self, now: float) -> bool:
        """Whether a checkpoint has something to do: frames to store, or an end to store after all. It does
        not renew the lease of a run without new events (`Keeper` does)."""
        return self.held and now >= self._next_at and (bool(self._record.pending) or self._final is not None)

    async def checkpoint(self, *, always: bool = False) -> None:
        """Store what has passed since the last one and renew the lease. A checkpoint that fails is made up
        for by the next; with `always` it raises StoreError."""
        async with self._writing:
            if self.saved or self.lost:
                return
            try:
                if self._final is not None:
                    await self._record.end(self._final)
                elif always:
                    await self._record.progress_in_time()
                else:
                    await self._record.progress()
            except StoreError as error:
                if always:
                    raise
                _log.warning("checkpoint.failed", response_id=self.response_id, code=error.code)
            except LeaseLost:
                self._give_up()
            self._next_at = self._clock() + self._interval
        if self._final is not None:
            await self._end_log()

    async def _end(self, events: list[Event]) -> list[Event]:
        sent = events
        async with self._writing:
            self._note(events)
            try:
                if self.lost:
                    raise LeaseLost(self.response_id, self.worker)
                await self._record.insist_on_end(events[-1].response)  # type: ignore[union-attr]
            except (StoreError, LeaseLost) as error:
                sent = self._failed(events, error)
        if not self.lost:
            await self._log.append(self.batch)
        await self._end_log()
        return sent

    async def _end_log(self) -> None:
        """What is stored is read to its end; what is lost may have been deleted, and then nothing of it stays
        behind."""
        if self.saved:
            await self._log.close()
        elif self.lost:
            await self._log.discard()

    def _failed(self, events: list[Event], error: StoreError | LeaseLost) -> list[Event]:
        """The end to send when the real one could not be stored. It is stored when that is possible again."""
        if isinstance(error, LeaseLost):
            self._give_up()
        else:
            self._record.pending.pop()
        failed = failed_instead(events, LOST if self.lost else error, self._wire)  # type: ignore[arg-type]
        self._number(failed, self.batch.first)
        if not self.lost:
            self._record.pending.append(self.batch)
        self._final = failed[-1].response  # type: ignore[union-attr]
        return failed

    def _give_up(self) -> None:
        if self.lost:
            return
        self.lost = True
        self._record.pending.clear()
        _log.warning("run.lost", response_id=self.response_id)
        self._wake()

    def _note(self, events: list[Event]) -> None:
        self._number(events, self.batch.last + 1)
        if not self.lost:
            self._record.pending.append(self.batch)

    def _number(self, events: list[Event], first: int) -> None:
        """Law E2: numbers rise by one, so that a batch is known by its first."""
        self.batch = Frames(first, first + len(events) - 1, encode_sse(events))

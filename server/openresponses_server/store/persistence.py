"""`ResponseSessionPersistenceTransformer`: the events of a run pass through it and are stored.

Events go to the event log immediately, for its readers, and to the store in checkpoints: the snapshot and the
frames since the last one. The end is passed on only once it is durable (law S1). Batches pass whole; the only
work per event is the encoding, which the client's answer needs anyway.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final
from weakref import ref

import structlog
from msgspec import Struct
from msgspec.structs import replace

from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.codec import encode_sse
from openresponses_bridge.protocol.events import TERMINAL_EVENTS, Event, OutputItemDone
from openresponses_bridge.protocol.response import Response
from openresponses_server.store.base import (
    LeaseLost,
    ResponseStore,
    StoredResponse,
    StoreError,
    UpstreamResponse,
    no_answer,
)
from openresponses_server.store.endings import (
    closing_events,
    failed,
    failed_instead,
    is_there,
    lost,
    shows_output,
    stored_end,
)
from openresponses_server.store.frames import Frames, joined
from openresponses_server.store.idempotency import IdempotencyKey
from openresponses_server.store.logs.base import EventLog
from openresponses_server.store.writers import LogWriter, RecordWriter, StoringTimes

_MOST: Final = 16 * 1024 * 1024  # bytes of frames; beyond this, output is shown as it comes
_log = structlog.get_logger(__name__)


class EventBuffer:
    """Withholds the output of one background response until its end, so that another worker can make it again
    whenever this one stops. `wanted` is False if nothing is to be withheld."""

    def __init__(self, response_id: str, *, wanted: bool) -> None:
        self._id = response_id
        self.idle = not wanted
        """True if nothing is withheld, now or later."""
        self._wanted = wanted
        self._frames: list[Frames] = []
        self._size = 0

    def passing(self, events: list[Event]) -> list[Event]:
        """Return the events that may be sent now; the rest is withheld. If too much is withheld, everything
        may be sent from now on, beginning with the withheld events (`batch`)."""
        if not self._wanted:
            return events
        first = 0
        while not self._frames and first < len(events) and not shows_output(events[first : first + 1]):
            first += 1
        if first == len(events):
            return events
        if self._size > _MOST:
            self._wanted = False
            _log.warning("run.not_withheld", response_id=self._id, bytes=self._size)
            return events
        self._frames.append(frames_of(events[first:]))
        self._size += len(self._frames[-1].data)
        return events[:first]

    def stop(self) -> None:
        """Withhold nothing more: what was withheld is sent before the next events."""
        self._wanted = False

    def batch(self, events: Sequence[Event]) -> Frames:
        """Return the frames of these events, after the withheld ones before them."""
        frames = frames_of(events)
        if not self._frames:
            return frames
        whole = joined([*(each for each in self._frames if each.first < frames.first), frames])
        assert whole is not None
        return whole

    def shown(self, events: Sequence[Event]) -> Frames:
        """Return the frames of a batch that is sent, after the withheld frames before them. If nothing more
        is to be withheld, these are dropped here."""
        frames = self.batch(events)
        if self._frames and not self._wanted:
            self._frames.clear()
            self.idle = True
        return frames

    def of(self, snapshot: Callable[[], Response]) -> Callable[[], Response]:
        """Return a function that returns the response as the store may show it."""
        return lambda: replace(snapshot(), output=[], usage=None) if self._wanted else snapshot()


def frames_of(events: Sequence[Event]) -> Frames:
    """Return the frames of consecutive events of one stream."""
    first, last = events[0].sequence_number, events[-1].sequence_number
    return Frames(first, last, encode_sse(events))


# The limit in bytes of a last batch for the log, which would hold it as one; readers find a larger one in the
# store.
_LARGEST_LOGGED: Final = 8 * 1024 * 1024
_OF_TIMEOUT: Final = 0.8  # the part of it for which the end waits for a checkpoint
_CONFIRM_SECONDS: Final = 1.0  # for the store to answer whether this run still has its record


def _nothing() -> None:
    return None


class RecordOptions(Struct, frozen=True, kw_only=True):
    """One response's record, and what is called when it changes hands."""

    wire: str = "openresponses"
    stored: bool = False
    """True if the record exists and the run holds it under its name."""
    shared: bool = True
    """True if other workers may make a response that this one releases."""
    withheld: bool = False
    """True if the output of a background response is shown only when it has ended."""
    key: IdempotencyKey | None = None
    """The idempotency key of the response, from its beginning on."""
    upstream: Callable[[], UpstreamResponse | None] = _nothing
    """Returns the response that the upstream itself has stored."""
    wake: Callable[[], None] = _nothing
    """Called when a checkpoint is due now."""
    on_lost: Callable[[], None] = _nothing
    """Called when the record no longer belongs to this run."""


class ResponseSessionPersistenceTransformer:
    """Stores one run's response.

    `record` is everything stored besides the response: input, owner, request, expiry. `snapshot` returns the
    current response; `worker` is this run's own name (see `Lease`). A checkpoint is due some time after the
    last one and at each finished item. The owner of this object then calls `checkpoint()`.
    """

    def __init__(
        self,
        record: StoredResponse,
        snapshot: Callable[[], Response],
        store: ResponseStore,
        log: EventLog,
        worker: str,
        times: StoringTimes,
        options: RecordOptions,
    ) -> None:
        self.response_id = record.response.id
        self.worker = worker
        self.batch = Frames(0, -1, b"")
        """The frames of the last batch: the bytes for readers of server-sent events."""
        self.lost = False
        """True if another worker has settled the run, or it was deleted: nothing more can be stored. The
        client is sent the stored end, if there is one."""
        self._options = options
        self.upstream = options.upstream
        self._in_background = record.request is not None
        withheld = options.withheld and self._in_background
        self._withheld = EventBuffer(self.response_id, wanted=withheld)
        self._shown = self._withheld.of(snapshot)
        self._record = RecordWriter(
            record,
            self._shown,
            store,
            worker,
            times,
            stored=options.stored,
            upstream=options.upstream,
            key=options.key,
        )
        self._log = self._log_writer(log)
        self._lease = times.lease
        self._term = times.term
        self._held_until = -math.inf  # by the last checkpoint
        self._where = store, self.response_id, record.owner
        self._timeout = times.timeout
        self._settling = times.settling
        self._in_haste = times.in_haste
        self._interval = times.interval
        self._clock = times.clock
        self.seen = False
        """True if a part of the response is stored that may have been sent; for a background response, a part
        of its output."""
        self.sends_only_at_end = False
        """Record that none of it is sent before its end. Its beginning is then stored with the first
        checkpoint that is due, or with the end, and not before it is passed on."""
        self._final: Response | None = None
        self._made_elsewhere = False
        self.ended_elsewhere = False
        """True if the end that was sent is that of another worker."""
        self._next_at = self._clock() + self._interval
        self._writing = asyncio.Lock()

    def _log_writer(self, log: EventLog) -> LogWriter:
        this = ref(self)  # so that neither keeps the other

        async def look() -> None:
            """Look up whether another worker, which settles the run, has closed the log, or whether the log
            was lost."""
            if (persistence := this()) is not None:
                await persistence.checkpoint()

        async def store_instead() -> None:
            """Store the frames that the log does not have, before they are sent."""
            if (persistence := this()) is not None:
                await persistence.checkpoint(always=True)
                if persistence.lost:
                    raise LeaseLost(persistence.response_id, persistence.worker)

        return LogWriter(log, self.response_id, look, store_instead)

    @property
    def held(self) -> bool:
        """True if the record exists and belongs to this run: it has a lease."""
        return self._record.stored and not self.saved and not self.lost

    @property
    def only_reserves(self) -> bool:
        """True if the record stands for a key, and nothing of the response is stored or sent yet."""
        return self._options.key is not None and self.held and not (self.seen or self._in_background)

    @property
    def unsettled(self) -> bool:
        """True if the record may be stored although this run does not know it, and may differ from what the
        client was sent."""
        return self._record.unsure and not self.saved and not self.lost

    @property
    def saved(self) -> bool:
        """True if the end is durable."""
        return self._record.saved

    async def transform(self, batches: AsyncIterable[list[Event]]) -> AsyncIterator[list[Event]]:
        """Pass a whole stream through, with checkpoints on the way."""
        async for events in batches:
            outgoing = await self.persist(events)
            if self.due(self._clock()):
                await self.checkpoint()
            yield outgoing

    async def queue(self, *, for_anybody: bool = False) -> None:
        """Store the response before its run begins, here or, with `for_anybody`, at any worker that acquires
        it. Raises StoreError."""
        if for_anybody:
            await self._log.open()
            await self._record.offer()
        else:
            await self.checkpoint(always=True)
            await self._log.open()

    async def begin(self) -> None:
        """Store that a queued run has begun, before its upstream is asked, so that a crash of its worker is
        counted. Raises StoreError."""
        async with self._writing:
            try:
                await self._record.begin_in_time()
            except LeaseLost:
                self._give_up()

    def show(self) -> None:
        """Withhold no output from now on, so that the response is not made again."""
        self._withheld.stop()

    async def make_durable(self) -> bool:
        """Store what was made so far, before something that must not happen twice. Returns whether this run
        still has the record. Raises StoreError."""
        await self.checkpoint(always=True)
        return not self.lost

    async def release(self) -> bool:
        """Release the response to other workers if nobody can have seen any of its output. Returns whether
        they may make it. After that, this run stores nothing more."""
        if self.seen or not (self._in_background and self._options.shared):
            return False
        async with self._writing:
            if not self.held:
                return False
            try:
                await self._record.release()
            except StoreError:
                return False
            self._give_up()
        return True

    async def withdraw(self) -> None:
        """Delete the record of a request that was refused, so that its key may be used again. If that fails,
        the response ends as failed when its lease runs out."""
        store, response_id, owner = self._where
        async with self._writing:
            with suppress(StoreError, TimeoutError):
                async with asyncio.timeout(max(self._timeout, _CONFIRM_SECONDS)):
                    await store.delete(response_id, owner)
            self.lost = True
        await self._log.give_up(keep=False)

    async def persist(self, events: list[Event], unsent: list[Event] | None = None) -> list[Event]:
        """Store a batch. Returns the events to send instead, which differ if the end could not be stored.
        `unsent` are earlier events that were not sent, since the log did not acknowledge them: an end that
        another worker has stored replaces them too (`ended_elsewhere`). Raises StoreError if not even the
        beginning can be stored, or the first output of a background response, and LeaseLost as `append` does:
        then none of these events may be sent. With an upstream that sends only at its end, events may have
        been sent before."""
        if type(events[-1]) in TERMINAL_EVENTS:
            return await self._end(events, (unsent or events)[0].sequence_number - 1)
        if (pending := self.append(events)) is not None:
            await pending
        return events

    def append(self, events: list[Event]) -> Awaitable[object] | None:
        """Store a batch that is not the last, in a plain call. Returns None if it may be sent, else an
        awaitable to wait for first; a future is that of the log, raises nothing and needs no task. Raises
        LeaseLost once the record is known to be another worker's."""
        if self.lost:
            raise LeaseLost(self.response_id, self.worker)
        if self._withheld.idle:
            first, last = events[0].sequence_number, events[-1].sequence_number
            batch = Frames(first, last, encode_sse(events))
        elif events := self._withheld.passing(events):
            batch = self._withheld.shown(events)
        else:
            return None
        self.batch = batch
        self._record.pending.append(batch)
        if self.seen:
            if OutputItemDone in map(type, events):
                self._next_at = 0.0
                self._options.wake()
            now = self._clock()
            if now > self._held_until and now > self._term.until:
                return self._append_if_held()
            return self._log.append(batch)
        if not self.sends_only_at_end:
            return self._keep_first(events)
        self._record.check()
        return None

    async def _append_if_held(self) -> None:
        """Check the lease after it may have expired, for instance because the process was suspended: another
        worker may have settled the response, and then its readers and this client would see different ends.
        Raises LeaseLost in that case. While the store does not answer, nobody can settle the response; the
        store is asked again after the length of a lease, since it may answer by then although a checkpoint
        still waits on a lost connection."""
        batch = self.batch
        with suppress(TimeoutError):
            async with asyncio.timeout(_CONFIRM_SECONDS):
                await self.checkpoint()
        if self.lost:
            raise LeaseLost(self.response_id, self.worker)
        self._held_until = max(self._held_until, self._clock() + self._lease)
        if (pending := self._log.append(batch)) is not None:
            await pending

    async def _keep_first(self, events: list[Event]) -> None:
        # Store before sending: a background response can be made again as long as no output is stored.
        await self.checkpoint(always=True)
        self.seen = not self._in_background or shows_output(events)
        if not self.lost:
            await self._log.written(self.batch)

    def retract(self) -> None:
        """Store that the response failed, since its request was refused and the store may have its
        beginning."""
        if self._final is None:
            self._final = failed(self._shown(), no_answer())
            events = closing_events(self._final, -1)
            self._record.pending[:] = [Frames(0, len(events) - 1, encode_sse(events))]
        self._next_at = 0.0

    def due(self, now: float) -> bool:
        """Return True if a checkpoint has anything to do: store frames, or the end after a failure. A
        checkpoint is not due only to renew the lease of a run without new events (`Keeper` does that)."""
        can_store = self.held or self.unsettled or (self.sends_only_at_end and not self.saved)
        return can_store and now >= self._next_at and (bool(self._record.pending) or self._final is not None)

    async def checkpoint(self, *, always: bool = False) -> None:
        """Store the events since the last checkpoint and renew the lease. The next checkpoint makes up for a
        failed one; with `always` a failure raises StoreError."""
        async with self._writing:
            if self.saved or self.lost:
                return
            begun_at = self._clock()
            try:
                if self._final is not None:
                    await self._record.end(self._final)
                elif always:
                    await self._record.progress_in_time()
                else:
                    await self._record.progress()
                self.seen = self.seen or self.sends_only_at_end
                self._held_until = begun_at + self._lease
            except StoreError as error:
                if always:
                    raise
                _log.warning("checkpoint.failed", response_id=self.response_id, code=error.code)
            except LeaseLost:
                self._give_up()
            self._next_at = self._clock() + self._interval
        if self._final is not None:
            await self._end_log()

    async def _end(self, events: list[Event], seen: int) -> list[Event]:
        deadline = self._clock() + self._timeout
        try:
            async with asyncio.timeout(self._timeout * _OF_TIMEOUT):
                await self._writing.acquire()
        except TimeoutError:  # a checkpoint hangs
            self.batch = self._withheld.batch(events)
            events = self._unsaved(events, no_answer())
        else:
            try:
                events = await self._store_end(events, deadline)
            finally:
                self._writing.release()
        if self.lost:
            events = await self._lost(events, seen)
        else:
            if self._options.stored and not self._log.opened:
                await self._log.open()  # the worker that queued it has opened the log, in which readers wait
            if self._log.opened and (len(self.batch.data) <= _LARGEST_LOGGED or not self.saved):
                try:
                    await self._log.written(self.batch)
                except StoreError:
                    pass  # neither can have it now: the sent failure is stored once one of them can
                except LeaseLost:
                    events = await self._lost(events, seen)
        await self._end_log()
        return events

    async def _store_end(self, events: list[Event], deadline: float) -> list[Event]:
        self.batch = self._withheld.shown(events)
        try:
            if self.lost:
                raise LeaseLost(self.response_id, self.worker)
            self._record.pending.append(self.batch)
            await self._record.insist_on_end(events[-1].response, deadline)  # type: ignore[union-attr]
        except StoreError as error:
            self._record.pending.pop()
            return self._unsaved(events, error)
        except LeaseLost:
            self._give_up()
        return events

    def _unsaved(self, events: list[Event], error: StoreError) -> list[Event]:
        events = self._failed(events, error)
        if not self.lost:
            self._record.pending.append(self.batch)
        return events

    async def _end_log(self) -> None:
        """Close the log so that readers read a stored response to its end; a deleted response leaves no log
        behind, and the log of a released run belongs to the worker that makes it."""
        if self.saved or self.ended_elsewhere:
            await self._log.close()
        elif self.lost:
            await self._log.give_up(keep=self._made_elsewhere)

    async def _lost(self, events: list[Event], seen: int) -> list[Event]:
        """Return the end of a run that another worker has now: the events after `seen` that this worker has
        stored, so that all clients get the same."""
        lost_at = self._clock()

        def time_left() -> float:
            most = self._timeout if self._in_haste() else self._timeout + self._settling
            return lost_at + most - self._clock()

        end = await stored_end(*self._where, seen, time_left)
        if end is None:
            self._made_elsewhere = await is_there(*self._where, self._timeout)
            return self._failed(events, lost())
        self.ended_elsewhere = True
        self.batch = end.frames
        return end.events

    def _failed(self, events: list[Event], error: BridgeError) -> list[Event]:
        """Return the end to send if the real one could not be stored. It is stored as soon as possible."""
        failed = failed_instead(events, error, self._options.wire)
        self.batch = self._withheld.batch(failed)
        self._final = failed[-1].response  # type: ignore[union-attr]
        return failed

    def _give_up(self) -> None:
        if not self.lost:
            self.lost = True
            self._record.pending.clear()
            _log.warning("run.lost", response_id=self.response_id)
            self._options.on_lost()
            self._options.wake()

"""Writers of one run: to its event log and to its record in the store.

When the event log fails, the run continues, and readers are served from the store. A log on this machine is
tried again with the next frames; meanwhile, frames are stored before they are sent.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import structlog
from msgspec import Struct, field
from msgspec.structs import replace

from openresponses_bridge.protocol.response import Response
from openresponses_server.store.base import (
    NOBODY,
    Lease,
    ResponseStore,
    StoredResponse,
    StoreError,
    UpstreamResponse,
    no_answer,
)
from openresponses_server.store.frames import Frames, joined
from openresponses_server.store.idempotency import IdempotencyKey, KeyTaken
from openresponses_server.store.logs.base import CHUNK_BYTES, Appender, EventLog, LogError, LogGone
from openresponses_server.store.records import linked

_TIMEOUT: Final = 2.0  # seconds for which a run waits for its log, once
_FIRST_PAUSE: Final = 0.5  # seconds until a failed log is tried again, doubled each time
_LONGEST_PAUSE: Final = 10.0
_TRIES_AFTER_END: Final = 6
_MOST_WAITING: Final = 4 * 1024 * 1024  # buffered bytes for a failing log; readers find the rest in the store
_log = structlog.get_logger(__name__)


class LogWriter:
    """Appends frames to one log, in order. While the log works, the run waits for its frames to be appended.
    After a failure of a log that is not at hand, a separate task retries; new frames are buffered there and
    the run does not wait."""

    def __init__(
        self,
        log: EventLog,
        run_id: str,
        on_gone: Callable[[], Awaitable[None]],
        store: Callable[[], Awaitable[None]],
    ) -> None:
        """`on_gone` is awaited when the log turns out to be gone, before the run continues without it;
        `store` stores the frames that a log at hand does not have."""
        self._log = log
        self._run_id = run_id
        self._on_gone = on_gone
        self._store = store
        self.opened = False
        self._gone = False
        self._warned = False
        self._ended = False
        self._waiting: list[Frames] = []
        self._waiting_bytes = 0
        self._failing = False
        self._catching_up: asyncio.Task[None] | None = None
        self._add: Appender | None = None  # while the log works
        self._asked: Frames | None = None
        """The frames that were appended last; the log has them once `_answer` is done."""
        self._asked_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._answer: asyncio.Future[bool] | None = None  # what the run waits for, or last waited for

    async def open(self) -> None:
        """Open the log."""
        self.opened = True
        self._failing = not await self._tried(self._log.open(self._run_id))
        if self._failing and self._log.at_hand:
            self.opened = self._failing = False  # the next frames try it again
            return
        self._resume()

    def append(self, frames: Frames) -> Awaitable[object] | None:
        """Append frames, unless the log is gone. Returns None if they are appended, or buffered for a failing
        log; else an awaitable that is done when they are. A future needs no task, is done soon and raises
        nothing; a coroutine may store the frames instead, and raise what `store` does."""
        add, last = self._add, self._answer
        if add is None or (last is not None and (not last.done() or last.cancelled())):
            return self._append_behind(frames)
        try:
            answer = add(frames, self._failed)
        except LogGone:
            self._leave()
            return self._store()
        except LogError as error:
            self._warn(error)
            return self._store()
        if answer is None:
            return None
        loop = asyncio.get_running_loop()
        self._asked, self._asked_at, self._answer = frames, loop.time(), answer
        if self._timer is None:  # a coroutine for each call would cost more than the log
            self._timer = loop.call_later(_TIMEOUT, self._look)
        return answer

    async def written(self, frames: Frames) -> None:
        """Append frames and wait until they are appended."""
        if (there := self.append(frames)) is not None:
            await there

    async def close(self) -> None:
        """Close the log of a run whose end is stored."""
        if self.opened and not self._gone:
            self._ended = True
            self._undo()
            if not self._failing:
                self._failing = not await self._tried(self._pass_on())
            if self._failing:
                self._begin_to_catch_up(_FIRST_PAUSE)

    async def give_up(self, *, keep: bool) -> None:
        """Discard the log of a deleted run, so that nothing of it can be read. With `keep`, another worker
        makes the run, and keeps the log if it is shared."""
        if self.opened:
            self._leave()
            if not (keep and self._log.shared):
                await self._tried(self._log.discard(self._run_id))

    async def _begin(self, frames: Frames) -> None:
        await self.open()
        await (self.written(frames) if self.opened else self._store())

    def _append_behind(self, frames: Frames) -> Awaitable[object] | None:
        """Append these frames to a log that still has to be opened, or after the buffered frames and those
        that an interrupted call may not have appended."""
        if not self.opened:
            return self._begin(frames)
        if self._gone:
            return self._store() if self._log.at_hand else None
        self._undo()
        self._wait_with(frames)
        if self._failing:
            self._begin_to_catch_up(_FIRST_PAUSE)
            return None
        self._answer = asyncio.get_running_loop().create_future()
        self._begin_to_catch_up(0.0)
        return self._answer

    def _failed(self, answer: asyncio.Future[bool]) -> None:
        if answer is self._answer and not answer.done():  # else nothing waits for it any more
            self._undo()
            self._begin_to_catch_up(0.0)

    def _look(self) -> None:
        """Check whether an answer takes too long."""
        self._timer = None
        if self._asked is None or self._answer is None or self._answer.done():
            return
        loop = asyncio.get_running_loop()
        left = self._asked_at + _TIMEOUT - loop.time()
        if left > 0:
            self._timer = loop.call_later(left, self._look)
            return
        self._warn()
        self._undo()
        self._begin_to_catch_up(_FIRST_PAUSE)
        self._go_on()

    def _go_on(self) -> None:
        """Stop the run's wait for its log."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(False)

    def _resume(self) -> None:
        """Append by plain calls from now on if the log supports them."""
        self._add = None if self._failing or self._gone else self._log.appender(self._run_id)

    def _begin_to_catch_up(self, pause: float) -> None:
        self._failing, self._add = True, None
        if self._catching_up is None:
            self._catching_up = asyncio.create_task(self._catch_up(pause))

    async def _catch_up(self, pause: float) -> None:
        """Append all buffered frames, in a limited number of attempts after the run has ended."""
        tries = _TRIES_AFTER_END
        try:
            while self._failing and tries:
                await asyncio.sleep(pause)
                pause = min(max(2 * pause, _FIRST_PAUSE), _LONGEST_PAUSE)
                tries -= self._ended
                self._failing = not await self._tried(self._pass_on())
                self._resume()
                self._go_on()
            if self._failing:
                self._leave()
        finally:
            self._catching_up = None
            self._go_on()

    async def _pass_on(self) -> None:
        """Append the buffered frames. Then close the log if the run has ended."""
        while self._waiting and not self._gone:
            together = self._portion()
            try:
                await self._log.append(self._run_id, together)
            except BaseException:
                later, self._waiting, self._waiting_bytes = self._waiting, [], 0
                for frames in (together, *later):
                    self._wait_with(frames)
                raise
        if self._ended and not self._gone:
            await self._log.close(self._run_id)

    def _portion(self) -> Frames:
        """Remove and return the first buffered frames: about as much as a reader gets at once."""
        count, size = 1, len(self._waiting[0].data)
        while count < len(self._waiting) and size + len(self._waiting[count].data) <= CHUNK_BYTES:
            size += len(self._waiting[count].data)
            count += 1
        together = joined(self._waiting[:count])
        assert together is not None
        del self._waiting[:count]
        self._waiting_bytes -= size
        return together

    def _undo(self) -> None:
        """Buffer the frames that the log has not acknowledged, to be appended again."""
        frames, self._asked = self._asked, None
        answer = self._answer
        if frames is not None and answer is not None and (not answer.done() or answer.cancelled()):
            self._wait_with(frames)

    def _wait_with(self, frames: Frames) -> None:
        self._waiting.append(frames)
        self._waiting_bytes += len(frames.data)
        if self._waiting_bytes > _MOST_WAITING:
            self._waiting = [frames]
            self._waiting_bytes = len(frames.data)

    def _leave(self) -> None:
        self._gone = True
        self._log.leave(self._run_id)
        self._add = self._asked = None
        self._waiting.clear()
        self._go_on()

    async def _tried(self, call: Awaitable[None]) -> bool:
        """Await the call. Returns True if it succeeded in time."""
        try:
            async with asyncio.timeout(_TIMEOUT):
                await call
        except LogGone:
            self._gone = True
            await self._on_gone()
            self._leave()
        except (LogError, TimeoutError) as error:
            self._warn(error)
            return False
        return True

    def _warn(self, error: Exception | None = None) -> None:
        """Warn that the log failed: once for a run if the log is at hand, since it is tried again with each
        batch."""
        if self._log.at_hand and self._warned:
            return
        self._warned = True
        reason = {"reason": error.in_full} if isinstance(error, LogError) and error.details else {}
        _log.warning("event_log.failed", response_id=self._run_id, **reason)


WAITING: Final = 60.0
"""Seconds after which any worker may acquire a queued run, whether or not the queue has offered it."""

SETTLING: Final = 40.0
"""Seconds for which a run is held, at least, while it is settled: its log and its store may be slow."""

_BEGINNING: Final = 15.0  # seconds for the first write, which may take long since nothing has been sent
_FIRST_RETRY: Final = 0.05  # seconds until storing the end is tried again
_SHORTEST: Final = 1.0  # seconds for each attempt


class LeaseTerm:
    """The time (of `time.monotonic`) until which the leases that a process renews together are certainly its
    own."""

    until = -math.inf


class StoringTimes(Struct, frozen=True, kw_only=True):
    """The times for storing a run's response, in seconds, as measured by `clock`."""

    interval: float = 1.0
    """Between two checkpoints."""
    lease: float = 10.0
    timeout: float = 5.0
    """For storing the end; after that the response is reported as not stored."""
    certainty: float = 15.0
    """Added to `timeout` while it is unknown whether the end is stored, since readers may have it."""
    settling: float = SETTLING
    """Added to `timeout` for the end of a run that another worker settles."""
    in_haste: Callable[[], bool] = lambda: False
    """Returns True once the process is to end, which leaves no time for `certainty` and `settling`."""
    term: LeaseTerm = field(default_factory=LeaseTerm)
    """Updated when the leases of all runs are renewed."""
    clock: Callable[[], float] = time.monotonic


class RecordWriter:
    """Writes one run's record in the store: its progress, then its end.

    Stores the `pending` frames with the response that `snapshot` returns. `stored`: the record exists;
    `upstream` returns the upstream's own record of the response, if it keeps one, to be stored with the end;
    `key` stands for the response from its beginning on. Every call raises StoreError, and LeaseLost if
    `worker` does not hold the run; each may be repeated.
    """

    def __init__(
        self,
        record: StoredResponse,
        snapshot: Callable[[], Response],
        store: ResponseStore,
        worker: str,
        times: StoringTimes,
        *,
        stored: bool,
        upstream: Callable[[], UpstreamResponse | None],
        key: IdempotencyKey | None,
    ) -> None:
        self._record = record
        self._key = key
        self._snapshot = snapshot
        self._store = store
        self._worker = worker
        self._lease = times.lease
        self._timeout = times.timeout
        self._certainty = times.certainty
        self._in_haste = times.in_haste
        self._clock = times.clock
        self._upstream = upstream
        self._refusal: StoreError | None = None
        self.stored = stored
        """True if the record is stored."""
        self.saved = False
        """True if the end is durable."""
        self.unsure = False
        """True if the record may be stored although the store's answer is not known."""
        self.pending: list[Frames] = []
        """The frames since the last checkpoint, in order."""

    async def offer(self) -> None:
        """Store the response for any worker that acquires its run."""
        lease = Lease(NOBODY, await self._store.now() + WAITING)
        await self._put(lease)

    async def progress(self) -> None:
        """Store the run's progress and renew its lease."""
        lease = Lease(self._worker, await self._store.now() + self._lease)
        passed = len(self.pending)
        frames = joined(self.pending)
        if self.stored:
            response = None if frames is None else self._snapshot()
            await self._store.checkpoint(self._record.response.id, lease, response, frames)
        else:
            try:
                await self._put(lease, frames)
            except StoreError as error:
                self._refusal = error
                raise
            self.stored = True
        del self.pending[:passed]

    async def _put(
        self, lease: Lease | None, frames: Frames | None = None, response: Response | None = None
    ) -> None:
        self.unsure, was = True, self.unsure  # also if this call is cancelled
        record = replace(self._record, response=response or self._snapshot(), lease=lease)
        # an end that is stored without a beginning is a failure, for which no key stands
        named = {} if self._key is None or lease is None else {"key": self._key}
        try:
            await self._store.put(record, frames, **named)
        except KeyTaken:
            self.unsure = was
            raise
        except StoreError as error:
            self.unsure = was or error.uncertain
            raise
        self.unsure = False

    def check(self) -> None:
        """Raises StoreError if the store refused the beginning."""
        if self._refusal is not None and not self.stored:
            raise self._refusal

    async def release(self) -> None:
        """Release the run to any worker."""
        workers = {self._record.response.id: self._worker}
        await self._in_time(self._give_back(workers), self._timeout)

    async def _give_back(self, workers: dict[str, str]) -> None:
        await self._store.release(workers, await self._store.now())

    async def begin_in_time(self) -> None:
        """Store that the queued run has begun."""
        await self._in_time(self._begin(), max(self._timeout, _BEGINNING))

    async def _begin(self) -> None:
        lease = Lease(self._worker, await self._store.now() + self._lease)
        begun = replace(self._snapshot(), status="in_progress")
        await self._store.checkpoint(self._record.response.id, lease, begun)

    async def progress_in_time(self) -> None:
        """Store the run's progress before anything of the response is sent."""
        await self._in_time(self.progress(), max(self._timeout, _BEGINNING))

    async def end(self, response: Response) -> None:
        """Store the end of the run and release its lease."""
        frames = joined(self.pending)
        response = linked(response, self._upstream())
        if self.stored:
            conversation = self._record.conversation
            await self._store.finish(
                self._record.response.id, self._worker, response, frames, conversation=conversation
            )
        else:
            await self._put(None, frames, response)
        self.pending.clear()
        self.saved = True

    async def insist_on_end(self, response: Response, deadline: float) -> None:
        """Store the end, retrying until `deadline`. Try only once if nothing was stored or sent before, since
        the request can then be refused. Once it is unknown whether the end is stored, retry for longer, since
        a reader may have it."""
        pause = _FIRST_RETRY
        seconds = deadline - self._clock() if self.stored else max(self._timeout, _BEGINNING)
        certain_at: float | None = None
        while True:
            try:
                return await self._in_time(self.end(response), seconds)
            except StoreError as error:
                if error.uncertain and certain_at is None:
                    certain_at = max(deadline, self._clock()) + self._certainty
                if certain_at is not None and not self._in_haste():
                    until = certain_at
                else:
                    until = deadline if self.stored else -math.inf
                if self._clock() + pause > until:
                    raise
            await asyncio.sleep(pause)
            pause *= 2
            seconds = until - self._clock()

    async def _in_time(self, storing: Coroutine[Any, Any, None], seconds: float) -> None:
        """Await `storing`; treat a store that does not answer in time as unreachable."""
        try:
            async with asyncio.timeout(max(seconds, _SHORTEST)):
                await storing
        except TimeoutError as error:
            raise no_answer() from error

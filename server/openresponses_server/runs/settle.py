"""Settles runs whose worker stopped: resumes them, or ends them with what is known of them (law S1)."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

from openresponses_bridge.decoder import ResponseAccumulator
from openresponses_bridge.protocol.codec import decode_event, encode_sse
from openresponses_bridge.protocol.events import TERMINAL_EVENTS, Event
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.sse import SSEDecoder
from openresponses_server.runs.outcome import log_ended
from openresponses_server.store.base import Lease, LeaseLost, ResponseStore, StoredResponse, StoreError
from openresponses_server.store.endings import MAX_ATTEMPTS, closing_events, interrupted, previous_attempts
from openresponses_server.store.frames import Frames, joined
from openresponses_server.store.logs.base import EventLog, LogError, LogGap, LogGone
from openresponses_server.store.writers import SETTLING, WAITING

Renew = Callable[[], Awaitable[None]]
"""Renews the leases of this process' own runs."""

Rerun = Callable[[StoredResponse, str, int], Awaitable[None]]
"""Makes a response whose output nobody can have seen: its record, the worker name that holds it, and the
number of previous attempts."""

_Claim = Callable[[Lease, float], Awaitable[list[StoredResponse]]]

# seconds after which an idle worker claims a waiting run: its entry in the queue was lost
_QUEUED: Final = 3.0
# seconds to wait for a log on another machine, as long as its calls are retried: else its frames are lost
_LOG_TIMEOUT: Final = 10.0
_NOT_BEGUN: Final = "it could not begin"
_SETTLED: Final = "its worker stopped, and another one settled it"


async def _nothing_to_renew() -> None:
    return None


def _nothing() -> None:
    return None


class Settler:
    """Claims runs whose lease has expired or whose process has stopped, and settles them; each is claimed by
    one worker only.

    `lease` is for how many seconds a lease is renewed. `renew` is called before each look, so that a process
    which was too busy to renew its leases does not claim its own runs. `process` is the name of this process.
    `has_queue`: waiting runs go to whichever worker has a free slot.
    """

    def __init__(
        self,
        store: ResponseStore,
        log: EventLog,
        lease: float,
        renew: Renew = _nothing_to_renew,
        *,
        process: str = "settler",
        has_queue: bool = False,
    ) -> None:
        self._store = store
        self._event_log = log
        self._lease = lease
        self._renew = renew
        self._process = process
        self._has_queue = has_queue
        self._paused_until = -math.inf
        self.leaving = False
        """True if this process is to stop: it then claims nothing."""
        self.count: Callable[[], None] = _nothing
        """Called for each run that was ended."""
        self.rerun: Rerun | None = None
        """Resumes runs whose output nobody can have seen; without it they are ended, too."""

    async def sweep(self) -> int:
        """Settle every run whose lease has expired; returns how many. Raises StoreError."""
        total = 0
        claim = partial(self._store.claim_orphans, waiting=not self._has_queue)
        while orphans := await self._claim(claim):
            await self._release_or_resume(*orphans)
            total += len(orphans[0])
        return total

    async def settle(self, response_id: str) -> bool:
        """Settle this run if its lease has expired and no other worker claims it. Returns whether it was
        settled. Raises StoreError."""
        claimed = await self._claim(partial(self._claim_one, response_id))
        if claimed is not None:
            await self._release_or_resume(*claimed)
        return claimed is not None

    async def settle_process(self, process: str) -> int:
        """Settle the runs of a process that has stopped, whatever their leases; returns how many. Raises
        StoreError."""
        total = 0
        if self.leaving:
            return total
        lease = self._lease_from(await self._store.now())
        while left := await self._store.claim_of(process, lease):
            await self._release_or_resume(left, lease.worker)
            total += len(left)
            lease = self._lease_from(await self._store.now())
        return total

    async def resume_waiting(self, not_of: Collection[str] = ()) -> bool:
        """Resume one run that waits although this worker is idle, of any owner but these. Returns whether
        there was one. Raises StoreError."""
        now = await self._store.now()
        lease = Lease(self._new_worker(), now + self._lease)
        claimed = await self._store.claim_waiting(lease, now + WAITING - _QUEUED, not_of=not_of)
        for record in claimed:
            await self.resume(record, lease.worker)
        return bool(claimed)

    async def _claim_one(self, response_id: str, lease: Lease, now: float) -> list[StoredResponse]:
        record = await self._store.acquire(response_id, lease, now)
        return [] if record is None else [record]

    async def _release_or_resume(self, records: Sequence[StoredResponse], worker: str) -> None:
        """Release the runs that other workers may have a slot for, and resume the rest. All are held as
        `worker`."""
        waiting = {
            each.response.id: worker
            for each in (records if self._has_queue else ())
            if await self._attempts_so_far(each) is not None
        }
        if waiting:
            await self._store.release(waiting, await self._store.now() + WAITING - _QUEUED)
        rest = [each for each in records if each.response.id not in waiting]
        await asyncio.gather(*(self.resume(each, worker) for each in rest))

    async def _claim(self, claim: _Claim) -> tuple[list[StoredResponse], str] | None:
        """Runs whose lease has expired, and the worker name that holds them now. None right after the store
        was out of reach or slow, which lets all leases expire: each living worker has the length of a lease
        to renew its own."""
        if self.leaving:
            return None
        slow_at = time.monotonic() + self._lease / 4
        with self._pause_if_slow(slow_at):
            await self._renew()
            now = await self._store.now()
            if time.monotonic() < self._paused_until or time.monotonic() > slow_at:
                return None
            lease = self._lease_from(now)
            claimed = await claim(lease, now)
            return (claimed, lease.worker) if claimed else None

    def _lease_from(self, now: float) -> Lease:
        return Lease(self._new_worker(), now + max(self._lease, SETTLING))

    def _new_worker(self) -> str:
        return f"{self._process}-settler-{secrets.token_hex(8)}"

    @contextmanager
    def _pause_if_slow(self, slow_at: float) -> Iterator[None]:
        """Settle nothing for the length of a lease after the store failed or was slow."""
        failed = False
        try:
            yield
        except StoreError:
            failed = True
            raise
        finally:
            if failed or time.monotonic() > slow_at:
                self._paused_until = time.monotonic() + self._lease

    async def resume(self, record: StoredResponse, worker: str) -> None:
        """Make the response if it was queued, or aborted before anybody can have seen any output; else end
        it. It is held as `worker`."""
        begun = await self._attempts_so_far(record)
        if self.rerun is not None and begun is not None:
            await self.rerun(record, worker, begun)
            return
        await self.end(record, worker)

    async def previous_attempts(self, record: StoredResponse) -> int | None:
        """Return how often the response was begun; None if somebody can have seen output of it. If the log
        has more than the record, a worker of an earlier version sent that. Raises StoreError."""
        begun = await previous_attempts(self._store, record)
        if begun:
            sent, _ = await self._read(record.response.id, record.last_sequence)
            return None if sent else begun
        return begun

    async def _attempts_so_far(self, record: StoredResponse) -> int | None:
        """Return how often the response was begun, if it is to be made once more; else None."""
        begun = None if self.rerun is None else await self.previous_attempts(record)
        return None if begun is None or begun >= MAX_ATTEMPTS else begun

    async def end(
        self, record: StoredResponse, worker: str, ending: Callable[[Response], Response] | None = None
    ) -> Response | None:
        """End a run that is held, with the output that is stored or still in the log, by `ending` or else as
        interrupted; None if the response was deleted meanwhile."""
        response = record.response
        last = record.last_sequence
        await self._acquire_log(response.id)
        frames, whole = await self._tail(response.id, last)
        tail = joined(frames)
        terminal: Event | None = None
        if tail is not None:
            last = tail.last
            response, terminal = await self._replay(record, tail)
        if terminal is None:
            response = (
                interrupted(response, record.input, whole=whole) if ending is None else ending(response)
            )
            events = closing_events(response, last)
            closing = Frames(last + 1, last + len(events), encode_sse(events))
            ended = joined([tail, closing] if tail is not None else [closing])
        else:
            closing, ended = None, tail
        try:
            await self._store.finish(response.id, worker, response, ended, conversation=record.conversation)
        except LeaseLost:
            self._event_log.leave(response.id)
            return None
        log_ended(response, _SETTLED if ending is None else _NOT_BEGUN)
        self.count()
        await self._close_log(response.id, closing)
        return response

    async def _acquire_log(self, response_id: str) -> None:
        """Acquire the log from a worker that may only be suspended: what it appends later reaches no
        client."""
        with suppress(LogError, TimeoutError):
            async with self._log_time():
                await self._event_log.acquire(response_id)

    def _log_time(self) -> asyncio.Timeout:
        """Return the time limit for the log; None for a log of this process or machine, which can't be out of
        reach, and is slow only when everything is."""
        return asyncio.timeout(None if self._event_log.at_hand else _LOG_TIMEOUT)

    async def _tail(self, response_id: str, after: int) -> tuple[list[Frames], bool]:
        """The frames since the last checkpoint that the log still has, and whether these are all. The first
        events are stored before they are sent."""
        frames, sound = await self._read(response_id, after)
        if frames or after < 0:
            return frames, sound or not frames
        if not sound:
            return [], False
        # If the log has the event before, nothing was sent after it.
        before, sound = await self._read(response_id, after - 1)
        return [], sound and bool(before)

    async def _read(self, response_id: str, after: int) -> tuple[list[Frames], bool]:
        """The frames of the log above this number, and whether it could be read to its end."""
        batches: list[Frames] = []
        try:
            async with self._log_time():
                async for frames in self._event_log.read(response_id, after, wait=False):
                    batches.append(frames)
        except (LogGone, LogGap, LogError, TimeoutError):
            return batches, False
        return batches, True

    async def _replay(self, record: StoredResponse, tail: Frames) -> tuple[Response, Event | None]:
        """The response that the whole stream gives (law E1), and the terminal event if there is one."""
        whole = ResponseAccumulator()
        decoder = SSEDecoder()
        event: Event | None = None

        def fold(data: bytes) -> None:
            nonlocal event
            for frame in decoder.feed(data):
                event = decode_event(frame.data)
                whole.feed(event)

        async for piece in self._store.frames(record.response.id, record.owner):
            fold(piece.data)
        fold(tail.data)
        response = whole.response
        assert response is not None
        return response, event if type(event) in TERMINAL_EVENTS else None

    async def _close_log(self, response_id: str, closing: Frames | None) -> None:
        try:
            async with self._log_time():
                if closing is not None:
                    await self._event_log.append(response_id, closing)
                await self._event_log.close(response_id)
        except (LogGone, LogError, TimeoutError):  # its readers get the end from the store
            self._event_log.leave(response_id)

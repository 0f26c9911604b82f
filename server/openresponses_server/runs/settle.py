"""Runs whose worker stopped, brought to an end that says what happened (law S1)."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from openresponses_bridge.decoder import ResponseAccumulator
from openresponses_bridge.protocol.codec import decode_event, encode_sse
from openresponses_bridge.protocol.events import TERMINAL_EVENTS, Event
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.sse import SSEDecoder
from openresponses_server.runs.outcome import log_ended
from openresponses_server.store.base import Lease, LeaseLost, ResponseStore, StoredResponse, StoreError
from openresponses_server.store.endings import MAKINGS, closing_events, interrupted, makings
from openresponses_server.store.frames import Frames, joined
from openresponses_server.store.logs.base import EventLog, LogError, LogGap, LogGone
from openresponses_server.store.writers import WAITING

Renew = Callable[[], Awaitable[None]]
"""Renews the leases of this process' own runs."""

Rerun = Callable[[StoredResponse, str, int], Awaitable[None]]
"""Takes a response whose output nobody can have seen, the worker's name that holds it, and how often it was
begun."""

_Take = Callable[[Lease, float], Awaitable[list[StoredResponse]]]

_QUEUED: Final = 3.0  # seconds that a run may wait while a worker is idle; its entry in the queue was lost
_LOG_PATIENCE: Final = 3.0  # seconds to wait for the log
_SETTLING: Final = 15.0  # seconds that settling a run may take, its log out of reach and its store slow
_NOT_BEGUN: Final = "it could not begin"
_SETTLED: Final = "its worker stopped, and another one settled it"


async def _nothing_to_renew() -> None:
    return None


def _nothing() -> None:
    return None


class Settler:
    """Takes runs whose lease is over, or whose process has stopped, and settles each once, of all workers
    that try. `lease` is how many seconds living workers have to renew theirs. `renew` comes before each look:
    a process that had no time for its leases does not take its own runs for abandoned. `process` is the name
    of this one. `shares`: there is a queue, so that what waits goes to whichever worker has room.
    """

    def __init__(
        self,
        store: ResponseStore,
        log: EventLog,
        lease: float,
        renew: Renew = _nothing_to_renew,
        *,
        process: str = "settler",
        shares: bool = False,
    ) -> None:
        self._store = store
        self._event_log = log
        self._lease = lease
        self._renew = renew
        self._process = process
        self._shares = shares
        self._wary_until = -math.inf
        self.leaving = False
        """This process is to leave: it takes nothing up any more."""
        self.count: Callable[[], None] = _nothing
        """Called for each run that was settled."""
        self.rerun: Rerun | None = None
        """Takes up runs whose output nobody can have seen; without it they are settled too."""

    async def sweep(self) -> int:
        """Settle every run whose lease is over; how many there were. Raises StoreError."""
        total = 0
        claim = partial(self._store.claim_orphans, waiting=not self._shares)
        while orphans := await self._take(claim):
            await self._hand_on(*orphans)
            total += len(orphans[0])
        return total

    async def settle(self, response_id: str) -> bool:
        """Settle this one, if its lease is over and nobody else does; whether it was. Raises
        StoreError."""
        taken = await self._take(partial(self._acquire, response_id))
        if taken is not None:
            await self._hand_on(*taken)
        return taken is not None

    async def settle_all_of(self, process: str) -> int:
        """Settle the runs of a process that has stopped, whatever their leases; how many there were. Raises
        StoreError."""
        total = 0
        if self.leaving:
            return total
        lease = self._lease_from(await self._store.now())
        while left := await self._store.claim_of(process, lease):
            await self._hand_on(left, lease.worker)
            total += len(left)
            lease = self._lease_from(await self._store.now())
        return total

    async def take_waiting(self, not_of: Collection[str] = ()) -> bool:
        """Make one run that waits although a worker is idle, of any owner but these; whether there was one.
        Raises StoreError."""
        now = await self._store.now()
        lease = Lease(self._new_worker(), now + self._lease)
        taken = await self._store.claim_waiting(lease, now + WAITING - _QUEUED, not_of=not_of)
        for record in taken:
            await self.take_up(record, lease.worker)
        return bool(taken)

    async def _acquire(self, response_id: str, lease: Lease, now: float) -> list[StoredResponse]:
        record = await self._store.acquire(response_id, lease, now)
        return [] if record is None else [record]

    async def _hand_on(self, records: Sequence[StoredResponse], worker: str) -> None:
        """Give back what waits for its turn where others may have room for it, take up the rest. All are held
        as `worker`."""
        waiting = {
            each.response.id: worker
            for each in (records if self._shares else ())
            if await self._may_be_made(each) is not None
        }
        if waiting:
            await self._store.give_back(waiting, await self._store.now() + WAITING - _QUEUED)
        rest = [each for each in records if each.response.id not in waiting]
        await asyncio.gather(*(self.take_up(each, worker) for each in rest))

    async def _take(self, take: _Take) -> tuple[list[StoredResponse], str] | None:
        """Runs whose lease is over, and the name under which they are held now. None right after the store
        was out or slow: that ends all leases, and each living worker has the length of one to renew its
        own."""
        if self.leaving:
            return None
        slow_at = time.monotonic() + self._lease / 4
        with self._watching(slow_at):
            await self._renew()
            now = await self._store.now()
            if time.monotonic() < self._wary_until or time.monotonic() > slow_at:
                return None
            lease = self._lease_from(now)
            taken = await take(lease, now)
            return (taken, lease.worker) if taken else None

    def _lease_from(self, now: float) -> Lease:
        return Lease(self._new_worker(), now + max(self._lease, _SETTLING))

    def _new_worker(self) -> str:
        return f"{self._process}-settler-{secrets.token_hex(8)}"

    @contextmanager
    def _watching(self, slow_at: float) -> Iterator[None]:
        """Settle nothing for the length of a lease after the store failed or was late."""
        failed = False
        try:
            yield
        except StoreError:
            failed = True
            raise
        finally:
            if failed or time.monotonic() > slow_at:
                self._wary_until = time.monotonic() + self._lease

    async def take_up(self, record: StoredResponse, worker: str) -> None:
        """Make what is queued, and what was broken off before anybody can have seen of it; end the others. It
        is held as `worker`."""
        begun = await self._may_be_made(record)
        if self.rerun is not None and begun is not None:
            await self.rerun(record, worker, begun)
            return
        await self.end(record, worker)

    async def makings(self, record: StoredResponse) -> int | None:
        """How often a response was begun whose output nobody can have seen; None when somebody can. What the
        log has beyond the record was sent by a worker of an earlier version. Raises StoreError."""
        begun = await makings(self._store, record)
        if begun:
            sent, _ = await self._read(record.response.id, record.last_sequence)
            return None if sent else begun
        return begun

    async def _may_be_made(self, record: StoredResponse) -> int | None:
        """The same, if it is to be made here once more."""
        begun = None if self.rerun is None else await self.makings(record)
        return None if begun is None or begun >= MAKINGS else begun

    async def end(
        self, record: StoredResponse, worker: str, ending: Callable[[Response], Response] | None = None
    ) -> Response | None:
        """End a run that is held, its output what was stored and what the log still has, as `ending` says
        or else as interrupted; None when it was deleted meanwhile."""
        response = record.response
        last = record.last_sequence
        found, whole = await self._tail(response.id, last)
        tail = joined(found)
        terminal: Event | None = None
        if tail is not None:
            last = tail.last
            response, terminal = await self._folded(record, tail)
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
            await self._store.finish(response.id, worker, response, ended)
        except LeaseLost:
            return None
        log_ended(response, _SETTLED if ending is None else _NOT_BEGUN)
        self.count()
        await self._close_log(response.id, closing)
        return response

    async def _tail(self, response_id: str, after: int) -> tuple[list[Frames], bool]:
        """What was sent since the last checkpoint, as far as the log still has it, and whether that is all.
        The first events are stored before they are sent."""
        found, sound = await self._read(response_id, after)
        if found or after < 0:
            return found, sound or not found
        # A log that has the event before is there, and nothing has followed.
        before, sound = await self._read(response_id, after - 1)
        return [], sound and bool(before)

    async def _read(self, response_id: str, after: int) -> tuple[list[Frames], bool]:
        """What the log has above this number, and whether it came to an end there."""
        found: list[Frames] = []
        try:
            async with asyncio.timeout(_LOG_PATIENCE):
                async for frames in self._event_log.read(response_id, after, wait=False):
                    found.append(frames)
        except (LogGone, LogGap, LogError, TimeoutError):
            return found, False
        return found, True

    async def _folded(self, record: StoredResponse, tail: Frames) -> tuple[Response, Event | None]:
        """The response as the stream gives it (law E1), and the terminal event if there is one."""
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
            async with asyncio.timeout(_LOG_PATIENCE):
                if closing is not None:
                    await self._event_log.append(response_id, closing)
                await self._event_log.close(response_id)
        except (LogGone, LogError, TimeoutError):
            return

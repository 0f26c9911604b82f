"""Runs whose worker stopped, brought to an end that says what happened (law S1)."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import structlog

from bridge.decoder import ResponseAccumulator
from bridge.protocol.codec import decode_event, encode_sse
from bridge.protocol.events import TERMINAL_EVENTS, Event
from bridge.protocol.response import Response
from bridge.sse import SSEDecoder
from server.event_logs.base import EventLog, LogError, LogGap, LogGone
from server.frames import Frames, joined
from server.sessions.base import Lease, ResponseStore, StoredResponse
from server.sessions.endings import closing_events, interrupted
from server.sessions.errors import LeaseLost, StoreError
from server.sessions.record_writer import WAITING

Renew = Callable[[], Awaitable[None]]
"""Renews the leases of this process' own runs."""

Rerun = Callable[[StoredResponse, str], Awaitable[None]]
"""Takes a response that was queued and whose run nobody began, and the worker's name that holds it."""

_Take = Callable[[Lease, float], Awaitable[list[StoredResponse]]]

_QUEUED: Final = 3.0  # seconds that a run may wait while a worker is idle; its entry in the queue was lost
_LOG_PATIENCE: Final = 3.0  # seconds to wait for the log
_SETTLING: Final = 15.0  # seconds that settling a run may take, its log out of reach and its store slow
_log = structlog.get_logger(__name__)


async def _nothing_to_renew() -> None:
    return None


class Settler:
    """Takes runs whose lease is over and settles each once, of all workers that try. `lease` is how many
    seconds living workers have to renew theirs. `renew` comes before each look: a process
    that had no time for its leases does not take its own runs for abandoned.
    """

    def __init__(
        self, store: ResponseStore, log: EventLog, lease: float, renew: Renew = _nothing_to_renew
    ) -> None:
        self._store = store
        self._event_log = log
        self._lease = lease
        self._renew = renew
        self._wary_until = -math.inf
        self.rerun: Rerun | None = None
        """Takes up queued runs that no worker has begun; without it they are settled too."""

    async def sweep(self) -> int:
        """Settle every run whose lease is over; how many there were. Raises StoreError."""
        total = 0
        while orphans := await self._take(self._store.claim_orphans):
            await asyncio.gather(*(self.take_up(orphan, worker) for orphan, worker in orphans))
            total += len(orphans)
        return total

    async def settle(self, response_id: str) -> bool:
        """Settle this one, if its lease is over and nobody else does; whether it was. Raises
        StoreError."""
        taken = await self._take(partial(self._acquire, response_id))
        for record, worker in taken:
            await self.take_up(record, worker)
        return bool(taken)

    async def take_waiting(self, not_of: Collection[str] = ()) -> bool:
        """Make one run that waits although a worker is idle, of any owner but these; whether there was one.
        Raises StoreError."""
        now = await self._store.now()
        lease = Lease(f"settler-{secrets.token_hex(8)}", now + self._lease)
        taken = await self._store.claim_waiting(lease, now + WAITING - _QUEUED, not_of=not_of)
        for record in taken:
            await self.take_up(record, lease.worker)
        return bool(taken)

    async def _acquire(self, response_id: str, lease: Lease, now: float) -> list[StoredResponse]:
        record = await self._store.acquire(response_id, lease, now)
        return [] if record is None else [record]

    async def _take(self, take: _Take) -> list[tuple[StoredResponse, str]]:
        """Runs whose lease is over, and the name under which they are held now. None right after the store
        was out or slow: that ends all leases, and each living worker has the length of one to renew its
        own."""
        slow_at = time.monotonic() + self._lease / 4
        with self._watching(slow_at):
            await self._renew()
            now = await self._store.now()
            if time.monotonic() < self._wary_until or time.monotonic() > slow_at:
                return []
            worker = f"settler-{secrets.token_hex(8)}"
            lease = Lease(worker, now + max(self._lease, _SETTLING))
            return [(each, worker) for each in await take(lease, now)]

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
        """Make what is queued, and end what was broken off. It is held as `worker`."""
        if self.rerun is not None and record.request is not None and record.response.status == "queued":
            await self.rerun(record, worker)
            return
        await self.end(record, worker)

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
            response = interrupted(response, whole=whole) if ending is None else ending(response)
            events = closing_events(response, last)
            closing = Frames(last + 1, last + len(events), encode_sse(events))
            ended = joined([tail, closing] if tail is not None else [closing])
        else:
            closing, ended = None, tail
        try:
            await self._store.finish(response.id, worker, response, ended)
        except LeaseLost:
            return None
        _log.warning("run.settled", response_id=response.id, status=response.status)
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

"""Streams a stored response again: its frames from the store, then from the event log, with the same bytes
(law S2).

The store has the frames up to the last checkpoint and, once the run has ended, all of them. The log has the
newer ones. So the log only makes reading quicker: without it, readers wait for the next checkpoint.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

import structlog

from openresponses_bridge.protocol.codec import encode_sse
from openresponses_bridge.protocol.events import ErrorEvent, ResponseFailed
from openresponses_bridge.protocol.response import ErrorPayload
from openresponses_bridge.sse import DONE
from openresponses_server.errors import HttpError
from openresponses_server.limits.gate import Gate
from openresponses_server.runs.run import Run
from openresponses_server.runs.settle import Settler
from openresponses_server.store.base import (
    NOBODY,
    Lease,
    ResponseProgress,
    ResponseStore,
    StoredResponse,
    StoreError,
)
from openresponses_server.store.endings import INTERRUPTED
from openresponses_server.store.frames import Frames, sliced
from openresponses_server.store.logs.base import EventLog, LogError, LogGap, LogGone

STARTING_AFTER: Final = "starting_after"
"""The query parameter of the protocol's API: the number of the event after which a stream continues."""
# seconds without a frame until the record is read again: its worker may have stopped
_LOOK_AGAIN: Final = 2.0
_UNSURE_FOR: Final = 4.0  # seconds more that a request waits to know whether another worker sent an event


def _not_known_yet() -> HttpError:
    """Return the error for a sequence number when it is not known yet whether an event has it."""
    return HttpError(
        503,
        "It is not known yet whether the response has an event of that number: its worker has not reported "
        "since then. Try again.",
        code="worker_unreachable",
        param=STARTING_AFTER,
        headers={"retry-after": "2"},
    )


_log = structlog.get_logger(__name__)


class Follower:
    """Streams responses of one store, live ones from one log.

    All times are seconds: `pause` between two reads of the store when there is no log to read, `timeout` for
    a store that is out of reach, `interval` between two checkpoints of a run. `most` is how many bytes an
    upstream may send, and so how many events a response can have.
    """

    def __init__(
        self,
        store: ResponseStore,
        log: EventLog,
        settler: Settler,
        pause: float = 0.5,
        timeout: float = 30.0,
        most: int = 2**28,
        interval: float = 1.0,
    ) -> None:
        self._store = store
        self._log = log
        self._settler = settler
        self._pause = pause
        self._timeout = timeout
        self._most = most
        self._interval = interval

    async def check_starting_after(
        self, progress: ResponseProgress, after: int, sent: int | None = None
    ) -> None:
        """Check that a client can have seen the event `after`. `sent` is the number of the last event if this
        process makes the response. Raises HttpError 400 if nobody can have seen the event, and 503 if that is
        unknown because another worker makes the response and has not renewed its lease since. If neither is
        known by the time the response has ended, `follow` reports it."""
        if after <= progress.last_sequence:
            return
        if progress.lease is None:
            record = await self._store.get(progress.id, progress.owner)
            last = None if record is None or self._lacks_end(record, after) else progress.last_sequence
        else:
            last = await self._sent_elsewhere(progress, after) if sent is None else sent
        if last is not None and after > last:
            raise _no_such_event(last)

    async def follow(self, asked_for: ResponseProgress, after: int) -> AsyncIterator[bytes]:
        """The frames after the event `after`, then `[DONE]` once the terminal event was sent. Without
        `[DONE]` the response was deleted meanwhile, or the store could not be reached: the client can ask
        again for the rest.

        However large the response is, only a piece of it is in memory."""
        response_id, owner = asked_for.id, asked_for.owner
        progress: ResponseProgress | None = asked_for
        start = after
        had_ended = asked_for.lease is None
        stored = -1  # the number of the last event that came out of the store
        whole = True  # what was sent ends with a frame
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                progress = progress or await self._store.standing(response_id, owner)
                if progress is None:
                    return
                async for piece in self._store.frames(response_id, owner, after):
                    whole = piece.last is not None
                    if piece.data:
                        yield piece.data
                    if piece.last is not None:
                        after = stored = piece.last
                if not whole:
                    return
                if progress.lease is None:
                    # The store's last event is the end; it may have been sent before the record said so.
                    if stored == progress.last_sequence:
                        yield DONE
                    else:
                        yield await self._end(progress, start, after, had_ended=had_ended)
                    return
                settled = await self._settle(response_id, progress.lease)
                deadline = time.monotonic() + self._timeout
            except StoreError as error:
                if time.monotonic() > deadline or not whole:
                    _log.warning("follow.broken_off", response_id=response_id, code=error.code)
                    return
                settled = False
            if not settled:
                frames: Frames | None = None
                async for frames in self._read_log(response_id, after):
                    for data, _ in sliced(frames.data):
                        yield data
                    after = frames.last
                if frames is not None and frames.ended:
                    yield DONE
                    return
            progress = None

    async def _settle(self, response_id: str, lease: Lease) -> bool:
        """Settle the response if its worker has stopped; returns whether it was settled."""
        return lease.until < await self._store.now() and await self._settler.settle(response_id)

    async def _read_log(self, response_id: str, after: int) -> AsyncIterator[Frames]:
        """The frames of the log, until it has had nothing new for a while."""
        reading = self._log.read(response_id, after)
        try:
            while True:
                async with asyncio.timeout(_LOOK_AGAIN):
                    frames = await anext(reading)
                yield frames
        except (StopAsyncIteration, TimeoutError):
            return
        except (LogGone, LogGap, LogError):
            await asyncio.sleep(self._pause)

    async def _sent_elsewhere(self, standing: ResponseProgress, after: int) -> int | None:
        """The number of the last event that another worker has sent, or of any from `after` on; None if the
        log can't say, or the response has ended or is to be settled. Raises HttpError 503."""
        response_id, last = standing.id, standing.last_sequence
        reading = self._log.read(response_id, last)
        try:
            async with asyncio.timeout(_LOOK_AGAIN):
                while last < after:
                    last = (await anext(reading)).last
        except TimeoutError:
            return await self._saved_elsewhere(standing, last, after)
        except (StopAsyncIteration, LogGone, LogGap, LogError):
            return None
        return last

    async def _saved_elsewhere(self, standing: ResponseProgress, logged: int, after: int) -> int | None:
        """Return the number of the last event that another worker has saved, if the log has none above
        `logged`, since it may lack those sent during an outage; None if it can't be known. A worker saves
        what it has sent, unless it has died; so the number is known when the worker has renewed its lease and
        then had the time for a checkpoint."""
        lease, surely_at = standing.lease, math.inf
        give_up_at = time.monotonic() + _UNSURE_FOR + 2 * self._interval
        while time.monotonic() < give_up_at:
            progress = await self._store.standing(standing.id, standing.owner)
            if progress is None or progress.lease is None or progress.lease.until < await self._store.now():
                return None
            last = max(logged, progress.last_sequence)
            waits = progress.lease.worker == NOBODY
            if last >= after or waits or time.monotonic() > surely_at:
                return last
            if lease is None or progress.lease.worker != lease.worker:
                lease = progress.lease
            elif progress.lease.until > lease.until:
                surely_at = min(surely_at, time.monotonic() + 2 * self._interval)
            await asyncio.sleep(self._pause)
        raise _not_known_yet()

    async def _end(self, progress: ResponseProgress, start: int, after: int, *, had_ended: bool) -> bytes:
        """The last bytes for a client that asked for the events above `start` and was sent those up to
        `after`, but not the stored end; none if the response was deleted. `had_ended`: the end was stored
        before the client asked. Raises StoreError."""
        record = await self._store.get(progress.id, progress.owner)
        if record is None:
            return b""
        last = record.last_sequence
        if self._lacks_end(record, after):
            if after > start:
                # The numbers of one connection rise (law E2).
                return encode_sse([ResponseFailed(after + 1, record.response)]) + DONE
            if after == last and had_ended:
                return DONE
            frames = self._store.frames(progress.id, progress.owner, last - 1)
            end = b"".join([piece.data async for piece in frames])
            return end + DONE if end else b""
        if start > last:
            error = _no_such_event(last)
            payload = ErrorPayload(error.error_type, error.code, error.message, error.param)
            return encode_sse([ErrorEvent(start + 1, payload)]) + DONE
        return DONE

    def _lacks_end(self, record: StoredResponse, seen: int) -> bool:
        """Return True if a client that saw the event `seen`, the last one or a later one, can have seen more
        than was saved, but not the end. The last number is the end's if that was stored when the client
        asked; before, it was another event's, which a log that lost its newest entries does not have."""
        error = record.response.error
        interrupted = error is not None and error.code == INTERRUPTED.code
        return interrupted and 0 <= seen - record.last_sequence <= self._most


def _no_such_event(last: int) -> HttpError:
    what = "The response has no event yet."
    if last >= 0:
        what = f"The response's last event has the number {last}."
    return HttpError(400, what, code="invalid_value", param=STARTING_AFTER)


# A client that fell behind its run reads the rest from the store and the log, as any reader does.

_BEING_MADE: Final = Lease("", math.inf)


async def remaining_stream(run: Run, gate: Gate, follower: Follower) -> AsyncGenerator[bytes]:
    """The bytes of the run's stream after the last event that its client was sent, to the end, in pieces of
    any size. They end early if the response is deleted meanwhile or its store can't be reached: the client
    can ask again. Raises HttpError 429 if the limit of readers is reached."""
    after = run.client.last_sent
    progress = ResponseProgress(run.translation.response_id, run.owner, _BEING_MADE, after)
    async with gate.readers.shared(run.owner):
        async for data in follower.follow(progress, after):
            yield data

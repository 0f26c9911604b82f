"""A stored response streamed again: its frames out of the store, then out of the event log, unchanged bytes
(law S2).

The store has what was checkpointed and, once the run has ended, everything. The log has what is newer.
So the log only makes reading quicker: without one, or after it was lost, readers get what is checkpointed.
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
from openresponses_server.store.base import NOBODY, Lease, ResponseStore, Standing, StoredResponse, StoreError
from openresponses_server.store.endings import INTERRUPTED
from openresponses_server.store.frames import Frames, sliced
from openresponses_server.store.logs.base import EventLog, LogError, LogGap, LogGone

# Seconds without a frame after which the record is looked at: its worker may have stopped.
_LOOK_AGAIN: Final = 2.0
_UNSURE_FOR: Final = 4.0  # seconds more that a request waits to know whether an event was sent elsewhere
_NOT_YET: Final = HttpError(
    503,
    "It is not known yet whether the response has an event of that number: its worker has not reported since "
    "then. Ask again.",
    code="worker_unreachable",
    param="starting_after",
    headers={"retry-after": "2"},
)
_log = structlog.get_logger(__name__)


class Follower:
    """Streams responses of one store, live ones from one log. `pause` is how many seconds are between two
    looks at the store when there is no log to read, `patience` how many a reader waits for a store that is
    out of reach, `interval` how many are between two checkpoints of a run. A response has at most as many
    events as its upstream may send bytes: `most`."""

    def __init__(
        self,
        store: ResponseStore,
        log: EventLog,
        settler: Settler,
        pause: float = 0.5,
        patience: float = 30.0,
        most: int = 2**28,
        interval: float = 1.0,
    ) -> None:
        self._store = store
        self._log = log
        self._settler = settler
        self._pause = pause
        self._patience = patience
        self._most = most
        self._interval = interval

    async def check(self, found: Standing, after: int, sent: int | None = None) -> None:
        """Raises HttpError 400 when nobody can have seen the event `after`, and 503 when that is not sure
        soon: another worker makes the response and has not shown since that it is alive. `sent` is the number
        of the last event, for a run of this process. What this process can't get to know is reported when
        the response has ended."""
        if after <= found.last_sequence:
            return
        if found.lease is None:
            record = await self._store.get(found.id, found.owner)
            last = None if record is None or self._lacks_end(record, after) else found.last_sequence
        else:
            last = await self._sent_elsewhere(found, after) if sent is None else sent
        if last is not None and after > last:
            raise _beyond(last)

    async def follow(self, asked_for: Standing, after: int) -> AsyncIterator[bytes]:
        """The frames above `after` to the end, `[DONE]` last. It ends without that when the response is
        deleted meanwhile and when the store stays out of reach: the client can ask again for the rest.
        Nothing but that follows a terminal event, wherever it was read.

        Whatever the response holds, a reader holds a piece of it."""
        response_id, owner = asked_for.id, asked_for.owner
        found: Standing | None = asked_for
        asked = after
        had_ended = asked_for.lease is None
        stored = -1  # the number of the last event that came out of the store
        whole = True  # what was sent ends with a frame
        patient_until = time.monotonic() + self._patience
        while True:
            try:
                found = found or await self._store.standing(response_id, owner)
                if found is None:
                    return
                async for piece in self._store.frames(response_id, owner, after):
                    whole = piece.last is not None
                    if piece.data:
                        yield piece.data
                    if piece.last is not None:
                        after = stored = piece.last
                if not whole:
                    return
                if found.lease is None:
                    # The store's last event is the end, and it may have come before it was known as that.
                    if stored == found.last_sequence:
                        yield DONE
                    else:
                        yield await self._end(found, asked, after, had_ended=had_ended)
                    return
                settled = await self._settle(response_id, found.lease)
                patient_until = time.monotonic() + self._patience
            except StoreError as error:
                if time.monotonic() > patient_until or not whole:
                    _log.warning("follow.broken_off", response_id=response_id, code=error.code)
                    return
                settled = False
            if not settled:
                frames: Frames | None = None
                async for frames in self._live(response_id, after):
                    for data, _ in sliced(frames.data):
                        yield data
                    after = frames.last
                if frames is not None and frames.ended:
                    yield DONE
                    return
            found = None

    async def _settle(self, response_id: str, lease: Lease) -> bool:
        """Settle it if its worker has stopped; whether it was settled."""
        return lease.until < await self._store.now() and await self._settler.settle(response_id)

    async def _live(self, response_id: str, after: int) -> AsyncIterator[Frames]:
        """What the log has, until it has nothing new for a while."""
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

    async def _sent_elsewhere(self, standing: Standing, after: int) -> int | None:
        """The number of the last event that another worker has sent, or one from `after` on; None when the
        log can't say or the response has ended or is to be settled. Raises HttpError 503."""
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

    async def _saved_elsewhere(self, asked: Standing, logged: int, after: int) -> int | None:
        """The same when the log has no more than `logged`: it may lack what was sent in an outage. What a
        worker has sent it saves, unless it has died; so the number is known when the worker has renewed its
        lease and then had the time for a checkpoint."""
        lease, surely_at = asked.lease, math.inf
        give_up_at = time.monotonic() + _UNSURE_FOR + 2 * self._interval
        while time.monotonic() < give_up_at:
            found = await self._store.standing(asked.id, asked.owner)
            if found is None or found.lease is None or found.lease.until < await self._store.now():
                return None
            last = max(logged, found.last_sequence)
            waits = found.lease.worker == NOBODY
            if last >= after or waits or time.monotonic() > surely_at:
                return last
            if lease is None or found.lease.worker != lease.worker:
                lease = found.lease
            elif found.lease.until > lease.until:
                surely_at = min(surely_at, time.monotonic() + 2 * self._interval)
            await asyncio.sleep(self._pause)
        raise _NOT_YET

    async def _end(self, found: Standing, asked: int, after: int, *, had_ended: bool) -> bytes:
        """What follows for a client that asked for the events above `asked` and was sent those up to `after`,
        but not the stored end; nothing when the response was deleted. `had_ended`: that was stored before the
        client asked. Raises StoreError."""
        record = await self._store.get(found.id, found.owner)
        if record is None:
            return b""
        last = record.last_sequence
        if self._lacks_end(record, after):
            if after > asked:
                # The numbers of one connection rise (law E2).
                return encode_sse([ResponseFailed(after + 1, record.response)]) + DONE
            if after == last and had_ended:
                return DONE
            frames = self._store.frames(found.id, found.owner, last - 1)
            end = b"".join([piece.data async for piece in frames])
            return end + DONE if end else b""
        if asked > last:
            error = _beyond(last)
            payload = ErrorPayload(error.error_type, error.code, error.message, error.param)
            return encode_sse([ErrorEvent(asked + 1, payload)]) + DONE
        return DONE

    def _lacks_end(self, record: StoredResponse, seen: int) -> bool:
        """Whether a client that saw the event `seen`, the last one or one beyond, can have seen more than was
        saved, and not the end. Under the last number it has seen the end if that was stored when it asked;
        before, that was another event: a log that has lost what was written last does not show it."""
        error = record.response.error
        interrupted = error is not None and error.code == INTERRUPTED.code
        return interrupted and 0 <= seen - record.last_sequence <= self._most


def _beyond(last: int) -> HttpError:
    what = "The response has no event yet."
    if last >= 0:
        what = f"The response's last event has the number {last}."
    return HttpError(400, what, code="invalid_value", param="starting_after")


# What a client that fell behind its run has still to be sent: read from what is kept, as any reader does.

_BEING_MADE: Final = Lease("", math.inf)


async def rest_of(run: Run, gate: Gate, follower: Follower) -> AsyncGenerator[bytes]:
    """The bytes of the run's stream behind the last event that its client was sent, to the end; they may be
    cut anywhere. They end early when the response is deleted meanwhile or its store stays out of reach: the
    client can ask again. Raises HttpError 429 when the client would be one reader too many."""
    after = run.client.last_sent
    found = Standing(run.translation.response_id, run.owner, _BEING_MADE, after)
    async with gate.readers.shared(run.owner):
        async for data in follower.follow(found, after):
            yield data

"""A stored response streamed again: its frames out of the store, then out of the event log, the bytes
that they were (law S2).

The store has what was checkpointed and, once the run has ended, everything. The log has what is newer.
So the log only makes it quicker: without one, or after it was lost, readers get what is checkpointed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Final

import structlog

from bridge.protocol.codec import encode_sse
from bridge.protocol.events import ResponseFailed
from bridge.sse import DONE
from server.errors import HttpError
from server.event_logs.base import EventLog, LogError, LogGap, LogGone
from server.frames import Frames
from server.runs.settle import Settler
from server.sessions.base import Lease, ResponseStore, StoredResponse
from server.sessions.endings import INTERRUPTED
from server.sessions.errors import StoreError

_LOOK_AGAIN: Final = (
    2.0  # seconds without a frame after which the record is looked at: its worker may be dead
)
_log = structlog.get_logger(__name__)


class Follower:
    """Streams responses of one store, live ones from one log. `pause` is how many seconds are between two
    looks at the store when there is no log to read, `patience` how many a reader waits for a store that is
    out of reach."""

    def __init__(
        self,
        store: ResponseStore,
        log: EventLog,
        settler: Settler,
        pause: float = 0.5,
        patience: float = 30.0,
    ) -> None:
        self._store = store
        self._log = log
        self._settler = settler
        self._pause = pause
        self._patience = patience

    def check(self, record: StoredResponse, after: int) -> None:
        """Raises HttpError 400 when the response has ended before the event `after`."""
        if record.lease is None and after > record.last_sequence and not _was_interrupted(record):
            raise HttpError(
                400,
                f"The response's last event has the number {record.last_sequence}.",
                code="invalid_value",
                param="starting_after",
            )

    async def follow(self, record: StoredResponse, after: int) -> AsyncIterator[bytes]:
        """The frames above `after` to the end, `[DONE]` last. It ends without that when the response is
        deleted meanwhile and when the store stays out of reach: the client can ask again for the rest."""
        response_id, owner = record.response.id, record.owner
        found: StoredResponse | None = record
        asked = after
        patient_until = time.monotonic() + self._patience
        while True:
            try:
                found = found or await self._store.get(response_id, owner)
                if found is None:
                    return
                async for frames in self._store.frames(response_id, owner, after):
                    yield frames.data
                    after = frames.last
                if found.lease is None:
                    yield _end(found, asked, after)
                    return
                settled = await self._settle(response_id, found.lease)
                patient_until = time.monotonic() + self._patience
            except StoreError as error:
                if time.monotonic() > patient_until:
                    _log.warning("follow.broken_off", response_id=response_id, code=error.code)
                    return
                settled = False
            if not settled:
                async for frames in self._live(response_id, after):
                    yield frames.data
                    after = frames.last
            found = None

    async def _settle(self, response_id: str, lease: Lease) -> bool:
        """Settle it if its worker is dead; whether it was."""
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


def _end(record: StoredResponse, asked: int, after: int) -> bytes:
    """What follows the last stored frame for a client that asked for those above `asked` and was sent those
    up to `after`."""
    if _was_interrupted(record) and (asked >= record.last_sequence or after > record.last_sequence):
        # It saw more than was saved; numbers that it has seen are not used again.
        return encode_sse([ResponseFailed(after + 1, record.response)]) + DONE
    return DONE


def _was_interrupted(record: StoredResponse) -> bool:
    error = record.response.error
    return error is not None and error.code == INTERRUPTED.code

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

from bridge.protocol.codec import encode_sse
from bridge.protocol.events import ResponseFailed
from bridge.sse import DONE
from server.errors import HttpError
from server.event_logs.base import EventLog, LogError, LogGap, LogGone
from server.frames import Frames
from server.runs.settle import Settler
from server.sessions.base import ResponseStore, StoredResponse
from server.sessions.endings import INTERRUPTED

_LOOK_AGAIN: Final = (
    2.0  # seconds without a frame after which the record is looked at: its worker may be dead
)


class Follower:
    """Streams responses of one store, live ones from one log. `pause` is how many seconds are between two
    looks at the store when there is no log to read."""

    def __init__(self, store: ResponseStore, log: EventLog, settler: Settler, pause: float = 0.5) -> None:
        self._store = store
        self._log = log
        self._settler = settler
        self._pause = pause

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
        deleted meanwhile. Raises StoreError."""
        response_id, owner = record.response.id, record.owner
        found: StoredResponse | None = record
        asked = after
        while found is not None:
            async for frames in self._store.frames(response_id, owner, after):
                yield frames.data
                after = frames.last
            if found.lease is None:
                if _was_interrupted(found) and (asked >= found.last_sequence or after > found.last_sequence):
                    # The client saw more than was saved; numbers that it has seen are not used again.
                    yield encode_sse([ResponseFailed(after + 1, found.response)])
                yield DONE
                return
            if found.lease.until < time.time():
                await self._settler.settle(response_id)
            else:
                async for frames in self._live(response_id, after):
                    yield frames.data
                    after = frames.last
            found = await self._store.get(response_id, owner)

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


def _was_interrupted(record: StoredResponse) -> bool:
    error = record.response.error
    return error is not None and error.code == INTERRUPTED.code

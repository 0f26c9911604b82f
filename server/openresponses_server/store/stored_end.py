"""The end that another worker has stored for a run: what its own client is still to be sent."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from msgspec import Struct

from openresponses_bridge.protocol.codec import decode_event, encode_sse
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.sse import SSEDecoder
from openresponses_bridge.state import TERMINAL_EVENT
from openresponses_server.store.base import ResponseStore
from openresponses_server.store.errors import StoreError
from openresponses_server.store.frames import Frames

_LOOK_AGAIN: Final = 0.1  # seconds


class StoredEnd(Struct, frozen=True):
    """Events and the same as frames, to the byte as they are stored; the last is a terminal event."""

    events: list[Event]
    frames: Frames


async def stored_end(
    store: ResponseStore, response_id: str, owner: str, seen: int, seconds: float
) -> StoredEnd | None:
    """What follows the event `seen` now that the response is another worker's to end, which may take it a
    while. A client that has seen more than is stored gets the stored end under its own next number. None
    when the response was deleted, and when it has not ended after so many `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            found = await store.standing(response_id, owner)
            if found is None:
                return None
            if found.lease is None:
                return await _read(store, response_id, owner, seen)
        except StoreError:
            pass  # it may be back in time
        if time.monotonic() + _LOOK_AGAIN > deadline:
            return None
        await asyncio.sleep(_LOOK_AGAIN)


async def is_there(store: ResponseStore, response_id: str, owner: str, seconds: float) -> bool:
    """The response was not deleted, as far as that can be known in so many `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            return await store.standing(response_id, owner) is not None
    except (StoreError, TimeoutError):
        return False


async def _read(store: ResponseStore, response_id: str, owner: str, seen: int) -> StoredEnd | None:
    data = b"".join([piece.data async for piece in store.frames(response_id, owner, seen)])
    events = _events_in(data)
    if events and isinstance(events[-1], tuple(TERMINAL_EVENT.values())):
        return StoredEnd(events, Frames(seen + 1, seen + len(events), data))
    record = await store.get(response_id, owner)
    return None if record is None else _ended_as(record.response, seen + 1)


def _ended_as(response: Response, number: int) -> StoredEnd:
    end = TERMINAL_EVENT[response.status](number, response)
    return StoredEnd([end], Frames(number, number, encode_sse([end])))


def _events_in(data: bytes) -> list[Event]:
    return [decode_event(frame.data) for frame in SSEDecoder().feed(data)]

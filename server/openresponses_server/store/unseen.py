"""Whether anybody can have seen something of a response's output. While nobody can, it may be made again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from openresponses_bridge.protocol.codec import decode_event
from openresponses_bridge.protocol.events import Event, ResponseCreated, ResponseInProgress
from openresponses_bridge.protocol.unknown import UnknownEvent
from openresponses_bridge.sse import SSEDecoder
from openresponses_server.store.base import ResponseStore, StoredResponse

RESTARTED: Final = "openresponses-bridge:restarted"
"""The event that stands behind the beginning of a response that is made again, once for each time;
`attempt` counts the makings, the first included."""
MAKINGS: Final = 3
"""How often a response is begun: a request that stops its workers must not stop all of them."""

_BEGINNINGS: Final = (ResponseCreated, ResponseInProgress)


def shows_output(events: Iterable[Event]) -> bool:
    """Whether there is more in these events than that the response has begun, or has begun again."""
    return any(not (type(event) in _BEGINNINGS or _is_restart(event)) for event in events)


async def makings(store: ResponseStore, record: StoredResponse) -> int | None:
    """How often a response in the background has been begun, 0 while it is queued; None when it can't be made
    again: somebody may have seen some of its output, which is stored before it is sent, or its request is not
    there. Raises StoreError."""
    response = record.response
    if record.request is None or response.output or record.last_sequence > len(_BEGINNINGS) + MAKINGS:
        return None
    if response.status != "in_progress":
        return 0 if response.status == "queued" else None
    data = b"".join([piece.data async for piece in store.frames(response.id, record.owner)])
    events = [decode_event(frame.data) for frame in SSEDecoder().feed(data)]
    return None if shows_output(events) else 1 + sum(map(_is_restart, events))


def _is_restart(event: Event) -> bool:
    return isinstance(event, UnknownEvent) and event.type == RESTARTED

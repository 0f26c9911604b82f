"""The last events of a run that can't send its own, and whether anybody can have seen its output."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from msgspec import UNSET, Struct
from msgspec.structs import replace

from openresponses_bridge.emitter.failures import error_event
from openresponses_bridge.emitter.finished import opening_events
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.models.tokens import measured_output, measured_request
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol.codec import decode_event, encode_sse
from openresponses_bridge.protocol.events import Event, ResponseCreated, ResponseInProgress
from openresponses_bridge.protocol.input_items import InputItem
from openresponses_bridge.protocol.items import with_status
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.response import ErrorPayload, IncompleteDetails, Response, ResponseError
from openresponses_bridge.protocol.unknown import UnknownEvent
from openresponses_bridge.protocol.usage import Usage
from openresponses_bridge.sse import SSEDecoder
from openresponses_bridge.state import TERMINAL_EVENT, WIRES
from openresponses_server.errors import HttpError
from openresponses_server.store.base import ResponseStore, StoredResponse, StoreError
from openresponses_server.store.frames import Frames

INTERRUPTED: Final = ResponseError(
    "response_interrupted", "The server that made this response stopped before its end."
)
"""The error of a response whose worker stopped before its end, if the event log had everything that was
sent."""
CUT_OFF: Final = ResponseError(
    INTERRUPTED.code, f"{INTERRUPTED.message} What it sent after the last checkpoint may be missing here."
)
"""The same error if the log was lost too: clients may have seen more."""


def lost() -> HttpError:
    """Return the error of a response whose run no longer holds its record."""
    return HttpError(503, "The response was deleted, or another worker has settled it.", code="response_lost")


CANCELLED: Final = "cancelled"
_NOTHING: Final = Usage.of(0, 0)
_SAMPLE: Final = 16_000  # inspected characters


def interrupted(response: Response, input_items: Sequence[InputItem] = (), *, whole: bool) -> Response:
    """Return the response of a run whose worker stopped, with its partial output (law E8). `input_items` is
    the request's input, from which its usage is estimated; `whole` is True if that has everything that was
    sent."""
    ended = _failed(response, INTERRUPTED if whole else CUT_OFF)
    instructions = response.instructions if isinstance(response.instructions, str) else None
    taken = measured_request(CreateResponse(instructions=instructions), input_items, most=_SAMPLE).tokens()
    output_tokens = measured_output(response.output, most=_SAMPLE).tokens()
    return replace(ended, usage=response.usage or Usage.of(taken, output_tokens, estimated=True))


def failed(response: Response, error: BridgeError) -> Response:
    """Return the response of a run that could not begin."""
    return replace(_failed(response, ResponseError(error.code, error.message)), usage=_NOTHING)


def cancelled(response: Response, wire: str) -> Response:
    """Return the response of a run that was cancelled before it began, in the terms of its wire (law E8)."""
    status = WIRES[wire].cancelled_status
    details = None if status == CANCELLED else IncompleteDetails(CANCELLED)
    return replace(response, status=status, incomplete_details=details, usage=_NOTHING)


def is_cancelled(response: Response) -> bool:
    """Return True if the response ended because a client cancelled it, in the terms of either wire."""
    details = response.incomplete_details
    return response.status == CANCELLED or (details is not None and details.reason == CANCELLED)


def closing_events(response: Response, last_sequence: int) -> list[Event]:
    """Return the events that a stream sent up to `last_sequence` still lacks, if this is its end."""
    opening = opening_events(response)[last_sequence + 1 :]
    kind = TERMINAL_EVENT[response.status]
    return [*opening, kind(last_sequence + len(opening) + 1, response)]


def failed_instead(events: Sequence[Event], error: BridgeError, wire: str) -> list[Event]:
    """Return the last events of a response with another end: `error` and `response.failed` (law E8)."""
    *before, last = events
    if isinstance(last, ev.ResponseFailed):
        return list(events)
    number = last.sequence_number
    payload = ErrorPayload(error.error_type, error.code, error.message, error.param)
    failed = replace(
        last.response,  # type: ignore[union-attr]
        status="failed",
        error=ResponseError(error.code, error.message),
        completed_at=None,
        incomplete_details=None,
    )
    return [*before, error_event(number, payload, WIRES[wire]), ev.ResponseFailed(number + 1, failed)]


def _failed(response: Response, error: ResponseError) -> Response:
    output = [_closed(item) for item in response.output]
    return replace(
        response, status="failed", error=error, completed_at=None, incomplete_details=None, output=output
    )


def _closed(item: Any) -> Any:
    """Return the item, as incomplete if it was still open."""
    return with_status(item, "incomplete") if getattr(item, "status", UNSET) == "in_progress" else item


_LOOK_AGAIN: Final = 0.1  # seconds


class StoredEnd(Struct, frozen=True):
    """Events, and their frames with exactly the bytes that are stored; the last is a terminal event."""

    events: list[Event]
    frames: Frames


async def stored_end(
    store: ResponseStore, response_id: str, owner: str, seen: int, time_left: Callable[[], float]
) -> StoredEnd | None:
    """Return the events after `seen` of a response that another worker ends, which may take a while. A client
    that has seen more than is stored gets the stored end under its own next number. None if the response was
    deleted, or has not ended when `time_left`, called before each wait, returns hardly any seconds."""
    while True:
        try:
            progress = await store.standing(response_id, owner)
            if progress is None:
                return None
            if progress.lease is None:
                return await _read(store, response_id, owner, seen)
        except StoreError:
            pass  # it may soon be back
        if time_left() < _LOOK_AGAIN:
            return None
        await asyncio.sleep(_LOOK_AGAIN)


async def is_there(store: ResponseStore, response_id: str, owner: str, seconds: float) -> bool:
    """Return True if the response still exists, as far as that can be known within `seconds`."""
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


RESTARTED: Final = "openresponses-bridge:restarted"
"""The event after the beginning of a response that is made again, sent once per restart; `attempt` counts the
attempts, including the first."""
MAX_ATTEMPTS: Final = 3
"""The number of times that a response is started: a request that stops its workers must not stop all of
them."""

_BEGINNINGS: Final = (ResponseCreated, ResponseInProgress)


def shows_output(events: Iterable[Event]) -> bool:
    """Return True if these events contain more than that the response has begun, or has begun again."""
    return any(not (type(event) in _BEGINNINGS or _is_restart(event)) for event in events)


async def previous_attempts(store: ResponseStore, record: StoredResponse) -> int | None:
    """Return the number of times that a background response has been started, 0 while it is queued; None if
    it can't be made again: somebody may have seen some of its output, which is stored before it is sent, or
    its request is missing. Raises StoreError."""
    response = record.response
    if record.request is None or response.output or record.last_sequence > len(_BEGINNINGS) + MAX_ATTEMPTS:
        return None
    if response.status != "in_progress":
        return 0 if response.status == "queued" else None
    data = b"".join([piece.data async for piece in store.frames(response.id, record.owner)])
    events = [decode_event(frame.data) for frame in SSEDecoder().feed(data)]
    return None if shows_output(events) else 1 + sum(map(_is_restart, events))


def _is_restart(event: Event) -> bool:
    return isinstance(event, UnknownEvent) and event.type == RESTARTED

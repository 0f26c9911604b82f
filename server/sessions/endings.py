"""Ends that are told for a run that can't tell its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from bridge.errors import BridgeError
from bridge.protocol import events as ev
from bridge.protocol.errors import ErrorPayload, ResponseError
from bridge.protocol.events import Event
from bridge.protocol.response import IncompleteDetails, Response
from bridge.state import WIRES
from server.errors import HttpError

INTERRUPTED: Final = ResponseError(
    "response_interrupted", "The server that made this response stopped before its end."
)
"""Why a response failed whose worker died: what it holds is all that was saved."""
LOST: Final = HttpError(
    503, "The response was deleted, or another worker has settled it.", code="response_lost"
)
"""Why a response fails whose run no longer holds its record."""
CANCELLED: Final = "cancelled"
TERMINAL: Final = frozenset({ev.ResponseCompleted, ev.ResponseIncomplete, ev.ResponseFailed})


def interrupted(response: Response) -> Response:
    """The response of a run that died, with its partial output (law E8)."""
    return replace(_cut(response), status="failed", error=INTERRUPTED, incomplete_details=None)


def failed(response: Response, error: BridgeError) -> Response:
    """The response of a run that could not begin."""
    return replace(_cut(response), status="failed", error=ResponseError(error.code, error.message))


def cancelled(response: Response) -> Response:
    """The response of a run that was cancelled before it began."""
    return replace(_cut(response), status="incomplete", incomplete_details=IncompleteDetails(CANCELLED))


def is_cancelled(response: Response) -> bool:
    """Whether it ended because a client asked for it, as either wire says it."""
    details = response.incomplete_details
    return response.status == CANCELLED or (details is not None and details.reason == CANCELLED)


def closing_events(response: Response, last_sequence: int) -> list[Event]:
    """What a stream that was sent up to `last_sequence` still lacks, when this is how it ended."""
    events: list[Event] = []
    if last_sequence < 0:
        events.append(ev.ResponseCreated(0, replace(response, status="in_progress", error=None, output=[])))
        last_sequence = 0
    kind = ev.ResponseFailed if response.status == "failed" else ev.ResponseIncomplete
    return [*events, kind(last_sequence + 1, response)]


def failed_instead(events: Sequence[Event], error: BridgeError, wire: str) -> list[Event]:
    """The last events of a response with another end: `error` and `response.failed` (law E8)."""
    *before, last = events
    if isinstance(last, ev.ResponseFailed):
        return list(events)
    number = last.sequence_number
    payload = ErrorPayload(error.error_type, error.code, error.message, error.param)
    told = (
        ev.ErrorEvent(number, payload)
        if WIRES[wire].nested_error
        else ev.ErrorEvent(number, code=payload.code, message=payload.message, param=payload.param)
    )
    failed = replace(
        last.response,  # type: ignore[union-attr]
        status="failed",
        error=ResponseError(error.code, error.message),
        completed_at=None,
        incomplete_details=None,
    )
    return [*before, told, ev.ResponseFailed(number + 1, failed)]


def _cut(response: Response) -> Response:
    return replace(response, completed_at=None, output=[_closed(item) for item in response.output])


def _closed(item: Any) -> Any:
    """Items that were open are incomplete now."""
    status = getattr(item, "status", UNSET)
    return replace(item, status="incomplete") if status == "in_progress" else item

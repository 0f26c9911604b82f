"""The last events of a run that can't send its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from openresponses_bridge.emitter.failures import error_event
from openresponses_bridge.emitter.finished import beginnings
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.models.tokens import measured_output, measured_request
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.input_items import InputItem
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.response import ErrorPayload, IncompleteDetails, Response, ResponseError
from openresponses_bridge.protocol.usage import Usage
from openresponses_bridge.state import TERMINAL_EVENT, WIRES
from openresponses_server.errors import HttpError

INTERRUPTED: Final = ResponseError(
    "response_interrupted", "The server that made this response stopped before its end."
)
"""Why a response failed whose worker stopped before its end. What was sent of it is here, the event log had
it."""
CUT_OFF: Final = ResponseError(
    INTERRUPTED.code, f"{INTERRUPTED.message} What it sent after the last checkpoint may be missing here."
)
"""The same when the log was lost too: clients may have seen more."""
LOST: Final = HttpError(
    503, "The response was deleted, or another worker has settled it.", code="response_lost"
)
"""Why a response fails whose run no longer holds its record."""
CANCELLED: Final = "cancelled"
_NOTHING: Final = Usage.of(0, 0)
_SAMPLE: Final = 16_000  # characters that are looked at


def interrupted(response: Response, given: Sequence[InputItem] = (), *, whole: bool) -> Response:
    """The response of a run whose worker stopped, with its partial output (law E8). `given` is what its
    request brought in, of which its usage is estimated; `whole`: it holds all that was sent."""
    ended = _failed(response, INTERRUPTED if whole else CUT_OFF)
    instructions = response.instructions if isinstance(response.instructions, str) else None
    taken = measured_request(CreateResponse(instructions=instructions), given, most=_SAMPLE).tokens()
    made = measured_output(response.output, most=_SAMPLE).tokens()
    return replace(ended, usage=response.usage or Usage.of(taken, made, estimated=True))


def failed(response: Response, error: BridgeError) -> Response:
    """The response of a run that could not begin."""
    return replace(_failed(response, ResponseError(error.code, error.message)), usage=_NOTHING)


def cancelled(response: Response, wire: str) -> Response:
    """The response of a run that was cancelled before it began, as its wire says it (law E8)."""
    status = WIRES[wire].cancelled_status
    details = None if status == CANCELLED else IncompleteDetails(CANCELLED)
    return replace(response, status=status, incomplete_details=details, usage=_NOTHING)


def is_cancelled(response: Response) -> bool:
    """Whether it ended because a client asked for it, as either wire says it."""
    details = response.incomplete_details
    return response.status == CANCELLED or (details is not None and details.reason == CANCELLED)


def closing_events(response: Response, last_sequence: int) -> list[Event]:
    """What a stream that was sent up to `last_sequence` still lacks, when this is how it ended."""
    opening = beginnings(response)[last_sequence + 1 :]
    kind = TERMINAL_EVENT[response.status]
    return [*opening, kind(last_sequence + len(opening) + 1, response)]


def failed_instead(events: Sequence[Event], error: BridgeError, wire: str) -> list[Event]:
    """The last events of a response with another end: `error` and `response.failed` (law E8)."""
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
    """Items that were open are incomplete now."""
    status = getattr(item, "status", UNSET)
    return replace(item, status="incomplete") if status == "in_progress" else item

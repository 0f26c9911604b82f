"""What a client's message is about, read before the whole of it is."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from openresponses_bridge.errors import InvalidRequestError, WireError
from openresponses_bridge.protocol.request import FailedSteer, ResponseSteerFailed, SteerError
from openresponses_server.requests.bodies import decoded
from openresponses_server.settings import Limits

CREATE: Final = "response.create"
CANCEL: Final = "response.cancel"
STEER: Final = "response.steer"
PROCESSED: Final = "response.processed"
LONGEST_STREAM_ID: Final = 64  # characters
_NOT_SUPPORTED: Final = (
    "steering_not_supported",
    "Responses can't be steered here. Cancel the response, or send the input when it has ended.",
)
_INVALID: Final = ("invalid_input", "`previous_response_id` has to be a string, and `input` is required.")


class Head(Struct, frozen=True):
    """The fields that say where a message belongs, of whatever type."""

    type: Any = None
    stream_id: Any = None
    response_id: Any = None

    @property
    def lane(self) -> str | None:
        """The name of its lane, None for the one without a name. Raises InvalidRequestError."""
        name = self.stream_id
        if name is None or (isinstance(name, str) and 0 < len(name) <= LONGEST_STREAM_ID):
            return name
        what = f"stream_id: expected a string of 1 to {LONGEST_STREAM_ID} characters"
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param="stream_id")


class _Steer(Struct, frozen=True):
    previous_response_id: Any = None
    input: Any = UNSET


_head: Final = msgspec.json.Decoder(Head)
_steer: Final = msgspec.json.Decoder(_Steer)
_BROKEN: Final = Head(CREATE)  # for whoever reads all of it to say what is wrong


async def head_of(message: str | bytes, limits: Limits) -> Head:
    """Of a message that can't be read, one that says nothing but that it asks for a response."""
    try:
        return await decoded(message, limits, _head.decode)
    except (msgspec.MsgspecError, UnicodeError, WireError, InvalidRequestError, RecursionError):
        return _BROKEN


async def steer_failed(message: str | bytes, limits: Limits, number: int) -> ResponseSteerFailed:
    """The answer to a `response.steer` that was readable. It gives the input back, so that the client can
    send it later."""
    given = await decoded(message, limits, _steer.decode)
    valid = isinstance(given.previous_response_id, str) and not isinstance(given.input, UnsetType)
    code, what = _NOT_SUPPORTED if valid else _INVALID
    said = None if isinstance(given.input, UnsetType) else given.input
    steer = FailedSteer(given.previous_response_id, said)
    return ResponseSteerFailed(SteerError(code=code, message=what), steer, number)

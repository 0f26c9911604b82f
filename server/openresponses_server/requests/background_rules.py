"""What a request may say of the background, before anything is made of it."""

from __future__ import annotations

from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.request import RESTART, CreateResponse


def check_background(request: CreateResponse) -> None:
    """Raises InvalidRequestError for a response in the background that is not stored, and for one in the
    foreground that is to be made again whatever was made: its client has seen what it would replace."""
    if request.background and request.store is False:
        what = "a response in the background has to be stored"
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param="background")
    if request.restart == "always" and not request.background:
        what = f"{RESTART}: 'always' is for responses with background: true"
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param=RESTART)

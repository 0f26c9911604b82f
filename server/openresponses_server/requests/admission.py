"""The limits of a key: before anything else is done for its request, and when its response is over."""

from __future__ import annotations

from typing import Final

from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.response import Response
from openresponses_server.errors import HttpError
from openresponses_server.limits.headers import Form, openai_headers
from openresponses_server.requests.service import Service
from openresponses_server.settings import Limits
from openresponses_server.store.errors import TooLarge
from openresponses_server.store.history import own_input

_BYTES_PER_TOKEN: Final = 4
_COPIED: Final = 32  # bytes of what references stand for that are stored for each byte of an input


async def admit(
    service: Service, request: CreateResponse, owner: str, limits_form: Form = openai_headers
) -> dict[str, str]:
    """Count the request against the limits of its key; the headers of its answer. Raises HttpError 429."""
    size = None if request.store is False else lambda: len(encode(own_input(request)))
    return await service.quotas.admit(owner, size=size, form=limits_form)


def check_references(given: CreateResponse, resolved: CreateResponse, limits: Limits) -> None:
    """Raises HttpError 400 when the references of a request that is stored bring in more bytes, which are
    stored with it, than its own input allows."""
    if resolved is given or given.store is False:
        return
    own = len(encode(given.input))
    copied = len(encode(resolved.input)) - own
    most = limits.stored_reference_bytes + _COPIED * own
    if copied > most:
        raise HttpError(
            400,
            f"What the item references stand for is stored with the response: {copied} bytes more. With an "
            f"input of {own} bytes the limit is {most} (limits.stored_reference_bytes, and {_COPIED} times "
            "the input). Send the items themselves, continue with previous_response_id, or ask with store: "
            "false.",
            code=TooLarge.REFERENCES,
            param="input",
        )


def admit_references(service: Service, given: CreateResponse, resolved: CreateResponse, owner: str) -> None:
    """Count what the references of a request that is stored stand for: a copy of each is stored with it.
    Raises HttpError 429."""
    if resolved is given or given.store is False:
        return

    def more() -> int:
        return max(len(encode(own_input(resolved))) - len(encode(own_input(given))), 0)

    service.quotas.store(owner, more)


def spent(
    service: Service, owner: str, model: str, size: int, request: CreateResponse, response: Response
) -> None:
    """Count a response that an upstream has begun and that is over; `size` are the bytes of the body that it
    was asked with, which is not kept for this."""
    tokens = service.meters.counter(owner)

    def estimated() -> int:
        return size // _BYTES_PER_TOKEN + sum(tokens.item(item, model) for item in response.output)

    service.quotas.ended(owner, response, estimated, stored=request.store is not False)

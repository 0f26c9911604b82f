"""The limits of a key: before anything else is done for its request, and when its response is over."""

from __future__ import annotations

from typing import Final

from bridge.protocol.codec import encode
from bridge.protocol.request import CreateResponse
from bridge.protocol.response import Response
from server.quotas.headers import Form, openai_headers
from server.service import Service
from server.sessions.history import own_input

_BYTES_PER_TOKEN: Final = 4


async def admit(
    service: Service, request: CreateResponse, owner: str, limits_form: Form = openai_headers
) -> dict[str, str]:
    """Count the request against the limits of its key; the headers of its answer. Raises HttpError 429."""
    size = None if request.store is False else lambda: len(encode(own_input(request)))
    return await service.quotas.admit(owner, size=size, form=limits_form)


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

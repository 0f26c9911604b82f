"""The limits of a key, before anything else is done for its request."""

from __future__ import annotations

from bridge.protocol.codec import encode
from bridge.protocol.request import CreateResponse
from server.quotas.headers import Form, openai_headers
from server.service import Service
from server.sessions.history import own_input


async def admit(
    service: Service, request: CreateResponse, owner: str, limits_form: Form = openai_headers
) -> dict[str, str]:
    """Count the request against the limits of its key; the headers of its answer. Raises HttpError 429."""
    size = None if request.store is False else lambda: len(encode(own_input(request)))
    return await service.quotas.admit(owner, size=size, form=limits_form)

"""`POST /vscode/v1/chat`: any model for VS Code's language-model interface."""

from __future__ import annotations

from msgspec.structs import replace
from starlette.requests import Request
from starlette.types import ASGIApp

from bridge.dialects.vscode import decode_chat, from_vscode
from bridge.errors import InvalidRequestError, WireError
from server.bodies import read_json_body
from server.delivery import StreamedAnswer
from server.runs.prepare import prepare
from server.service import service_of
from server.surfaces.foreign import PartsForm


async def chat(request: Request) -> ASGIApp:
    """Parts as JSON lines. The whole chat comes with each request, so nothing is stored."""
    service = service_of(request)
    try:
        given = decode_chat(await read_json_body(request, service.settings))
    except WireError as error:
        raise InvalidRequestError("invalid_json", error.message) from error
    if not given.messages:
        raise InvalidRequestError(
            InvalidRequestError.INVALID_VALUE, "at least one message is required", param="messages"
        )
    asked, losses = from_vscode(given)
    generation, headers = await prepare(
        service,
        replace(asked, store=False),
        request.headers,
        request.state.request_id,
        owner=request.state.owner,
        losses=losses,
    )
    return StreamedAnswer(generation, headers, service.settings.keep_alive, PartsForm())

"""`POST /vscode/v1/chat`: any model for VS Code's language-model interface."""

from __future__ import annotations

from msgspec.structs import replace
from starlette.requests import Request
from starlette.types import ASGIApp

from bridge.dialects.vscode import Outbound
from server.answers.delivery import StreamedAnswer
from server.answers.foreign import PARTS, ForeignForm
from server.requests.bodies import read_json
from server.requests.prepare import prepare
from server.service import service_of


async def chat(request: Request) -> ASGIApp:
    """Parts as JSON lines. The whole chat comes with each request, so nothing is stored."""
    service = service_of(request)
    asked, losses = await read_json(
        request, service.settings, lambda body: PARTS.request(body, service.sealer)
    )
    prepared = await prepare(
        service,
        replace(asked, store=False),
        request.headers,
        request.state.request_id,
        owner=request.state.owner,
        losses=losses,
        place="messages",
    )
    form = ForeignForm(PARTS, Outbound(), service.sealer)
    return StreamedAnswer(prepared.run(), prepared.headers, service.settings.keep_alive, form)

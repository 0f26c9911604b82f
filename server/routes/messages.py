"""`POST /v1/messages`: any model for clients of Anthropic's API."""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import ASGIApp

from bridge.dialects.anthropic_messages import Outbound
from server.answers.delivery import StreamedAnswer, WholeAnswer
from server.answers.foreign import MESSAGES, ForeignForm
from server.requests.bodies import read_json
from server.requests.prepare import prepare
from server.service import service_of


async def create(request: Request) -> ASGIApp:
    """Events with `stream`, else one message. Nothing is stored: this API has no way to ask for it."""
    service = service_of(request)
    sealer = service.sealer.bound(request.state.owner)
    asked, losses = await read_json(request, service.settings, lambda body: MESSAGES.request(body, sealer))
    prepared = await prepare(
        service,
        asked,
        request.headers,
        request.state.request_id,
        owner=request.state.owner,
        losses=losses,
        place="messages",
        schema_param="output_config.format.schema",
    )
    answer = StreamedAnswer if asked.stream else WholeAnswer
    form = ForeignForm(MESSAGES, Outbound(sealer), sealer)
    return answer(prepared.run(), prepared.headers, service.settings.keep_alive, form)

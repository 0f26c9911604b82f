"""`POST /v1/chat/completions`: any model for clients of the Chat Completions API."""

from __future__ import annotations

from msgspec.structs import replace
from starlette.requests import Request
from starlette.types import ASGIApp

from bridge.dialects.chat_completions import Outbound, answer_options
from bridge.errors import InvalidRequestError
from server.answers.delivery import StreamedAnswer, WholeAnswer
from server.answers.foreign import CHAT, ForeignForm
from server.requests.bodies import read_json
from server.requests.prepare import prepare
from server.service import service_of


async def create(request: Request) -> ASGIApp:
    """Chunks with `stream`, else one completion. Nothing is stored: this API has no use for it."""
    service = service_of(request)
    (asked, losses), options = await read_json(
        request, service.settings, lambda body: (CHAT.request(body, service.sealer), answer_options(body))
    )
    if options.n != 1:
        raise InvalidRequestError(
            InvalidRequestError.UNSUPPORTED, "only one choice is made for a request", param="n"
        )
    run, headers = await prepare(
        service,
        replace(asked, store=False),
        request.headers,
        request.state.request_id,
        owner=request.state.owner,
        losses=losses,
        place="messages",
        schema_param="response_format.json_schema.schema",
    )
    answer = StreamedAnswer if asked.stream else WholeAnswer
    outbound = Outbound(include_usage=options.include_usage)
    form = ForeignForm(CHAT, outbound, service.sealer)
    return answer(run, headers, service.settings.keep_alive, form)

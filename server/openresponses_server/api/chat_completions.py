"""`POST /v1/chat/completions`: any model for clients of the Chat Completions API."""

from __future__ import annotations

from msgspec.structs import replace
from starlette.requests import Request
from starlette.types import ASGIApp

from openresponses_bridge.dialects.chat_completions import answer_options
from openresponses_server.api.answers import StreamedAnswer, WholeAnswer
from openresponses_server.api.choices import StreamedChoices, WholeChoices
from openresponses_server.api.foreign import CHAT, ChatForm
from openresponses_server.http.headers import fields_of
from openresponses_server.limits.requests import check_choices
from openresponses_server.requests.bodies import read_json
from openresponses_server.requests.prepare import prepare
from openresponses_server.requests.service import service_of


async def create(request: Request) -> ASGIApp:
    """Chunks with `stream`, else one completion, of one choice or of `n`. Nothing is stored: this API has no
    use for it."""
    service = service_of(request)
    (asked, losses), options = await read_json(
        request, service, lambda body: (CHAT.request(body, service.sealer), answer_options(body))
    )
    check_choices(options.n, request.state.owner, service.settings.limits)
    prepared = await prepare(
        service,
        replace(asked, store=False),
        fields_of(request.scope),
        request.state.request_id,
        owner=request.state.owner,
        losses=losses,
        place="messages",
        schema_param="response_format.json_schema.schema",
        choices=options.n,
    )
    keep_alive = service.settings.keep_alive
    if options.n > 1:
        runs = [prepared.run(choice) for choice in range(options.n)]
        several = StreamedChoices if asked.stream else WholeChoices
        gate, hold = service.gate, prepared.hold
        return several(runs, prepared.headers, keep_alive, options, gate, hold, prepared.leave)
    answer = StreamedAnswer if asked.stream else WholeAnswer
    run = prepared.run()
    form = ChatForm(options, service.sealer, run.translation)
    return answer(run, prepared.headers, keep_alive, form)

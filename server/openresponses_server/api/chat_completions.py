"""`POST /v1/chat/completions`: any model for clients of the Chat Completions API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace
from starlette.requests import Request
from starlette.types import ASGIApp

from openresponses_bridge.dialects.chat_completions import (
    AnswerOptions,
    ChatCompletion,
    Choices,
    answer_options,
    completions,
    encode,
)
from openresponses_bridge.protocol import codec
from openresponses_bridge.seal import Sealer
from openresponses_server.api.choices import (
    ChoicesJsonResponder,
    ChoicesStreamResponder,
    ChoicesSurface,
)
from openresponses_server.api.responders import (
    CHAT,
    ChatForm,
    RunJsonResponder,
    RunStreamResponder,
    chat_options,
)
from openresponses_server.http.headers import fields_of
from openresponses_server.limits.requests import check_choices
from openresponses_server.requests.bodies import read_json
from openresponses_server.requests.prepare import new_run, prepare
from openresponses_server.requests.prepared import PreparedRequest
from openresponses_server.requests.service import service_of
from openresponses_server.runs.run import Run


def _choices(options: AnswerOptions, sealer: Sealer) -> ChoicesSurface:
    """How several choices are encoded: with one id and one time."""

    def head(runs: Sequence[Run]) -> tuple[str, int]:
        first = runs[0].translation
        return "chatcmpl-" + first.response_id.removeprefix("resp_"), first.snapshot.created_at

    def stream(runs: Sequence[Run]) -> Choices:
        answer_id, created = head(runs)
        given = chat_options(options, sealer, runs[0].translation)
        usage = options.include_usage
        return Choices(len(runs), id=answer_id, created=created, include_usage=usage, **given)

    def whole(runs: Sequence[Run]) -> bytes | None:
        answer_id, created = head(runs)
        responses = [run.translation.in_one_form for run in runs]
        given = chat_options(options, sealer, runs[0].translation)
        answer = completions(responses, id=answer_id, created=created, **given)
        return codec.encode(answer) if isinstance(answer, ChatCompletion) else None

    return ChoicesSurface(stream, lambda chunks, _last: encode(chunks), whole)


_SCHEMAS: Final = {"messages": "response_format.json_schema.schema", "input": "text.format.schema"}


async def create(request: Request) -> ASGIApp:
    """Chunks with `stream`, else one completion, with `n` choices. Nothing is stored: this API can't refer to
    stored responses."""
    service = service_of(request)
    sealer = service.sealer.bound(request.state.owner)
    (asked, losses), options = await read_json(
        request, service, lambda body: (CHAT.request(body, sealer), answer_options(body))
    )
    most = service.gate.runs.most_of(request.state.owner)
    check_choices(options.n, request.state.owner, service.settings.limits, most)
    prepared = PreparedRequest(
        replace(asked, store=False),
        fields_of(request.scope),
        request.state.request_id,
        owner=request.state.owner,
        losses=losses,
        input_param=options.input_param,
        schema_param=_SCHEMAS[options.input_param],
        choices=options.n,
    )
    await prepare(prepared, service)
    headers = prepared.answer_headers
    keep_alive = service.settings.keep_alive
    if options.n > 1:
        runs = [new_run(prepared, service, choice) for choice in range(options.n)]
        choices_responder = ChoicesStreamResponder if asked.stream else ChoicesJsonResponder
        gate, reservation = service.gate, prepared.reservation
        end_choice, surface = prepared.target.end_choice, _choices(options, sealer)
        return choices_responder(runs, headers, keep_alive, surface, gate, reservation, end_choice)
    responder = RunStreamResponder if asked.stream else RunJsonResponder
    run = new_run(prepared, service)
    form = ChatForm(options, sealer, run.translation)
    return responder(run, headers, keep_alive, form)

"""`POST /v1/responses/compact` and `…/input_tokens`: about a conversation, not a part of it."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from openresponses_bridge.dialects.base import TRIGGER, invalid
from openresponses_bridge.protocol.codec import decode_compact_request, decode_request, encode
from openresponses_bridge.protocol.request import CompactRequest, CreateResponse
from openresponses_bridge.protocol.unknown import UnknownItem
from openresponses_server.api.answers import WholeAnswer
from openresponses_server.api.compaction import CompactionForm
from openresponses_server.errors import HttpError
from openresponses_server.http.headers import fields_of
from openresponses_server.limits.requests import check_conversation, check_request
from openresponses_server.off_loop import on_thread
from openresponses_server.requests.bodies import read_json
from openresponses_server.requests.losses import loss_header, reported_losses, unknown_fields
from openresponses_server.requests.outgoing import opened
from openresponses_server.requests.prepare import prepare
from openresponses_server.requests.service import service_of
from openresponses_server.store.history import own_input
from openresponses_server.store.references import continued


async def compact(request: Request) -> ASGIApp:
    """The input window that a new chain begins with (schema CompactResource). The conversation is what
    `previous_response_id` stands for, then `input`. Nothing is stored."""
    service = service_of(request)
    given = await read_json(request, service, decode_compact_request)
    check_request(CreateResponse(input=given.input), service.settings.limits)
    owner = request.state.owner
    asked, before, hold = await continued(service.store, _condensing(given), owner, service.room)
    items = [*before.items, *own_input(asked)[:-1]]
    if not items:
        raise HttpError(400, "There is nothing to compact.", code="missing_required_parameter", param="input")
    prepared = await prepare(
        service,
        asked,
        fields_of(request.scope),
        request.state.request_id,
        owner=owner,
        history=before.items,
        hold=hold,
    )
    form = CompactionForm(items, partial(service.meters.counter(owner).item, model=prepared.target.model))
    return WholeAnswer(prepared.run(), prepared.headers, service.settings.keep_alive, form)


def _condensing(given: CompactRequest) -> CreateResponse:
    """The same as a request for a response that holds the compaction."""
    own = own_input(CreateResponse(input=given.input))
    return CreateResponse(
        model=given.model,
        input=[*own, UnknownItem({"type": TRIGGER})],
        previous_response_id=given.previous_response_id,
        instructions=given.instructions,
        prompt_cache_key=given.prompt_cache_key,
        store=False,
        beyond=given.beyond,
    )


async def input_tokens(request: Request) -> Response:
    """About how many tokens the input of a request is, sealed summaries counted by what they say. Real counts
    come with each response; see `openresponses_bridge.models.tokens` for what this one rests on."""
    service = service_of(request)
    asked = await read_json(request, service, decode_request)
    _check_counted(asked)
    target = service.router.target_of(asked.model, request.state.owner)
    check_request(asked, service.settings.limits)
    asked, before, hold = await continued(service.store, asked, request.state.owner, service.room)
    check_conversation(asked, len(before.items), service.settings.limits)
    earlier, own = opened(target, asked, before.items, {})
    others = CreateResponse(instructions=asked.instructions, tools=asked.tools)
    counter = service.meters.counter(request.state.owner)
    tokens = await on_thread(lambda: counter.request(others, [*earlier, *own], target.model))
    hold.release()
    body = {"object": "response.input_tokens", "input_tokens": tokens}
    headers = loss_header(reported_losses(unknown_fields(asked)))
    return Response(encode(body), headers=headers, media_type="application/json")


def _check_counted(asked: CreateResponse) -> None:
    """Raises InvalidRequestError for input that is kept elsewhere and can't be counted here."""
    for name in ("conversation", "prompt"):
        if getattr(asked, name) is not None:
            raise invalid(name, "what it holds is not kept here and can't be counted")

"""The endpoints of every API of clients: a request is read, prepared, run and answered as the API's `Surface`
says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

import structlog
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from openresponses_bridge.diagnostics import Diagnostics, loss_header
from openresponses_bridge.dialects.base import (
    AnswerForm,
    Asked,
    Continuation,
    FormContext,
    RequestHead,
    Surface,
)
from openresponses_bridge.dialects.table import Found
from openresponses_bridge.errors import BridgeError, InvalidRequestError
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.response import Response as ProtocolResponse
from openresponses_bridge.seal import Sealer
from openresponses_server.errors import HttpError
from openresponses_server.http.headers import fields_of
from openresponses_server.limits.memory import Reservation
from openresponses_server.limits.requests import check_choices, check_json, check_request
from openresponses_server.requests.assembly import RunAssembly
from openresponses_server.requests.background import cancel_response, enqueue
from openresponses_server.requests.bodies import read_json
from openresponses_server.requests.outgoing import reported_losses
from openresponses_server.requests.prepare import prepare
from openresponses_server.requests.prepared import Received, Translated
from openresponses_server.requests.service import Service, service_of, target_of
from openresponses_server.runs.exchange import Translation
from openresponses_server.runs.follow import STARTING_AFTER
from openresponses_server.runs.run import Run
from openresponses_server.store.base import StoreError
from openresponses_server.store.history import Continued, history_of
from openresponses_server.surfaces.responder import Choices, KeepAlive, StreamResponder, WholeResponder
from openresponses_server.surfaces.stored import (
    BEFORE_FIRST,
    count_reader,
    delete_response,
    found_stream,
    json_answer,
    stored_response,
    stream_of,
    unknown_response,
)
from openresponses_server.tasks import off_loop, on_thread

_MAX_LINE: Final = 200  # characters of a line, in which an unknown event names its type
_log = structlog.get_logger(__name__)


async def answer(route: Found, request: Request) -> ASGIApp:
    """Answer a request for a response, streamed or whole."""
    service = service_of(request)
    head = head_of(route, request, service)
    surface = route.surface
    any_type = surface.takes_any_type(head.headers)
    asked = await read_json(request, service, lambda body: surface.read(body, head), any_type=any_type)
    owner = request.state.owner
    if asked.choices > 1:
        most = service.gate.runs.most_of(owner)
        check_choices(asked.choices, owner, service.settings.limits, most)
    prepared = await _prepare(route, asked, head, request, service)
    runs = [RunAssembly(prepared, service, choice).run() for choice in _choices(asked)]
    headers = prepared.answer_headers
    keep_alive = KeepAlive(service.settings.keep_alive, surface.keep_alive)
    choices = None
    if asked.choices > 1:
        choices = Choices(service.gate, prepared.reservation, prepared.target.end_choice)
    estimated = partial(
        service.meters.tokens, prepared.measured.measured, prepared.target.model, prepared.owner
    )
    traced = service.settings.log_level == "debug"
    trace = partial(_trace, request.state.request_id) if traced else None
    make_form = partial(form_of, asked.form, runs[0].translation, head.sealer, estimated, trace)
    if asked.request.background and surface.stored is not None:
        return await _in_background(surface, asked, runs[0], headers, service, make_form())
    if not asked.request.stream:
        return WholeResponder(runs, headers, keep_alive, make_form, choices)
    leaving_cancels = surface.leaving_cancels
    return StreamResponder(runs, headers, keep_alive, make_form, choices, leaving_cancels=leaving_cancels)


async def _in_background(
    surface: Surface,
    client_request: Asked,
    run: Run,
    headers: Mapping[str, str],
    service: Service,
    form: AnswerForm,
) -> ASGIApp:
    """Answer with the queued response, or with its stream once it runs."""
    assert surface.stored is not None
    owner = run.owner

    async def stream() -> ASGIApp:
        queued = await enqueue(service, run)
        progress = await found_stream(service, queued.id, owner, BEFORE_FIRST)
        return stream_of(service, progress, form, headers, surface.keep_alive)

    if client_request.request.stream:
        return count_reader(service, owner, stream)
    queued = await enqueue(service, run)
    context = _context_of(queued, service, owner)
    return json_answer(surface.stored.whole(queued, context), headers)


def _choices(client_request: Asked) -> list[int | None]:
    return [None] if client_request.choices == 1 else [*range(client_request.choices)]


def head_of(route: Found, request: Request, service: Service) -> RequestHead:
    """Return what a request of this API says in its path and query, besides its body."""
    return RequestHead(
        stream=None if route.at is None else route.at.stream,
        fields=request.path_params,
        query=request.query_params,
        headers=fields_of(request.scope),
        sealer=service.sealer.bound(request.state.owner),
        is_model=service.router.is_named,
        check_json=partial(check_json, limits=service.settings.limits),
    )


def form_of(
    form: Callable[[FormContext], AnswerForm],
    translation: Translation,
    sealer: Sealer,
    input_tokens: Callable[[], int] = lambda: 0,
    trace: Callable[[str], None] | None = None,
) -> AnswerForm:
    """Return the form of an answer that begins now."""
    return form(
        FormContext(
            so_far=lambda: translation.snapshot,
            sealer=sealer,
            text_after_tools=translation.text_after_tools,
            input_tokens=input_tokens,
            usage_at_start=lambda: translation.usage_at_start,
            trace=trace,
        )
    )


def _trace(request_id: str, line: str) -> None:
    _log.debug("vscode.event", request_id=request_id, event_and_parts=line[:_MAX_LINE])


# From a request to one that can run. A request that continues a stored response is tried as such first.


async def _prepare(
    route: Found, client_request: Asked, head: RequestHead, request: Request, service: Service
) -> Translated:
    """Raises as `prepare` does."""
    surface, owner = route.surface, request.state.owner
    headers = {**head.headers, **client_request.headers} if client_request.headers else head.headers

    def new(body: CreateResponse, losses: Diagnostics | None, before: Continued | None = None) -> Received:
        return Received(
            body,
            headers,
            request.state.request_id,
            owner,
            losses=losses,
            continued=before,
            input_param=client_request.input_param,
            schema_param=client_request.schema_param,
            needs_client=surface.needs_client,
            choices=client_request.choices,
            limits_form=surface.limit_headers,
        )

    body = client_request.request
    if surface.stores_if_possible and not await _can_store(service, body):
        body = replace(body, store=False)
    elif client_request.continuation is not None:
        before = await _history_before(service, client_request.continuation, owner)
        if before is not None:
            with suppress(InvalidRequestError):  # then the whole conversation is tried
                return await prepare(new(before.request, client_request.continuation.losses, before), service)
    try:
        return await prepare(new(body, client_request.losses), service)
    except BridgeError as error:
        if (
            surface.cannot_continue is None
            or body.previous_response_id is None
            or not _is_about_history(error)
        ):
            raise
        raise surface.cannot_continue(error.message, headers) from error


def _is_about_history(error: BridgeError) -> bool:
    return error.param == "previous_response_id" or isinstance(error, StoreError)


async def _can_store(service: Service, body: CreateResponse) -> bool:
    """Return whether the response can be stored."""
    if body.store is False:
        return False
    try:
        await service.runs.check_store()
    except StoreError as error:
        _log.warning("vscode.not_stored", code=error.code)
        return False
    return True


async def _history_before(service: Service, continuation: Continuation, owner: str) -> Continued | None:
    """Return the conversation that is continued, with its memory; None if it can't be continued, or if this
    is another conversation."""
    previous = continuation.request.previous_response_id
    assert previous is not None
    reservation = Reservation(service.available.budget, owner)
    try:
        before = await history_of(service.store, previous, owner, service.available, reservation)
    except HttpError as error:
        why = error.code
    else:
        if await off_loop(before.size, lambda: continuation.digest(before.items)) == continuation.before:
            return Continued(continuation.request, before, reservation)
        why = "another_conversation"
    reservation.release()
    _log.info("vscode.marker_unused", reason=why)
    return None


# Stored responses, of an API that has them.


async def retrieve(route: Found, request: Request) -> ASGIApp:
    """Answer with a stored response, whole or its stream again."""
    service, owner, stored = service_of(request), request.state.owner, route.surface.stored
    assert stored is not None
    response_id = request.path_params["id"]
    resumed = stored.resumed(head_of(route, request, service))

    async def whole() -> ASGIApp:
        response = await stored_response(service, response_id, owner)
        return json_answer(stored.whole(response, _context_of(response, service, owner)))

    async def stream() -> ASGIApp:
        assert resumed is not None
        response = await stored_response(service, response_id, owner)
        try:
            standing = await found_stream(service, response_id, owner, resumed.after)
        except HttpError as error:
            if error.param != STARTING_AFTER:
                raise
            error.param = resumed.param
            raise
        form = resumed.form(_context_of(response, service, owner))
        return stream_of(service, standing, form, {}, route.surface.keep_alive)

    return count_reader(service, owner, whole if resumed is None else stream)


async def cancel(route: Found, request: Request) -> Response:
    """Cancel a response in progress, and answer with it as it ended."""
    service, owner, stored = service_of(request), request.state.owner, route.surface.stored
    assert stored is not None
    response = await cancel_response(service, request.path_params["id"], owner)
    if response is None:
        raise unknown_response(request.path_params["id"])
    return json_answer(stored.whole(response, _context_of(response, service, owner)))


async def delete(route: Found, request: Request) -> Response:
    """Delete a stored response; one in progress is cancelled."""
    service, stored = service_of(request), route.surface.stored
    assert stored is not None
    response_id = request.path_params["id"]
    await delete_response(service, response_id, request.state.owner)
    return json_answer(stored.deleted(response_id))


def _context_of(response: ProtocolResponse, service: Service, owner: str) -> FormContext:
    return FormContext(so_far=lambda: response, sealer=service.sealer.bound(owner))


async def count_tokens(route: Found, request: Request) -> Response:
    """Estimate the input tokens of a request for its upstream."""
    service, owner, count = service_of(request), request.state.owner, route.surface.count
    assert count is not None
    head = head_of(route, request, service)
    parsed, losses = await read_json(request, service, lambda body: count.read(body, head))
    target = target_of(service, parsed.model, owner)
    check_request(parsed, service.settings.limits, param=count.input_param)
    counter = service.meters.counter(owner)
    tokens = await on_thread(lambda: counter.request(parsed, model=target.model))
    headers = loss_header(reported_losses(losses.of("loss")))
    return Response(encode(count.answer(tokens)), headers=headers, media_type="application/json")

"""`/v1/responses`: create, retrieve, stream again, delete."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import Final

from starlette.datastructures import QueryParams
from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import decode_request, encode, encode_sse
from openresponses_bridge.protocol.events import ErrorEvent
from openresponses_bridge.protocol.response import ErrorPayload
from openresponses_server.api.answers import StreamedAnswer, WholeAnswer
from openresponses_server.api.forms import ResponseForm
from openresponses_server.api.stored import counted, unknown_response
from openresponses_server.api.stored_stream import StoredStream
from openresponses_server.errors import HttpError, shutting_down
from openresponses_server.http.headers import fields_of
from openresponses_server.requests.background import begin
from openresponses_server.requests.bodies import read_json
from openresponses_server.requests.prepare import prepare
from openresponses_server.requests.service import Service, service_of
from openresponses_server.runs.rest import rest_of
from openresponses_server.runs.run import Run

_LONGEST_NUMBER: Final = 15  # digits; JSON readers lose precision beyond that
_NOTHING: Final = -1
_TRUTHS: Final = {"true": True, "1": True, "false": False, "0": False}


async def create(request: Request) -> ASGIApp:
    """`POST /v1/responses`: the answer is server-sent events with `stream`, else JSON; in the
    `background` it is the queued response."""
    service = service_of(request)
    asked = await read_json(request, service, decode_request)
    scope = request.scope
    owner, request_id = scope["state"]["owner"], scope["state"]["request_id"]
    prepared = await prepare(service, asked, fields_of(scope), request_id, owner=owner)
    run, headers = prepared.run(), prepared.headers
    if asked.background:
        if asked.stream:
            return counted(service, owner, partial(_read_along, service, run, headers))
        queued = await begin(service, run)
        return Response(encode(queued), headers=headers, media_type="application/json")
    keep_alive, form = service.settings.keep_alive, ResponseForm()
    if asked.stream:
        return StreamedAnswer(run, headers, keep_alive, form, partial(_rest, service, run))
    return WholeAnswer(run, headers, keep_alive, form)


async def _rest(service: Service, run: Run) -> AsyncIterator[bytes]:
    """What a client that fell behind has not got yet. It ends early when the client would be one reader too
    many: it can ask again."""
    with suppress(HttpError):
        async for data in rest_of(run, service.gate, service.runs.follower):
            yield data


async def _read_along(service: Service, run: Run, headers: dict[str, str]) -> Response:
    queued = await begin(service, run)
    found = await service.store.standing(queued.id, run.owner)
    if found is None:
        raise unknown_response(queued.id)
    frames = _until_cut_off(service, queued.id, service.runs.follower.follow(found, _NOTHING))
    return _event_stream(service, frames, headers)


async def _until_cut_off(
    service: Service, response_id: str, frames: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    """The frames. A client that was sent none when the server cuts off what is left does not know its
    response: it gets an `error` event with the id."""
    cut = asyncio.ensure_future(service.gate.cut.wait())
    first = asyncio.ensure_future(anext(frames, b""))
    try:
        await asyncio.wait((first, cut), return_when=asyncio.FIRST_COMPLETED)
        if not first.done():
            error = shutting_down()
            message = f"{error.message} The response is {response_id}: ask for its events under that id."
            yield encode_sse([ErrorEvent(0, ErrorPayload(error.error_type, error.code, message, None))])
            return
        yield first.result()
    finally:
        cut.cancel()
        first.cancel()
    async for data in frames:
        yield data


class Stored(HTTPEndpoint):
    """`/v1/responses/{id}`: a response that was stored. 404 `response_not_found` when there is none."""

    async def get(self, request: Request) -> ASGIApp:
        """The response as it ended or as far as it is; with `stream=true` its events (law S2), those
        after the number `starting_after` or all. Without `stream` that number has to be one and says
        nothing, as OpenAI's clients may send it."""
        service, owner = service_of(request), request.state.owner
        asked = request.query_params
        streamed = "stream" in asked and _truth("stream", asked["stream"])
        after = after_of(asked)
        answer = partial(_again, after=after) if streamed else _whole
        return counted(service, owner, partial(answer, service, request.path_params["id"], owner))

    async def delete(self, request: Request) -> Response:
        """Forget it; if it is being made, that ends."""
        service = service_of(request)
        response_id = request.path_params["id"]
        if not await service.store.delete(response_id, request.state.owner):
            raise unknown_response(response_id)
        if service.traces is not None:
            service.traces.forget(request.state.owner, response_id)
        await service.runs.forget(response_id)
        deleted = {"id": response_id, "object": "response", "deleted": True}
        return Response(encode(deleted), media_type="application/json")


async def _whole(service: Service, response_id: str, owner: str) -> Response:
    record = await service.store.get(response_id, owner)
    if record is None:
        raise unknown_response(response_id)
    running = service.running.get(response_id, owner)
    shown = None if running is None else running.shown
    return Response(encode(record.response if shown is None else shown), media_type="application/json")


async def _again(service: Service, response_id: str, owner: str, after: int) -> Response:
    found = await service.store.standing(response_id, owner)
    if found is None:
        raise unknown_response(response_id)
    running = service.running.get(response_id, owner)
    await service.runs.follower.check(found, after, None if running is None else running.last_kept)
    return _event_stream(service, service.runs.follower.follow(found, after), {})


def _event_stream(service: Service, frames: AsyncIterator[bytes], headers: dict[str, str]) -> Response:
    return StoredStream(frames, headers, service.settings.keep_alive)


def after_of(asked: QueryParams) -> int:
    """The number of `starting_after`; -1 without one. Raises InvalidRequestError."""
    return _number(asked["starting_after"]) if "starting_after" in asked else _NOTHING


def _truth(param: str, text: str) -> bool:
    truth = _TRUTHS.get(text.lower())
    if truth is None:
        what = f"{param} is true or false, not {text[:40]!r}"
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param=param)
    return truth


def _number(text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER:
        return int(text)
    what = f"starting_after is the number of an event, not {text[:40]!r}"
    raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param="starting_after")

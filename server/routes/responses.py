"""`/v1/responses`: create, retrieve, stream again, delete."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Final

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from bridge.errors import InvalidRequestError
from bridge.protocol.codec import decode_request, encode
from server.answers.delivery import StreamedAnswer, WholeAnswer
from server.answers.forms import SSE_TYPE, ResponseForm
from server.requests.background import begin
from server.requests.bodies import read_json
from server.requests.prepare import prepare
from server.routes.stored import counted, unknown_response
from server.runs.run import Run
from server.service import Service, service_of
from server.sessions.base import Standing

_LONGEST_NUMBER: Final = 15  # digits; JSON readers lose precision beyond that
_NOTHING: Final = -1
_TRUTHS: Final = {"true": True, "1": True, "false": False, "0": False}


async def create(request: Request) -> ASGIApp:
    """`POST /v1/responses`: the answer is server-sent events with `stream`, else JSON; in the
    `background` it is the queued response."""
    service = service_of(request)
    asked = await read_json(request, service.settings, decode_request)
    owner = request.state.owner
    prepared = await prepare(service, asked, request.headers, request.state.request_id, owner=owner)
    run, headers = prepared.run(), prepared.headers
    if asked.background:
        if asked.stream:
            return counted(service, owner, partial(_read_along, service, run, headers))
        queued = await begin(service, run)
        return Response(encode(queued), headers=headers, media_type="application/json")
    answer = StreamedAnswer if asked.stream else WholeAnswer
    return answer(run, headers, service.settings.keep_alive, ResponseForm())


async def _read_along(service: Service, run: Run, headers: dict[str, str]) -> Response:
    queued = await begin(service, run)
    found = await service.store.standing(queued.id, run.owner)
    if found is None:
        raise unknown_response(queued.id)
    return _event_stream(service, found, _NOTHING, headers)


class Stored(HTTPEndpoint):
    """`/v1/responses/{id}`: a response that was stored. 404 `response_not_found` when there is none."""

    async def get(self, request: Request) -> ASGIApp:
        """The response as it ended or as far as it is; with `stream=true` its events (law S2), those
        after the number `starting_after` or all. Without `stream` that number has to be one and says
        nothing, as OpenAI's clients may send it."""
        service, owner = service_of(request), request.state.owner
        asked = request.query_params
        streamed = "stream" in asked and _truth("stream", asked["stream"])
        after = _number(asked["starting_after"]) if "starting_after" in asked else _NOTHING
        answer = partial(_again, after=after) if streamed else _whole
        return counted(service, owner, partial(answer, service, request.path_params["id"], owner))

    async def delete(self, request: Request) -> Response:
        """Forget it; if it is being made, that ends."""
        service = service_of(request)
        response_id = request.path_params["id"]
        if not await service.store.delete(response_id, request.state.owner):
            raise unknown_response(response_id)
        await service.runs.forget(response_id)
        deleted = {"id": response_id, "object": "response", "deleted": True}
        return Response(encode(deleted), media_type="application/json")


async def _whole(service: Service, response_id: str, owner: str) -> Response:
    record = await service.store.get(response_id, owner)
    if record is None:
        raise unknown_response(response_id)
    running = service.running.get(response_id, owner)
    live = running is not None and not running.translation.ended
    response = running.translation.snapshot if running is not None and live else record.response
    return Response(encode(response), media_type="application/json")


async def _again(service: Service, response_id: str, owner: str, after: int) -> Response:
    found = await service.store.standing(response_id, owner)
    if found is None:
        raise unknown_response(response_id)
    running = service.running.get(response_id, owner)
    await service.runs.follower.check(found, after, None if running is None else running.last_kept)
    return _event_stream(service, found, after, {})


def _event_stream(service: Service, found: Standing, after: int, headers: dict[str, str]) -> Response:
    frames: AsyncIterator[bytes] = service.runs.follower.follow(found, after)
    return EventSourceResponse(
        frames,
        headers=headers,
        media_type=SSE_TYPE.decode().partition(";")[0],
        ping=service.settings.keep_alive,
        ping_message_factory=lambda: ServerSentEvent(comment="keep-alive", sep="\n"),
    )


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

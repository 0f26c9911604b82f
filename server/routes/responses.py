"""`/v1/responses`: create, retrieve, stream again, delete."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from bridge.errors import InvalidRequestError
from bridge.protocol.codec import decode_request, encode
from server.bodies import read_json_body
from server.delivery import StreamedAnswer, WholeAnswer
from server.routes.stored import unknown_response
from server.runs.background import begin
from server.runs.generation import Generation
from server.runs.prepare import prepare
from server.service import Service, service_of
from server.sessions.base import StoredResponse
from server.surfaces.base import SSE_TYPE, ResponseForm

_LONGEST_NUMBER: Final = 15  # digits; JSON readers lose precision beyond that
_NOTHING: Final = -1
_TRUTHS: Final = {"true": True, "1": True, "false": False, "0": False}


async def create(request: Request) -> ASGIApp:
    """`POST /v1/responses`: the answer is server-sent events with `stream`, else JSON; in the
    `background` it is the queued response."""
    service = service_of(request)
    asked = decode_request(await read_json_body(request, service.settings))
    owner = request.state.owner
    generation, headers = await prepare(
        service, asked, request.headers, request.state.request_id, owner=owner
    )
    if asked.background:
        return await _in_background(service, generation, owner, headers, stream=bool(asked.stream))
    answer = StreamedAnswer if asked.stream else WholeAnswer
    return answer(generation, headers, service.settings.keep_alive, ResponseForm(generation.frames))


async def _in_background(
    service: Service, generation: Generation, owner: str, headers: dict[str, str], *, stream: bool
) -> Response:
    queued = await begin(service, generation)
    if not stream:
        return Response(encode(queued), headers=headers, media_type="application/json")
    record = await service.store.get(queued.id, owner)
    if record is None:
        raise unknown_response(queued.id)
    return _event_stream(service, record, _NOTHING, headers)


class Stored(HTTPEndpoint):
    """`/v1/responses/{id}`: a response that was stored. 404 `response_not_found` when there is none."""

    async def get(self, request: Request) -> Response:
        """The response as it ended or as far as it is; with `stream=true` its events (law S2), those
        after the number `starting_after` or all. Without `stream` that number has to be one and says
        nothing, as OpenAI's clients may send it."""
        service = service_of(request)
        response_id, owner = request.path_params["id"], request.state.owner
        asked = request.query_params
        streamed = "stream" in asked and _truth("stream", asked["stream"])
        after = _number(asked["starting_after"]) if "starting_after" in asked else _NOTHING
        record = await service.store.get(response_id, owner)
        if record is None:
            raise unknown_response(response_id)
        running = service.running.get(response_id, owner)
        if streamed:
            sent = None if running is None else running.last_kept
            await service.runs.follower.check(record, after, sent)
            return _event_stream(service, record, after, {})
        live = running is not None and not running.run.ended
        response = running.run.snapshot if running is not None and live else record.response
        return Response(encode(response), media_type="application/json")

    async def delete(self, request: Request) -> Response:
        """Forget it; if it is being made, that ends."""
        service = service_of(request)
        response_id = request.path_params["id"]
        if not await service.store.delete(response_id, request.state.owner):
            raise unknown_response(response_id)
        await service.runs.forget(response_id)
        told = {"id": response_id, "object": "response", "deleted": True}
        return Response(encode(told), media_type="application/json")


def _event_stream(service: Service, record: StoredResponse, after: int, headers: dict[str, str]) -> Response:
    frames: AsyncIterator[bytes] = service.runs.follower.follow(record, after)
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

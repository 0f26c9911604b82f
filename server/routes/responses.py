"""`/v1/responses`: create, retrieve, delete."""

from __future__ import annotations

from typing import Final

from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from bridge.errors import InvalidRequestError
from bridge.protocol.codec import decode_request, encode
from server.bodies import read_json_body
from server.delivery import StreamedAnswer, WholeAnswer
from server.errors import HttpError
from server.runs.prepare import prepare
from server.service import service_of
from server.surfaces.base import ResponseForm

_UNSUPPORTED: Final = InvalidRequestError.UNSUPPORTED


async def create(request: Request) -> ASGIApp:
    """`POST /v1/responses`: the answer is server-sent events with `stream`, else JSON."""
    service = service_of(request)
    asked = decode_request(await read_json_body(request, service.settings))
    generation, headers = await prepare(
        service, asked, request.headers, request.state.request_id, owner=request.state.owner
    )
    answer = StreamedAnswer if asked.stream else WholeAnswer
    return answer(generation, headers, service.settings.keep_alive, ResponseForm())


class Stored(HTTPEndpoint):
    """`/v1/responses/{id}`: a response that was stored. 404 `response_not_found` when there is none."""

    async def get(self, request: Request) -> Response:
        """The response as it ended."""
        response_id = request.path_params["id"]
        if request.query_params.get("stream", "false") != "false":
            raise HttpError(400, "Stored responses are not streamed.", code=_UNSUPPORTED, param="stream")
        record = await service_of(request).store.get(response_id, request.state.owner)
        if record is None:
            raise _unknown(response_id)
        return Response(encode(record.response), media_type="application/json")

    async def delete(self, request: Request) -> Response:
        """Forget it."""
        response_id = request.path_params["id"]
        if not await service_of(request).store.delete(response_id, request.state.owner):
            raise _unknown(response_id)
        told = {"id": response_id, "object": "response", "deleted": True}
        return Response(encode(told), media_type="application/json")


def _unknown(response_id: str) -> HttpError:
    return HttpError(404, f"Response with id '{response_id[:80]}' not found.", code="response_not_found")

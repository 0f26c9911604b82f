"""`/v1/responses`: create, retrieve, stream again, delete."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
from starlette.endpoints import HTTPEndpoint
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp

from openresponses_bridge.dialects.base import KEEP_ALIVE, http_failure
from openresponses_bridge.dialects.responses import ResponsesForm
from openresponses_bridge.protocol.codec import decode_request, encode, encode_sse, plain
from openresponses_bridge.protocol.events import ErrorEvent
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.response import ErrorPayload
from openresponses_server.api.parameters import (
    BEFORE_FIRST,
    flag_of,
    idempotency_key_of,
    limit_of,
    order_of,
    starting_after_of,
)
from openresponses_server.errors import HttpError, shutting_down, too_slow
from openresponses_server.http.headers import fields_of
from openresponses_server.requests.assembly import RunAssembly
from openresponses_server.requests.background import cancel_response, enqueue, reserve
from openresponses_server.requests.bodies import read_json
from openresponses_server.requests.prepare import prepare
from openresponses_server.requests.prepared import Received
from openresponses_server.requests.service import Service, service_of
from openresponses_server.runs.follow import remaining_stream
from openresponses_server.runs.run import Run
from openresponses_server.store.base import ListedItem
from openresponses_server.store.idempotency import IdempotencyKey, KeyedResponse, KeyTaken
from openresponses_server.surfaces.responder import KeepAlive, StreamResponder, WholeResponder
from openresponses_server.surfaces.stored import (
    count_reader,
    delete_response,
    found_stream,
    stored_response,
    unknown_response,
)
from openresponses_server.surfaces.stored_stream import StoredStream

_FIRST_LOOK: Final = 0.02  # seconds until the response of a key is looked up again, doubled each time
_LONGEST_LOOK: Final = 0.5
_NO_HEADERS: Final[Mapping[str, str]] = {}

# `GET /v1/responses/{id}/input_items` and `POST /v1/responses/{id}/cancel`.

# role of a message → type of its text part
_TEXT_PART_TYPES: Final = {"assistant": "output_text"}


async def input_items(request: Request) -> ASGIApp:
    """A page of a response's input items: `limit` (1 to 100, default 20), `order` (`asc` or `desc`, the
    default), `after` and `before` (ids of items)."""
    return count_reader(service_of(request), request.state.owner, partial(_page, request))


async def _page(request: Request) -> Response:
    query = request.query_params
    response_id = request.path_params["id"]
    page = await service_of(request).store.input_items(
        response_id,
        request.state.owner,
        after=query.get("after"),
        before=query.get("before"),
        limit=limit_of(query),
        order=order_of(query),
    )
    if page is None:
        raise unknown_response(response_id)
    shown = page_shown([input_item(listed) for listed in page.items], has_more=page.has_more)
    return Response(encode(shown), media_type="application/json")


def page_shown(data: list[dict[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """Return a page of items as a list object."""
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": has_more,
    }


async def cancel(request: Request) -> Response:
    """Cancel a response in progress: it becomes incomplete with the output so far, and its client gets that
    end. A cancelled response is returned again; for one that has ended otherwise the request is refused."""
    response = await cancel_response(service_of(request), request.path_params["id"], request.state.owner)
    if response is None:
        raise unknown_response(request.path_params["id"])
    return Response(encode(response), media_type="application/json")


def input_item(listed: ListedItem) -> dict[str, Any]:
    """Return the item with its id and, for a message, its content as parts."""
    raw: dict[str, Any] = {**plain(listed.item), "id": listed.id}
    if raw.get("type") == "message":
        if isinstance(raw["content"], str):
            kind = _TEXT_PART_TYPES.get(raw["role"], "input_text")
            raw["content"] = [{"type": kind, "text": raw["content"]}]
        for part in raw["content"]:
            if part.get("type") == "output_text":
                part.setdefault("annotations", [])
        raw["status"] = raw.get("status") or "completed"
    return raw


async def create(request: Request) -> ASGIApp:
    """`POST /v1/responses`: the answer is server-sent events with `stream`, else JSON; in the
    `background` it is the queued response."""
    service, scope = service_of(request), request.scope
    fields = fields_of(scope)
    owner, request_id = scope["state"]["owner"], scope["state"]["request_id"]
    key: IdempotencyKey | None = None
    if "idempotency-key" in fields:
        decode = partial(_decode_keyed, idempotency_key_of(fields), owner)
        body, key = await read_json(request, service, decode)
    else:
        body = await read_json(request, service, decode_request)
    while True:
        if key is not None and (answer := await _first_response(request, body, key)) is not None:
            return answer
        prepared = await prepare(Received(body, fields, request_id, owner, key=key), service)
        run, headers = RunAssembly(prepared, service).run(), prepared.answer_headers
        try:
            if body.background:
                if body.stream:
                    stream = partial(_stream_background, service, run, headers, key)
                    return count_reader(service, owner, stream)
                queued = await enqueue(service, run)
                return Response(encode(queued), headers=headers, media_type="application/json")
            if key is not None:
                await reserve(service, run)
        except KeyTaken:  # another request has used it meanwhile
            prepared.reservation.release()
            continue
        keep_alive = KeepAlive(service.settings.keep_alive, KEEP_ALIVE)
        if not body.stream:
            return WholeResponder([run], headers, keep_alive, ResponsesForm)
        rest = partial(_remaining_stream, service, run)
        return StreamResponder([run], headers, keep_alive, ResponsesForm, rest=rest)


def _decode_keyed(key: str, owner: str, body: bytes) -> tuple[CreateResponse, IdempotencyKey | None]:
    """Return the request, and its key if its response is to be stored."""
    request = decode_request(body)
    return request, None if request.store is False else IdempotencyKey.of(key, owner, body, time.time())


def _check_same(keyed_response: KeyedResponse, key: IdempotencyKey) -> None:
    if keyed_response.request != key.request:
        what = "This Idempotency-Key was sent with another request in the last day: use a new one."
        raise HttpError(422, what, code="idempotency_key_reused", param="Idempotency-Key")


_REPLAYED: Final = {"idempotent-replayed": "true"}


async def _first_response(request: Request, body: CreateResponse, key: IdempotencyKey) -> ASGIApp | None:
    """Return the answer with the response that was made for the first request with this key, in progress or
    not; None if there is none, or if it was just deleted. Raises HttpError for another request, and for a
    response that failed without output, as its first client got."""
    service, owner = service_of(request), request.state.owner
    keyed_response = await service.store.keyed(key.name, owner)
    if keyed_response is None:
        return None
    _check_same(keyed_response, key)
    response_id = keyed_response.response_id
    if not body.background:
        await _wait_for(request, response_id, to_end=not body.stream)
    record = await service.store.get(response_id, owner)
    if record is None:
        return None
    if body.stream:
        replay = partial(_replay, service, response_id, owner, BEFORE_FIRST, _REPLAYED)
        return count_reader(service, owner, replay)
    response = record.response
    if not body.background and response.error is not None and not response.output:
        raise http_failure(response.error)
    return Response(encode(response), headers=_REPLAYED, media_type="application/json")


async def _wait_for(request: Request, response_id: str, *, to_end: bool) -> None:
    """Wait until the response has ended or, without `to_end`, until some of it is stored, or until it no
    longer exists. Raises ClientDisconnect when the client has disconnected, and HttpError if that takes too
    long, if the server is cut off, or if there are too many readers."""
    service, owner = service_of(request), request.state.owner
    gate, pause, total = service.gate, _FIRST_LOOK, service.settings.timeouts.total
    try:
        async with gate.readers.shared(owner), asyncio.timeout(total) as deadline:
            gate.deadlines.add(deadline)
            try:
                while (progress := await service.store.standing(response_id, owner)) is not None:
                    if progress.lease is None or (progress.last_sequence >= 0 and not to_end):
                        return
                    if await request.is_disconnected():
                        raise ClientDisconnect
                    if progress.lease.until < await service.store.now():
                        await service.runs.settler.settle(response_id)
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_LOOK)
            finally:
                gate.deadlines.discard(deadline)
    except TimeoutError:
        raise (shutting_down() if gate.cut.is_set() else too_slow(total)) from None


async def _remaining_stream(service: Service, run: Run) -> AsyncIterator[bytes]:
    """Yield the remaining stream for a client that fell behind. It ends early if there are too many readers;
    the client can resume."""
    with suppress(HttpError):
        async for data in remaining_stream(run, service.gate, service.runs.follower):
            yield data


async def _stream_background(
    service: Service, run: Run, headers: dict[str, str], key: IdempotencyKey | None
) -> Response:
    try:
        response_id = (await enqueue(service, run)).id
    except KeyTaken as taken:
        assert key is not None
        _check_same(taken.found, key)
        return await _replay(service, taken.found.response_id, run.owner, BEFORE_FIRST, _REPLAYED)
    progress = await service.store.standing(response_id, run.owner)
    if progress is None:
        raise unknown_response(response_id)
    frames = _with_cut_off_error(service, response_id, service.runs.follower.follow(progress, BEFORE_FIRST))
    return _event_stream(service, frames, headers)


async def _with_cut_off_error(
    service: Service, response_id: str, frames: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    """Yield the frames. If the server stops before the first one, the client does not know its response, and
    gets an `error` event with the id."""
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


class ResponseEndpoint(HTTPEndpoint):
    """`/v1/responses/{id}`: a stored response. 404 `response_not_found` if there is none."""

    async def get(self, request: Request) -> ASGIApp:
        """Answer with the response as it ended, or so far; with `stream=true` with its events (law S2), all
        or those after the number `starting_after`. Without `stream` that number is checked and ignored,
        because OpenAI's clients may send it."""
        service, owner = service_of(request), request.state.owner
        query = request.query_params
        streamed = flag_of(query, "stream")
        after = starting_after_of(query)
        answer = partial(_replay, after=after) if streamed else _as_json
        return count_reader(service, owner, partial(answer, service, request.path_params["id"], owner))

    async def delete(self, request: Request) -> Response:
        """Delete the response; one in progress is cancelled."""
        response_id = request.path_params["id"]
        await delete_response(service_of(request), response_id, request.state.owner)
        deleted = {"id": response_id, "object": "response", "deleted": True}
        return Response(encode(deleted), media_type="application/json")


async def _as_json(service: Service, response_id: str, owner: str) -> Response:
    shown = await stored_response(service, response_id, owner)
    return Response(encode(shown), media_type="application/json")


async def _replay(
    service: Service, response_id: str, owner: str, after: int, headers: Mapping[str, str] = _NO_HEADERS
) -> Response:
    progress = await found_stream(service, response_id, owner, after)
    return _event_stream(service, service.runs.follower.follow(progress, after), headers)


def _event_stream(service: Service, frames: AsyncIterator[bytes], headers: Mapping[str, str]) -> Response:
    return StoredStream(frames, headers, service.settings.keep_alive)


# `/v1/responses/{id}/trace`: the trace of one response.

_CHUNK_SIZE: Final = 256 * 1024


async def trace(request: Request) -> ASGIApp:
    """The trace so far, as a recording in JSON lines. 404 `trace_not_found` if there is none or it belongs to
    another owner."""
    service, owner = service_of(request), request.state.owner
    return count_reader(service, owner, partial(_recording, service, request.path_params["id"], owner))


async def _recording(service: Service, response_id: str, owner: str) -> Response:
    path = None if service.traces is None else service.traces.find(owner, response_id)
    if path is None:
        what = f"There is no trace of a response with id '{response_id[:80]}'."
        raise HttpError(404, what, code="trace_not_found")
    return StreamingResponse(_lines(path), media_type="application/jsonl")


async def _lines(path: Path) -> AsyncIterator[bytes]:
    """Yield the complete lines of the file, in chunks; none if it has just been deleted."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    with os.fdopen(descriptor, "rb") as file:
        left = os.fstat(descriptor).st_size
        begun: list[bytes] = []
        while left:
            block = await anyio.to_thread.run_sync(file.read, min(_CHUNK_SIZE, left))
            if not block:
                break
            left -= len(block)
            whole, newline, rest = block.rpartition(b"\n")
            if newline:
                yield b"".join([*begun, whole, newline])
                begun = []
            begun.append(rest)

"""`/inspector/v1/`: what the inspector's page shows, as lines of JSON, with the key of its user."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Final

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp

from bridge.dialects.base import invalid
from bridge.protocol.codec import decode_request, encode
from server.answers.delivery import StreamedAnswer
from server.answers.observed import LINE_KEEP_ALIVE, LINES_TYPE, ObservedForm, observed_frames
from server.answers.stored_stream import StoredStream
from server.captures.reader import Unreadable
from server.captures.sources import AUTO, DIALECTS
from server.errors import HttpError
from server.header_fields import fields_of
from server.recordings.observing import observed_file
from server.requests.background import begin
from server.requests.bodies import read_bytes, read_json
from server.requests.off_loop import on_thread
from server.requests.prepare import prepare
from server.routes.responses import after_of
from server.routes.stored import counted, unknown_response
from server.runs.run import Run
from server.service import Service, service_of

_CAPTURE_TYPE: Final = "application/octet-stream"
_BLOCK: Final = 64 * 1024  # bytes of lines that are made at once


async def create(request: Request) -> ASGIApp:
    """`POST /inspector/v1/responses`: as `/v1/responses`, always streamed. Times count from here."""
    began = time.perf_counter()
    service = service_of(request)
    asked = replace(await read_json(request, service.settings, decode_request), stream=True)
    owner = request.state.owner
    prepared = await prepare(service, asked, fields_of(request.scope), request.state.request_id, owner=owner)
    run, headers = prepared.run(), prepared.headers
    if asked.background:
        return counted(service, owner, partial(_begun, service, run, headers, began))
    form = ObservedForm(run.translation.diagnostics, began)
    return StreamedAnswer(run, headers, service.settings.keep_alive, form)


async def _begun(service: Service, run: Run, headers: dict[str, str], began: float) -> Response:
    queued = await begin(service, run)
    return await _followed(service, queued.id, run.owner, -1, headers, began)


async def stored(request: Request) -> ASGIApp:
    """`GET /inspector/v1/responses/{id}`: the stream of a stored response, `starting_after` a number."""
    service, owner = service_of(request), request.state.owner
    after = after_of(request.query_params)
    return counted(service, owner, partial(_followed, service, request.path_params["id"], owner, after, {}))


async def _followed(
    service: Service,
    response_id: str,
    owner: str,
    after: int,
    headers: dict[str, str],
    began: float | None = None,
) -> Response:
    found = await service.store.standing(response_id, owner)
    if found is None:
        raise unknown_response(response_id)
    running = service.running.get(response_id, owner)
    await service.runs.follower.check(found, after, None if running is None else running.last_kept)
    lines = observed_frames(service.runs.follower.follow(found, -1), after, began)
    return StoredStream(lines, headers, service.settings.keep_alive, LINES_TYPE, LINE_KEEP_ALIVE, b"\n")


async def capture(request: Request) -> Response:
    """`POST /inspector/v1/captures`: a capture of any dialect or a recording, `?dialect=` one of those that
    `replay` reads. 400 for what can't be read from its beginning; after that the last line has an `error`."""
    service = service_of(request)
    dialect = request.query_params.get("dialect", AUTO)
    if dialect not in (AUTO, *DIALECTS):
        raise invalid("dialect", f"expected one of: {', '.join((AUTO, *DIALECTS))}")
    kind = fields_of(request.scope).get("content-type", "").partition(";")[0].strip().lower()
    if kind != _CAPTURE_TYPE:
        raise HttpError(415, f"The content type must be {_CAPTURE_TYPE}.")
    data = await read_bytes(request, service.settings)
    lines = _with_failure(observed_file(data, dialect))
    try:
        first = await on_thread(partial(_block, lines))
    except Unreadable as error:
        raise invalid("capture", str(error)) from error
    return StreamingResponse(_blocks(first, lines), media_type=LINES_TYPE.decode())


async def _blocks(first: bytes, lines: Iterator[bytes]) -> AsyncIterator[bytes]:
    block = first
    while block:
        yield block
        await asyncio.sleep(0)
        block = await on_thread(partial(_block, lines))


def _with_failure(lines: Iterator[bytes]) -> Iterator[bytes]:
    """The lines, and what breaks them off as the last. Raises Unreadable for what has none."""
    begun = False
    try:
        for line in lines:
            begun = True
            yield line
    except Unreadable as error:
        if not begun:
            raise
        yield encode({"error": str(error)}) + b"\n"


def _block(lines: Iterator[bytes]) -> bytes:
    """Some lines; empty when there are none left."""
    made: list[bytes] = []
    size = 0
    for each in lines:
        made.append(each)
        size += len(each)
        if size > _BLOCK:
            break
    return b"".join(made)

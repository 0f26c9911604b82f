"""`/inspector/v1/`: what the inspector's page shows, as lines of JSON, with the key of its user."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Final

from msgspec.structs import replace
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp

from openresponses_bridge.dialects.base import invalid
from openresponses_bridge.protocol.codec import decode_request, encode
from openresponses_server.api.answers import StreamedAnswer
from openresponses_server.api.inspector.observed import (
    LINE_KEEP_ALIVE,
    LINES_TYPE,
    ObservedForm,
    observed_frames,
)
from openresponses_server.api.responses import after_of
from openresponses_server.api.stored import counted, unknown_response
from openresponses_server.api.stored_stream import StoredStream
from openresponses_server.errors import HttpError
from openresponses_server.http.bodies import check_json
from openresponses_server.http.headers import fields_of
from openresponses_server.observation.recordings.captures import Unreadable
from openresponses_server.observation.recordings.recordings_observing import observed_file
from openresponses_server.observation.recordings.sources import AUTO, DIALECTS
from openresponses_server.off_loop import on_thread
from openresponses_server.requests.background import begin
from openresponses_server.requests.bodies import read_bytes, read_json
from openresponses_server.requests.prepare import prepare
from openresponses_server.requests.service import Service, service_of
from openresponses_server.runs.run import Run
from openresponses_server.settings import Limits

_CAPTURE_TYPE: Final = "application/octet-stream"
_BLOCK: Final = 64 * 1024  # bytes of lines that are made at once
_PAYLOAD_VALUES: Final = 50_000  # an event of a response with thousands of items has as many


async def create(request: Request) -> ASGIApp:
    """`POST /inspector/v1/responses`: as `/v1/responses`, always streamed. Times count from here."""
    began = time.perf_counter()
    service = service_of(request)
    asked = replace(await read_json(request, service, decode_request), stream=True)
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
    data = await read_bytes(request, service)
    check = partial(check_json, limits=_payload_limits(service.settings.limits))
    lines = _with_failure(observed_file(data, dialect, check))
    first, ended = b"", False
    try:
        while not first and not ended:
            if await request.is_disconnected():
                raise ClientDisconnect
            first, ended = await on_thread(partial(_piece, lines))
    except Unreadable as error:
        raise invalid("capture", str(error)) from error
    pieces = _pieces(first, ended, lines)
    return StoredStream(pieces, {}, service.settings.keep_alive, LINES_TYPE, LINE_KEEP_ALIVE, b"\n")


def _payload_limits(limits: Limits) -> Limits:
    """Of one payload, which is translated in one step."""
    return replace(limits, json_values=min(limits.json_values, _PAYLOAD_VALUES))


async def _pieces(first: bytes, ended: bool, lines: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Each is made when the one before has been sent: for a client that leaves nothing more is done."""
    yield first
    while not ended:
        piece, ended = await on_thread(partial(_piece, lines))
        if piece:
            yield piece


def _with_failure(lines: Iterator[bytes]) -> Iterator[bytes]:
    """The lines, and what breaks them off as the last. Raises Unreadable for what has none."""
    begun = False
    try:
        for line in lines:
            begun = begun or line != b""
            yield line
    except Unreadable as error:
        if not begun:
            raise
        yield encode({"error": str(error)}) + b"\n"


def _piece(lines: Iterator[bytes]) -> tuple[bytes, bool]:
    """Some lines, and whether there are none left."""
    made: list[bytes] = []
    size = 0
    for each in lines:
        made.append(each)
        size += len(each)
        if not each or size > _BLOCK:
            return b"".join(made), False
    return b"".join(made), True

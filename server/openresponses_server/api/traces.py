"""`/v1/responses/{id}/trace`: what passed of one response."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Final

import anyio
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp

from openresponses_server.api.stored import counted
from openresponses_server.errors import HttpError
from openresponses_server.requests.service import Service, service_of

_BLOCK: Final = 256 * 1024


async def trace(request: Request) -> ASGIApp:
    """The trace as a recording in JSON lines, as far as it goes now. 404 `trace_not_found` when there is none
    or it is another owner's."""
    service, owner = service_of(request), request.state.owner
    return counted(service, owner, partial(_recording, service, request.path_params["id"], owner))


async def _recording(service: Service, response_id: str, owner: str) -> Response:
    found = None if service.traces is None else service.traces.find(owner, response_id)
    if found is None:
        what = f"There is no trace of a response with id '{response_id[:80]}'."
        raise HttpError(404, what, code="trace_not_found")
    return StreamingResponse(_lines(found), media_type="application/jsonl")


async def _lines(path: Path) -> AsyncIterator[bytes]:
    """The whole lines that are in the file now, in pieces; none when it has just been deleted."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    with os.fdopen(descriptor, "rb") as file:
        left = os.fstat(descriptor).st_size
        begun: list[bytes] = []
        while left:
            block = await anyio.to_thread.run_sync(file.read, min(_BLOCK, left))
            if not block:
                break
            left -= len(block)
            whole, newline, rest = block.rpartition(b"\n")
            if newline:
                yield b"".join([*begun, whole, newline])
                begun = []
            begun.append(rest)

"""Reading a request's body: its type and size are checked before it is believed."""

from __future__ import annotations

from starlette.requests import Request

from server.errors import HttpError
from server.limits import check_depth
from server.settings import Settings


async def read_json_body(request: Request, settings: Settings) -> bytes:
    """The body of a JSON request, not larger and not deeper than the settings allow.

    Raises HttpError 415 for another content type, 413 for a larger body, InvalidRequestError for a
    deeper one.
    """
    limit = settings.max_body_bytes
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise HttpError(415, f"The content type must be application/json, not {kind[:80] or 'nothing'}.")
    told = request.headers.get("content-length", "")
    if told.isdecimal() and int(told) > limit:
        raise _too_large(limit)
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        chunks.append(chunk)
    body = b"".join(chunks)
    check_depth(body, settings.limits.depth)
    return body


def _too_large(limit: int) -> HttpError:
    return HttpError(413, f"The body is larger than the limit of {limit} bytes.")

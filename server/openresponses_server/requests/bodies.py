"""Reading what a client has sent: its type, size, encoding and shape are checked before it is believed.

Every JSON body goes through `read_json`, every message of a WebSocket through `decoded`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import anyio
from starlette.requests import ClientDisconnect, Request

from openresponses_server.http.encodings import decoding
from openresponses_server.http.headers import HeaderFields, fields_of
from openresponses_server.limits.bodies import check_json, check_length, check_type, too_large
from openresponses_server.limits.memory import RECEIVED, Hold
from openresponses_server.observation.traces import REQUEST
from openresponses_server.requests.service import Service
from openresponses_server.settings import Limits
from openresponses_server.tasks import LARGE, on_thread

T = TypeVar("T")


async def read_json(request: Request, service: Service, decode: Callable[[bytes], T]) -> T:
    """The body of a JSON request, decoded. Its content type has to be named: a web page may send any other
    to any server.

    Raises HttpError 415 for another content type or encoding, 413 for a larger body than the settings
    allow, 429 when too much is in memory, and what `decoded` raises.
    """
    headers = fields_of(request.scope)
    check_type(headers.get("content-type", ""))
    body = await _read(request, headers, service)
    asked = await decoded(body, service.settings.limits, decode)
    if (trace := REQUEST.get()) is not None:
        await on_thread(partial(trace.take, body))
    return asked


async def read_bytes(request: Request, service: Service) -> bytes:
    """The body of a request, whatever it is. Raises HttpError 415 for another encoding, 413 for a larger body
    than the settings allow, and 429 when too much is in memory."""
    return await _read(request, fields_of(request.scope), service)


async def decoded(data: bytes | str, limits: Limits, decode: Callable[[bytes], T]) -> T:
    """A JSON text, decoded; a large one on a thread.

    Raises InvalidRequestError for what is beyond the limits, and what `decode` raises.
    """

    work = partial(_decoded, data, limits, decode)
    return await on_thread(work) if len(data) > LARGE else work()


def _decoded(data: bytes | str, limits: Limits, decode: Callable[[bytes], T]) -> T:
    text = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    check_json(text, limits)
    return decode(text)


async def _read(request: Request, headers: HeaderFields, service: Service) -> bytes:
    """The bytes, uncompressed. The limit is for those that come and for what they stand for, which are held
    from then on; of what a connection keeps by itself nothing is."""
    limit = service.settings.max_body_bytes
    encoding = decoding(headers.getlist("content-encoding")) if "content-encoding" in headers else None
    check_length(headers.get("content-length", ""), limit)
    pieces: list[bytes] = []
    hold: Hold | None = None
    received = size = 0
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk, more = message.get("body", b""), message.get("more_body", False)
        if not more and not pieces and encoding is None and len(chunk) <= min(limit, LARGE):
            return bytes(chunk)  # all of it, which has come at once
        if hold is None:
            hold = service.room.budget.hold(request.state.owner)
            RECEIVED.set(hold)
        received += len(chunk)
        if received > limit:
            raise too_large(limit)
        if encoding is None:
            hold.resize(received)
            pieces.append(chunk)
            continue
        for piece in encoding.feed(chunk):
            size += len(piece)
            if size > limit:
                raise too_large(limit)
            hold.resize(size)
            pieces.append(piece)
            await anyio.lowlevel.checkpoint()
    if encoding is not None:
        encoding.close()
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)

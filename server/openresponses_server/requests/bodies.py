"""Reads request bodies: checks content type, size, encoding and JSON bounds before decoding.

Every JSON body goes through `read_json`, every WebSocket message through `decode_body`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Final, TypeVar

import anyio
from starlette.requests import ClientDisconnect, Request

from openresponses_bridge.protocol.codec import encode, request_object
from openresponses_server.errors import HttpError
from openresponses_server.http.encodings import decoding
from openresponses_server.http.headers import HeaderFields, fields_of
from openresponses_server.limits.memory import RECEIVED, Reservation
from openresponses_server.limits.requests import check_json, check_length, check_type, too_large
from openresponses_server.observation.traces import REQUEST
from openresponses_server.requests.service import Service
from openresponses_server.settings import Limits
from openresponses_server.tasks import LARGE, on_thread

T = TypeVar("T")
_FREE: Final = 2 * 1024 * 1024  # bytes that a small compressed body may become
DEPLOYMENT: Final = "openresponses.deployment"
"""In the scope of a request: the model that its path names."""


async def read_json(
    request: Request, service: Service, decode: Callable[[bytes], T], *, any_type: bool = False
) -> T:
    """Read and decode the body of a JSON request. The content type must be JSON, since a web page can send
    others to any server without a CORS preflight; with `any_type` the request is known to be no page's.

    Raises HttpError 415 for another content type or encoding, 413 for a body beyond `max_body_bytes`,
    429 when too much is in memory, 503 when the server stops before a compressed body is decoded, and what
    `decode_body` raises.
    """
    headers = fields_of(request.scope)
    if not any_type:
        check_type(headers.get("content-type", ""))
    body = await _read(request, headers, service)
    if DEPLOYMENT in request.scope:
        decode = partial(_decode_for_deployment, decode, request.scope[DEPLOYMENT])
    decoded = await decode_body(body, service.settings.limits, decode)
    if (trace := REQUEST.get()) is not None:
        await on_thread(partial(trace.set_body, body))
    return decoded


def _decode_for_deployment(decode: Callable[[bytes], T], model: str, body: bytes) -> T:
    """The decoded body, for the model that the path names where the body names none."""
    given = request_object(body)
    return decode(body if given.get("model") else encode({**given, "model": model}))


async def read_bytes(request: Request, service: Service, *, expands: int | None = None) -> bytes:
    """Read a body of any content type. `expands`: how many times as many bytes as were received it may be
    decompressed to, beyond the first two megabytes; by default any number. Raises HttpError 415 for an
    unknown encoding, 413 for a body beyond `max_body_bytes` or `expands`, 429 when too much is in memory, and
    503 when the server stops before a compressed body is decoded."""
    return await _read(request, fields_of(request.scope), service, expands)


async def decode_body(data: bytes | str, limits: Limits, decode: Callable[[bytes], T]) -> T:
    """Decode a JSON text, a large one on a thread.

    Raises InvalidRequestError for JSON beyond the limits, HttpError 503 when the server stops before a thread
    takes it, and what `decode` raises.
    """

    work = partial(_check_and_decode, data, limits, decode)
    return await on_thread(work) if len(data) > LARGE else work()


def _check_and_decode(data: bytes | str, limits: Limits, decode: Callable[[bytes], T]) -> T:
    text = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    check_json(text, limits)
    return decode(text)


async def _read(
    request: Request, headers: HeaderFields, service: Service, expands: int | None = None
) -> bytes:
    """The decompressed body. Memory is reserved for it, but not for a small body that is already in the
    connection's buffer."""
    pieces: list[bytes] = []
    reservation: Reservation | None = None
    size = 0
    async for piece, is_last in body_pieces(request, headers, service, expands):
        if is_last and not pieces and len(piece) <= LARGE:
            return bytes(piece)  # the whole body in one chunk
        if reservation is None:
            reservation = service.available.budget.reserve(request.state.owner)
            RECEIVED.set(reservation)
        size += len(piece)
        reservation.resize(size)
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def body_pieces(
    request: Request, headers: HeaderFields, service: Service, expands: int | None = None
) -> AsyncIterator[tuple[bytes, bool]]:
    """The decompressed body as it arrives, and whether a piece is known to be the last. `max_body_bytes`
    applies to the bytes received and to the decompressed ones; `expands` is as in `read_bytes`. Raises as
    `read_bytes` does, and ClientDisconnect."""
    limit = service.settings.max_body_bytes
    encoding = decoding(headers.getlist("content-encoding")) if "content-encoding" in headers else None
    check_length(headers.get("content-length", ""), limit)
    received = size = 0
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk, more = message.get("body", b""), message.get("more_body", False)
        received += len(chunk)
        if received > limit:
            raise too_large(limit)
        if encoding is None:
            yield chunk, not more
            continue
        for piece in encoding.feed(chunk):
            size += len(piece)
            if size > limit:
                raise too_large(limit)
            if expands is not None and size > _FREE + expands * received:
                what = f"The body becomes more than {expands} times as large as it was sent"
                raise HttpError(413, f"{what}: send it without compression.")
            yield piece, False
            await anyio.lowlevel.checkpoint()
            service.gate.check_open()  # what is left may take as long as work on a thread does
    if encoding is not None:
        encoding.close()

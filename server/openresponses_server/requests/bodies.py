"""Reads request bodies: checks content type, size, encoding and JSON bounds before decoding.

Every JSON body goes through `read_json`, every WebSocket message through `decode_body`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, TypeVar

import anyio
from msgspec import Struct
from starlette.requests import ClientDisconnect, Request

from openresponses_bridge.protocol.codec import encode, request_object
from openresponses_server.errors import HttpError
from openresponses_server.http.encodings import Compressed, decoding
from openresponses_server.http.headers import HeaderFields, fields_of
from openresponses_server.limits.gate import Gate
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
    others to any server without a CORS preflight; `any_type` is for requests that no web page can have sent.

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
    """The decoded body. If it names no model, it is for the one that the path names."""
    fields = request_object(body)
    return decode(body if fields.get("model") else encode({**fields, "model": model}))


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

    if len(data) > LARGE:
        return await on_thread(partial(_check_and_decode, data, limits, decode))
    return _check_and_decode(data, limits, decode)


def _check_and_decode(data: bytes | str, limits: Limits, decode: Callable[[bytes], T]) -> T:
    text = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    check_json(text, limits)
    return decode(text)


async def _read(
    request: Request, headers: HeaderFields, service: Service, expands: int | None = None
) -> bytes:
    """The decompressed body. Memory is reserved for it, but not for a small body that is already in the
    connection's buffer."""
    body = arriving_body(request, headers, service, expands)
    first = await body.read()
    if body.ended and len(first) <= LARGE:
        return first  # the whole body in one chunk
    reservation = Reservation(service.available.budget, request.state.owner)
    RECEIVED.set(reservation)
    pieces: list[bytes] = []
    size, piece = 0, first
    while piece:
        size += len(piece)
        reservation.resize(size)
        pieces.append(piece)
        piece = b"" if body.ended else await body.read()
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def arriving_body(
    request: Request, headers: HeaderFields, service: Service, expands: int | None = None
) -> ArrivingBody | CompressedBody:
    """The body of this request; `expands` is as in `read_bytes`. Raises HttpError 413 and 415 for what the
    headers say of it."""
    most = service.settings.max_body_bytes
    encoding = decoding(headers.getlist("content-encoding")) if "content-encoding" in headers else None
    check_length(headers.get("content-length", ""), most)
    arriving = ArrivingBody(request, most)
    return arriving if encoding is None else CompressedBody(arriving, encoding, service.gate, expands)


class ArrivingBody(Struct):
    """A body of at most `most` bytes, as it arrives. An object, because it takes a task to close a generator
    that is not read to its end."""

    request: Request
    most: int
    received: int = 0
    """Bytes."""
    ended: bool = False
    """True if nothing more is to be read."""

    async def read(self) -> bytes:
        """The next piece; b"" at the end. Raises HttpError 413, what `HttpConnection` raises, and
        ClientDisconnect."""
        while not self.ended:
            message = await self.request.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            piece: bytes = message.get("body", b"")
            self.ended = not message.get("more_body", False)
            self.received += len(piece)
            if self.received > self.most:
                raise too_large(self.most)
            if piece:
                return piece
        return b""


class CompressedBody(Struct):
    """A body as it is decompressed, to as many bytes as it may have and at most `expands` times as many as
    have arrived, if that is given."""

    arriving: ArrivingBody
    encoding: Compressed
    gate: Gate
    expands: int | None
    size: int = 0
    ended: bool = False
    """Nothing more is to be read: known when b"" was."""
    pieces: Iterator[bytes] = iter(())

    async def read(self) -> bytes:
        """The next piece; b"" at the end. Raises what `ArrivingBody.read` does, HttpError 400 for invalid
        data and 503 when the server stops."""
        if self.size:
            await anyio.lowlevel.checkpoint()
            self.gate.check_open()  # what is left may take as long as work on a thread does
        arriving = self.arriving
        while not self.ended:
            if piece := next(self.pieces, b""):
                self.size += len(piece)
                if self.size > arriving.most:
                    raise too_large(arriving.most)
                if self.expands is not None and self.size > _FREE + self.expands * arriving.received:
                    what = f"The body becomes more than {self.expands} times as large as it was sent"
                    raise HttpError(413, f"{what}: send it without compression.")
                return piece
            if arriving.ended:
                self.encoding.close()
                self.ended = True
            else:
                self.pieces = self.encoding.feed(await arriving.read())
        return b""

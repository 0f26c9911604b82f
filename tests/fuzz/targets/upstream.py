"""Invariant: whatever bytes an upstream sends, a request ends when they end, with an answer or an OSError;
the result does not depend on how the bytes are split; and a connection that can be reused carries the whole
next answer."""

from __future__ import annotations

import asyncio
import gzip
from typing import NamedTuple

from openresponses_server.http.client.body import FairScheduler
from openresponses_server.http.client.connection import ClientConnection
from openresponses_server.http.flow import BodyReader
from tests.fuzz.core import Target
from tests.fuzz.targets.sse import pieces_of
from tests.support.memory_transport import MemoryTransport

_MOST = 200_000  # bytes of a body after which its reader stops


class Outcome(NamedTuple):
    """The outcome of one request: an answer's head, the body as far as it was read, and the error that ended
    it."""

    head: tuple[int, dict[str, str]] | None
    body: bytes
    error: str


def any_answer(data: bytes) -> None:
    asyncio.run(_ends_alike(data))


async def _ends_alike(data: bytes) -> None:
    """Assert that the outcome does not depend on how the bytes are split."""
    whole = await _outcome([data])
    for size in (1, 7, 1_000):
        assert await _outcome(pieces_of(data, size)) == whole


async def _outcome(pieces: list[bytes]) -> Outcome:
    freed: list[ClientConnection] = []
    closed: list[ClientConnection] = []
    connection = ClientConnection(FairScheduler(), freed.append, closed.append)
    wire = MemoryTransport(connection)
    connection.connection_made(wire)
    task = await _begun(connection)
    for piece in pieces:
        if not wire.closed:
            connection.data_received(piece)
    assert len(freed) <= 1, "it is lent twice"
    if freed and not wire.closed:
        again = await _begun(connection)
        connection.data_received(ANSWERS[0])
        assert await again == Outcome((200, {"content-length": "5"}), b"hello", "")
    connection.connection_lost(None)
    assert closed == [connection]
    return await asyncio.wait_for(task, 5)


async def _begun(connection: ClientConnection) -> asyncio.Task[Outcome]:
    task = asyncio.ensure_future(_asked(connection))
    await asyncio.sleep(0)
    return task


async def _asked(connection: ClientConnection) -> Outcome:
    head, body = None, b""
    try:
        answer = await connection.request(b"POST / HTTP/1.1\r\n\r\n", b"", 60)
        head = answer.status, dict(answer.headers)
        reader = BodyReader(answer.content)
        while len(body) < _MOST and (piece := await reader.read()):
            body += piece
    except OSError as error:
        return Outcome(head, body, type(error).__name__)
    return Outcome(head, body[:_MOST], "")


def _said(first: str, body: bytes = b"", **headers: str) -> bytes:
    lines = [first, *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


_OK = "HTTP/1.1 200 OK"
_CHUNKS = b"5\r\nhello\r\n6;a=b\r\n world\r\n0\r\nt: x\r\n\r\n"
_PACKED = gzip.compress(b"hello" * 2_000, mtime=0)
ANSWERS = (
    _said(_OK, b"hello", content_length="5"),
    _said(_OK, _CHUNKS, transfer_encoding="chunked", content_type="text/event-stream"),
    _said(_OK, _PACKED, content_length=str(len(_PACKED)), content_encoding="gzip"),
    _said(_OK, b"until the end", connection="close"),
    _said("HTTP/1.0 200 OK", b"until the end"),
    _said("HTTP/1.1 100 Continue") + _said("HTTP/1.1 429 Wait", b"{}", content_length="2", retry_after="1"),
    _said("HTTP/1.1 204 No Content") + _said(_OK, b"to nothing", content_length="10"),
    _said("HTTP/1.1 101 Switching Protocols", upgrade="websocket", connection="upgrade"),
    b"HTTP/1.1 200\nContent-Length: 2\n\n{}",
    b"SSH-2.0-OpenSSH_9.2p1\r\n",
)
WORDS = (
    *(b"\r\n", b"\n", b"\r\n\r\n", b"0\r\n\r\n", b"ffffffffffffffff\r\n", b"\x00", b": "),
    *(b"HTTP/1.1 ", b"content-length: 5\r\n", b"transfer-encoding: chunked\r\n", b"connection: close\r\n"),
    *(b"content-encoding: gzip\r\n", b"content-encoding: br\r\n", b"\x1f\x8b\x08", b"x" * 3_000),
)
TARGETS = [Target("upstream", any_answer, ANSWERS, WORDS)]

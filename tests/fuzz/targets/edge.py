"""Invariant: whatever bytes arrive on a connection, HTTP or the frames of a WebSocket, no exception reaches
the event loop, no answer is a 500, and the connection has ended when the client has left."""

from __future__ import annotations

import asyncio
import logging
import zlib
from functools import cache
from typing import Any

from uvicorn import Config
from uvicorn.server import ServerState

from openresponses_server.http.connection import http_protocol
from openresponses_server.settings import Settings
from tests.fuzz.core import Target
from tests.support.in_process import InProcess
from tests.support.memory_transport import MemoryTransport

_SPINS = 60  # iterations of the event loop that an answer may take before the client leaves
_SETTINGS = Settings(default_model="demo", max_body_bytes=100_000, stored_responses=100)


@cache
def stage() -> tuple[InProcess, Config, list[dict[str, Any]]]:
    """The application, the configuration of its connections, and the exceptions that reached the event loop.
    Made once; `close` ends it."""
    app = InProcess(_SETTINGS)
    http = http_protocol(_SETTINGS)
    config = Config(app.app, http=http, ws="none", lifespan="off", log_config=None, access_log=False)
    for name in ("uvicorn.error", "websockets", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    config.load()
    unforeseen: list[dict[str, Any]] = []
    app.loop.set_exception_handler(lambda _, context: unforeseen.append(context))
    return app, config, unforeseen


def close() -> None:
    """End the server, if there is one."""
    if stage.cache_info().currsize:
        stage()[0].close()
        stage.cache_clear()


def any_bytes(data: bytes, before: bytes = b"") -> None:
    app, config, unforeseen = stage()
    sent = app.run(_spoken(config, before, data))
    assert not unforeseen, unforeseen.pop()
    assert b"HTTP/1.1 500" not in sent
    assert b"internal_error" not in sent


async def _spoken(config: Config, before: bytes, data: bytes) -> bytes:
    """The bytes that the server sends in return for these, until the client has left and the connection has
    ended."""
    state = ServerState()
    protocol = config.http_protocol_class(config=config, server_state=state, app_state={})  # type: ignore[call-arg]
    wire = MemoryTransport(protocol)
    protocol.connection_made(wire)
    for piece in (before, data[: len(data) // 2], data[len(data) // 2 :]):
        if piece and not wire.closed:
            wire.protocol.data_received(piece)
            for _ in range(_SPINS):
                await asyncio.sleep(0)
    wire.protocol.connection_lost(None)
    while state.tasks:
        await asyncio.wait(state.tasks)
    return bytes(wire.sent)


def _raw(first: str, body: bytes = b"", **headers: str) -> bytes:
    lines = [
        first,
        "host: 127.0.0.1",
        *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
    ]
    if body:
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


BODY = b'{"input": "Hi"}'
_TYPE = "application/json"
REQUESTS = (
    _raw("POST /v1/responses HTTP/1.1", BODY, content_type=_TYPE) + _raw("GET /healthz HTTP/1.1"),
    _raw(
        "POST /v1/responses HTTP/1.1", content_type=_TYPE, transfer_encoding="chunked", expect="100-continue"
    )
    + b'5\r\n{"inp\r\na;x=y\r\nut": "Hi"}\r\n0\r\nt: x\r\n\r\n',
    _raw("GET /v1/responses HTTP/1.0", connection="keep-alive, Upgrade", upgrade="h2c"),
    _raw("OPTIONS * HTTP/1.1", origin="https://example.com", x=("y" * 3_000)),
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
)
_KEY = {"upgrade": "websocket", "connection": "Upgrade", "sec_websocket_version": "13"}
HANDSHAKE = _raw(
    "GET /v1/responses HTTP/1.1",
    sec_websocket_key="dGhlIHNhbXBsZSBub25jZQ==",
    sec_websocket_extensions="permessage-deflate; client_max_window_bits",
    **_KEY,
)


def frame(opcode: int, payload: bytes, first: int = 0x80) -> bytes:
    """A client's frame with a mask of zeros."""
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
    return bytes([first | opcode]) + length + bytes(4) + payload


def deflated(data: bytes) -> bytes:
    """A message compressed as `permessage-deflate` requires."""
    packer = zlib.compressobj(wbits=-15)
    return (packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)).removesuffix(b"\0\0\xff\xff")


MESSAGE = b'{"type": "response.create", "input": "Hi"}'
FRAMES = (
    frame(1, MESSAGE) + frame(9, b"ping") + frame(8, b"\x03\xe8bye"),
    frame(1, MESSAGE[:9], 0) + frame(10, b"") + frame(0, MESSAGE[9:]),
    frame(2, MESSAGE) + frame(1, b"\xff\xfe") + frame(1, b"x" * 300),
    frame(1, deflated(MESSAGE), 0xC0) + frame(1, deflated(b" " * 50_000), 0xC0),
    b"\xc1\xff" + (1 << 40).to_bytes(8, "big") + bytes(4) + b"x" * 40,
    b"\x81\x05hello",
)
WORDS = (
    *(
        b"\r\n",
        b"\r\n\r\n",
        b"content-length: 5\r\n",
        b"transfer-encoding: chunked\r\n",
        b"0\r\n\r\n",
        b"ffffffff\r\n",
    ),
    *(
        b"HTTP/1.1",
        b"connection: close\r\n",
        b"expect: 100-continue\r\n",
        b"\x00",
        b"content-encoding: gzip\r\n",
    ),
)
CODES = (
    b"\x81\x80\x00\x00\x00\x00",
    b"\x89\x80",
    b"\x88\x82",
    b"\xff",
    b"\xc1",
    b"\x01",
    b"\x80",
    b"\xfe\xff\xff",
)


def any_frames(data: bytes) -> None:
    any_bytes(data, HANDSHAKE)


TARGETS = [Target("edge", any_bytes, REQUESTS, WORDS), Target("frames", any_frames, FRAMES, CODES)]

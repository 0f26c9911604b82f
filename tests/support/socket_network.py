"""The client of an upstream that has WebSockets on a network of the test's own: what arrives and when is the
test's choice, iteration by iteration of the event loop, so that nothing depends on time."""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha1
from typing import Any

from openresponses_server.http.client.connection import request_target_of
from openresponses_server.http.client.pool import ConnectionPool
from openresponses_server.http.client.socket import SocketConnection
from openresponses_server.settings import SocketSettings, Timeouts
from openresponses_server.upstreams.base import HttpClient, SocketCounts
from openresponses_server.upstreams.dialects import RESPONSES
from openresponses_server.upstreams.sockets import over_sockets

ADDRESS = "http://up.example"
_KEY = re.compile(rb"GET .*sec-websocket-key: (\S+)", re.S)
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_HIGH_WATER = 64 * 1024


def handshake_answer(request: bytes) -> bytes:
    """The answer that accepts a handshake."""
    key = _KEY.match(request)
    assert key is not None
    return (
        b"HTTP/1.1 101 S\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
        b"sec-websocket-accept: %b\r\n\r\n" % b64encode(sha1(key[1] + _GUID).digest())
    )


class Network(asyncio.Transport):
    """The handshake is answered; all else that arrives is given to the connection by the test. What it writes
    is kept, or waits where `is_full`; then closing it waits as well. As uvloop's, a closed one refuses to
    write."""

    def __init__(self, connection: SocketConnection, *, is_full: bool = False) -> None:
        super().__init__()
        self.connection = connection
        self.written = bytearray()
        self.reads = True
        self.is_full = is_full
        self.is_gone = False
        self.is_half_closed = False

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def write(self, data: Any) -> None:
        if self.is_closing():
            raise RuntimeError("unable to perform operation on a closed transport")
        if _KEY.match(data):
            accepted = handshake_answer(data)
            asyncio.get_running_loop().call_soon(self.connection.data_received, accepted)
            return
        self.written += data
        if self.is_full and len(self.written) > _HIGH_WATER and self.connection._write_resumed is None:
            self.connection.pause_writing()

    def get_write_buffer_size(self) -> int:
        return len(self.written) if self.is_full else 0

    def is_closing(self) -> bool:
        return self.is_gone or self.is_half_closed

    def close(self) -> None:
        self.is_half_closed = True
        if not self.get_write_buffer_size():
            self.abort()

    def drain(self) -> bytes:
        """Let the server read what waits; return it."""
        data = bytes(self.written)
        self.written.clear()
        self.connection.resume_writing()
        return data

    def abort(self) -> None:
        if not self.is_gone:
            self.is_gone = True
            self.connection.connection_lost(None)


async def open_connection(most: int) -> tuple[SocketConnection, Network]:
    """An open connection for messages of at most `most` bytes, and its network."""
    connection = SocketConnection(request_target_of(f"{ADDRESS}/responses"), most)
    network = Network(connection)
    connection.connection_made(network)
    await connection.open({})
    return connection, network


class HttpAsked(Exception):
    """A request is made over HTTP, which the networks here don't have."""


class Networks(ConnectionPool):
    """The networks of the connections that were opened. Those that are opened while `are_full` is true are
    full."""

    def __init__(self) -> None:
        super().__init__("", Timeouts())
        self.networks: list[Network] = []
        self.are_full = False

    async def connect(self, _url: str, factory: Callable[[], Any]) -> Any:
        connection = factory()
        self.networks.append(Network(connection, is_full=self.are_full))
        connection.connection_made(self.networks[-1])
        return connection

    async def request(self, *_given: Any, **_more: Any) -> Any:
        raise HttpAsked

    def client(self) -> HttpClient:
        """A client of the Responses API on these networks."""
        framing = RESPONSES.endpoint.socket
        assert framing is not None
        connect = over_sockets(lambda *_given: self, "/responses", framing, SocketSettings(), SocketCounts())
        return connect("", Timeouts())

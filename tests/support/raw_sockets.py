"""A hostile client: it sends raw bytes on a socket and unchecked frames on a WebSocket."""

import json
import socket
import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from tests.support.waiting import wait_until

HANDSHAKE = (
    b"GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
)
_SMALL = 4096  # the size in bytes of a receive buffer that makes its reader slow
_LARGE = 1 << 22


class RawConnection:
    """One TCP connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection

    def send(self, data: bytes) -> bool:
        """Send bytes, and return whether the server accepted all of them."""
        try:
            self.socket.sendall(data)
        except OSError:
            return False
        return True

    def read(self, *, until: bytes | None = None, seconds: float | None = None) -> bytes:
        """Return the received bytes up to these bytes, up to the end of the connection, or, with a limit,
        until the seconds are over."""
        got = bytearray()
        size = 0
        ends = None if seconds is None else time.monotonic() + seconds
        while until is None or got.find(until, max(0, size - len(until))) < 0:
            size = len(got)
            self.socket.settimeout(None if ends is None else max(0.001, ends - time.monotonic()))
            try:
                data = self.socket.recv(1 << 20)
            except OSError:
                break
            if not data:
                break
            got += data
        self.socket.settimeout(None)
        return bytes(got)

    def widen(self) -> None:
        """Read as much as others from now on: beside other load, Linux may send so little at a time to a
        small buffer that megabytes take minutes."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _LARGE)

    def is_open(self) -> bool:
        """Return whether the server keeps the connection open; discards received bytes."""
        self.socket.settimeout(0.001)
        try:
            while self.socket.recv(1 << 20):
                pass
        except TimeoutError:
            return True
        except OSError:
            return False
        return False

    def wait_until_closed(self) -> None:
        """Wait until the server has closed the connection; discards received bytes."""
        wait_until(lambda: not self.is_open())


@contextmanager
def raw_connection(base: str, *, reads_little: bool = False) -> Iterator[RawConnection]:
    """A connection to the server."""
    address = urlsplit(base)
    with socket.socket() as connection:
        if reads_little:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL)
        connection.connect((address.hostname, address.port))
        yield RawConnection(connection)


@contextmanager
def raw_websocket(base: str, *, deflate: bool = False, reads_little: bool = False) -> Iterator[RawConnection]:
    """A WebSocket, after its handshake."""
    with raw_connection(base, reads_little=reads_little) as connection:
        extension = b"Sec-WebSocket-Extensions: permessage-deflate\r\n" if deflate else b""
        connection.send(HANDSHAKE + extension + b"\r\n")
        assert b" 101 " in connection.read(until=b"\r\n\r\n")
        yield connection


def request(path: str, body: Any = None, *headers: str, method: str = "POST") -> bytes:
    """The bytes of one HTTP request."""
    data = b"" if body is None else json.dumps(body).encode()
    sized = [f"Content-Length: {len(data)}", "Content-Type: application/json"] if data else []
    head = "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *sized, *headers])
    return head.encode() + b"\r\n\r\n" + data


def answer(data: bytes) -> tuple[int, Any]:
    """Return the status and the JSON of the first answer in the data."""
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), json.JSONDecoder().raw_decode(body.decode())[0]


def ws_frame(opcode: int, data: bytes, *, last: bool = True, compressed: bool = False) -> bytes:
    """One frame with a mask of zeros."""
    size = len(data)
    head = bytes([(0x80 if last else 0) | (0x40 if compressed else 0) | opcode])
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 1 << 16:
        head += b"\xfe" + struct.pack("!H", size)
    else:
        head += b"\xff" + struct.pack("!Q", size)
    return head + bytes(4) + data


def deflated(data: bytes) -> bytes:
    """Return a message as permessage-deflate compresses it."""
    deflating = zlib.compressobj(9, wbits=-12)
    return (deflating.compress(data) + deflating.flush(zlib.Z_SYNC_FLUSH))[:-4]

"""One connection to a server: one request after the other, each with its answer."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import socket
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum, auto
from functools import lru_cache
from importlib.metadata import version
from itertools import starmap
from typing import Final, NamedTuple, cast
from urllib.parse import quote, unquote, urlsplit

import httptools
from msgspec import Struct

from openresponses_server.http.client.body import FairScheduler, ResponseBody, body_of
from openresponses_server.http.client.failures import ConnectionLost, LocalProtocolError, RemoteProtocolError
from openresponses_server.http.client.upload import Upload
from openresponses_server.settings.hosts import PORTS

_PIECE: Final = 256 * 1024  # bytes of a request written at once
_MOST_HEAD_BYTES: Final = 64 * 1024  # bytes before, between and behind a body's, which a parser may keep
_CLOSED_BEFORE_HEAD: Final = "it closed the connection before its answer"
_CLOSED_WITHIN_BODY: Final = "it closed the connection within its answer"
_TLS_ALERT: Final = b"\x15\x03"
_TRANSFER_ENCODING: Final = "transfer-encoding"
_NOT_HTTP: Final = (
    httptools.HttpParserError,
    httptools.HttpParserCallbackError,
    httptools.HttpParserUpgrade,  # no upgrade was requested
)


class _ConnectionStage(Enum):
    """The state of a connection."""

    IDLE = auto()
    AWAITING_HEAD = auto()
    RECEIVING_BODY = auto()  # the head was received, the body follows


class Http1Response(Struct, eq=False):
    """The answer to one request. `headers` have names in lower case, and the first value of each name, of
    `transfer-encoding` the last."""

    connection: ClientConnection
    status: int
    headers: Mapping[str, str]
    content: ResponseBody

    def close(self) -> None:
        """Discard the rest; the connection is closed if more may arrive."""
        self.connection.abandon(self.content)


class _NotConnected(asyncio.Transport):
    """The transport of a connection that has none yet."""

    def is_closing(self) -> bool:
        return True

    def abort(self) -> None:
        return None


_NOT_CONNECTED: Final = _NotConnected()


class ClientConnection(asyncio.Protocol):
    """A connection to a server, as asyncio's protocol."""

    def __init__(
        self,
        scheduler: FairScheduler,
        free: Callable[[ClientConnection], None],
        closed: Callable[[ClientConnection], None],
    ) -> None:
        """`free` is called when the connection can be reused, `closed` when it is closed."""
        self._loop = asyncio.get_running_loop()
        self._scheduler = scheduler
        self._free, self._closed = free, closed
        self._stage = _ConnectionStage.IDLE
        self._transport: asyncio.Transport = _NOT_CONNECTED
        self._pieces: list[bytes] = []
        # a list's own method: no chunk costs a call in Python
        self.on_body = self._pieces.append
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        # deviations of some servers that do not change where an answer ends
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self._headers: dict[str, str] = {}
        self._head = 0  # bytes since the request, or since the body's last
        self._response: asyncio.Future[Http1Response] | None = None
        self._body: ResponseBody | None = None
        self._ends_with_connection = False
        self._is_sent = True  # the whole request was written
        self._lost: Exception | None = None  # why the connection ended
        self._write_resumed: asyncio.Future[None] | None = None
        self.requests = 0
        self.has_received = False
        """True if a byte was received since the latest request."""
        self.free_since = 0.0
        self.worked = 0.0
        """The seconds for which the server had the whole of the latest request when the connection ended."""
        self._sent_at: float | None = None

    @property
    def is_closing(self) -> bool:
        return self._parser is None or self._transport.is_closing()

    async def request(self, head: bytes, body: bytes | Upload, seconds: float) -> Http1Response:
        """Send a request. Returns the answer when its head was received. Raises OSError; TimeoutError after
        `seconds`, which begin again with each piece of an `Upload`; and what its `read` raises."""
        self.requests += 1
        if self._parser is None:  # closed since it was made
            raise self._lost or ConnectionLost("it closed the connection before the request")
        self.has_received = self._is_sent = False
        self._sent_at = None
        self._stage, self._head = _ConnectionStage.AWAITING_HEAD, 0
        self._headers = {}
        response: asyncio.Future[Http1Response] = self._loop.create_future()
        self._response = response
        timer = self._loop.call_later(seconds, _time_out, response)
        try:
            if isinstance(body, Upload):
                timer.cancel()
                await self._upload(head, body, response, seconds)
                timer = self._loop.call_later(seconds, _time_out, response)
            elif len(body) <= _PIECE:
                self._transport.write(head + body)
                self._is_sent, self._sent_at = True, self._loop.time()
            else:
                await self._send(head, body, response)
            return await response
        except BaseException:
            response.cancel()
            if self._response is response:  # else the answer has ended, and another request may have begun
                self.abort()
            raise
        finally:
            timer.cancel()

    async def _send(self, head: bytes, body: bytes, response: asyncio.Future[Http1Response]) -> None:
        """Write the request piece by piece, until an early answer: copying all of it to the system at once
        would block the event loop (40 MB: 0.3 s)."""
        self._transport.write(head)
        for start in range(0, len(body), _PIECE):
            self._transport.write(body[start : start + _PIECE])
            if self._write_resumed is None:
                await asyncio.sleep(0)
            else:
                await asyncio.wait((self._write_resumed, response), return_when=asyncio.FIRST_COMPLETED)
            if response.done():
                return
        self._is_sent, self._sent_at = True, self._loop.time()

    async def _upload(
        self, head: bytes, upload: Upload, response: asyncio.Future[Http1Response], seconds: float
    ) -> None:
        """Write the request as its body is read, no faster than the server takes it, until an early
        answer."""
        self._transport.write(head)
        sent = 0
        while not response.done():
            piece = await _read_unless(response, upload)
            if piece is None or response.done():
                return
            sent += len(piece)
            if upload.length is not None and (sent > upload.length or (not piece and sent < upload.length)):
                raise LocalProtocolError("its body is not as long as announced")
            # known before the server can answer, so that the connection can be used again
            self._is_sent = not piece or sent == upload.length
            if upload.length is None:
                self._transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            elif piece:
                self._transport.write(piece)
            if self._is_sent:
                return
            if self._write_resumed is not None:
                waiting = (self._write_resumed, response)
                done, _ = await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    raise TimeoutError

    def abandon(self, body: ResponseBody) -> None:
        """Close the connection if it still receives this body."""
        if self._body is body:
            self.abort()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop has its own classes
        if self._parser is None:  # through a proxy, data or the end may arrive before this
            self._transport.abort()

    def eof_received(self) -> None:
        """The transport closes, which would wait until the server has read what was written."""
        if self._transport.get_write_buffer_size():
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_sent = False  # it is not used again
        if self._sent_at is not None:
            self.worked = self._loop.time() - self._sent_at
        if isinstance(exc, OSError):
            self._read_rest()
        self._parser = None  # it refers to this object
        self._lost = exc
        self._closed(self)
        self.resume_writing()
        self._fail(exc, is_end=exc is None and self._ends_with_connection)

    def _read_rest(self) -> None:
        """Read the answer that had arrived when writing failed: a server that answers before it has read the
        body, and closes, resets the connection, and the loop reads no more after a write that fails."""
        if self._transport.get_extra_info("sslcontext") is not None:
            return  # what the socket has is encrypted
        connection = self._transport.get_extra_info("socket")
        with suppress(OSError, ValueError):  # nothing is there, or it is closed
            while self._response is not None and (data := os.read(connection.fileno(), _PIECE)):
                self.data_received(data)

    def pause_writing(self) -> None:
        self._write_resumed = self._loop.create_future()

    def resume_writing(self) -> None:
        waiter, self._write_resumed = self._write_resumed, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def data_received(self, data: bytes) -> None:
        self.has_received = True
        if self._parser is None or self._stage is _ConnectionStage.IDLE:
            self._parser = None  # data without a request: the connection can't be used
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except _NOT_HTTP as error:
            self._flush_pieces()
            self._fail(_as_invalid(error, data))
            self.abort()
            return
        pieces, body = self._pieces, self._body
        if len(pieces) == 1 and body is not None:  # as a token arrives
            self._head = 0
            body.feed(pieces.pop())
        elif pieces:
            self._flush_pieces()
        elif self._response is not None:  # an answer has not begun or not ended
            self._head += len(data)
            if self._head > _MOST_HEAD_BYTES:
                self._fail(RemoteProtocolError("its head is too large, or more follows its body"))
                self.abort()

    def on_message_begin(self) -> None:
        if self._stage is not _ConnectionStage.AWAITING_HEAD:
            raise RemoteProtocolError("it sent an answer without a request")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._stage is not _ConnectionStage.AWAITING_HEAD:
            return  # a trailer
        named, text = _name_of(name), value.decode("utf-8", "surrogateescape")
        if named == _TRANSFER_ENCODING:
            self._headers[named] = text  # the last coding says where the body ends
        else:
            self._headers.setdefault(named, text)

    def on_headers_complete(self) -> None:
        parser, response = self._parser, self._response
        if parser is None or response is None:
            return
        status, headers = parser.get_status_code(), self._headers
        if 100 <= status < 200:
            self._headers = {}
            return
        body = ResponseBody(self, self._scheduler)
        if "content-encoding" in headers:
            body = body_of(headers["content-encoding"], self, self._scheduler)
        self._ends_with_connection = "content-length" not in headers and not _is_chunked(headers)
        self._stage, self._body = _ConnectionStage.RECEIVING_BODY, body
        if not response.done():
            response.set_result(Http1Response(self, status, headers, body))

    def on_message_complete(self) -> None:
        if self._stage is not _ConnectionStage.RECEIVING_BODY or self._parser is None:
            return  # of an informational answer, as 100 Continue
        if self._pieces:
            self._flush_pieces()
        body, self._body = self._body, None
        self._stage, self._response = _ConnectionStage.IDLE, None
        is_sent = self._is_sent and not self._transport.get_write_buffer_size()
        if is_sent and self._parser.should_keep_alive():
            if body is not None and body.is_paused:
                self.resume()  # it has buffered its rest
            self._free(self)
        else:
            self.abort()  # closing would wait until the server has read a request that it has answered
        if body is not None:
            body.end()

    def _flush_pieces(self) -> None:
        """Give the parsed bytes to the body."""
        pieces, body = self._pieces, self._body
        if pieces and body is not None:
            self._head = 0
            data = b"".join(pieces)
            pieces.clear()
            body.feed(data)

    def _fail(self, error: BaseException | None, *, is_end: bool = False) -> None:
        """End the request and its body with this error."""
        if self._response is not None and not self._response.done():
            self._response.set_exception(error or ConnectionLost(_CLOSED_BEFORE_HEAD))
        body, self._body = self._body, None
        self._stage, self._response = _ConnectionStage.IDLE, None
        if body is not None:
            body.end(None if is_end else error or ConnectionLost(_CLOSED_WITHIN_BODY))

    def pause(self) -> None:
        if not self.is_closing:
            self._transport.pause_reading()

    def resume(self) -> None:
        if not self.is_closing:
            self._transport.resume_reading()  # which does nothing if reading is not paused


@lru_cache(maxsize=64)
def _name_of(name: bytes) -> str:
    """A header's name in lower case, cached: an upstream sends the same ones with each answer."""
    return name.decode("latin-1").lower()


def _is_chunked(headers: Mapping[str, str]) -> bool:
    return headers.get(_TRANSFER_ENCODING, "").rpartition(",")[2].strip().lower() == "chunked"


def _as_invalid(error: Exception, data: bytes) -> RemoteProtocolError:
    """The error for bytes that the parser refuses."""
    if isinstance(error.__context__, RemoteProtocolError):  # raised by a callback above
        return error.__context__
    tls = data.startswith(_TLS_ALERT)
    return RemoteProtocolError(
        "it speaks TLS there: is its address https:// instead of http://?"
        if tls
        else "what it sent is not HTTP/1.1"
    )


async def _read_unless(response: asyncio.Future[Http1Response], upload: Upload) -> bytes | None:
    """The next piece of an upload; None if the answer comes first, after which no more is read."""
    assert upload.read is not None
    reading = asyncio.ensure_future(upload.read())
    try:
        await asyncio.wait((reading, response), return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            return reading.result()
        return None
    finally:
        if not reading.done():
            reading.cancel()
            await asyncio.wait((reading,))


def _time_out(response: asyncio.Future[Http1Response]) -> None:
    if not response.done():
        response.set_exception(TimeoutError())


_IPV4_FORMS: Final = re.compile(r"[0-9a-fx]+(\.[0-9a-fx]+){0,3}")
_UNQUOTED: Final = "/:@!$&'()*+,;=~%-._"  # characters of a path that need no quoting, and `%`
_OWN: Final = (
    ("user-agent", f"openresponses-bridge/{version('openresponses-bridge')}"),
    ("accept-encoding", "identity"),  # compression would delay tokens
)


class Origin(NamedTuple):
    """The endpoint of a connection."""

    tls: bool
    host: str
    """In ASCII, without brackets."""
    port: int
    is_literal: bool
    """Whether the host is an IP address, which needs no look-up."""


class RequestTarget(NamedTuple):
    """A parsed address."""

    origin: Origin
    target: str
    """As in the request line."""
    headers: tuple[tuple[str, str], ...]
    """The headers that follow from the address, with names in lower case."""


@lru_cache(maxsize=256)
def request_target_of(url: str) -> RequestTarget:
    """Parse an address. Raises LocalProtocolError if it is not http:// or https://."""
    try:
        parts = urlsplit(url)
        default = PORTS[parts.scheme]
        host, port = ascii_host(parts.hostname or ""), parts.port or default
        if not host:
            raise ValueError("no host")
    except (ValueError, KeyError) as error:
        raise LocalProtocolError("its address is not an http:// or https:// one") from error
    named = bracketed_host(host)
    headers = [("host", named if port == default else f"{named}:{port}")]
    if parts.username is not None:
        shown = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers.append(("authorization", f"Basic {b64encode(shown.encode()).decode()}"))
    target = quote(parts.path, safe=_UNQUOTED) or "/"
    if parts.query:
        target += "?" + quote(parts.query, safe=_UNQUOTED + "?")
    return RequestTarget(
        Origin(parts.scheme == "https", host, port, is_literal(host)), target, tuple(headers)
    )


def request_head(method: str, target: RequestTarget, headers: Mapping[str, str], length: int | None) -> bytes:
    """The head of a request with a body of `length` bytes, None: in chunks; `headers` replace default ones of
    the same names. Raises LocalProtocolError for a header with a line end in it."""
    lines = "".join(starmap("{}: {}\r\n".format, headers.items()))
    if lines.count("\n") != len(headers) or lines.count("\r") != len(headers) or "\0" in lines:
        raise LocalProtocolError("a header contains a line end")
    begun = _default_lines(method, target, tuple(headers))
    if length is None:
        begun += "transfer-encoding: chunked\r\n"
    elif method != "GET":
        begun += f"content-length: {length}\r\n"
    return f"{begun}{lines}\r\n".encode("utf-8", "surrogateescape")


@lru_cache(maxsize=256)
def _default_lines(method: str, target: RequestTarget, names: tuple[str, ...]) -> str:
    """The default lines of a head; `names` are those of the request's own headers."""
    present = {name.lower() for name in names}
    own = "".join([f"{name}: {value}\r\n" for name, value in (*target.headers, *_OWN) if name not in present])
    return f"{method} {target.target} HTTP/1.1\r\n{own}"


def ascii_host(host: str) -> str:
    """A host's name in ASCII (IDNA). Raises ValueError if it is invalid."""
    return host if host.isascii() else host.encode("idna").decode()


def canonical_host(host: str) -> str:
    """The one spelling of a host's name or address by which it is compared. Raises ValueError if it is
    invalid."""
    name = ascii_host(unquote(host)).lower().rstrip(".")
    if _IPV4_FORMS.fullmatch(name):  # as the system's resolver reads it, in parts and in other bases
        with suppress(OSError):
            return socket.inet_ntoa(socket.inet_aton(name))
    if ":" in name:
        address = ipaddress.IPv6Address(name)
        return str(address.ipv4_mapped or address)
    return name


def bracketed_host(host: str) -> str:
    """A host as in an address: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def is_literal(host: str) -> bool:
    """Return True if the host is an IP address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True

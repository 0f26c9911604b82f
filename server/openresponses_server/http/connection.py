"""One HTTP/1.1 connection: uvicorn's, with bounds on what arrives before, in and behind a request.

Bytes are counted as they come and handed to the parser in small pieces, so that a head beyond its limit is
refused without having been parsed or kept. While an answer is owed, what a client sends beyond its request
waits unread.

Where a request ends is a matter of its head alone (RFC 9112, 6.3), as it is for the proxy before this server,
which sends several clients' requests over one connection. An upgrade changes nothing in that but for the
handshake of a WebSocket, which has no body.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from typing import Any, Final, NoReturn, cast

import httptools
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from openresponses_server.errors import HttpError
from openresponses_server.http.direct_writes import Write, offer
from openresponses_server.http.headers import LOWER
from openresponses_server.http.refusals import written
from openresponses_server.http.registry import ConnectionRegistry, Flow, Receiving, Sending, cut_off
from openresponses_server.http.websocket import PATH, WebSocketConnection
from openresponses_server.settings import Settings

# How a request reaches the application and how its answer is written: as uvicorn does both, in fewer steps
# where they are as usual. The rest is left to uvicorn.

# a name as this server writes one, and behind a mark that is in neither, a value without what ends its line
_MARK: Final = b"\0"
_LINES: Final = re.compile(rb"(?:[a-z0-9-]+\x00[^\x00-\x08\x0a-\x1f\x7f]*\r\n)*")
_LENGTH: Final = b"content-length"
_UNUSUAL: Final = frozenset({b"connection", b"transfer-encoding"})  # they change how the answer ends
_WITHOUT_BODY: Final = frozenset({204, 304})


class Answering(HttpToolsProtocol):
    """uvicorn's protocol without its timer for idle connections, which are the registry's to look after."""

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self.flow.resume_reading()
            if self.pipeline:
                self._start_asgi_task(*self.pipeline.pop())


async def receive(cycle: RequestResponseCycle) -> Any:
    """The next message to the application that answers in this cycle."""
    over = cycle.disconnected or cycle.response_complete
    if over or cycle.waiting_for_100_continue or cycle.flow.read_paused or not cycle.message_event.is_set():
        return await cycle.receive()
    cycle.message_event.clear()
    body, cycle.body = bytes(cycle.body), bytearray()
    return {"type": "http.request", "body": body, "more_body": cycle.more_body}


async def send(cycle: RequestResponseCycle, message: Mapping[str, Any]) -> None:
    """A message of the application that answers in this cycle."""
    if cycle.waiting_for_100_continue:  # the client may send the body now or its next request instead of it
        cycle.keep_alive = False
    usual = not cycle.flow.write_paused and not cycle.disconnected and not cycle.response_complete
    if usual and cycle.response_started:
        usual = message["type"] == "http.response.body" and _sent(cycle, message)
    elif usual:
        usual = message["type"] == "http.response.start" and _begun(cycle, message)
    if not usual:
        await cycle.send(cast(Any, message))


def _begun(cycle: RequestResponseCycle, message: Mapping[str, Any]) -> bool:
    """Write the head; whether it is a usual one."""
    status, length = message["status"], None
    headers = [*cycle.default_headers, *message["headers"]]
    for name, value in headers:
        if name in _UNUSUAL or (name == _LENGTH and length is not None):
            return False
        if name == _LENGTH:
            length = int(value)
    if status in _WITHOUT_BODY or cycle.scope["method"] == "HEAD":
        return False
    lines = b"".join([b"%b\0%b\r\n" % header for header in headers])
    if lines.count(b"\n") != len(headers) or _LINES.fullmatch(lines) is None:
        return False
    cycle.response_started, cycle.waiting_for_100_continue = True, False
    cycle.chunked_encoding, cycle.expected_content_length = length is None, length or 0
    framing = b"transfer-encoding: chunked\r\n" if length is None else b""
    close = b"" if cycle.keep_alive else b"connection: close\r\n"
    cycle.transport.write(
        b"%b%b%b%b\r\n" % (STATUS_LINE[status], lines.replace(_MARK, b": "), close, framing)
    )
    return True


def _sent(cycle: RequestResponseCycle, message: Mapping[str, Any]) -> bool:
    """Write a piece of the body; whether it is a usual one."""
    body, more = message.get("body", b""), message.get("more_body", False)
    if cycle.scope["method"] == "HEAD":
        return False
    if cycle.chunked_encoding:
        if body or not more:
            piece = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            cycle.transport.write(piece if more else piece + b"0\r\n\r\n")
    elif more or len(body) != cycle.expected_content_length:
        return False
    else:
        cycle.expected_content_length = 0
        cycle.transport.write(body)
    if not more:
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()
    return True


# Pieces of a body past ASGI's `send`, as uvicorn writes them (see
# `server/openresponses_server/http/direct_writes.py`).


def offer_writing(cycle: RequestResponseCycle) -> None:
    """Offer it to the application that answers this request. Until `stop_writing`, cycle and scope refer to
    each other."""
    if cycle.scope["method"] != "HEAD":
        offer(cycle.scope, _writer(cycle))  # type: ignore[arg-type]


def stop_writing(cycle: RequestResponseCycle) -> None:
    """The answer is over, or nobody reads it."""
    cycle.scope.pop("extensions", None)


class _Pieces:
    """Of one answer. An object, since a function would keep each of what it needs in an object more, and all
    of them are looked at with each token."""

    __slots__ = ("_cycle", "_flow", "_transport")

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle, self._flow, self._transport = cycle, cycle.flow, cycle.transport

    def write(self, body: bytes) -> bool:
        cycle = self._cycle
        # `chunked_encoding` is known when the head has been written
        if (
            self._flow.write_paused
            or not cycle.chunked_encoding
            or cycle.response_complete
            or cycle.disconnected
        ):
            return False
        if body:  # an empty chunk would be the end
            self._transport.write(b"%x\r\n%b\r\n" % (len(body), body))
        return True


def _writer(cycle: RequestResponseCycle) -> Write:
    return _Pieces(cycle).write


_PIECE: Final = 16 * 1024  # bytes that the parser gets at once
_MOST_HEADERS: Final = 256
_MOST_QUEUED: Final = 16  # requests in one piece, before the first of them is answered
_LINGER: Final = 2.0  # seconds in which a refused client can read why, before the connection is closed
_LAST_PATIENCE: Final = 3.0  # seconds in which a request may come still, when the server is to leave
_LOOKED_AT: Final = frozenset({b"expect", b"transfer-encoding", b"upgrade"})
_OF_UPGRADES: Final = frozenset({b"connection", b"upgrade"})


class _Stage(Enum):
    """Where the newest request of a connection is."""

    AWAITED = auto()
    HEAD = auto()
    BODY = auto()
    COMPLETE = auto()
    REFUSED = auto()


class HttpConnection(Answering):
    """Made by uvicorn, one per connection; `registry` counts and watches it."""

    def __init__(
        self,
        registry: ConnectionRegistry,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._registry = registry
        self._limits = registry.limits
        self._application = self.app
        self.app = self._answer  # each request's receive is ours
        self.ws_protocol_class = partial(WebSocketConnection, registry)  # type: ignore[assignment]
        self._stage = _Stage.AWAITED
        self._since, self._patience = self.loop.time(), self._limits.header_seconds
        self.url = self._rest = b""
        self._head = 0  # bytes of the head so far
        self._is_plain = True  # nothing in the newest head has to be looked at
        self._is_handshake = False  # the newest request is that of a WebSocket
        self._overhead = 0  # bytes of the body's framing since its last byte
        self._owed: list[RequestResponseCycle] = []  # `_MOST_QUEUED` at most
        self._error: HttpError | None = None
        self._receiving = Receiving(self._limits.body_seconds, self._limits.body_total_seconds)

    # ── asyncio's side ─────────────────────────────────────────────────────────────────────────────────
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = self._flow = Flow(transport)
        self._sending = Sending(transport, self._limits.write_seconds)
        if self._registry.enter(self):
            self._registry.waits(self)
        else:
            most = "The server has as many connections as it may have."
            self._refuse(HttpError(503, most, headers={"retry-after": "1"}))
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._registry.leave(self)
        self._rest = b""
        for cycle in self._owed:  # uvicorn knows of the newest only
            cycle.disconnected = True
            cycle.message_event.set()
            stop_writing(cycle)
        super().connection_lost(exc)
        self.app = self._application  # `_answer` refers to this object, which would stay for a while

    def data_received(self, data: bytes) -> None:
        if self._stage is _Stage.REFUSED:
            return
        if self._rest:
            self._rest += data  # what was on its way when reading was paused
        elif self._stage is not _Stage.COMPLETE or data.strip(b"\r\n"):
            self._take(data)

    def resume_writing(self) -> None:
        self._sending.moved()
        super().resume_writing()

    # ── what arrives ───────────────────────────────────────────────────────────────────────────────────
    def _take(self, data: bytes) -> None:
        """Parse until a request waits for its answer; the rest waits with it."""
        start, end = 0, len(data)
        while start < end:
            if self._stage is _Stage.COMPLETE:
                self._hold(data[start:])
                return
            size = _PIECE
            if self._stage is not _Stage.BODY:
                size = min(size, self._limits.header_bytes + 1 - self._head)
            piece = data if start == 0 and size >= end else data[start : start + size]
            start += size
            if not self._parse(piece):
                return

    def _parse(self, piece: bytes) -> bool:
        """Whether to go on with what follows."""
        in_head = self._stage in (_Stage.AWAITED, _Stage.HEAD)
        self._overhead += len(piece)
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:
            return self._upgraded(piece[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._refuse(self._error or HttpError(400, "The request is not valid HTTP/1.1."))
            return False
        if self._stage in (_Stage.AWAITED, _Stage.HEAD):
            self._head += len(piece) if in_head else 0
            if self._head > self._limits.header_bytes:
                most = self._limits.header_bytes
                self._refuse(HttpError(431, f"The headers are larger than the limit of {most} bytes."))
        elif self._stage is _Stage.BODY and self._overhead > self._limits.header_bytes:
            self._refuse(HttpError(400, "The framing of the body is larger than the limit for headers."))
        return self._stage is not _Stage.REFUSED

    def _upgraded(self, rest: bytes) -> bool:
        """The parser stops behind a head that asks for an upgrade, whatever body it announces; whether to go
        on. What is not a WebSocket's handshake is read and answered without the upgrade, as the last request
        of its connection (RFC 9110, 7.8)."""
        if self._is_handshake:
            self._stage = _Stage.HEAD
            if self._owed:
                self._refuse(HttpError(400, "A WebSocket was asked for before an answer was read."))
            elif rest:
                self._refuse(HttpError(400, "More was sent before the WebSocket's handshake was answered."))
            else:
                self.handle_websocket_upgrade()
            return False
        if (method := self.parser.get_method()) == b"CONNECT":
            self._refuse(HttpError(400, "This server connects nobody."))
            return False
        lines = [b"%b: %b\r\n" % (name, value) for name, value in self.headers if name not in _OF_UPGRADES]
        version = self.parser.get_http_version().encode()
        line = b"%b %b HTTP/%b\r\n" % (method, self.url, version)
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
        return self._parse(b"%b%bconnection: close\r\n\r\n" % (line, b"".join(lines))) and (
            not rest or self._parse(rest)
        )

    def _hold(self, data: bytes) -> None:
        self._rest = data
        self._flow.pause_reading()
        self._flow.held = True

    def _go_on(self) -> None:
        if self._stage is _Stage.COMPLETE or self.transport.is_closing():
            return
        rest, self._rest = self._rest, b""
        self._take(rest)
        if not self._rest and self._stage is not _Stage.REFUSED:
            self._flow.held = False
            self._flow.resume_reading()

    # ── the parser's side ──────────────────────────────────────────────────────────────────────────────
    def on_message_begin(self) -> None:
        if len(self._owed) >= _MOST_QUEUED:
            self._raise(HttpError(429, "Too many requests were sent before the first was answered."))
        super().on_message_begin()
        self._stage, self._since, self._head = _Stage.HEAD, self.loop.time(), 0
        self._is_plain, self._is_handshake = True, False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._stage is not _Stage.HEAD:
            return  # a trailer: those are not read, and what is known of the request stays as it is
        name = LOWER[name]
        if name in _LOOKED_AT:
            self._is_plain = False
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if len(self.headers) > _MOST_HEADERS:
            self._raise(HttpError(431, f"The request has more than {_MOST_HEADERS} headers."))
        if self.url[:1] != b"/":
            self._take_target()
        if not self._is_plain:
            self._look_at_head()
            if self.parser.should_upgrade() and not self._is_handshake:
                return  # see `_upgraded`
        before = self.cycle
        super().on_headers_complete()
        self._stage, self._overhead = _Stage.BODY, 0
        self._receiving.begin(self._since)
        if self.cycle is not before:  # not so for a WebSocket
            self._owed.append(self.cycle)
            offer_writing(self.cycle)
            if self._registry.retiring:
                self.retire()
            self._registry.serves(self)

    def _take_target(self) -> None:
        """One in absolute form names the host, whatever `host` says (RFC 9112, 3.2.2); of the other forms
        only `*` is left."""
        if self.url == b"*":
            return
        target = None
        with suppress(httptools.HttpParserInvalidURLError):
            target = httptools.parse_url(self.url)
        if target is None or not target.host or target.userinfo:
            self._raise(HttpError(400, "The target of the request is not one of this server."))
        host = b"[%b]" % target.host if b":" in target.host else target.host
        authority = b"%b:%d" % (host, target.port) if target.port else host
        query = b"?" + target.query if target.query else b""
        self.url = (target.path or b"/") + query
        if sum(name == b"host" for name, _ in self.headers) <= 1:  # else it is refused
            self.headers[:] = [
                (b"host", authority),
                *(field for field in self.headers if field[0] != b"host"),
            ]

    def _look_at_head(self) -> None:
        """What a head means that expects something, encodes its body or asks for an upgrade. Raises
        HttpError."""
        given: dict[bytes, list[bytes]] = {}
        for name, value in self.headers:
            given.setdefault(name, []).append(value.lower())
        is_old = self.parser.get_http_version() != "1.1"
        coding = given.get(b"transfer-encoding")
        if coding is not None and (is_old or coding != [b"chunked"]):
            self._raise(HttpError(400, "The one transfer encoding that is taken is chunked, in HTTP/1.1."))
        self.expect_100_continue = not is_old and b"100-continue" in given.get(b"expect", ())
        self._is_handshake = (
            given.get(b"upgrade") == [b"websocket"]
            and not is_old
            and coding is None
            and given.get(b"content-length", [b"0"]) == [b"0"]
            and self.parser.get_method() == b"GET"
            and self.url.partition(b"?")[0] == PATH.encode()
        )

    def on_body(self, body: bytes) -> None:
        self._overhead = 0
        self._receiving.got(len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._stage is _Stage.HEAD:
            return  # of a request that is not known yet: see `_upgraded`
        super().on_message_complete()
        if self._owed:
            self._stage = _Stage.COMPLETE
        elif self.cycle is not None:
            self._await()

    def on_response_complete(self) -> None:
        stop_writing(self._owed.pop(0))
        super().on_response_complete()
        self._since = self.loop.time()
        if self._stage is _Stage.COMPLETE and not self._owed:
            self._await()
            if self._rest:
                self.loop.call_soon(self._go_on)

    def _should_upgrade(self) -> bool:
        return self._is_handshake

    def handle_websocket_upgrade(self) -> None:
        self._registry.leave(self)
        super().handle_websocket_upgrade()

    def _await(self) -> None:
        """The next request may come."""
        self._stage, self._since, self._head = _Stage.AWAITED, self.loop.time(), 0
        self._patience = _LAST_PATIENCE if self._registry.retiring else self._limits.idle_seconds
        self._registry.waits(self)

    # ── refusing ───────────────────────────────────────────────────────────────────────────────────────
    def _answer(self, scope: Any, receive: Any, _send: Any) -> Awaitable[None]:
        """The application for one request. No coroutine of its own: each would be passed for each token."""
        cycle = receive.__self__
        here = partial(self._receive, cycle), partial(send, cycle)
        return self._application(scope, *here)  # type: ignore[no-any-return]

    async def _receive(self, cycle: RequestResponseCycle) -> Any:
        """The application's next message. Raises HttpError when the rest of its body won't come."""
        message = await receive(cycle)
        if self._error is not None and message.get("more_body"):
            raise self._error
        return message

    def _raise(self, error: HttpError) -> NoReturn:
        """Out of the parser, which passes nothing on but that there was an exception."""
        self._error = error
        raise error

    def _refuse(self, error: HttpError) -> None:
        """Take nothing more from this client. It is answered here, or by the application when that waits
        for the body, behind all that is owed to it."""
        in_body = self._stage is _Stage.BODY
        self._stage, self._since, self._rest = _Stage.REFUSED, self.loop.time(), b""
        self._registry.serves(self)
        self._registry.refused(error.code)
        if self._owed:
            cycle = self._owed[-1]
            cycle.keep_alive = False
            if in_body:
                error.headers = error.headers | {"connection": "close"}
                self._error = error
                cycle.message_event.set()
        elif in_body:
            self.transport.close()
        else:
            self.transport.write(written(error, self.url, self.server_state.default_headers))
            self.transport.write_eof()

    # ── the registry's side ─────────────────────────────────────────────────────────────────────────────
    def look(self, now: float) -> None:
        """End what has taken too long."""
        if self.flow.write_paused or self.transport.is_closing():
            if self._sending.is_stuck(now):
                self._registry.refused("client_takes_nothing")
                cut_off(self.transport)
        elif self._stage is _Stage.HEAD:
            if now - self._since >= self._limits.header_seconds:
                self._refuse(HttpError(408, "The headers took too long."))
        elif self._stage is _Stage.BODY:
            self._look_at_body(now)
        elif self._stage is _Stage.AWAITED:
            if now - self._since >= self._patience:
                self.transport.close()
        elif self._stage is _Stage.REFUSED and not self._owed and now - self._since >= _LINGER:
            self.transport.close()

    def _look_at_body(self, now: float) -> None:
        """A body that the application doesn't take is not the client's fault; one whose answer has left is
        not waited for."""
        if not self._owed:
            if now - self._since >= self._limits.body_seconds:
                self.transport.close()
        elif self.flow.read_paused or self.cycle.waiting_for_100_continue:
            self._receiving.wait(now)
        elif self._receiving.is_slow(now):
            self._refuse(HttpError(408, "The body took too long."))

    def retire(self) -> None:
        """The answer to the newest request says `connection: close`; behind one that has begun, one request
        more may come."""
        self._patience = _LAST_PATIENCE
        if self._owed and not self._owed[-1].response_started:
            self._owed[-1].keep_alive = False

    def make_room(self) -> bool:
        """Close if nothing has been asked and nothing is on its way."""
        if self._stage not in (_Stage.AWAITED, _Stage.HEAD) or self.flow.write_paused:
            return False
        self.transport.abort()
        return True


def http_protocol(settings: Settings) -> Any:
    """What uvicorn's `Config(http=…)` takes. It can be pickled, so that worker processes get one each."""
    return partial(HttpConnection, ConnectionRegistry(settings))

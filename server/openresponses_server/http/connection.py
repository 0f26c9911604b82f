"""One HTTP/1.1 connection: uvicorn's, with limits on the data before, in and after a request.

Bytes are counted as they arrive and parsed in small pieces, so that a head beyond its limit is refused
without being parsed or kept. Until a request has been answered, further data are not parsed.

The end of a request is determined by its head alone (RFC 9112, 6.3), as in a proxy in front of this server,
which sends requests of several clients over one connection. An upgrade changes this only for the handshake of
a WebSocket, which has no body.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from typing import Any, Final, NoReturn

import httptools
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from openresponses_server.errors import HttpError
from openresponses_server.http.flow import offer
from openresponses_server.http.headers import LOWER
from openresponses_server.http.refusals import error_response
from openresponses_server.http.registry import ConnectionRegistry, Flow, ReceiveMonitor, SendMonitor, cut_off
from openresponses_server.http.websocket import PATH, WebSocketConnection
from openresponses_server.settings import Settings


def _write_piece(cycle: RequestResponseCycle, body: bytes) -> bool:
    """Write a chunk of the body as uvicorn does, without ASGI's `send` (`flow.Write`)."""
    # `chunked_encoding` is known when the head has been written
    if cycle.flow.write_paused or not cycle.chunked_encoding or cycle.response_complete or cycle.disconnected:
        return False
    if body:  # an empty chunk would be the end
        cycle.transport.write(b"%x\r\n%b\r\n" % (len(body), body))
    return True


def _cut(cycle: RequestResponseCycle) -> None:
    """Close the connection after what was sent. uvicorn then expects no end of the answer."""
    cycle.disconnected = True
    cycle.transport.close()


def _stop_writing(cycle: RequestResponseCycle) -> None:
    """Withdraw direct writes: the answer has ended, or the client has disconnected."""
    cycle.scope.pop("extensions", None)


async def _send_before_body(cycle: RequestResponseCycle, message: Any) -> None:
    """Send a message to a client that waits for `100 Continue`. One that is answered without it may send the
    body now or its next request instead of it."""
    if cycle.waiting_for_100_continue:
        cycle.keep_alive = False
    await cycle.send(message)


_PIECE: Final = 16 * 1024  # bytes that are parsed at once
_MOST_HEADERS: Final = 256
_MOST_QUEUED: Final = 16  # requests in one piece, before the first of them is answered
_LINGER: Final = 2.0  # seconds for a refused client to read the error, before the connection is closed
_DRAIN_IDLE_SECONDS: Final = 3.0  # seconds in which a request may still arrive when the server drains
_CHECKED_HEADERS: Final = frozenset({b"expect", b"transfer-encoding", b"upgrade"})
_OF_UPGRADES: Final = frozenset({b"connection", b"upgrade"})


class _RequestStage(Enum):
    """The stage of a connection's newest request."""

    AWAITED = auto()
    HEAD = auto()
    BODY = auto()
    COMPLETE = auto()
    REFUSED = auto()


class HttpConnection(HttpToolsProtocol):
    """The protocol that uvicorn creates for each connection. `registry` counts it and checks its timeouts."""

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
        self._stage = _RequestStage.AWAITED
        self._stage_since, self._idle_timeout = self._registry.clock(), self._limits.header_seconds
        self.url = self._unparsed = b""
        self._head = 0  # bytes of the head so far
        self._is_plain = True  # the newest head has no header that must be checked
        self._is_handshake = False  # the newest request is that of a WebSocket
        self._is_receiving = False  # the rest of the newest body is waited for
        self._with_head = 0  # bytes of the newest body that came with its head
        self._overhead = 0  # bytes of the body's framing since its last byte
        self._unanswered: list[RequestResponseCycle] = []  # `_MOST_QUEUED` at most
        self._error: HttpError | None = None
        self._receiving = ReceiveMonitor(self._limits.body_seconds, self._limits.body_total_seconds)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = self._flow = Flow(transport)
        self._sending = SendMonitor(transport, self._limits.write_seconds)
        if self._registry.add(self):
            self._registry.mark_idle(self)
        else:
            most = "The server has too many connections; try again."
            self._refuse(HttpError(503, most, headers={"retry-after": "1"}))
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._registry.remove(self)
        self._unparsed = b""
        for cycle in self._unanswered:  # uvicorn knows of the newest only
            cycle.disconnected = True
            cycle.message_event.set()
            _stop_writing(cycle)
        super().connection_lost(exc)
        self._clear()

    def _clear(self) -> None:
        """Drop what refers to this object, which would stay until the next garbage collection."""
        self.app, self.parser = self._application, None  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self._stage is _RequestStage.REFUSED:
            return
        if self._unparsed:
            self._unparsed += data  # data that arrived although reading was paused
        elif self._stage is not _RequestStage.COMPLETE or data.strip(b"\r\n"):
            self._parse_all(data)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._registry.mark_waiting(self)

    def resume_writing(self) -> None:
        self._sending.reset()
        super().resume_writing()
        if not self._is_receiving:
            self._registry.mark_served(self)

    def _parse_all(self, data: bytes) -> None:
        """Parse up to the end of a request; keep the rest until it has been answered."""
        start, end = 0, len(data)
        while start < end:
            if self._stage is _RequestStage.COMPLETE:
                self._keep_unread(data[start:])
                return
            size = _PIECE
            if self._stage is not _RequestStage.BODY:
                size = min(size, self._limits.header_bytes + 1 - self._head)
            piece = data if start == 0 and size >= end else data[start : start + size]
            start += size
            if not self._parse(piece):
                return

    def _parse(self, piece: bytes) -> bool:
        """Parse a piece. Returns whether to continue with the next."""
        in_head = self._stage in (_RequestStage.AWAITED, _RequestStage.HEAD)
        self._overhead += len(piece)
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:
            return self._upgraded(piece[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._refuse(self._error or HttpError(400, "The request is not valid HTTP/1.1."))
            return False
        if self._stage in (_RequestStage.AWAITED, _RequestStage.HEAD):
            self._head += len(piece) if in_head else 0
            if self._head > self._limits.header_bytes:
                most = self._limits.header_bytes
                self._refuse(HttpError(431, f"The headers are larger than the limit of {most} bytes."))
        elif self._stage is _RequestStage.BODY and self._overhead > self._limits.header_bytes:
            self._refuse(HttpError(400, "The framing of the body is larger than the limit for headers."))
        elif self._stage is _RequestStage.BODY and self._unanswered and not self._is_receiving:
            self._is_receiving = True
            self._receiving.begin(self._stage_since)
            self._receiving.add(self._with_head)
            self._registry.mark_waiting(self)
        return self._stage is not _RequestStage.REFUSED

    def _upgraded(self, rest: bytes) -> bool:
        """Handle a head that asks for an upgrade, after which the parser stops, whatever body it announces.
        Returns whether to continue. A request that is not a WebSocket's handshake is read and answered
        without the upgrade, as the last one of its connection (RFC 9110, 7.8)."""
        if self._is_handshake:
            self._stage = _RequestStage.HEAD
            if self._unanswered:
                self._refuse(
                    HttpError(400, "A WebSocket was requested before the previous request was answered.")
                )
            elif rest:
                self._refuse(HttpError(400, "Data was sent before the WebSocket's handshake was answered."))
            else:
                self.handle_websocket_upgrade()
                self._clear()
            return False
        if (method := self.parser.get_method()) == b"CONNECT":
            self._refuse(HttpError(400, "This server does not support CONNECT."))
            return False
        lines = [b"%b: %b\r\n" % (name, value) for name, value in self.headers if name not in _OF_UPGRADES]
        version = self.parser.get_http_version().encode()
        line = b"%b %b HTTP/%b\r\n" % (method, self.url, version)
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
        return self._parse(b"%b%bconnection: close\r\n\r\n" % (line, b"".join(lines))) and (
            not rest or self._parse(rest)
        )

    def _keep_unread(self, data: bytes) -> None:
        self._unparsed = data
        self._flow.pause_reading()
        self._flow.held = True

    def _resume(self) -> None:
        if self._stage is _RequestStage.COMPLETE or self.transport.is_closing():
            return
        rest, self._unparsed = self._unparsed, b""
        self._parse_all(rest)
        if not self._unparsed and self._stage is not _RequestStage.REFUSED:
            self._flow.held = False
            self._flow.resume_reading()

    def on_message_begin(self) -> None:
        if len(self._unanswered) >= _MOST_QUEUED:
            self._raise(HttpError(429, "Too many requests were sent before the first was answered."))
        super().on_message_begin()
        self._stage, self._stage_since, self._head = _RequestStage.HEAD, self._registry.clock(), 0
        self._is_plain, self._is_handshake = True, False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._stage is not _RequestStage.HEAD:
            return  # a trailer field, which is ignored
        name = LOWER[name]
        if name in _CHECKED_HEADERS:
            self._is_plain = False
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if len(self.headers) > _MOST_HEADERS:
            self._raise(HttpError(431, f"The request has more than {_MOST_HEADERS} headers."))
        if self.url[:1] != b"/":
            self._parse_target()
        if not self._is_plain:
            self._check_head()
            if self.parser.should_upgrade() and not self._is_handshake:
                return  # see `_upgraded`
        before = self.cycle
        super().on_headers_complete()
        self._stage, self._overhead, self._with_head = _RequestStage.BODY, 0, 0
        if self.cycle is not before:  # not so for a WebSocket
            cycle, scope = self.cycle, self.scope
            self._unanswered.append(cycle)
            if scope["method"] != "HEAD":  # until `_stop_writing`, cycle and scope refer to each other
                offer(scope, partial(_write_piece, cycle), partial(_cut, cycle))  # type: ignore[arg-type]
            if self._registry.retiring:
                self.retire()
            self._registry.mark_busy(self)

    def _parse_target(self) -> None:
        """Parse the target of the request. An absolute one replaces the `host` header (RFC 9112, 3.2.2); of
        the other forms only `*` is accepted."""
        if self.url == b"*":
            return
        target = None
        with suppress(httptools.HttpParserInvalidURLError):
            target = httptools.parse_url(self.url)
        if target is None or not target.host or target.userinfo:
            self._raise(HttpError(400, "The request's target is not valid for this server."))
        host = b"[%b]" % target.host if b":" in target.host else target.host
        authority = b"%b:%d" % (host, target.port) if target.port else host
        query = b"?" + target.query if target.query else b""
        self.url = (target.path or b"/") + query
        if sum(name == b"host" for name, _ in self.headers) <= 1:  # else it is refused
            self.headers[:] = [
                (b"host", authority),
                *(field for field in self.headers if field[0] != b"host"),
            ]

    def _check_head(self) -> None:
        """Check a head that has an expectation, a transfer encoding or an upgrade. Raises HttpError."""
        fields: dict[bytes, list[bytes]] = {}
        for name, value in self.headers:
            fields.setdefault(name, []).append(value.lower())
        is_old = self.parser.get_http_version() != "1.1"
        coding = fields.get(b"transfer-encoding")
        if coding is not None and (is_old or coding != [b"chunked"]):
            self._raise(HttpError(400, "The only supported transfer encoding is chunked, in HTTP/1.1."))
        self.expect_100_continue = not is_old and b"100-continue" in fields.get(b"expect", ())
        self._is_handshake = (
            fields.get(b"upgrade") == [b"websocket"]
            and not is_old
            and coding is None
            and fields.get(b"content-length", [b"0"]) == [b"0"]
            and self.parser.get_method() == b"GET"
            and self.url.partition(b"?")[0] == PATH.encode()
        )

    def on_body(self, body: bytes) -> None:
        self._overhead = 0
        if self._is_receiving:
            self._receiving.add(len(body))
        else:
            self._with_head += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._stage is _RequestStage.HEAD:
            return  # of a request that is still unknown: see `_upgraded`
        super().on_message_complete()
        if self._is_receiving:
            self._end_receiving()
        if self._unanswered:
            self._stage = _RequestStage.COMPLETE
        elif self.cycle is not None:
            self._await_request()

    def on_response_complete(self) -> None:
        _stop_writing(self._unanswered.pop(0))
        super().on_response_complete()
        if self.timeout_keep_alive_task is not None:  # the registry closes idle connections
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None
        self._stage_since = self._registry.clock()
        if self._stage is _RequestStage.COMPLETE and not self._unanswered:
            self._await_request()
            if self._unparsed:
                self.loop.call_soon(self._resume)
        elif self._is_receiving and not self._unanswered:  # nobody reads the rest
            self._end_receiving()
            self._registry.mark_idle(self)

    def _end_receiving(self) -> None:
        self._is_receiving = False
        if not self.flow.write_paused:
            self._registry.mark_served(self)

    def _should_upgrade(self) -> bool:
        return self._is_handshake

    def handle_websocket_upgrade(self) -> None:
        self._registry.remove(self)
        super().handle_websocket_upgrade()

    def _await_request(self) -> None:
        """Wait for the next request."""
        self._stage, self._stage_since, self._head = _RequestStage.AWAITED, self._registry.clock(), 0
        self._idle_timeout = _DRAIN_IDLE_SECONDS if self._registry.retiring else self._limits.idle_seconds
        self._registry.mark_idle(self)

    def _answer(self, scope: Any, receive: Any, send: Any) -> Awaitable[None]:
        """Call the application for one request. Not a coroutine itself, because each token would pass through
        it."""
        cycle = receive.__self__
        if cycle.waiting_for_100_continue:
            send = partial(_send_before_body, cycle)
        return self._application(scope, partial(self._receive, cycle), send)  # type: ignore[no-any-return]

    async def _receive(self, cycle: RequestResponseCycle) -> Any:
        """The application's next message. Raises HttpError if the rest of the body will not arrive."""
        message: Any = await cycle.receive()
        if self._error is not None and message.get("more_body"):
            raise self._error
        return message

    def _raise(self, error: HttpError) -> NoReturn:
        """Raise through the parser, which does not pass on the exception itself."""
        self._error = error
        raise error

    def _refuse(self, error: HttpError) -> None:
        """Accept nothing more from this client. The error is sent here after all earlier answers, or by the
        application if that waits for the body."""
        in_body = self._stage is _RequestStage.BODY
        self._stage, self._stage_since, self._unparsed = _RequestStage.REFUSED, self._registry.clock(), b""
        self._registry.mark_busy(self)
        self._registry.refused(error.code)
        if self._unanswered:
            cycle = self._unanswered[-1]
            cycle.keep_alive = False
            if in_body:
                error.headers = error.headers | {"connection": "close"}
                self._error = error
                cycle.message_event.set()
        elif in_body:
            self.transport.close()
        else:
            self.transport.write(error_response(error, self.url, self.server_state.default_headers))
            self.transport.write_eof()

    def check_timeouts(self, now: float) -> None:
        """End what exceeds its timeout."""
        if self.flow.write_paused or self.transport.is_closing():
            if self._sending.is_stuck(now):
                self._registry.refused("client_takes_nothing")
                cut_off(self.transport)
        elif self._stage is _RequestStage.HEAD:
            if now - self._stage_since >= self._limits.header_seconds:
                self._refuse(HttpError(408, "The headers took too long."))
        elif self._stage is _RequestStage.BODY:
            self._check_body(now)
        elif self._stage is _RequestStage.AWAITED:
            if now - self._stage_since >= self._idle_timeout:
                self.transport.close()
        elif (
            self._stage is _RequestStage.REFUSED
            and not self._unanswered
            and now - self._stage_since >= _LINGER
        ):
            self.transport.close()

    def _check_body(self, now: float) -> None:
        """Check the body's timeouts. The time in which the application does not read the body does not count,
        and a body whose answer has been sent is not waited for."""
        if not self._unanswered:
            if now - self._stage_since >= self._limits.body_seconds:
                self.transport.close()
        elif self.flow.read_paused or self.cycle.waiting_for_100_continue:
            self._receiving.wait(now)
        elif self._receiving.is_slow(now):
            self._refuse(HttpError(408, "The body took too long."))

    def retire(self) -> None:
        """Send `connection: close` with the newest request's answer; if that has begun, with the next one."""
        self._idle_timeout = _DRAIN_IDLE_SECONDS
        if self._unanswered and not self._unanswered[-1].response_started:
            self._unanswered[-1].keep_alive = False

    def close_if_idle(self) -> bool:
        """Close if all requests are answered and nothing is left to send."""
        is_idle = self._stage in (_RequestStage.AWAITED, _RequestStage.HEAD)
        is_answered = self._stage is _RequestStage.BODY and not self._unanswered
        if not (is_idle or is_answered) or self.flow.write_paused:
            return False
        self.transport.abort()
        return True

    @property
    def owner(self) -> str:
        """The owner of the newest request."""
        return str(self._unanswered[-1].scope["state"].get("owner", "")) if self._unanswered else ""

    def abort(self) -> None:
        """Close at once."""
        self.transport.abort()


def http_protocol(settings: Settings, clock: Callable[[], float] = time.monotonic) -> Any:
    """The protocol class for uvicorn's `Config(http=…)`, and the clock of its timeouts. It can be pickled, so
    that each worker process gets one."""
    return partial(HttpConnection, ConnectionRegistry(settings, clock))

"""One WebSocket to a server: text messages in order, with limits on their size and on what waits."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import OPEN
from websockets.uri import WebSocketURI

from openresponses_server.http.client.connection import RequestTarget, request_head
from openresponses_server.http.client.failures import ConnectionLost, RemoteProtocolError, public_reason

_PIECE: Final = 1024  # bytes that are parsed at once, of which each two may be a frame
_PIECES: Final = 64  # of them in one iteration of the event loop
_FRAMES: Final = 64  # in one iteration of the event loop, about
_WRITTEN: Final = 64 * 1024  # bytes of a message that are written at once
_DATA: Final = (Opcode.TEXT, Opcode.CONT)
_CLOSED: Final = "it closed the connection"
_LOG: Final = logging.getLogger("openresponses_server.websockets")
_LOG.setLevel(logging.CRITICAL)  # of received frames, whose faults are raised


class SocketRefused(ConnectionError):
    """The server does not open a WebSocket."""

    def __init__(self, message: str, status: int = 0) -> None:
        """`status`: that of its answer, 0 if there is none."""
        super().__init__(message)
        self.status = status


class SocketLost(ConnectionLost):
    """The connection has ended, and nothing else was received since the last message was sent."""


class SocketConnection(asyncio.Protocol):
    """A WebSocket, as asyncio's protocol. No extension is offered, so that a message takes as much memory as
    the bytes that were sent of it: `most` at most.

    Parsing and reading pause after a number of frames, until other connections had their turn; between
    `pause` and `resume`; and while the server does not read, except while a message is sent, which the server
    may answer before it has read all of it.
    """

    def __init__(self, target: RequestTarget, most: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._target = target
        origin = target.origin
        uri = WebSocketURI(origin.tls, origin.host, origin.port, target.target, "", None, None)
        self._protocol = ClientProtocol(uri, max_size=most, logger=_LOG)
        self._transport: asyncio.Transport | None = None
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._unparsed: deque[memoryview] = deque()
        self._parts: list[bytes] = []  # of an unfinished message
        self._is_paused = False  # by the reader of the messages
        self._is_deferred = False  # the rest is parsed in the next iteration
        self._write_resumed: asyncio.Future[None] | None = None
        self._has_ended = False
        self._is_sending = False  # no other frame may be written
        self._is_written = True  # all of the last message is
        self._unsent: list[bytes] = []  # what the protocol had to say while a message was being sent
        self._has_received = False  # anything since the last message was sent, but a closing frame
        self._ended_by: str | None = None  # why the connection has ended, and something is not parsed
        self.on_message: Callable[[bytes], None] = _ignore
        """Called with each message."""
        self.on_end: Callable[[OSError], None] = _ignore_error
        """Called once, when the connection has ended or broken."""

    @property
    def is_open(self) -> bool:
        """True if a message can be sent: none is being sent, and the connection has not ended, not even with
        a rest that is not parsed."""
        return self._is_connected and not self._is_sending and self._protocol.state is OPEN

    @property
    def _is_connected(self) -> bool:
        transport = self._transport
        has_ended = self._has_ended or self._ended_by is not None
        return not has_ended and transport is not None and not transport.is_closing()

    @property
    def is_sent(self) -> bool:
        """True if all of the last message has left, so that another may follow it."""
        return self._is_written and not self._has_waiting

    @property
    def _has_waiting(self) -> bool:
        """True if the server has not taken all that was written."""
        return self._transport is not None and self._transport.get_write_buffer_size() > 0

    async def open(self, headers: Mapping[str, str]) -> None:
        """Do the handshake. Raises SocketRefused, and OSError if the connection breaks."""
        transport = self._transport
        if transport is None or not self._is_connected:
            raise SocketLost(_CLOSED)
        own = {
            "upgrade": "websocket",
            "connection": "Upgrade",
            "sec-websocket-key": self._protocol.key,
            "sec-websocket-version": "13",
        }
        transport.write(request_head("GET", self._target, {**headers, **own}, 0))
        await self._opened

    async def send(self, message: bytes) -> None:
        """Send a text message, no faster than the server takes it. Raises SocketLost if none can be sent; if
        the connection is lost or closed later, this returns, and `on_end` gets the reason."""
        transport = self._transport
        if transport is None or not self.is_open:
            raise SocketLost(_CLOSED)
        self._protocol.send_text(message)
        (data,) = self._protocol.data_to_send()
        self._is_sending, self._is_written, self._has_received = True, False, False
        try:
            for start in range(0, len(data), _WRITTEN):
                transport.write(data[start : start + _WRITTEN])
                self._is_written = start + _WRITTEN >= len(data)
                if self._write_resumed is not None:
                    await asyncio.wait((self._write_resumed,))
                if not self._is_connected:
                    return
        finally:
            self._is_sending = not self._is_written
        self._flush()

    def close(self) -> None:
        """Send a close frame, and close the connection."""
        transport = self._transport
        if not self.is_open or transport is None or self._has_waiting:
            self.abort()
            return
        self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
        self._flush()
        self._end(SocketLost(_CLOSED))
        transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._end(SocketLost(_CLOSED))
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        self._is_paused = True
        self._read_or_not()

    def resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._defer()  # not here: the caller may be within a message

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._has_ended:
            self._transport.abort()

    def pause_writing(self) -> None:
        self._write_resumed = self._loop.create_future()
        self._read_or_not()  # each ping is answered

    def resume_writing(self) -> None:
        waiter, self._write_resumed = self._write_resumed, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        self._defer()

    def data_received(self, data: bytes) -> None:
        self._unparsed.append(memoryview(data))
        if not self._is_deferred:
            self._parse()

    def eof_received(self) -> None:
        """The transport closes, which would wait until the server has read what was written."""
        if self._has_waiting and self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended_by = _CLOSED if exc is None else public_reason(exc)
        self.resume_writing()
        if not self._is_deferred:
            self._parse()

    def _defer(self) -> None:
        if not self._is_deferred and not self._has_ended:
            self._is_deferred = True
            self._loop.call_soon(self._parse_deferred)
            self._read_or_not()

    def _parse_deferred(self) -> None:
        self._is_deferred = False
        self._parse()

    def _parse(self) -> None:
        self._parse_pieces()
        self._flush()
        if self._unparsed and self._may_read:
            self._defer()
        elif self._ended_by is not None and not self._unparsed:
            self._end(self._lost(self._ended_by))
        else:
            self._read_or_not()

    def _parse_pieces(self) -> None:
        """Parse what was received, up to what one iteration may have."""
        frames = 0
        for _ in range(_PIECES):
            if not self._unparsed or not self._may_read or frames > _FRAMES:
                return
            data = self._unparsed.popleft()
            if len(data) > _PIECE:
                self._unparsed.appendleft(data[_PIECE:])
            frames += self._receive(bytes(data[:_PIECE]))

    def _receive(self, data: bytes) -> int:
        """Parse a piece; return the number of its frames."""
        protocol = self._protocol
        protocol.receive_data(data)
        events = protocol.events_received()
        self._has_received = self._has_received or not _is_close(events)
        for event in events:
            if isinstance(event, Response):
                self._answered(event)
            elif isinstance(event, Frame):
                self._received(event)
            if self._has_ended:
                return len(events)
        if protocol.handshake_exc is not None and not self._opened.done():
            self._refuse(SocketRefused("it does not answer the handshake of a WebSocket"))
        elif protocol.parser_exc is not None:
            self._break(RemoteProtocolError("what it sent is not the WebSocket protocol, or too large"))
        return len(events)

    def _answered(self, response: Response) -> None:
        error = self._protocol.handshake_exc
        if error is None:
            if not self._opened.done():  # else nobody waits for it any more
                self._opened.set_result(None)
        elif isinstance(error, InvalidStatus):
            status = response.status_code
            self._refuse(SocketRefused(f"it answers the handshake of a WebSocket with {status}", status))
        else:
            self._refuse(SocketRefused("it does not accept the handshake of a WebSocket"))

    def _received(self, frame: Frame) -> None:
        if frame.opcode in _DATA:
            if frame.data:
                self._parts.append(bytes(frame.data))
            if frame.fin:
                message = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
                self._parts = []
                self.on_message(message)
        elif frame.opcode is Opcode.BINARY:
            self._break(RemoteProtocolError("it sent a binary message"))
        elif frame.opcode is Opcode.CLOSE:
            self._break(self._lost(_CLOSED))

    def _lost(self, reason: str) -> OSError:
        """The error for a connection that ends now."""
        return ConnectionLost(f"{reason} within its answer") if self._has_received else SocketLost(reason)

    def _refuse(self, error: SocketRefused) -> None:
        if not self._opened.done():
            self._opened.set_exception(error)
        self.abort()

    def _break(self, error: OSError) -> None:
        is_stuck = self._has_waiting
        self._flush()  # with the reason for the server
        self._end(error)
        if self._transport is not None:
            self._transport.abort() if is_stuck else self._transport.close()

    def _end(self, error: OSError) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        self._unparsed.clear()
        self._parts = []
        if not self._opened.done():
            self._opened.set_exception(error)
            self._opened.exception()  # nobody may wait for it
        on_end, self.on_end, self.on_message = self.on_end, _ignore_error, _ignore
        on_end(error)

    def _flush(self) -> None:
        """Write what the protocol has to say by itself, as the answers to pings; while a message is being
        sent only the last is kept, which is enough (RFC 6455, 5.5.3)."""
        transport, frames = self._transport, [data for data in self._protocol.data_to_send() if data]
        if self._is_sending or transport is None:
            self._unsent = frames[-1:] or self._unsent
            return
        for data in (*self._unsent, *frames):
            if not transport.is_closing():
                transport.write(data)
        self._unsent = []

    @property
    def _may_read(self) -> bool:
        may_write = self._write_resumed is None or self._is_sending
        return may_write and not self._is_paused and not self._has_ended

    def _read_or_not(self) -> None:
        transport = self._transport
        if transport is None or self._has_ended or transport.is_closing():
            return
        if self._may_read and not self._is_deferred:
            transport.resume_reading()
        else:
            transport.pause_reading()


def _is_close(events: Sequence[object]) -> bool:
    """Return True if a closing frame, and nothing else, was received."""
    return len(events) == 1 and isinstance(events[0], Frame) and events[0].opcode is Opcode.CLOSE


def _ignore(_message: bytes) -> None:
    return None


def _ignore_error(_error: OSError) -> None:
    return None

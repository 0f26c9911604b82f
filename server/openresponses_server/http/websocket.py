"""One WebSocket: uvicorn's, with limits on the memory of a message and on unread data.

Data are parsed in small pieces. Parsing and reading pause while a message waits for the application, while
the client does not read, and when it sends too many tiny frames.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

from uvicorn import Config
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.exceptions import PayloadTooBig
from websockets.extensions.permessage_deflate import PerMessageDeflate, ServerPerMessageDeflateFactory
from websockets.frames import CTRL_OPCODES, CloseCode, Frame, Opcode
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.typing import ExtensionParameter

from openresponses_server.errors import HttpError
from openresponses_server.http.flow import offer, withdraw
from openresponses_server.http.refusals import envelope, error_response, too_large
from openresponses_server.http.registry import ConnectionRegistry, ReceiveMonitor, SendMonitor, cut_off
from openresponses_server.limits.memory import SOCKET_RESERVATION, Reservation
from openresponses_server.tasks import LARGE

PATH: Final = "/v1/responses"
"""The path at which a handshake is accepted."""

# permessage-deflate with limits: until a message is complete, it needs only the memory of its compressed
# bytes; then it is inflated in steps, between which the event loop serves others. The library inflates each
# fragment at once, so an unfinished message would need up to a thousand times its compressed size, and keeps
# whatever comes behind a final block.

_INFLATED: Final = 256 * 1024  # bytes of a step: about a millisecond
_EMPTY_BLOCK: Final = b"\0\0\xff\xff"  # which the sender has left out (RFC 7692, 7.2.1)
_NOTHING_MORE: Final = (b"", _EMPTY_BLOCK, b"\0" + _EMPTY_BLOCK)  # behind a final block (RFC 7692, 7.2.3.4)


class CompressedMessage(bytes):
    """A whole message, compressed."""

    __slots__ = ()


class WholeMessageDeflate(PerMessageDeflate):
    """Keeps the fragments of a message until the last has arrived, and leaves it compressed."""

    _compressed = False
    _fragments = bytearray()

    @property
    def waiting(self) -> int:
        """Bytes of the unfinished message."""
        return len(self._fragments)

    def discard(self) -> None:
        """Discard the fragments."""
        self._fragments = bytearray()

    def decode(self, frame: Frame, *, max_size: int | None = None) -> Frame:
        """Return the whole message in its last fragment, as a CompressedMessage; the others become empty.
        Raises PayloadTooBig."""
        if frame.opcode in CTRL_OPCODES:
            return frame
        if frame.opcode is not Opcode.CONT:
            self._compressed, self._fragments = frame.rsv1, bytearray()
        if not self._compressed:
            return frame
        self._fragments += frame.data
        if max_size is not None and len(self._fragments) > max_size:
            raise PayloadTooBig(None, max_size)
        data = b""
        if frame.fin:
            data, self._fragments = CompressedMessage(self._fragments), bytearray()
        return Frame(frame.opcode, data, frame.fin, False, frame.rsv2, frame.rsv3)

    def inflate(self, message: CompressedMessage) -> Iterator[bytes]:
        """The message in pieces of at most `_INFLATED` bytes, each made when it is asked for. Messages have
        to be inflated in the order in which they came. Raises zlib.error for what is not compressed."""
        if self.remote_no_context_takeover:
            self._begin()
        rest, more = message + _EMPTY_BLOCK, True
        while rest or more:
            piece = self.decoder.decompress(rest, _INFLATED)
            rest, more = self.decoder.unconsumed_tail, len(piece) == _INFLATED
            yield piece
            if self.decoder.eof:
                rest = self.decoder.unused_data
                self._begin()
                if rest not in _NOTHING_MORE:
                    raise zlib.error("data follows the final block")
                return

    def _begin(self) -> None:
        self.decoder = zlib.decompressobj(wbits=-self.remote_max_window_bits)


class WholeMessageDeflateFactory(ServerPerMessageDeflateFactory):
    """Negotiates as the library does."""

    def process_request_params(
        self, params: Sequence[ExtensionParameter], accepted_extensions: Sequence[Any]
    ) -> tuple[list[ExtensionParameter], PerMessageDeflate]:
        """The negotiated parameters, and the extension for one connection."""
        answer, agreed = super().process_request_params(params, accepted_extensions)
        return answer, WholeMessageDeflate(
            agreed.remote_no_context_takeover,
            agreed.local_no_context_takeover,
            agreed.remote_max_window_bits,
            agreed.local_max_window_bits,
            agreed.compress_settings,
        )


_PIECE: Final = 4 * 1024  # bytes that are parsed at once
_USUAL: Final = 256  # bytes of a frame, on average, that do not count as a flood
_FLOOD: Final = 1000  # small frames in a second, after which reading pauses
_LINGER: Final = 2.0  # seconds for a refused client to read the error, before the connection is closed
_TOO_SLOW: Final = HttpError(408, "The message took too long.")
_UNREADABLE: Final = HttpError(
    400, "The WebSocket's handshake has a body, a line of more than 8,192 bytes or more than 128 headers."
)


class WebSocketConnection(WebSocketsSansIOProtocol):
    """Takes over the transport of an HttpConnection. A message that is too large or too slow is answered
    with the error envelope before the connection is closed."""

    frames: list[Any]

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
        small = {"memLevel": 5}
        deflate = WholeMessageDeflateFactory(
            server_max_window_bits=12, client_max_window_bits=12, compress_settings=small
        )
        self.conn = ServerProtocol(
            extensions=[deflate], max_size=registry.largest_message, logger=logging.getLogger("uvicorn.error")
        )
        self._unparsed = b""
        self._tiny = 0.0
        self._second = 0.0
        self._pause: asyncio.TimerHandle | None = None
        self._is_refused = False
        self._receiving = ReceiveMonitor(registry.limits.body_seconds, registry.limits.body_total_seconds)
        self._unfinished = False
        self._complete: deque[tuple[str, bytes]] = deque()  # messages and their types, in order
        self._inflating: Iterator[bytes] | None = None  # the rest of the first of them
        self._inflated = bytearray()  # what there is of it
        self._close_frame: Frame | None = None  # came behind them
        self._pending_size = 0  # bytes of the message that waits for the application or is handled by it
        self._has_reservation = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._sending = SendMonitor(self.transport, self._registry.limits.write_seconds)
        self._registry.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._registry.remove(self)
        self._discard()
        if self.handshake_initiated:
            withdraw(self._scope)  # it refers to this object
        if self._pause is not None:
            self._pause.cancel()
        self.conn.parser.close()  # a generator that refers to its connection
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        self._sending.reset()
        super().resume_writing()
        self._notify()

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if self._unparsed:
            self._unparsed += data  # data that arrived although reading was paused
        else:
            self._parse_all(data)

    def _parse_all(self, data: bytes) -> None:
        """Parse until parsing must pause; keep the rest."""
        for start in range(0, len(data), _PIECE):
            if self._must_pause():
                self._unparsed = data[start:]
                self._pause_reading()
                return
            self._parse(data[start : start + _PIECE])
            if self._is_refused or self.transport.is_closing():
                return

    def _parse(self, piece: bytes) -> None:
        self.conn.receive_data(piece)
        if self.conn.handshake_exc is not None:
            self._refuse_handshake()
        elif self.conn.parser_exc is not None:
            self.handle_parser_exception()
        else:
            self._tiny += max(0.0, len(self.conn.events) - len(piece) / _USUAL)
            self._receiving.add(len(piece))
            self.handle_events()
            if (self._has_reservation or self.frames or self.conn.reader.buffer) and not self._is_refused:
                self._reserve()

    def _must_pause(self) -> bool:
        if not self.handshake_initiated:
            return False
        now = self.loop.time()
        if now - self._second >= 1:
            self._second, self._tiny = now, 0.0
        if self._tiny > _FLOOD:
            if self._pause is None:
                self._pause = self.loop.call_at(self._second + 1, self._end_flood_pause)
            return True
        return bool(self._complete) or not self.queue.empty() or not self.writable.is_set()

    def _end_flood_pause(self) -> None:
        self._pause = None
        self._resume()

    def _pause_reading(self) -> None:
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    def _notify(self) -> None:
        if self._unparsed:
            self._pause_reading()
            self.loop.call_soon(self._resume)

    def _resume(self) -> None:
        if self._is_refused or self.transport.is_closing():
            return
        rest, self._unparsed = self._unparsed, b""
        self._parse_all(rest)
        if self.read_paused and not self._unparsed and not self._complete and self.queue.empty():
            self.read_paused = False
            self.transport.resume_reading()

    async def receive(self) -> Any:
        """The application's next message; parsing of the data after it resumes."""
        if self._pending_size:
            self._pending_size = 0
            self._reserve()
        message = await super().receive()
        self._notify()
        return message

    def handle_connect(self, event: Any) -> None:
        """Handle a handshake."""
        super().handle_connect(event)
        if not self.close_sent:
            offer(self._scope, self._write)

    @property
    def _scope(self) -> dict[str, Any]:
        return cast(dict[str, Any], getattr(self, "scope", {}))  # none if the handshake is refused

    def _write(self, message: bytes) -> bool:
        """Write a text message if that is possible without waiting (`flow.Write`)."""
        if self.disconnected or self.conn.state is not OPEN or not self.writable.is_set():
            return False
        self.conn.send_text(message)
        self.transport.write(b"".join(self.conn.data_to_send()))
        return True

    def handle_ping(self) -> None:
        """Answer a ping, unless the close frame has been sent."""
        if not self._is_refused:
            super().handle_ping()

    def handle_cont(self, event: Frame) -> None:
        """Append the fragment to one buffer: as objects, small fragments would take a hundred times their
        size."""
        if isinstance(event.data, CompressedMessage):
            self.frames = [event.data]
        else:
            if not isinstance(self.frames[0], bytearray):
                self.frames[0] = bytearray(self.frames[0])
            self.frames[0] += event.data
        if event.fin:
            self.send_receive_event_to_app()

    def handle_close(self, event: Frame) -> None:
        """Close, behind the messages that came before."""
        if self._complete:
            self._close_frame = event
        else:
            super().handle_close(event)

    def send_receive_event_to_app(self) -> None:
        """Pass a complete message to the application, behind those that are still inflated."""
        (data,), self.frames = self.frames, []
        self._pause_reading()
        self._complete.append((self.curr_msg_data_type, data))
        if len(self._complete) == 1:
            self._pass_on()

    def _pass_on(self) -> None:
        """Pass on the complete messages. A large one is inflated in several calls of this."""
        while self._complete:
            kind, message = self._complete[0]
            data: bytes | bytearray = message
            if isinstance(message, CompressedMessage):
                if not self._inflate(message):
                    return
                data, self._inflated = self._inflated, bytearray()
            self._complete.popleft()
            self._give(kind, data)
        frame, self._close_frame = self._close_frame, None
        if frame is not None:
            super().handle_close(frame)
        elif self.queue.empty():
            self.loop.call_soon(self._resume)

    def _inflate(self, message: CompressedMessage) -> bool:
        """Continue to inflate this message; return whether it is whole. If it is not, the next step is
        scheduled, or the connection was closed."""
        if self._inflating is None:
            (deflate,) = self._deflates()
            self._inflating = deflate.inflate(message)
        try:
            for piece in self._inflating:
                self._inflated += piece
                if len(self._inflated) > (most := self._registry.largest_message):
                    self._close_with(CloseCode.MESSAGE_TOO_BIG, too_large(most))
                    return False
                if not self._reserve():
                    return False
                if len(piece) == _INFLATED:
                    self.loop.call_soon(self._pass_on)
                    return False
        except zlib.error:
            self._close_with(CloseCode.PROTOCOL_ERROR, None)
            return False
        self._inflating = None
        return True

    def _give(self, kind: str, data: bytes | bytearray) -> None:
        if self.close_sent:
            return
        if len(data) > LARGE:
            self._pending_size = len(data)
            if not self._reserve():
                return
        if kind == "bytes":
            self.queue.put_nowait({"type": "websocket.receive", "bytes": bytes(data)})
        else:
            try:
                text = data.decode()
            except UnicodeDecodeError:
                self._close_with(CloseCode.INVALID_DATA, HttpError(400, "The message is not UTF-8."))
                return
            self.queue.put_nowait({"type": "websocket.receive", "text": text})

    def _reserve(self) -> bool:
        """Reserve memory for the unfinished message and for the one that is handled. Returns whether that was
        possible. Small messages are not counted, as small requests are not."""
        size = self._pending_size + len(self.conn.reader.buffer) + len(self._inflated)
        size += sum(each.waiting for each in self._deflates())
        size += sum(len(message) for _, message in self._complete)
        if self.frames:
            size += len(self.frames[0])
        if size <= LARGE and not self._has_reservation:
            return True
        reservation: Reservation | None = self._scope.get("state", {}).get(SOCKET_RESERVATION)
        if reservation is None:  # the handshake is not answered yet
            return True
        try:
            reservation.resize(size if size > LARGE else 0)
        except HttpError as error:
            self._close_with(CloseCode.TRY_AGAIN_LATER, error)
            return False
        self._has_reservation = size > LARGE
        return True

    def _deflates(self) -> list[WholeMessageDeflate]:
        return [each for each in self.conn.extensions if isinstance(each, WholeMessageDeflate)]

    def _discard(self) -> None:
        """Discard everything that was received."""
        self._unparsed, self.frames, self._pending_size = b"", [], 0
        self._complete.clear()
        self._inflating, self._inflated, self._close_frame = None, bytearray(), None
        self.conn.reader.buffer.clear()
        for each in self._deflates():
            each.discard()
        if self._has_reservation:
            self._has_reservation = False
            self._scope["state"][SOCKET_RESERVATION].release()

    def handle_parser_exception(self) -> None:
        """Handle a violation of the protocol or of a limit."""
        is_large = isinstance(self.conn.parser_exc, PayloadTooBig)
        self._close_with(None, too_large(self._registry.largest_message) if is_large else None)

    def _refuse_handshake(self) -> None:
        self._registry.refused("handshake_refused")
        self.handshake_complete = self.close_sent = True
        self.transport.write(error_response(_UNREADABLE, b"", self.default_headers))
        self.transport.close()

    def _close_with(self, code: CloseCode | None, error: HttpError | None) -> None:
        """Send the error, close, and accept nothing more. Without a code the library has chosen its own."""
        last = b""
        if error is not None:
            self._registry.refused(error.code)
            last = Frame(Opcode.TEXT, envelope(error)).serialize(mask=False)
        if code is not None and self.conn.state is OPEN:
            self.conn.fail(code, error.code if error is not None else "")
        sent = self.conn.close_sent
        self.queue.put_nowait({"type": "websocket.disconnect", "code": sent.code if sent else 1006})
        self.stop_keepalive()
        self.close_sent = self._is_refused = True
        self.close_timer = self.loop.call_later(_LINGER, self.transport.close)
        self._discard()
        self.transport.write(last + b"".join(self.conn.data_to_send()))
        self.transport.write_eof()
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()

    def check_timeouts(self, now: float) -> None:
        """End what exceeds its timeout."""
        if not self.writable.is_set() or self.transport.is_closing():
            if self._sending.is_stuck(now):
                self._registry.refused("client_takes_nothing")
                cut_off(self.transport)
        elif self._is_refused or self.read_paused:
            self._unfinished = False
        elif self.frames or self.conn.reader.buffer or self.conn.cur_size is not None:
            if not self._unfinished:
                self._unfinished = True
                self._receiving.begin(now)
            elif self._receiving.is_slow(now):
                self._close_with(CloseCode.POLICY_VIOLATION, _TOO_SLOW)
        else:
            self._unfinished = False

    def retire(self) -> None:
        """Do nothing: the application closes the connection between two turns."""

    def close_if_idle(self) -> bool:
        """False: a WebSocket is never closed for another connection."""
        return False

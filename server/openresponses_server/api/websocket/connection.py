"""`GET /v1/responses`: the WebSocket transport."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from openresponses_bridge.errors import BridgeError, InvalidRequestError, WireError
from openresponses_bridge.protocol.codec import encode, request_object
from openresponses_bridge.protocol.request import FailedSteer, ResponseSteerFailed, SteerError
from openresponses_server.api.websocket.memory import ConnectionMemory
from openresponses_server.api.websocket.turns import Send, TurnRunner
from openresponses_server.errors import HttpError, error_body, shutting_down
from openresponses_server.http.direct_writes import Write, offered
from openresponses_server.http.refusals import BUSY, envelope, limit_reached, too_large, with_stream_id
from openresponses_server.limits.memory import RECEIVED, SOCKET_RESERVATION, Reservation
from openresponses_server.requests.bodies import decode_body
from openresponses_server.requests.service import Service
from openresponses_server.settings import Limits
from openresponses_server.tasks import LARGE

# The head of a client's message, which is decoded before the whole message.

CREATE: Final = "response.create"
CANCEL: Final = "response.cancel"
STEER: Final = "response.steer"
PROCESSED: Final = "response.processed"
LONGEST_STREAM_ID: Final = 64  # characters
_NOT_SUPPORTED: Final = (
    "steering_not_supported",
    "Responses can't be steered here. Cancel the response, or send the input when it has ended.",
)
_INVALID: Final = ("invalid_input", "`previous_response_id` must be a string, and `input` is required.")


class MessageHead(Struct, frozen=True):
    """The fields that route a message of any type."""

    type: Any = None
    stream_id: Any = None
    response_id: Any = None

    @property
    def lane(self) -> str | None:
        """The name of its lane, None for the one without a name. Raises InvalidRequestError."""
        name = self.stream_id
        if name is None or (isinstance(name, str) and 0 < len(name) <= LONGEST_STREAM_ID):
            return name
        what = f"stream_id: expected a string of 1 to {LONGEST_STREAM_ID} characters"
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param="stream_id")


_head: Final = msgspec.json.Decoder(MessageHead)
_BROKEN: Final = MessageHead(CREATE)  # decoding the whole message then reports the error


async def read_head(message: str | bytes, limits: Limits) -> MessageHead:
    """Decode the head; a message that can't be decoded gets the head of a `response.create`."""
    try:
        return await decode_body(message, limits, _head.decode)
    except (msgspec.MsgspecError, UnicodeError, WireError, InvalidRequestError, RecursionError):
        return _BROKEN


async def steer_failed(message: str | bytes, limits: Limits, number: int) -> ResponseSteerFailed:
    """The event that refuses a `response.steer`. It returns the input, so that the client can send it
    later. Raises InvalidRequestError for a message that is not JSON: its head alone does not show that."""
    given = await decode_body(message, limits, request_object)
    previous_id = given.get("previous_response_id")
    valid = isinstance(previous_id, str) and "input" in given
    code, what = _NOT_SUPPORTED if valid else _INVALID
    steer = FailedSteer(previous_id, given.get("input"))
    return ResponseSteerFailed(SteerError(code=code, message=what), steer, number)


# A connection has a lane for each `stream_id`: its turns are sequential, lanes are concurrent. Turns without
# a `stream_id` share one lane, which refuses a message during a turn. Lanes, concurrent turns, waiting
# messages and their bytes are limited.

LANES: Final = 32
ACTIVE: Final = 16
WAITING: Final = 16
_TOO_MANY_LANES: Final = HttpError(
    429,
    f"{LANES} streams of this connection have turns in progress, which is the limit. Wait for one to end.",
    code="too_many_streams",
)
_TOO_MANY_WAITING: Final = HttpError(
    429,
    f"{WAITING} messages wait in this stream, which is the limit.",
    code="too_many_waiting",
)


class Lane:
    """A sequence of turns. `waiting` are the messages of those that have not begun."""

    def __init__(
        self, service: Service, headers: Mapping[str, str], owner: str, send: Send, write: Write
    ) -> None:
        self.memory = ConnectionMemory(service.available, owner)
        self.turns = TurnRunner(service, headers, owner, send, write, self.memory)
        self.waiting: deque[tuple[str | bytes, Reservation]] = deque()

    @property
    def busy(self) -> bool:
        """Whether a turn is under way or waits."""
        return self.turns.busy or bool(self.waiting)

    async def close(self) -> None:
        """The client has left."""
        self.waiting.clear()
        await self.turns.close()


class Lanes:
    """The lanes of one connection. `write` sends only what can be sent without waiting; `received` is the
    memory reserved for the message that is being handled; `after_turn` is called after each turn."""

    def __init__(
        self,
        service: Service,
        headers: Mapping[str, str],
        owner: str,
        received: Reservation,
        send: Send,
        write: Write,
        after_turn: Callable[[], Awaitable[None]],
    ) -> None:
        self._service = service
        self._headers = headers
        self._owner = owner
        self._received = received
        self._send = send
        self._write = write
        self._after_turn = after_turn
        self._sending = anyio.Lock(fast_acquire=True)
        self._active = anyio.Semaphore(ACTIVE, fast_acquire=True)
        self._lanes: OrderedDict[str | None, Lane] = OrderedDict()
        self._answers = 0

    @property
    def busy(self) -> bool:
        """Whether a turn is under way in any lane, or waits."""
        return any(lane.busy for lane in self._lanes.values())

    async def handle_message(self, message: str | bytes, turns: TaskGroup) -> None:
        """Handle one message; its turn runs in a task of `turns`."""
        limits = self._service.settings.limits
        try:
            head = await read_head(message, limits)
            name = head.lane
            steer = await steer_failed(message, limits, self._answers) if head.type == STEER else None
        except BridgeError as error:
            await self._send_in_order(envelope(error))
            return
        if head.type == CANCEL:
            self._cancel(name, head)
        elif steer is not None:
            self._answers += 1
            await self._send_in_order(encode(steer))
        elif head.type != PROCESSED:
            await self._begin(name, message, turns)

    async def close(self) -> None:
        """The client has left."""
        for lane in self._lanes.values():
            await lane.close()

    def _cancel(self, name: str | None, head: MessageHead) -> None:
        """Cancel the lane's current turn. When there is none, nothing is sent: the message may have crossed
        the turn's end, and a reply would be mistaken for the next turn's."""
        lane = self._lanes.get(name)
        if lane is not None:
            lane.turns.cancel(head.response_id if isinstance(head.response_id, str) else None)

    async def _begin(self, name: str | None, message: str | bytes, turns: TaskGroup) -> None:
        lane = self._lane(name)
        try:
            if lane is None:
                raise _TOO_MANY_LANES
            if name is None and lane.busy:
                raise BUSY
            self._queue(lane, message)
        except BridgeError as error:
            await self._sender(name)(envelope(error))
            return
        assert lane is not None
        self._start_next(lane, turns)

    def _queue(self, lane: Lane, message: str | bytes) -> None:
        if len(lane.waiting) >= WAITING:
            raise _TOO_MANY_WAITING
        reservation = self._service.available.budget.reserve(self._owner)
        self._received.release()
        if lane.busy or len(message) > LARGE:
            reservation.grow(len(message))
        lane.waiting.append((message, reservation))

    def _start_next(self, lane: Lane, turns: TaskGroup) -> None:
        """Start the lane's next turn, if none is running. The previous one has sent its last message, but may
        not have returned."""
        if lane.waiting and not lane.turns.busy:
            lane.turns.begin(partial(self._start_next, lane, turns))
            turns.start_soon(self._turn, lane, *lane.waiting.popleft())

    async def _turn(self, lane: Lane, message: str | bytes, reservation: Reservation) -> None:
        async with self._active:  # first in, first out
            RECEIVED.set(reservation)
            try:
                await lane.turns.run_turn(message, [each.memory for each in self._lanes.values()])
            finally:
                reservation.release()
        await self._after_turn()

    def _lane(self, name: str | None) -> Lane | None:
        """The lane of this name, moved to the end; None at the limit. A new lane evicts the longest idle one,
        with its memory."""
        lane = self._lanes.get(name)
        if lane is None:
            if len(self._lanes) >= LANES:
                idle = next((key for key, each in self._lanes.items() if not each.busy), name)
                if idle == name:
                    return None
                self._lanes.pop(idle).memory.close()
            lane = self._lanes[name] = Lane(
                self._service, self._headers, self._owner, self._sender(name), self._writer(name)
            )
        self._lanes.move_to_end(name)
        return lane

    def _sender(self, name: str | None) -> Send:
        if name is None:
            return self._send_in_order
        stream_id = name

        async def send(data: bytes) -> None:
            await self._send_in_order(with_stream_id(data, stream_id))

        return send

    def _writer(self, name: str | None) -> Write:
        def write(data: bytes) -> bool:
            return not self._sending.locked() and self._write(
                data if name is None else with_stream_id(data, name)
            )

        return write

    async def _send_in_order(self, data: bytes) -> None:
        """Send one message at a time."""
        async with self._sending:
            await self._send(data)


_NO_UPGRADE: Final = HttpError(
    426,
    "GET /v1/responses is the WebSocket transport: ask for an upgrade, or POST the request.",
    code="upgrade_required",
    headers={"upgrade": "websocket", "connection": "Upgrade"},
)
_LIMIT_CLOSE: Final = 1000  # RFC 6455: the connection has fulfilled its purpose
_RESTART_CLOSE: Final = 1012  # IANA's registry: the service restarts


async def upgrade_required(_request: Request) -> Response:
    """The same path without an upgrade (field case 44)."""
    raise _NO_UPGRADE


async def responses(socket: WebSocket) -> None:
    """Serve a WebSocket until the client disconnects or the connection's time limit is reached."""
    service: Service = socket.app.state.service
    try:
        async with service.gate.sockets.shared(socket.state.owner):
            socket.scope["state"][SOCKET_RESERVATION] = service.available.budget.reserve(socket.state.owner)
            await socket.accept()
            await ResponsesWebSocket(socket, service).serve()
    except HttpError as error:
        if socket.application_state is not WebSocketState.CONNECTING:
            raise
        body = error_body(error)
        await socket.send_denial_response(
            Response(body, error.http_status, error.headers, "application/json")
        )


class ResponsesWebSocket:
    """One accepted WebSocket. It always receives, so that a disconnect cancels the turns at once."""

    def __init__(self, socket: WebSocket, service: Service) -> None:
        self._socket = socket
        self._settings = service.settings
        self._lanes = Lanes(
            service,
            socket.headers,
            socket.state.owner,
            socket.scope["state"][SOCKET_RESERVATION],
            self._send,
            offered(socket.scope),
            self._after_turn,
        )
        self._gate = service.gate
        self._deadline = anyio.current_time() + service.settings.websocket_limit
        self._receiving = anyio.CancelScope()
        self._expired = False
        self._ended = False
        self._reason = limit_reached(service.settings.websocket_limit)
        """Why messages are refused after the deadline."""

    async def serve(self) -> None:
        """Serve until either side closes the connection."""
        try:
            with self._gate.on_leaving(self._leave):
                async with anyio.create_task_group() as turns:
                    await self._listen(turns)
                    turns.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self._lanes.close()

    async def _listen(self, turns: TaskGroup) -> None:
        while True:
            message = await self._receive()
            if message is None:
                if not self._lanes.busy:
                    await self._end()
                    return
            elif message["type"] == "websocket.disconnect":
                return
            else:
                await self._handle_message(message, turns)

    async def _receive(self) -> Message | None:
        """The next message, None when the connection's time is over."""
        if self._expired:
            return await self._socket.receive()
        with anyio.CancelScope(deadline=self._deadline) as self._receiving:
            return await self._socket.receive()
        self._expired = True
        return None

    def _leave(self) -> None:
        """The server drains: the current turns are the last ones."""
        if not self._expired:
            self._reason = shutting_down()
            self._deadline = -math.inf
            self._receiving.cancel()

    async def _handle_message(self, message: Message, turns: TaskGroup) -> None:
        text = message.get("text")
        data = message["bytes"] if text is None else text
        refused = self._check_message(data)
        if refused is not None:
            await self._send(envelope(refused))
        else:
            await self._lanes.handle_message(data, turns)

    def _check_message(self, data: str | bytes) -> BridgeError | None:
        """Why a message is refused regardless of its content; None when it is accepted."""
        limit = self._settings.max_body_bytes
        if len(data) > limit or (isinstance(data, str) and not data.isascii() and len(data.encode()) > limit):
            return too_large(limit)
        return self._reason if self._expired else None

    async def _after_turn(self) -> None:
        if self._expired and not self._lanes.busy and not self._ended:
            await self._end()

    async def _end(self) -> None:
        self._ended = True
        await self._send(envelope(self._reason))
        with suppress(WebSocketDisconnect, OSError):
            await self._socket.close(_RESTART_CLOSE if self._gate.leaving else _LIMIT_CLOSE)

    async def _send(self, data: bytes) -> None:
        """Send a message; a disconnect is ignored here and noticed by `_listen`."""
        with suppress(WebSocketDisconnect, OSError):
            await self._socket.send({"type": "websocket.send", "text": data.decode()})

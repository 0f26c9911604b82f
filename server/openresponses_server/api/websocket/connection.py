"""`GET /v1/responses`: the WebSocket transport."""

from __future__ import annotations

import math
import secrets
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

import anyio
import msgspec
from anyio import CancelScope
from anyio.abc import TaskGroup
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from openresponses_bridge.calls.answered import BY_CLIENT, CLIENT_ANSWERS
from openresponses_bridge.errors import BridgeError, InvalidRequestError, WireError
from openresponses_bridge.protocol.codec import encode, request_object
from openresponses_bridge.protocol.request import (
    AcceptedSteer,
    FailedSteer,
    InjectError,
    ResponseInjectFailed,
    ResponseSteerAccepted,
    ResponseSteerFailed,
    ResponseSteerPending,
    SteerError,
)
from openresponses_bridge.protocol.unknown import enc_hook
from openresponses_server.api.websocket.memory import ConnectionMemory
from openresponses_server.api.websocket.turns import Send, TurnRunner
from openresponses_server.errors import HttpError, error_body, shutting_down
from openresponses_server.http.flow import Write, offered
from openresponses_server.http.refusals import busy, envelope, limit_reached, too_large, with_stream_id
from openresponses_server.limits.memory import RECEIVED, SOCKET_RESERVATION, Reservation
from openresponses_server.requests.bodies import decode_body
from openresponses_server.requests.service import Service
from openresponses_server.settings import Limits
from openresponses_server.tasks import LARGE

# The head of a client's message, which is decoded before the whole message.

CREATE: Final = "response.create"
CANCEL: Final = "response.cancel"
STEER: Final = "response.steer"
INJECT: Final = "response.inject"
PROCESSED: Final = "response.processed"
LONGEST_STREAM_ID: Final = 64  # characters
PENDING_STEERS: Final = 8
# why input for a response is refused or could not be sent: code, message
_INVALID: Final = (
    "invalid_input",
    "`previous_response_id` must be a string, `input` a text or messages of the user's.",
)
_NOT_FOUND: Final = ("response_not_found", "No response of this connection has this id.")
_COMPLETED: Final = ("response_already_completed", "The response has ended: send the input in a new request.")
_NOT_WAITING: Final = (
    "response_not_found",
    "No agent of this response waits for input: send it when the response has ended, in a new request.",
)
_NOT_ACTIVE: Final = (
    "response_not_active",
    "The response did not end with an answer, or another turn came first.",
)
_NOT_SUPPORTED: Final = (
    "steering_not_supported",
    "A response that compacts its conversation can't be steered.",
)
_TOO_MANY_STEERS: Final = ("too_many_pending_steers", f"{PENDING_STEERS} inputs wait, which is the limit.")
_NO_SUCCESSOR: Final = ("successor_creation_failed", "The response with this input was refused.")
_PARTS: Final = frozenset({"input_text", "input_image", "input_file"})


class MessageHead(Struct, frozen=True):
    """The fields that route a message of any type."""

    type: Any = None
    stream_id: Any = None
    response_id: Any = None

    @property
    def lane(self) -> str | None:
        """The name of the message's lane; None for the lane without a name. Raises InvalidRequestError."""
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


class PendingSteer(Struct, frozen=True):
    """Accepted input: as it was received, as messages, and the memory that is reserved for it."""

    steer: AcceptedSteer
    input: Any
    messages: list[dict[str, Any]]
    reservation: Reservation


def steering_messages(raw_input: Any) -> list[dict[str, Any]] | None:
    """Return the input of a `response.steer` as messages; None if it is not the user's."""
    if isinstance(raw_input, str):
        return [{"type": "message", "role": "user", "content": raw_input}] if raw_input else None
    if not isinstance(raw_input, list) or not raw_input or not all(map(_is_of_user, raw_input)):
        return None
    return [{**message, "type": "message"} for message in raw_input]


def _is_of_user(message: Any) -> bool:
    if not isinstance(message, dict) or message.get("type", "message") != "message":
        return False
    content = message.get("content")
    if isinstance(content, list):
        kinds = [part.get("type") if isinstance(part, dict) else None for part in content]
        return message.get("role") == "user" and bool(kinds) and _PARTS.issuperset(kinds)
    return message.get("role") == "user" and isinstance(content, str)


def required_input(output: list[Any]) -> list[dict[str, Any]]:
    """Return the items, without the outputs, with which the client has to answer the calls of a response."""
    items = [msgspec.to_builtins(item, enc_hook=enc_hook) for item in output]
    answered = {item.get("call_id") for item in items if item["type"].endswith("_output")}
    answers = []
    for item in items:
        kind = item["type"].rpartition(":")[2]
        if kind == "mcp_approval_request":
            answers.append({"type": "mcp_approval_response", "approval_request_id": item["id"]})
        elif kind in CLIENT_ANSWERS and item.get("call_id") not in answered:
            names = {"name": item.get("name")} if kind == "function_call" else {}
            if kind == "tool_search_call":
                if item.get("execution") != BY_CLIENT:
                    continue
                names = {"execution": BY_CLIENT}
            answers.append({"type": CLIENT_ANSWERS[kind], "call_id": item.get("call_id"), **names})
    return answers


# A connection has a lane for each `stream_id`: its turns are sequential, lanes are concurrent. Turns without
# a `stream_id` share one lane, which refuses a message during a turn. Lanes, concurrent turns, waiting
# messages and their bytes are limited.

LANES: Final = 32
ACTIVE: Final = 16
WAITING: Final = 16


def _too_many_lanes() -> HttpError:
    """Return the error for a connection on which every stream has turns in progress."""
    return HttpError(
        429,
        f"{LANES} streams of this connection have turns in progress, which is the limit. "
        "Wait for one to end.",
        code="too_many_streams",
    )


def _too_many_waiting() -> HttpError:
    """Return the error for a stream in which as many messages wait as may."""
    return HttpError(
        429,
        f"{WAITING} messages wait in this stream, which is the limit.",
        code="too_many_waiting",
    )


class Lane:
    """A sequence of turns. `waiting` has the messages of turns that have not begun, with None for a turn that
    sends the input which was received during the response before it. Of that input, `steers` waits for the
    end of the response, `held` for the client's outputs, and `sent` is part of the turn that has begun."""

    def __init__(
        self, service: Service, headers: Mapping[str, str], owner: str, send: Send, write: Write
    ) -> None:
        self.send = send
        self.steers: list[PendingSteer] = []
        self.held: list[PendingSteer] = []
        self.sent: list[PendingSteer] = []
        self.memory = ConnectionMemory(service.available, owner)
        self.turns = TurnRunner(service, headers, owner, send, write, self.memory)
        self.waiting: deque[tuple[str | bytes | None, Reservation]] = deque()

    @property
    def busy(self) -> bool:
        """True if a turn is under way or waits."""
        return self.turns.busy or bool(self.waiting)

    async def close(self) -> None:
        """Release everything, since the client has disconnected."""
        self.waiting.clear()
        for each in (*self.steers, *self.held, *self.sent):
            each.reservation.release()
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
        self._scopes: set[CancelScope] = set()
        self._has_left = False

    @property
    def busy(self) -> bool:
        """True if a turn is under way in any lane, or waits."""
        return any(lane.busy for lane in self._lanes.values())

    async def handle_message(self, message: str | bytes, turns: TaskGroup) -> None:
        """Handle one message; its turn runs in a task of `turns`."""
        limits = self._service.settings.limits
        try:
            head = await read_head(message, limits)
            name = head.lane
            if head.type == STEER:
                await self._steer(message)
                return
            if head.type == INJECT:
                await self._inject(message)
                return
        except BridgeError as error:
            await self._send_in_order(envelope(error))
            return
        if head.type == CANCEL:
            self._cancel(name, head)
        elif head.type != PROCESSED:
            await self._begin(name, message, turns)

    async def close(self) -> None:
        """Close all lanes, since the client has disconnected."""
        for lane in self._lanes.values():
            await lane.close()
        self._lanes.clear()  # their functions refer to this object

    def _cancel(self, name: str | None, head: MessageHead) -> None:
        """Cancel the lane's current turn. If there is none, nothing is sent: the message may have crossed the
        turn's end, and a reply would be mistaken for the next turn's."""
        lane = self._lanes.get(name)
        if lane is not None:
            lane.turns.cancel(head.response_id if isinstance(head.response_id, str) else None)

    async def _steer(self, message: str | bytes) -> None:
        """Accept input for the response that a lane is making, or refuse it. Raises InvalidRequestError for a
        message that is not JSON: its head alone does not show that."""
        fields = await decode_body(message, self._service.settings.limits, request_object)
        response_id, raw_input = fields.get("previous_response_id"), fields.get("input")
        messages = steering_messages(raw_input)
        lanes = [
            each for each in self._lanes.values() if response_id and each.turns.response_id == response_id
        ]
        lane = next((each for each in lanes if each.turns.running), lanes[0] if lanes else None)
        refusal = None
        if not isinstance(response_id, str) or messages is None:
            refusal, lane = _INVALID, None
        elif lane is None:
            refusal = _NOT_FOUND
        elif not lane.turns.running:
            refusal = _COMPLETED
        elif not lane.turns.steerable:
            refusal = _NOT_SUPPORTED
        elif len(lane.steers) >= PENDING_STEERS:
            refusal = _TOO_MANY_STEERS
        if refusal is not None or lane is None or messages is None or response_id is None:
            send = self._send_in_order if lane is None else lane.send
            await self._send_failed(send, FailedSteer(response_id, raw_input), refusal or _INVALID)
            return
        reservation = Reservation(self._service.available.budget, self._owner)
        reservation.grow(len(message))
        steer = AcceptedSteer(f"steer_{secrets.token_hex(12)}", response_id)
        lane.steers.append(PendingSteer(steer, raw_input, messages, reservation))
        await lane.send(encode(ResponseSteerAccepted(steer, self._next_answer())))

    async def _inject(self, message: str | bytes) -> None:
        """Give the items back; their client then sends them in another request, since no response that is
        made here has agents that wait. Raises InvalidRequestError for a message that is not JSON."""
        fields = await decode_body(message, self._service.settings.limits, request_object)
        response_id = fields.get("response_id")
        named = [
            each for each in self._lanes.values() if response_id and each.turns.response_id == response_id
        ]
        refusal = _NOT_FOUND
        if named:
            refusal = _NOT_WAITING if any(each.turns.running for each in named) else _COMPLETED
        failed = ResponseInjectFailed(
            InjectError(*refusal), fields.get("input"), response_id, self._next_answer()
        )
        await (named[0].send if named else self._send_in_order)(encode(failed))

    def _next_answer(self) -> int:
        self._answers += 1
        return self._answers - 1

    async def _send_failed(self, send: Send, steer: FailedSteer, refusal: tuple[str, str]) -> None:
        error = SteerError(code=refusal[0], message=refusal[1])
        await send(encode(ResponseSteerFailed(error, steer, self._next_answer())))

    async def _give_back(self, lane: Lane, steers: list[PendingSteer], refusal: tuple[str, str]) -> None:
        """Return accepted input that could not be sent."""
        for each in steers:
            each.reservation.release()
            failed = FailedSteer(each.steer.previous_response_id, each.input, each.steer.id)
            await self._send_failed(lane.send, failed, refusal)

    async def _announce(self, lane: Lane, required: list[dict[str, Any]]) -> None:
        for each in list(lane.held):
            pending = ResponseSteerPending(each.steer, required, self._next_answer())
            await lane.send(encode(pending))

    def _settle(self, lane: Lane, turns: TaskGroup) -> None:
        """Handle the end of the lane's response: the input that was received meanwhile is sent to the model
        in a turn of its own, waits for the client's outputs, or is given back."""
        steers, lane.steers = lane.steers, []
        ended = lane.turns.ended
        if ended is None or ended.status != "completed":
            self._start(turns, self._give_back, lane, steers, _NOT_ACTIVE)
        elif required := required_input(ended.output):
            lane.held = steers
            self._start(turns, self._announce, lane, required)
        else:
            lane.sent = steers
            lane.waiting.appendleft((None, Reservation(self._service.available.budget, self._owner)))

    async def _message_of(self, lane: Lane, message: str | bytes | None) -> str | bytes:
        """Return the message of the lane's next turn, with the input that was received before it."""
        limits = self._service.settings.limits
        if message is None:
            assert lane.turns.message is not None
            before: dict[str, Any] = {}  # refused, as is one that can't be read while the server stops
            with suppress(BridgeError):
                before = await decode_body(lane.turns.message, limits, request_object)
            messages = [each for steer in lane.sent for each in steer.messages]
            link = {} if before.get("conversation") else {"previous_response_id": lane.turns.response_id}
            return encode(before | link | {"input": messages})
        if not lane.held:
            return message
        steers, lane.held = lane.held, []
        value: dict[str, Any] = {}
        with suppress(BridgeError):
            value = await decode_body(message, limits, request_object)
        continues = steers[0].steer.previous_response_id
        if value.get("previous_response_id") != continues:
            await self._give_back(lane, steers, _NOT_ACTIVE)
            return message
        lane.sent = steers
        new_input = value.get("input")
        if isinstance(new_input, str):
            new_input = [{"type": "message", "role": "user", "content": new_input}]
        messages = [each for steer in steers for each in steer.messages]
        if not isinstance(new_input, list | None):
            return message  # it is refused
        return encode(value | {"input": [*messages, *(new_input or ())]})

    async def _begin(self, name: str | None, message: str | bytes, turns: TaskGroup) -> None:
        lane = self._lane(name, turns)
        try:
            if lane is None:
                raise _too_many_lanes()
            if name is None and lane.busy:
                raise busy()
            self._queue(lane, message)
        except BridgeError as error:
            await self._sender(name)(envelope(error))
            return
        assert lane is not None
        self._start_next(lane, turns)

    def _queue(self, lane: Lane, message: str | bytes) -> None:
        if len(lane.waiting) >= WAITING:
            raise _too_many_waiting()
        reservation = Reservation(self._service.available.budget, self._owner)
        self._received.release()
        if lane.busy or len(message) > LARGE:
            reservation.grow(len(message))
        lane.waiting.append((message, reservation))

    def _start_next(self, lane: Lane, turns: TaskGroup) -> None:
        """Start the lane's next turn, if none is running. The previous one has sent its last message, but may
        not have returned."""
        if lane.steers and not lane.turns.busy:
            self._settle(lane, turns)
        if lane.waiting and not lane.turns.busy:
            lane.turns.begin(partial(self._start_next, lane, turns))
            self._start(turns, self._turn, lane, *lane.waiting.popleft())

    def _start(self, turns: TaskGroup, work: Callable[..., Awaitable[object]], *args: Any) -> None:
        scope = CancelScope()
        if self._has_left:
            scope.cancel()
        self._scopes.add(scope)
        turns.start_soon(self._run, scope, partial(work, *args))

    async def _run(self, scope: CancelScope, work: Callable[[], Awaitable[object]]) -> None:
        try:
            with scope:
                await work()
        finally:
            self._scopes.discard(scope)

    def cancel_turns(self) -> None:
        """Cancel the tasks that run, and those that are started from now on. Each task has a scope of its
        own, in which it ends without an error: the objects of a task that its group cancels stay until the
        next garbage collection."""
        self._has_left = True
        for scope in self._scopes:
            scope.cancel()

    async def _turn(self, lane: Lane, data: str | bytes | None, reservation: Reservation) -> None:
        async with self._active:  # first in, first out
            RECEIVED.set(reservation)
            message, sent = data, list[PendingSteer]()
            try:
                if data is None or lane.held:
                    message = await self._message_of(lane, data)
                sent, lane.sent = lane.sent, []
                memories = [each.memory for each in self._lanes.values()]
                assert message is not None
                created = await lane.turns.run_turn(message, memories, refusal_is_sent=data is not None)
                if not created:
                    await self._give_back(lane, sent, _NO_SUCCESSOR)
            finally:
                for each in sent:
                    each.reservation.release()
                reservation.release()
                if lane.turns.message is message and not (lane.waiting and lane.waiting[0][0] is None):
                    lane.turns.message = None
        await self._after_turn()

    def _lane(self, name: str | None, turns: TaskGroup) -> Lane | None:
        """The lane of this name, moved to the end; None at the limit. A new lane evicts the longest idle one,
        with its memory; input that still waits there is given back."""
        lane = self._lanes.get(name)
        if lane is None:
            if len(self._lanes) >= LANES:
                idle = next((key for key, each in self._lanes.items() if not each.busy), name)
                if idle == name:
                    return None
                evicted = self._lanes.pop(idle)
                evicted.memory.close()
                steers, evicted.held = evicted.held, []
                self._start(turns, self._give_back, evicted, steers, _NOT_ACTIVE)
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


def _no_upgrade() -> HttpError:
    """Return the error for a WebSocket that was requested without an upgrade."""
    return HttpError(
        426,
        "GET /v1/responses is the WebSocket transport: ask for an upgrade, or POST the request.",
        code="upgrade_required",
        headers={"upgrade": "websocket", "connection": "Upgrade"},
    )


_LIMIT_CLOSE: Final = 1000  # RFC 6455: the connection has fulfilled its purpose
_RESTART_CLOSE: Final = 1012  # IANA's registry: the service restarts


async def upgrade_required(_request: Request) -> Response:
    """Refuse a request for the WebSocket's path without an upgrade (field case 44)."""
    raise _no_upgrade()


async def responses(socket: WebSocket) -> None:
    """Serve a WebSocket until the client disconnects or the connection's time limit is reached."""
    service: Service = socket.app.state.service
    try:
        async with service.gate.sockets.shared(socket.state.owner):
            socket.scope["state"][SOCKET_RESERVATION] = Reservation(
                service.available.budget, socket.state.owner
            )
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
        self._receiving = CancelScope()
        self._expired = False
        self._ended = False
        self._reason = limit_reached(service.settings.websocket_limit)
        """The error with which messages are refused after the deadline."""

    async def serve(self) -> None:
        """Serve until either side closes the connection."""
        try:
            with self._gate.on_leaving(self._leave):
                async with anyio.create_task_group() as turns:
                    await self._listen(turns)
                    self._lanes.cancel_turns()
        finally:
            with CancelScope(shield=True):
                await self._lanes.close()
            del self._lanes  # it refers to this object

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
        """Return the next message; None when the connection's time is over."""
        if self._expired:
            return await self._socket.receive()
        with CancelScope(deadline=self._deadline) as self._receiving:
            return await self._socket.receive()
        self._expired = True
        return None

    def _leave(self) -> None:
        """Accept no more turns than the current ones, since the server drains."""
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
        """Return the reason for which a message is refused regardless of its content; None if it is
        accepted."""
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
        if self._socket.application_state is WebSocketState.CONNECTED:
            with suppress(WebSocketDisconnect, OSError):
                await self._socket.close(_RESTART_CLOSE if self._gate.leaving else _LIMIT_CLOSE)

    async def _send(self, data: bytes) -> None:
        """Send a message. A disconnect is ignored here and noticed by `_listen`."""
        # after a message that could not be sent, Starlette raises RuntimeError for any other
        if self._socket.application_state is WebSocketState.CONNECTED:
            with suppress(WebSocketDisconnect, OSError):
                await self._socket.send({"type": "websocket.send", "text": data.decode()})

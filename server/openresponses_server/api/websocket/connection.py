"""`GET /v1/responses`: the WebSocket transport."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Final

import anyio
from anyio.abc import TaskGroup
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from openresponses_bridge.errors import BridgeError
from openresponses_server.api.websocket.lanes import Lanes
from openresponses_server.budget import OF_SOCKET
from openresponses_server.errors import HttpError, error_body, shutting_down
from openresponses_server.http.direct_writes import offered
from openresponses_server.http.envelopes import envelope, limit_reached, too_large
from openresponses_server.requests.service import Service

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
    """Messages `response.create`, in each lane one turn at a time, until the client leaves or the limit is
    reached."""
    service: Service = socket.app.state.service
    try:
        async with service.gate.sockets.shared(socket.state.owner):
            socket.scope["state"][OF_SOCKET] = service.room.budget.hold(socket.state.owner)
            await socket.accept()
            await Connection(socket, service).serve()
    except HttpError as error:
        if socket.application_state is not WebSocketState.CONNECTING:
            raise
        body = error_body(error)
        await socket.send_denial_response(
            Response(body, error.http_status, error.headers, "application/json")
        )


class Connection:
    """One accepted WebSocket. It listens all the time, so that a client's leaving ends its turn at once."""

    def __init__(self, socket: WebSocket, service: Service) -> None:
        self._socket = socket
        self._settings = service.settings
        self._lanes = Lanes(
            service,
            socket.headers,
            socket.state.owner,
            socket.scope["state"][OF_SOCKET],
            self._send,
            offered(socket.scope),
            self._after_turn,
        )
        self._gate = service.gate
        self._ends_at = anyio.current_time() + service.settings.websocket_limit
        self._waiting = anyio.CancelScope()
        self._expired = False
        self._ended = False
        self._reason = limit_reached(service.settings.websocket_limit)
        """Why it takes no more messages, once its time is over."""

    async def serve(self) -> None:
        """Until it is closed, by whomever."""
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
                await self._take(message, turns)

    async def _receive(self) -> Message | None:
        """The next message, None when the connection's time is over."""
        if self._expired:
            return await self._socket.receive()
        with anyio.CancelScope(deadline=self._ends_at) as self._waiting:
            return await self._socket.receive()
        self._expired = True
        return None

    def _leave(self) -> None:
        """The server is to leave: the turn that is under way is the last one."""
        if not self._expired:
            self._reason = shutting_down()
            self._ends_at = -math.inf
            self._waiting.cancel()

    async def _take(self, message: Message, turns: TaskGroup) -> None:
        text = message.get("text")
        data = message["bytes"] if text is None else text
        refused = self._refusal(data)
        if refused is not None:
            await self._send(envelope(refused))
        else:
            await self._lanes.take(data, turns)

    def _refusal(self, data: str | bytes) -> BridgeError | None:
        """What keeps a message from being taken, whatever it says."""
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
        """A client that has left is sent nothing; `_listen` finds out that it has."""
        with suppress(WebSocketDisconnect, OSError):
            await self._socket.send({"type": "websocket.send", "text": data.decode()})

"""`GET /v1/responses`: the WebSocket transport."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import anyio
from anyio.abc import TaskGroup
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from bridge.errors import BridgeError
from server.errors import HttpError, error_body
from server.service import Service
from server.websocket.envelopes import BUSY, envelope, limit_reached, too_large
from server.websocket.turns import Turns

_NO_UPGRADE: Final = HttpError(
    426,
    "GET /v1/responses is the WebSocket transport: ask for an upgrade, or POST the request.",
    code="upgrade_required",
    headers={"upgrade": "websocket", "connection": "Upgrade"},
)
_LIMIT_CLOSE: Final = 1000  # RFC 6455: the connection has fulfilled its purpose


async def upgrade_required(_request: Request) -> Response:
    """The same path without an upgrade (field case 44)."""
    raise _NO_UPGRADE


async def responses(socket: WebSocket) -> None:
    """Messages `response.create`, one turn at a time, until the client leaves or the limit is reached."""
    service: Service = socket.app.state.service
    try:
        with service.gate.sockets.held(socket.state.owner):
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
        self._turns = Turns(service, socket.headers, socket.state.owner, self._send)
        self._ends_at = anyio.current_time() + service.settings.websocket_limit
        self._expired = False

    async def serve(self) -> None:
        """Until it is closed, by whomever."""
        try:
            async with anyio.create_task_group() as turns:
                await self._listen(turns)
                turns.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self._turns.close()

    async def _listen(self, turns: TaskGroup) -> None:
        while True:
            message = await self._receive()
            if message is None:
                if not self._turns.busy:
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
        with anyio.CancelScope(deadline=self._ends_at):
            return await self._socket.receive()
        self._expired = True
        return None

    async def _take(self, message: Message, turns: TaskGroup) -> None:
        text = message.get("text")
        data = message["bytes"] if text is None else text
        refused = self._refusal(data)
        if refused is not None:
            await self._send(envelope(refused))
            return
        self._turns.busy = True
        turns.start_soon(self._turn, data)

    def _refusal(self, data: str | bytes) -> BridgeError | None:
        """What keeps a message from being taken, whatever it says."""
        limit = self._settings.max_body_bytes
        if len(data) > limit or (isinstance(data, str) and not data.isascii() and len(data.encode()) > limit):
            return too_large(limit)
        if self._expired:
            return limit_reached(self._settings.websocket_limit)
        return BUSY if self._turns.busy else None

    async def _turn(self, data: str | bytes) -> None:
        await self._turns.take(data)
        if self._expired:
            await self._end()

    async def _end(self) -> None:
        await self._send(envelope(limit_reached(self._settings.websocket_limit)))
        with suppress(WebSocketDisconnect, OSError):
            await self._socket.close(_LIMIT_CLOSE)

    async def _send(self, data: bytes) -> None:
        """A client that has left is sent nothing; `_listen` finds out that it has."""
        with suppress(WebSocketDisconnect, OSError):
            await self._socket.send({"type": "websocket.send", "text": data.decode()})

"""Middlewares of every request, as pure ASGI: its id, checks, duration and log line."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import chain
from typing import Final

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openresponses_bridge.dialects.table import surfaces
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.random_ids import random_id
from openresponses_server.api.spellings import FOREIGN, respell
from openresponses_server.errors import HttpError, error_body, error_headers, shutting_down, without_frames
from openresponses_server.http.access import KeysWanted
from openresponses_server.http.auth import accept_query_key, check_single_keys
from openresponses_server.http.headers import HeaderFields, fields_of
from openresponses_server.http.refusals import DEFECT
from openresponses_server.limits.gate import Gate
from openresponses_server.limits.memory import RECEIVED
from openresponses_server.observation.metrics import Metrics
from openresponses_server.settings import Limits

# Starlette's router tries one path after the other and wraps each endpoint twice; so routes without
# parameters are looked up instead.

ErrorHandler = Callable[[Request, Exception], Awaitable[Response]]
STATUS: Final = "status"
"""The key of the response's status in the request's state, once it has been sent."""


class ExactPathRouter:
    """Serves those of `routes` that have no parameters by their paths, and all others with `router`.
    `handlers` make the responses for exceptions that endpoints raise."""

    def __init__(
        self, router: ASGIApp, routes: Iterable[BaseRoute], handlers: dict[type[Exception], ErrorHandler]
    ) -> None:
        self._router = router
        self._routes = {
            (method, route.path): route
            for route in routes
            if isinstance(route, Route) and not route.param_convertors
            for method in route.methods or ()
        }
        self._handlers = handlers
        self._handled = tuple(handlers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._router(scope, receive, send)
            return
        route = None if scope.get("root_path") else self._routes.get((scope["method"], scope["path"]))
        request = Request(scope, receive, send)
        try:
            if route is None:
                await self._router(scope, receive, send)
            else:
                scope["route"] = route
                scope["endpoint"] = route.endpoint
                answer: ASGIApp = await route.endpoint(request)
                await answer(scope, receive, send)
        except self._handled as error:
            if STATUS in scope["state"]:
                raise RuntimeError("An answer failed after it had begun.") from error
            refusal = await self._handler(error)(request, error)
            await refusal(scope, receive, send)
            without_frames(error)

    def _handler(self, error: Exception) -> ErrorHandler:
        return next(self._handlers[kind] for kind in type(error).__mro__ if kind in self._handlers)


_log = structlog.get_logger(__name__)
_HEADER: Final = b"x-request-id"
# prefixes of the paths of APIs whose clients read the request's id from another header, on errors too
_ID_HEADERS: Final = [
    (beginning, surface.request_id_header.encode())
    for surface in surfaces().values()
    if surface.request_id_header is not None
    for beginning in (*surface.prefixes, *(at.path.partition("{")[0] for at in surface.paths))
]
_EVENT_STREAM: Final = b"text/event-stream"
_LOGGED_PATH: Final = 200  # characters, so that a client can't fill the log
_VALID_ID: Final = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
# answered while the server stops, because they report it
_SERVED_WHILE_STOPPING: Final = frozenset({"/healthz", "/readyz", "/metrics"})


class RequestLog:
    """Gives each request an id (the client's own if it sent a usable one), sends it in `x-request-id`
    and the time to the first byte in `openai-processing-ms`, and logs and counts the outcome without
    content.

    An unforeseen error becomes status 500."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        request_id = _request_id(scope)
        named = request_id.decode()
        scope.setdefault("state", {})["request_id"] = named
        status = 0
        first_byte: float | None = None
        streams = False

        async def send_labelled(message: Message) -> None:
            nonlocal status, first_byte, streams
            if message["type"] == "http.response.start":
                if not streams and _EVENT_STREAM in dict(message["headers"]).get(b"content-type", b""):
                    streams = True
                    self._metrics.streams += 1
                status = scope["state"][STATUS] = message["status"]
                first_byte = time.perf_counter() - started
                spent = str(int(first_byte * 1000)).encode()
                headers = [*message["headers"], (_HEADER, request_id), (b"openai-processing-ms", spent)]
                for beginning, name in _ID_HEADERS:
                    if scope["path"].startswith(beginning):
                        headers.append((name, request_id))
                        break
                message = {**message, "headers": headers}
            await send(message)

        try:
            await self._app(scope, receive, send_labelled)
        except Exception:
            # a defect in this server: all of it is logged, and the client gets status 500
            _log.exception("request.internal_error", request_id=named)
            if status:
                raise
            await _error_response(DEFECT, scope)(scope, receive, send_labelled)
        finally:
            self._metrics.streams -= streams
            if (received := RECEIVED.get()) is not None:
                received.release()
            seconds = time.perf_counter() - started
            _log.info(
                "request",
                method=scope["method"],
                path=scope["path"][:_LOGGED_PATH],
                status=status or "none",
                ms=round(seconds * 1000, 1),
                request_id=named,
            )
            self._metrics.answered(_route(scope), status, first_byte, seconds)


class Admission:
    """Refuses requests with too large headers, and all requests while the server drains (law S8). Before
    anything else reads them, it replaces other servers' paths by ours, and moves a key in the address into
    its header."""

    def __init__(self, gate: Gate, limits: Limits) -> None:
        self._gate = gate
        self._limits = limits

    def check(self, scope: Scope) -> None:
        """Check a request, and change its path and key as described. Raises HttpError."""
        most = self._limits.header_bytes
        if sum(map(len, chain.from_iterable(scope["headers"]))) > most:
            raise HttpError(431, f"The headers are larger than the limit of {most} bytes.")
        path: str = scope["path"]
        if path.startswith(FOREIGN) or "//" in path:
            respell(scope)
        if self._gate.closing and scope["path"] not in _SERVED_WHILE_STOPPING:
            raise shutting_down()
        if scope.get("query_string"):
            accept_query_key(scope)


Check = Callable[[Scope, HeaderFields], None]
"""A check of a request, or of a WebSocket's handshake, with its header fields. Raises HttpError."""


class RequestChecks:
    """Admits requests and runs the checks in order; refuses a request, or a WebSocket's handshake, that fails
    one. All checks are in one layer, since each layer costs every request two calls."""

    def __init__(self, app: ASGIApp, admission: Admission, checks: Sequence[Check]) -> None:
        self._app = app
        self._admission = admission
        self._checks = checks

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] in ("http", "websocket"):
            try:
                self._check(scope)
            except KeysWanted as error:
                return self._check_again(error, scope, receive, send)
            except HttpError as error:
                return _refuse(error, scope, receive, send)
        return self._app(scope, receive, send)

    async def _check_again(
        self, missing_keys: KeysWanted, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Run the checks again, with the keys that were missing."""
        await missing_keys.fetch()
        try:
            self._check(scope)
        except HttpError as error:
            await _refuse(error, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        self._admission.check(scope)
        fields = fields_of(scope)
        if not fields.are_single:
            check_single_keys(fields)
        for check in self._checks:
            check(scope, fields)


async def _refuse(error: BridgeError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with this error, in the form of the surface; a WebSocket is refused at its handshake."""
    if scope["type"] == "http" or "websocket.http.response" in scope.get("extensions", {}):
        await _error_response(error, scope)(scope, receive, send)
    else:
        await send({"type": "websocket.close", "code": 1008, "reason": error.code})


def _error_response(error: BridgeError, scope: Scope) -> Response:
    body = error_body(error, scope["path"], fields_of(scope))
    return Response(body, error.http_status, error_headers(error, scope["path"]), "application/json")


def _route(scope: Scope) -> str:
    """Return the pattern of the path, not the path: paths that clients make up must not become metrics."""
    return str(getattr(scope["route"], "path", "")) or "unknown" if "route" in scope else "unknown"


def _request_id(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == _HEADER and _VALID_ID.fullmatch(value):
            request_id: bytes = value
            return request_id
    return random_id("req", 24).encode()

"""The ASGI application: its endpoints, and how errors are answered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp

from openresponses_bridge.dialects.base import Asks, LimitState
from openresponses_bridge.dialects.table import MODELS_PATH, PROTOCOL, Found, surfaces
from openresponses_bridge.errors import BridgeError
from openresponses_server.api import (
    compaction,
    conversations,
    forwarding,
    health,
    models,
    responses,
    search,
    vscode,
)
from openresponses_server.api.inspector import is_page
from openresponses_server.api.inspector import routes as inspector
from openresponses_server.api.middleware import (
    Admission,
    ErrorHandler,
    ExactPathRouter,
    RequestChecks,
    RequestLog,
)
from openresponses_server.api.openapi.document import PATH as OPENAPI_PATH
from openresponses_server.api.openapi.document import openapi
from openresponses_server.api.origins import Origins
from openresponses_server.api.websocket import PATH, connection
from openresponses_server.errors import HttpError, error_body, error_headers
from openresponses_server.http.auth import Authentication
from openresponses_server.http.headers import fields_of
from openresponses_server.requests.composition import compose, service_lifespan
from openresponses_server.requests.service import Service
from openresponses_server.settings import Settings
from openresponses_server.surfaces import endpoint

_ENDPOINTS: Final = {
    Asks.ANSWER: endpoint.answer,
    Asks.TOKENS: endpoint.count_tokens,
    Asks.STORED: endpoint.retrieve,
    Asks.CANCEL: endpoint.cancel,
    Asks.DELETE: endpoint.delete,
}
_LISTS: Final = {Asks.MODELS: models.list_models, Asks.MODEL: models.get_model}


def _endpoint(route: Found) -> Callable[[Request], Awaitable[ASGIApp]]:
    """Return the endpoint of a path of a client's API. Answers of the protocol's own API can do more than
    others: they may be made in the background, and are found again by a key."""
    assert route.at is not None
    asks = route.at.asks
    if route.name == PROTOCOL:
        return responses.create
    return _LISTS[asks] if asks in _LISTS else partial(_ENDPOINTS[asks], route)


_ROUTES: list[BaseRoute] = [
    *(
        Route(at.path.replace("}", ":path}"), _endpoint(Found(name, surface, at)), methods=[at.method])
        for name, surface in surfaces().items()
        for at in surface.paths
    ),
    Route("/v1/responses", connection.upgrade_required, methods=["GET"]),
    WebSocketRoute(PATH, connection.responses),
    Route("/v1/responses/compact", compaction.compact, methods=["POST"]),
    Route("/v1/responses/input_tokens", compaction.input_tokens, methods=["POST"]),
    Route("/v1/responses/{id}", responses.ResponseEndpoint),
    Route("/v1/responses/{id}/cancel", responses.cancel, methods=["POST"]),
    Route("/v1/responses/{id}/trace", responses.trace, methods=["GET"]),
    Route("/v1/responses/{id}/input_items", responses.input_items, methods=["GET"]),
    Route("/v1/alpha/search", search.search, methods=["POST"]),
    Route("/v1/conversations", conversations.create, methods=["POST"]),
    Route("/v1/conversations/{id}", conversations.ConversationEndpoint),
    Route("/v1/conversations/{id}/items", conversations.ItemsEndpoint),
    Route("/v1/conversations/{id}/items/{item_id:path}", conversations.ItemEndpoint),
    Route("/vscode/v1/models", vscode.models, methods=["GET"]),
    Route("/v1/usage", models.usage, methods=["GET"]),
    Route("/vscode/v1/tokens", vscode.tokens, methods=["POST"]),
    Route(MODELS_PATH, models.list_models, methods=["GET"]),
    Route(f"{MODELS_PATH}/{{model:path}}", models.get_model, methods=["GET"]),
    *forwarding.ROUTES,
    Route("/healthz", health.live, methods=["GET"]),
    Route("/readyz", health.ready, methods=["GET"]),
    Route("/metrics", health.metrics, methods=["GET"]),
    Route("/v1/routes", health.routes, methods=["GET"]),
    Route("/", inspector.home, methods=["GET"]),
    Route("/api/hello", health.hello, methods=["HEAD"]),
    Route("/inspector", inspector.page, methods=["GET"]),
    Route("/inspector/v1/captures", inspector.capture, methods=["POST"]),
    Route("/inspector/v1/context", inspector.context, methods=["POST"]),
    Route("/inspector/v1/cost", inspector.cost, methods=["POST"]),
    Route("/inspector/v1/responses", inspector.create, methods=["POST"]),
    Route("/inspector/v1/responses", inspector.listed, methods=["GET"]),
    Route("/inspector/v1/responses/{id}/request", inspector.request_of, methods=["GET"]),
    Route("/inspector/v1/responses/{id}", inspector.stored, methods=["GET"]),
    Route("/inspector/{file:path}", inspector.file, methods=["GET"]),
    Route(OPENAPI_PATH, openapi, methods=["GET"]),
]


def create_app(settings: Settings) -> Starlette:
    """Return the application for these settings. Raises SettingsError when they can't be used."""
    service = compose(settings)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with service_lifespan(service):
            yield

    app = _Application(
        routes=_ROUTES,
        middleware=_middleware(service),
        lifespan=lifespan,
    )
    app.state.service = service
    return app


class _Application(Starlette):
    def build_middleware_stack(self) -> ASGIApp:
        """Build it without Starlette's own middlewares for errors: `ExactPathRouter` answers expected
        exceptions, `RequestLog` all others."""
        app: ASGIApp = ExactPathRouter(self.router, self.routes, _HANDLERS)
        for kind, args, kwargs in reversed(self.user_middleware):
            app = kind(app, *args, **kwargs)
        return app


_LIMIT_HEADERS: Final = dict.fromkeys(
    name
    for kind in ("requests", "tokens")
    for surface in surfaces().values()
    for name, _ in surface.limit_headers(LimitState(kind, 0, 0, 0.0), 0.0)
)


def _middleware(service: Service) -> list[Middleware]:
    """Return the middlewares, outermost first. Other origins are answered only if the settings name them."""
    origins = service.settings.cors_origins
    admission = Admission(service.gate, service.settings.limits)
    authentication = Authentication(service.keys, is_page)
    checks = Origins(service.settings).check, authentication.check
    cors = Middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["*"],
        expose_headers=[
            "x-request-id",
            "openai-processing-ms",
            "openresponses-losses",
            "openresponses-tried",
            "openresponses-trace",
            "idempotent-replayed",
            "retry-after",
            *_LIMIT_HEADERS,
        ],
    )
    return [
        Middleware(RequestLog, metrics=service.metrics),
        *([cors] if origins else []),
        Middleware(RequestChecks, admission=admission, checks=checks),
        *_tracing(service),
    ]


def _tracing(service: Service) -> list[Middleware]:
    if service.traces is None:
        return []
    from openresponses_server.api.tracing import TracingMiddleware

    return [Middleware(TracingMiddleware, traces=service.traces)]


def _error_response(request: Request, error: BridgeError) -> Response:
    path = request.scope["path"]
    body = error_body(error, path, fields_of(request.scope))
    return Response(body, error.http_status, error_headers(error, path), "application/json")


async def _bridge_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, BridgeError)
    return _error_response(request, error)


async def _http_exception(request: Request, error: Exception) -> Response:
    """Return Starlette's own 404 or 405 in the format of the surface."""
    assert isinstance(error, HTTPException)
    message = f"{error.detail}: {request.method} {request.scope['path'][:200]}"
    return _error_response(request, HttpError(error.status_code, message, headers=dict(error.headers or {})))


async def _disconnected(request: Request, _error: Exception) -> Response:
    return _error_response(request, HttpError(400, "The client closed the connection within its request."))


_HANDLERS: dict[type[Exception], ErrorHandler] = {
    BridgeError: _bridge_error,
    HTTPException: _http_exception,
    ClientDisconnect: _disconnected,
}

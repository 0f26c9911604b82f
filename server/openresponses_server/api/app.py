"""The ASGI application: endpoints, and how errors leave."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp

from openresponses_bridge.errors import BridgeError
from openresponses_server.api import (
    chat_completions,
    compaction,
    conversations,
    forwarding,
    gemini,
    health,
    messages,
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
from openresponses_server.errors import HttpError, error_body, surface_path
from openresponses_server.http.auth import Authentication, accept_query_key
from openresponses_server.http.headers import fields_of
from openresponses_server.limits.quotas import EXPOSED
from openresponses_server.requests.composition import compose, service_lifespan
from openresponses_server.requests.service import Service
from openresponses_server.settings import Settings

_ROUTES: list[BaseRoute] = [
    Route("/v1/responses", responses.create, methods=["POST"]),
    Route("/v1/chat/completions", chat_completions.create, methods=["POST"]),
    Route("/v1/messages", messages.create, methods=["POST"]),
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
    Route("/v1/messages/count_tokens", messages.count_tokens, methods=["POST"]),
    Route("/v1/usage", models.usage, methods=["GET"]),
    Route("/vscode/v1/chat", vscode.chat, methods=["POST"]),
    Route("/vscode/v1/tokens", vscode.tokens, methods=["POST"]),
    Route("/v1/models", models.list_models, methods=["GET"]),
    Route("/v1/models/{model:path}", models.get_model, methods=["GET"]),
    *gemini.ROUTES,
    *forwarding.ROUTES,
    Route("/healthz", health.live, methods=["GET"]),
    Route("/readyz", health.ready, methods=["GET"]),
    Route("/metrics", health.metrics, methods=["GET"]),
    Route("/v1/routes", health.routes, methods=["GET"]),
    Route("/", inspector.home, methods=["GET"]),
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
    """The application for these settings. Raises SettingsError when they can't be used."""
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
        """Without Starlette's own middlewares for errors: `ExactPathRouter` answers those that are foreseen,
        `RequestLog` the others."""
        app: ASGIApp = ExactPathRouter(self.router, self.routes, _HANDLERS)
        for kind, args, kwargs in reversed(self.user_middleware):
            app = kind(app, *args, **kwargs)
        return app


def _middleware(service: Service) -> list[Middleware]:
    """The middlewares, outermost first. Other origins are answered only if the settings name them."""
    origins = service.settings.cors_origins
    admission = Admission(service.gate, service.settings.limits)
    authentication = Authentication(service.keys, is_page)
    checks = admission.check, accept_query_key, Origins(service.settings).check, authentication.check
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
            "retry-after",
            *EXPOSED,
        ],
    )
    return [
        Middleware(RequestLog, metrics=service.metrics),
        *([cors] if origins else []),
        Middleware(RequestChecks, checks=checks),
        *_tracing(service),
    ]


def _tracing(service: Service) -> list[Middleware]:
    if service.traces is None:
        return []
    from openresponses_server.api.tracing import TracingMiddleware

    return [Middleware(TracingMiddleware, traces=service.traces)]


def _error_response(request: Request, error: BridgeError, headers: dict[str, str] | None = None) -> Response:
    path = surface_path(request.scope["path"], fields_of(request.scope))
    return Response(error_body(error, path), error.http_status, headers, "application/json")


async def _bridge_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, BridgeError)
    return _error_response(request, error, error.headers if isinstance(error, HttpError) else None)


async def _http_exception(request: Request, error: Exception) -> Response:
    """Starlette's own 404 and 405, in the format of the surface."""
    assert isinstance(error, HTTPException)
    message = f"{error.detail}: {request.method} {request.scope['path'][:200]}"
    return _error_response(request, HttpError(error.status_code, message), dict(error.headers or {}))


async def _disconnected(request: Request, _error: Exception) -> Response:
    return _error_response(request, HttpError(400, "The client closed the connection within its request."))


_HANDLERS: dict[type[Exception], ErrorHandler] = {
    BridgeError: _bridge_error,
    HTTPException: _http_exception,
    ClientDisconnect: _disconnected,
}

"""The ASGI application: endpoints, and how errors leave."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute

from bridge.errors import BridgeError
from server.auth import Authentication, Keys, Operators
from server.budget import room_for
from server.errors import HttpError, error_body
from server.gate import Gate
from server.logs import configure_logs
from server.metrics import Metrics
from server.middleware import Admission, RequestLog
from server.origins import Origins
from server.requests.background import rerun, take
from server.requests.cancelling import hear
from server.routes import (
    chat_completions,
    compact,
    health,
    messages,
    models,
    openapi,
    responses,
    stored,
    vscode,
)
from server.runs.support import RunSupport
from server.schemas.workers import SchemaJudge
from server.sealing import ServerSealer
from server.service import Service
from server.sessions.stores import build_store
from server.settings import Settings, of_worker
from server.shutdown import draining
from server.upstreams.listing import Listing
from server.upstreams.routing import build_router
from server.websocket import connection

_ROUTES = [
    Route("/v1/responses", responses.create, methods=["POST"]),
    Route("/v1/responses", connection.upgrade_required, methods=["GET"]),
    WebSocketRoute("/v1/responses", connection.responses),
    Route("/v1/responses/compact", compact.compact, methods=["POST"]),
    Route("/v1/responses/input_tokens", compact.input_tokens, methods=["POST"]),
    Route("/v1/responses/{id}", responses.Stored),
    Route("/v1/responses/{id}/cancel", stored.cancel, methods=["POST"]),
    Route("/v1/responses/{id}/input_items", stored.input_items, methods=["GET"]),
    Route("/v1/chat/completions", chat_completions.create, methods=["POST"]),
    Route("/v1/messages", messages.create, methods=["POST"]),
    Route("/vscode/v1/chat", vscode.chat, methods=["POST"]),
    Route("/v1/models", models.list_models, methods=["GET"]),
    Route("/v1/models/{model:path}", models.get_model, methods=["GET"]),
    Route("/healthz", health.live, methods=["GET"]),
    Route("/readyz", health.ready, methods=["GET"]),
    Route("/metrics", health.metrics, methods=["GET"]),
    Route(openapi.PATH, openapi.openapi, methods=["GET"]),
]


def create_app(settings: Settings) -> Starlette:
    """The application for these settings. Raises SettingsError when they can't be used."""
    sealer = ServerSealer(settings.sealing_key_env)
    gate = Gate(settings.limits)
    room = room_for(settings.limits)
    router = build_router(settings, sealer)
    store = build_store(settings)
    keys = Keys(settings.api_keys, pass_through=any(each.pass_through for each in settings.upstreams))
    service = Service(
        settings=settings,
        router=router,
        listing=Listing(router, settings.models),
        store=store,
        runs=RunSupport(settings, store),
        judge=SchemaJudge(settings.limits.schema_seconds),
        sealer=sealer,
        operators=Operators(settings.operator_keys, keys),
        gate=gate,
        room=room,
        metrics=Metrics(gate),
    )

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with (
            service.runs.going(gate, partial(rerun, service), partial(take, service), partial(hear, service)),
            draining(gate, settings.limits.grace),
        ):
            yield
        await service.router.close()

    app = Starlette(
        routes=_ROUTES,
        middleware=_middleware(service, keys),
        exception_handlers={BridgeError: _refused, HTTPException: _not_served, ClientDisconnect: _gone},
        lifespan=lifespan,
    )
    app.state.service = service
    return app


def create_worker_app() -> Starlette:
    """The application of a worker process, which finds its settings in its environment."""
    configure_logs()
    return create_app(of_worker())


def _middleware(service: Service, keys: Keys) -> list[Middleware]:
    """Outermost first. Browsers are answered only where the settings name their origin."""
    origins = service.settings.cors_origins
    cors = Middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["*"],
        expose_headers=["x-request-id", "openai-processing-ms", "openresponses-losses", "retry-after"],
    )
    return [
        Middleware(RequestLog, metrics=service.metrics),
        *([cors] if origins else []),
        Middleware(Admission, gate=service.gate, limits=service.settings.limits),
        Middleware(Origins, settings=service.settings),
        Middleware(Authentication, keys=keys),
    ]


def _answer(request: Request, error: BridgeError, headers: dict[str, str] | None = None) -> Response:
    return Response(error_body(error, request.scope["path"]), error.http_status, headers, "application/json")


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, BridgeError)
    return _answer(request, error, error.headers if isinstance(error, HttpError) else None)


async def _not_served(request: Request, error: Exception) -> Response:
    """Starlette's own 404 and 405, in our shape."""
    assert isinstance(error, HTTPException)
    message = f"{error.detail}: {request.method} {request.scope['path'][:200]}"
    return _answer(request, HttpError(error.status_code, message), dict(error.headers or {}))


async def _gone(request: Request, _error: Exception) -> Response:
    return _answer(request, HttpError(400, "The client closed the connection within its request."))

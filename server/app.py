"""The ASGI application: endpoints, and how errors leave."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from bridge.errors import BridgeError
from server.errors import HttpError, error_body
from server.logs import configure_logs
from server.middleware import RequestLog
from server.routes import health, models, responses
from server.service import Service
from server.sessions.stores import build_store
from server.settings import Settings, of_worker
from server.upstreams.routing import build_router

_ROUTES = [
    Route("/v1/responses", responses.create, methods=["POST"]),
    Route("/v1/responses/{id}", responses.Stored),
    Route("/v1/models", models.list_models, methods=["GET"]),
    Route("/v1/models/{model:path}", models.get_model, methods=["GET"]),
    Route("/healthz", health.live, methods=["GET"]),
    Route("/readyz", health.ready, methods=["GET"]),
]


def create_app(settings: Settings) -> Starlette:
    """The application for these settings. Raises SettingsError when they can't be used."""
    service = Service(settings, build_router(settings), build_store(settings))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await service.router.close()

    app = Starlette(
        routes=_ROUTES,
        middleware=[Middleware(RequestLog)],
        exception_handlers={BridgeError: _refused, HTTPException: _not_served, ClientDisconnect: _gone},
        lifespan=lifespan,
    )
    app.state.service = service
    return app


def create_worker_app() -> Starlette:
    """The application of a worker process, which finds its settings in its environment."""
    configure_logs()
    return create_app(of_worker())


def _answer(error: BridgeError, headers: dict[str, str] | None = None) -> Response:
    return Response(error_body(error), error.http_status, headers, "application/json")


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, BridgeError)
    return _answer(error, error.headers if isinstance(error, HttpError) else None)


async def _not_served(request: Request, error: Exception) -> Response:
    """Starlette's own 404 and 405, in our shape."""
    assert isinstance(error, HTTPException)
    message = f"{error.detail}: {request.method} {request.url.path[:200]}"
    return _answer(HttpError(error.status_code, message), dict(error.headers or {}))


async def _gone(_request: Request, _error: Exception) -> Response:
    return _answer(HttpError(400, "The client closed the connection within its request."))

"""The way of the requests that most are: from a table to the endpoint, with the errors of its answer put into
shape once. A router tries one path after the other and wraps each endpoint twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

ErrorHandler = Callable[[Request, Exception], Awaitable[Response]]
STATUS: Final = "status"
"""Where the state of a request has the status of its answer, once that has begun."""


class Direct:
    """Serves these routes, whose paths have no parameters, when the path is theirs to the letter; every other
    request goes on to `app`. `handlers` make the answers to the errors that endpoints raise."""

    def __init__(
        self, app: ASGIApp, routes: Collection[Route], handlers: dict[type[Exception], ErrorHandler]
    ) -> None:
        self._app = app
        self._routes = {(method, route.path): route for route in routes for method in route.methods or ()}
        self._handlers = handlers
        self._handled = tuple(handlers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = None
        if scope["type"] == "http" and not scope.get("root_path"):
            route = self._routes.get((scope["method"], scope["path"]))
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        scope["endpoint"] = route.endpoint
        request = Request(scope, receive, send)
        try:
            answer: ASGIApp = await route.endpoint(request)
            await answer(scope, receive, send)
        except self._handled as error:
            if STATUS in scope["state"]:
                raise RuntimeError("An answer failed after it had begun.") from error
            refusal = await self._handler(error)(request, error)
            await refusal(scope, receive, send)
            # one that is raised again would gather the frames of all requests
            error.__traceback__ = None

    def _handler(self, error: Exception) -> ErrorHandler:
        return next(self._handlers[kind] for kind in type(error).__mro__ if kind in self._handlers)

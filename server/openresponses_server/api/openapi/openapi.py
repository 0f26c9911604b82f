"""`GET /openapi.json`: the document of what this application serves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from openresponses_bridge.protocol.codec import encode
from openresponses_server.api.openapi import document

PATH: Final = "/openapi.json"
_CONVERTER: Final = re.compile(r":\w+(?=})")
_METHODS: Final = ("get", "post", "put", "patch", "delete")


async def openapi(request: Request) -> Response:
    """The document, in OpenAPI 3.1."""
    return Response(encode(document(set(operations_of(request.app.routes)))), media_type="application/json")


def operations_of(routes: Iterable[BaseRoute]) -> Iterator[tuple[str, str]]:
    """(method, path) of everything that these routes serve, the document itself aside."""
    for route in routes:
        if isinstance(route, WebSocketRoute):
            yield "get", _path(route.path)
        elif isinstance(route, Route) and route.path != PATH:
            for method in _methods(route):
                yield method, _path(route.path)


def _methods(route: Route) -> Iterator[str]:
    endpoint: Any = route.endpoint
    for method in _METHODS:
        is_class = isinstance(endpoint, type) and issubclass(endpoint, HTTPEndpoint)
        if hasattr(endpoint, method) if is_class else method.upper() in (route.methods or ()):
            yield method


def _path(path: str) -> str:
    return _CONVERTER.sub("", path)

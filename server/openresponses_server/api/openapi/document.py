"""The OpenAPI 3.1 document of the endpoints that are served."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from http import HTTPStatus
from importlib import metadata
from typing import Any, Final

from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from openresponses_bridge.dialects.base import Parameter
from openresponses_bridge.protocol.codec import encode
from openresponses_server.api.openapi.operations import OPERATIONS, Operation
from openresponses_server.api.openapi.schemas import reference, schemas

DONE: Final = "[DONE]"
_JSON: Final = "application/json"
_UNNAMED: Final = {426: "Upgrade Required", 529: "Overloaded"}


def document(served: Collection[tuple[str, str]]) -> dict[str, Any]:
    """Return the document of those operations, (method, path) each, that are served and described."""
    paths: dict[str, dict[str, Any]] = {}
    described = {key: operation for key, operation in OPERATIONS.items() if key in served}
    for (method, path), operation in described.items():
        paths.setdefault(path, {})[method] = _operation(operation)
    key = {"type": "http", "scheme": "bearer"}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "openresponses-bridge",
            "summary": "The Responses API in front of any model.",
            "version": _version(),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": schemas(), "securitySchemes": {"key": key}},
        "security": [{}, {"key": []}],
    }


def _version() -> str:
    try:
        return metadata.version("openresponses-bridge")
    except metadata.PackageNotFoundError:  # run from its folder without being installed
        return "0"


def _operation(operation: Operation) -> dict[str, Any]:
    shown: dict[str, Any] = {"operationId": operation.id, "summary": operation.summary}
    if operation.description:
        shown["description"] = operation.description
    if operation.parameters:
        shown["parameters"] = [_parameter(parameter) for parameter in operation.parameters]
    if operation.request is not None:
        media: dict[str, Any] = {"schema": reference(operation.request.__name__)}
        if operation.examples:
            media["examples"] = {name: {"value": value} for name, value in operation.examples.items()}
        content = {_JSON: media}
        if operation.form:
            content["multipart/form-data"] = {"schema": media["schema"]}
        shown["requestBody"] = {"required": True, "content": content}
    shown["responses"] = {
        str(operation.success): _success(operation),
        **{str(status): _error(status, operation.error) for status in operation.errors},
    }
    return shown


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.place == "path",
        "description": parameter.description,
        "schema": parameter.schema,
    }


def _success(operation: Operation) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if operation.answer is not None:
        answer = reference(operation.answer.__name__)
        content[_JSON] = {"schema": {"type": "array", "items": answer} if operation.many else answer}
    if operation.text:
        content[operation.text] = {"schema": {"type": "string"}}
    if operation.events:
        content["text/event-stream"] = {"schema": _frame(operation.event_schema)}
    shown: dict[str, Any] = {"description": operation.events or HTTPStatus(operation.success).phrase}
    if content:
        shown["content"] = content
    if operation.leads_to:
        follow = {"parameters": {"id": "$response.body#/id"}}
        shown["links"] = {name: {"operationId": name, **follow} for name in operation.leads_to}
    return shown


def _frame(event_schema: str) -> dict[str, Any]:
    """Return the schema of one frame of a stream, with its fields."""
    data: dict[str, Any] = {"type": "string"}
    if event_schema:
        event = {"type": "string", "contentMediaType": _JSON, "contentSchema": reference(event_schema)}
        data = {"anyOf": [{"const": DONE}, {**event, "not": {"const": DONE}}]}
    return {
        "type": "object",
        "required": ["data"],
        "properties": {"event": {"type": "string"}, "data": data},
    }


def _error(status: int, shape: type[Any]) -> dict[str, Any]:
    phrase = _UNNAMED.get(status) or HTTPStatus(status).phrase
    return {"description": phrase, "content": {_JSON: {"schema": reference(shape.__name__)}}}


# `GET /openapi.json`: the document of what this application serves.

PATH: Final = "/openapi.json"
_CONVERTER: Final = re.compile(r":\w+(?=})")
_METHODS: Final = ("get", "post", "put", "patch", "delete")


async def openapi(request: Request) -> Response:
    """The document, in OpenAPI 3.1."""
    return Response(encode(document(set(operations_of(request.app.routes)))), media_type="application/json")


def operations_of(routes: Iterable[BaseRoute]) -> Iterator[tuple[str, str]]:
    """Yield (method, path) of everything that these routes serve, except the document itself."""
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

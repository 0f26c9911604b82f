"""The table of paths: requests that it serves, requests that it leaves to the router, and errors."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openresponses_server.api.middleware import STATUS, ExactPathRouter


class Odd(Exception):
    pass


class Rarer(Odd):
    pass


async def elsewhere(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("router")(scope, receive, send)


async def handler(_request: Request, error: Exception) -> Response:
    return PlainTextResponse(type(error).__name__, 418)


async def here(_request: Request) -> Response:
    return PlainTextResponse("direct")


def answer_of(
    endpoint: Callable[[Request], Any] = here, router: ASGIApp = elsewhere, **scope: Any
) -> tuple[int, bytes, Scope]:
    """What leaves for a request, and its scope afterwards."""
    routes = [Route(path, endpoint, methods=["POST"]) for path in ("/a", "/b/{id}")]
    handlers: Any = {Odd: handler, HTTPException: handler}
    direct = ExactPathRouter(router, [*routes, WebSocketRoute("/a", endpoint)], handlers)
    sent: list[Message] = []
    http_scope = {"type": "http", "method": "POST", "path": "/a", "headers": [], "state": {}, **scope}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            http_scope["state"][STATUS] = message["status"]
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request"}

    asyncio.run(direct(http_scope, receive, send))
    return sent[0]["status"], b"".join(each.get("body", b"") for each in sent), http_scope


@pytest.mark.parametrize(
    ("scope", "said"),
    [
        ({}, b"direct"),
        ({"root_path": ""}, b"direct"),
        ({"method": "GET"}, b"router"),
        ({"path": "/a/"}, b"router"),
        ({"path": "/b/{id}"}, b"router"),
        ({"root_path": "/a"}, b"router"),
        ({"type": "websocket", "method": ""}, b"router"),
    ],
)
def test_what_is_taken(scope: dict[str, Any], said: bytes) -> None:
    if scope.get("type") == "websocket":
        scope["extensions"] = {"websocket.http.response": {}}
    status, body, http_scope = answer_of(**scope)
    assert (status, body) == (200, said)
    assert (getattr(http_scope.get("route"), "path", None) == "/a") == (said == b"direct")


@pytest.mark.parametrize("error", [Odd(), Rarer(), HTTPException(404)])
def test_errors_get_their_shape_and_keep_no_frames(error: Exception) -> None:
    async def fail(*_asked: Any) -> Any:
        raise error

    for answer in answer_of(fail), answer_of(router=fail, path="/b/1"):
        assert answer[:2] == (418, type(error).__name__.encode())
        assert error.__traceback__ is None


def test_other_errors_pass() -> None:
    async def fail(_request: Request) -> Response:
        raise KeyError

    with pytest.raises(KeyError):
        answer_of(fail)


def test_no_second_answer_is_begun() -> None:
    async def begins(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise Odd

    async def endpoint(_request: Request) -> Any:
        return begins

    with pytest.raises(RuntimeError, match="had begun"):
        answer_of(endpoint)

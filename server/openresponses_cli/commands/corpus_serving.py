"""The work of `corpus serve`: streams each case by the name of its model, over HTTP and WebSocket.

The server is for tests on the same machine. The size and time of a request and the number of connections are
limited; nothing is kept.
"""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from typing import Any, Final

import anyio
import click
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from openresponses_bridge.corpus import Case, case, case_ids
from openresponses_bridge.corpus.variants import json_of
from openresponses_bridge.errors import BridgeError, WireError
from openresponses_bridge.protocol.codec import decode_json
from openresponses_server.errors import HttpError

MAX_BODY: Final = 1024 * 1024
"""The most bytes of a request or a message."""
BODY_SECONDS: Final = 30.0
"""Seconds for a request to arrive, and for a WebSocket's client to send its next message."""
MAX_CONNECTIONS: Final = 64
_REQUEST: Final = "response.create"


def serve_cases(host: str, port: int) -> None:
    """Serve until interrupted, after printing the address. Raises OSError if the address can't be used."""
    from uvicorn import Config, Server

    with socket.create_server((host, port), family=_family(host)) as listener:
        shown = f"[{host}]" if ":" in host else host
        base = f"http://{shown}:{listener.getsockname()[1]}/v1"
        click.echo(f"serving {len(case_ids())} cases at {base}")
        click.echo(f"""curl -N {base}/responses -d '{{"model": "openresponses/text", "stream": true}}'""")
        Server(
            Config(
                cases_app(),
                limit_concurrency=MAX_CONNECTIONS,
                log_level="critical",  # a client may disconnect at any time
                loop="asyncio",
                http="h11",  # it has a limit for headers
                ws="websockets-sansio",
                lifespan="off",
                timeout_graceful_shutdown=1,
                ws_max_size=MAX_BODY,
                ws_max_queue=1,
            )
        ).run(sockets=[listener])


def cases_app() -> Starlette:
    """Return the application, for other servers and tests."""
    return Starlette(
        routes=[
            Route("/v1/responses", _respond, methods=["POST"]),
            WebSocketRoute("/v1/responses", _converse),
            Route("/v1/models", _models),
        ]
    )


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


async def _models(request: Request) -> Response:
    listed = [{"id": id, "object": "model", "created": 0, "owned_by": "corpus"} for id in case_ids()]
    return JSONResponse({"object": "list", "data": listed})


async def _respond(request: Request) -> Response:
    try:
        with anyio.fail_after(BODY_SECONDS):
            body = _object_in(await _body(request))
        each = _case_of(body)
        if body.get("stream"):
            return StreamingResponse(_pieces(each), media_type="text/event-stream")
        return JSONResponse(_whole(each))
    except TimeoutError:
        return _refusal(HttpError(408, f"The request did not arrive within {BODY_SECONDS:g} seconds."))
    except HttpError as error:
        return _refusal(error)
    except ClientDisconnect:
        return Response(status_code=400)


async def _converse(socket: WebSocket) -> None:
    await socket.accept()
    try:
        while True:
            with anyio.fail_after(BODY_SECONDS):
                message = await socket.receive_text()
            try:
                request = _object_in(message.encode())
                if request.get("type") != _REQUEST:
                    raise HttpError(400, f"A message has the type {_REQUEST}.", param="type")
                each = _case_of(request)
            except HttpError as error:
                refusal = {"type": "error", "status": error.http_status, "error": _error(error)}
                await socket.send_text(json_of(refusal))
                continue
            for event in each.events:
                await socket.send_text(json_of(event))
            if each.expected.status == "cut":
                await socket.close(1011)
                return
    except WebSocketDisconnect:
        return
    except KeyError:  # a binary message has no text
        await socket.close(1003)
    except TimeoutError:
        await socket.close(1001)


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BODY:
            raise HttpError(413, f"The request is larger than the limit of {MAX_BODY} bytes.")
    return bytes(body)


async def _pieces(each: Case) -> AsyncIterator[bytes]:
    for piece in each.pieces:
        yield piece
        await anyio.lowlevel.checkpoint()


def _object_in(data: bytes) -> dict[str, Any]:
    try:
        request = decode_json(data)
    except WireError as error:
        raise HttpError(400, f"The request is not JSON: {error.message}") from error
    if not isinstance(request, dict):
        raise HttpError(400, "The request is not a JSON object.")
    return request


def _case_of(body: dict[str, Any]) -> Case:
    model = body.get("model")
    try:
        return case(model if isinstance(model, str) else "")
    except BridgeError as error:
        raise HttpError(404, f"{error.message}.", code="model_not_found", param="model") from error


def _whole(each: Case) -> dict[str, Any]:
    if each.variant is not None or each.response is None:
        raise HttpError(400, "A variant is a way to stream a response.", param="stream")
    return each.response


def _error(error: HttpError) -> dict[str, Any]:
    return {"type": error.error_type, "code": error.code, "message": error.message, "param": error.param}


def _refusal(error: HttpError) -> Response:
    return Response(json.dumps({"error": _error(error)}), error.http_status, media_type="application/json")

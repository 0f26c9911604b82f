"""Records what clients are sent, over HTTP and WebSockets, in the traces of their requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openresponses_bridge.dialects.base import Asks
from openresponses_bridge.dialects.table import surface_at
from openresponses_server.http.auth import client_key
from openresponses_server.http.flow import withdraw
from openresponses_server.http.headers import fields_of
from openresponses_server.observation.recordings.records import How, RecordedRequest
from openresponses_server.observation.trace_folder import HEADER, Traces
from openresponses_server.observation.traces import REQUEST
from openresponses_server.tasks import on_thread

# path → dialect of its clients, for requests outside the APIs' own paths that create responses
_DIALECTS: Final = {"/v1/responses/compact": "responses", "/inspector/v1/responses": "inspector"}


def _dialect_of(path: str) -> str | None:
    """Return the dialect in which a path answers; None for one that creates no response."""
    match = surface_at(path)
    asks_for_answer = match.at is not None and match.at.asks is Asks.ANSWER
    return match.name if asks_for_answer else _DIALECTS.get(path)


class TracingMiddleware:
    """A middleware after authentication, because a trace belongs to an owner. A traced answer has the path of
    its trace in a header."""

    def __init__(self, app: ASGIApp, traces: Traces) -> None:
        self._app = app
        self._traces = traces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        dialect = _dialect_of(scope["path"]) if scope["type"] == "http" else None
        if dialect is None or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        headers, state = fields_of(scope), scope["state"]
        query = scope["query_string"].decode("latin-1")
        request = RecordedRequest(
            0,
            0,
            dialect=dialect,
            leg="client",
            path=scope["path"] + (f"?{query}" if query else ""),
            headers=dict(headers),
            request_id=state["request_id"],
        )
        trace = self._traces.begin(request, headers, state["owner"], client_key(headers))
        if trace is None:
            await self._app(scope, receive, send)
            return
        withdraw(scope)
        how: How = "left"

        async def send_traced(message: Message) -> None:
            nonlocal how
            if message["type"] == "http.response.start":
                if trace.name:
                    where = f"/v1/responses/{trace.name}/trace"
                    message = {**message, "headers": [*message["headers"], (HEADER.encode(), where.encode())]}
                trace.answer(message["status"], MutableHeaders(raw=list(message["headers"])))
            elif message["type"] == "http.response.body":
                if body := message.get("body", b""):
                    await trace.chunk(body)
                if not message.get("more_body", False):
                    how = "finished"
            await send(message)

        token = REQUEST.set(trace)
        try:
            await self._app(scope, receive, send_traced)
        finally:
            REQUEST.reset(token)
            trace.end(how)


# Traces of WebSocket turns: each of the client's messages is a request, each message to the client a line.

SendBytes = Callable[[bytes], Awaitable[None]]


def with_trace(send: SendBytes) -> SendBytes:
    """Return a `send` that also records the data in the turn's trace."""

    async def sending(message: bytes) -> None:
        trace = REQUEST.get()
        if trace is not None:
            trace.answer(200, {"content-type": "application/jsonl"})
            await trace.chunk(message + b"\n")
        await send(message)

    return sending


@asynccontextmanager
async def trace_turn(
    traces: Traces | None, headers: Mapping[str, str], owner: str, request_id: str, message: str | bytes
) -> AsyncIterator[None]:
    """Trace one turn, from its message to its end."""
    if traces is None:
        yield
        return
    request = RecordedRequest(
        0,
        0,
        dialect="responses",
        leg="client",
        method="WEBSOCKET",
        path="/v1/responses",
        headers=dict(headers),
        request_id=request_id,
    )
    trace = traces.begin(request, headers, owner, client_key(headers))
    if trace is None:
        yield
        return
    body = message.encode("utf-8", "surrogatepass") if isinstance(message, str) else message
    token = REQUEST.set(trace)
    finished = False
    try:
        await on_thread(partial(trace.set_body, body))
        yield
        finished = True
    finally:
        REQUEST.reset(token)
        trace.end("finished" if finished else "left")

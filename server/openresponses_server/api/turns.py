"""Traces of turns on a WebSocket: each message of the client is a request, each one to it a line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from openresponses_server.observation.recordings.records import Asked
from openresponses_server.observation.request import REQUEST
from openresponses_server.off_loop import on_thread

if TYPE_CHECKING:
    from openresponses_server.observation.trace_folder import Traces

Send = Callable[[bytes], Awaitable[None]]


def traced(send: Send) -> Send:
    """The same, with what is sent in the trace of the turn."""

    async def sending(message: bytes) -> None:
        trace = REQUEST.get()
        if trace is not None:
            trace.answer(200, {"content-type": "application/jsonl"})
            await trace.chunk(message + b"\n")
        await send(message)

    return sending


@asynccontextmanager
async def turn(
    traces: Traces | None, headers: Mapping[str, str], owner: str, request_id: str, message: str | bytes
) -> AsyncIterator[None]:
    """One turn, from its message to its end."""
    if traces is None:
        yield
        return
    asked = Asked(
        0,
        0,
        dialect="responses",
        leg="client",
        method="WEBSOCKET",
        path="/v1/responses",
        headers=dict(headers),
        request_id=request_id,
    )
    trace = traces.begin(asked, headers, owner)
    if trace is None:
        yield
        return
    body = message.encode("utf-8", "surrogatepass") if isinstance(message, str) else message
    await on_thread(partial(trace.take, body))
    token = REQUEST.set(trace)
    finished = False
    try:
        yield
        finished = True
    finally:
        REQUEST.reset(token)
        trace.end("finished" if finished else "left")

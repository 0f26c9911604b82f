"""The floor for servers on Starlette: uvicorn with one route, which copies a request to the model and the
answer back without parsing either.

python -m tests.benchmarks.served.starlette_copier PORT TO
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Final, cast

import httptools
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route


class _Answer(asyncio.Protocol):
    """One connection to the model, which carries one answer at a time."""

    def __init__(self) -> None:
        self.pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._length: bytes | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._out = cast(asyncio.Transport, transport)  # uvloop's transport has none of these classes

    def ask(self, request: bytes) -> asyncio.Future[bytes | None]:
        """Send a request, and return the length of its answer; None if the answer is chunked."""
        self._parser = httptools.HttpResponseParser(self)
        self._length = None
        self._head = asyncio.get_running_loop().create_future()
        self._out.write(request)
        return self._head

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"content-length":
            self._length = value

    def on_headers_complete(self) -> None:
        self._head.set_result(self._length)

    def on_body(self, data: bytes) -> None:
        self.pieces.put_nowait(data)

    def on_message_complete(self) -> None:
        self.pieces.put_nowait(None)


def _app(to: int) -> Starlette:
    free: list[_Answer] = []

    async def copy(request: Request) -> Response:
        body = await request.body()
        loop = asyncio.get_running_loop()
        answer = free.pop() if free else (await loop.create_connection(_Answer, "127.0.0.1", to))[1]
        length = await answer.ask(_HEAD % len(body) + body)

        async def pieces() -> AsyncIterator[bytes]:
            while (data := await answer.pieces.get()) is not None:
                yield data
            free.append(answer)

        if length is None:
            return StreamingResponse(pieces(), media_type="text/event-stream")
        whole = b"".join([data async for data in pieces()])
        return Response(whole, media_type="application/json")

    return Starlette(routes=[Route("/v1/chat/completions", copy, methods=["POST"])])


_HEAD: Final = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\n\r\n"
)

if __name__ == "__main__":
    uvicorn.run(
        _app(int(sys.argv[2])),
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        backlog=4096,
        access_log=False,
        log_level="error",
    )

"""The response of a route, and the route's function."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Unpack
from urllib.parse import quote

import anyio
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from openresponses_bridge.backend.answer import Answer, AnswerOptions, check_options, refusal
from openresponses_bridge.backend.outputs import AsyncFunction, AsyncGenerate, async_close, check_function
from openresponses_bridge.errors import HttpError, LocalError, RemoteError
from openresponses_server.backend.exchange import AsgiExchange, ClientDisconnected, Writer
from openresponses_server.limits.requests import check_json, check_length, check_type, too_large
from openresponses_server.settings import Limits
from openresponses_server.tasks import off_loop

MAX_BODY: Final = 32 * 1024 * 1024
_LIMITS: Final = Limits()
_log = logging.getLogger("openresponses_bridge.backend")


class ResponseOptions(AnswerOptions, total=False):
    """The options of `openresponses_bridge.backend.Answer`, where `target` and `request_headers` are the
    request's own unless they are given, and those of `BackendResponse`."""

    keep_alive: float
    timeout: float | None
    send_timeout: float


class BackendResponse(Response):
    """Answers the request `body` (JSON as bytes, text or parsed) with what `generate` yields, streamed or
    whole as the request asks.

    `keep_alive`: seconds of silence after which the client of a stream is sent a comment. `timeout`: seconds
    that the model has for the answer. `send_timeout`: seconds that one write may take; a client that reads
    nothing for longer counts as disconnected. When the client disconnects, the iterator is cancelled and
    closed.
    """

    def __init__(
        self,
        body: Any,
        generate: AsyncGenerate,
        *,
        keep_alive: float = 15.0,
        timeout: float | None = None,
        send_timeout: float = 60.0,
        **options: Unpack[AnswerOptions],
    ) -> None:
        check_options(options)
        durations: dict[str, object] = {"keep_alive": keep_alive, "send_timeout": send_timeout}
        for name, seconds in (durations | ({} if timeout is None else {"timeout": timeout})).items():
            if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
                raise LocalError(
                    "bridge.backend.invalid_option",
                    f"{name} must be a number of seconds above 0, not {seconds!r}",
                )
        self.status_code = 200
        self.background = None
        self.init_headers()
        self._given = body
        self._generate = generate
        self._keep_alive = keep_alive
        self._timeout = timeout
        self._send_timeout = send_timeout
        self._options = options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        target = f"{quote(scope['path'])}?{scope['query_string'].decode('latin-1')}"
        defaults: AnswerOptions = {"request_headers": Headers(scope=scope), "target": target}
        options: AnswerOptions = {**defaults, **self._options}
        body = self._given.encode("utf-8", "surrogatepass") if isinstance(self._given, str) else self._given
        size = len(body) if isinstance(body, bytes) else 0
        writer = Writer(send, self.raw_headers)

        def read() -> Answer:
            if size:
                check_json(body, _LIMITS)
            return Answer(body, **options)

        try:
            answer = await off_loop(size, read)
        except RemoteError as error:
            await async_close(self._generate)
            refused = refusal(error, options.get("dialect", "responses"))
            with anyio.move_on_after(self._send_timeout):
                await _ignore_disconnect(writer.whole(*refused))
        else:
            times = self._keep_alive, self._timeout, self._send_timeout
            await _ignore_disconnect(AsgiExchange(answer, self._generate, writer, *times).run(receive))
        if self.background is not None:
            await self.background()


def endpoint(
    generate: AsyncFunction, *, max_body: int = MAX_BODY, **options: Unpack[ResponseOptions]
) -> Callable[[Request], Awaitable[Response]]:
    """A function for a POST route: it reads the request, of at most `max_body` bytes, and answers it with
    what `generate` yields. Raises LocalError for any other `generate`, and for invalid options.
    """
    check_function(generate)
    if type(max_body) is not int or max_body < 1:
        raise LocalError(
            "bridge.backend.invalid_option",
            f"max_body must be a number of bytes above 0, not {max_body!r}",
        )
    BackendResponse(b"", generate, **options)  # wrong options raise at once

    async def respond(request: Request) -> Response:
        try:
            body = await _read(request, max_body)
        except HttpError as error:
            head, refused = refusal(error, options.get("dialect", "responses"))
            return Response(refused, head.status, head.headers)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads it
        return BackendResponse(body, generate, **options)

    return respond


async def _read(request: Request, limit: int) -> bytes:
    headers = request.headers
    check_type(headers.get("content-type", ""))
    check_length(headers.get("content-length", ""), limit)
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise HttpError(415, "The body must not be compressed.")
    pieces: list[bytes] = []
    received = 0
    async for piece in request.stream():
        received += len(piece)
        if received > limit:
            raise too_large(limit)
        pieces.append(piece)
    return b"".join(pieces)


async def _ignore_disconnect(sending: Awaitable[None]) -> None:
    """Await this; a client that disconnects meanwhile is only logged."""
    try:
        await sending
    except ClientDisconnected:
        _log.info("the client disconnected")

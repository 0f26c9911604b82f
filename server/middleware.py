"""Around every request, as pure ASGI: a name for it, its time, one line in the log."""

from __future__ import annotations

import re
import secrets
import time
from typing import Final

import structlog
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.errors import HttpError, error_body

_DEFECT: Final = HttpError(500, "The server failed.", code="internal_error")
_log = structlog.get_logger(__name__)
_HEADER: Final = b"x-request-id"
_USABLE: Final = re.compile(rb"[A-Za-z0-9._:-]{1,128}")


class RequestLog:
    """Gives each request an id (the client's own if it sent a usable one), tells it in `x-request-id`
    and the time to the first byte in `openai-processing-ms`, and logs the outcome without content.

    An unforeseen error becomes status 500."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        request_id = _request_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id.decode()
        status = 0

        async def tell(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                spent = str(int((time.perf_counter() - started) * 1000)).encode()
                headers = [*message["headers"], (_HEADER, request_id), (b"openai-processing-ms", spent)]
                message = {**message, "headers": headers}
            await send(message)

        try:
            await self._app(scope, receive, tell)
        except Exception:
            # a defect of ours: the log has all of it, the client learns that it happened
            _log.exception("request.internal_error", request_id=request_id.decode())
            if status:
                raise
            await Response(error_body(_DEFECT), 500, media_type="application/json")(scope, receive, tell)
        finally:
            _log.info(
                "request",
                method=scope["method"],
                path=scope["path"],
                status=status or "none",
                ms=round((time.perf_counter() - started) * 1000, 1),
                request_id=request_id.decode(),
            )


def _request_id(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == _HEADER and _USABLE.fullmatch(value):
            given: bytes = value
            return given
    return f"req_{secrets.token_hex(12)}".encode()

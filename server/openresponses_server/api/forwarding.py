"""`POST /v1/embeddings`, `/v1/completions`, `/v1/images/…`, `/v1/audio/…`, `/v1/rerank`, `/v1/moderations`:
requests that are passed unchanged to the model's upstream, and whose answers are passed back unchanged."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from typing import Final, cast

from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from openresponses_bridge.errors import BridgeError
from openresponses_server.errors import HttpError, error_body, shutting_down, too_long, too_slow
from openresponses_server.http.flow import BodyReader, cut_of
from openresponses_server.requests.forwarding import ENDPOINTS, ForwardedRequest, prepare_forwarding
from openresponses_server.requests.service import Service, service_of
from openresponses_server.surfaces.responder import ClientMonitor
from openresponses_server.upstreams.base import ForwardedReply
from openresponses_server.upstreams.routing.routes import tried_header

_TYPE: Final = re.compile(
    r"[a-z0-9.+-]{1,64}/[a-z0-9.+-]{1,64}(?:; ?[a-z0-9_-]{1,32}=[\"A-Za-z0-9'()+_,./:=?-]{1,70}){0,4}",
    re.IGNORECASE,
)
_DISPOSITION: Final = re.compile(r"(?:attachment|inline)(?:; ?filename=\"?[A-Za-z0-9 ._-]{1,100}\"?)?")
_LENGTH: Final = re.compile(r"[0-9]{1,15}")
_UNKNOWN_TYPE: Final = "application/octet-stream"
_STREAM_TYPE: Final = "text/event-stream"


async def forward(request: Request) -> ASGIApp:
    """Answer with the upstream's unchanged answer."""
    service = service_of(request)
    endpoint = ENDPOINTS[request.scope["path"]]
    return ForwardingResponder(await prepare_forwarding(request, service, endpoint), service)


ROUTES: Final[list[BaseRoute]] = [Route(path, forward, methods=["POST"]) for path in ENDPOINTS]


class ForwardingResponder:
    """An ASGI application that passes one request on and its answer back. An answer that breaks after its
    beginning is cut off; a stream of events gets the error as its last event."""

    def __init__(self, forwarded: ForwardedRequest, service: Service) -> None:
        self._forwarded = forwarded
        self._service = service
        self._begun = False
        self._ended = False
        self._streams = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused: BridgeError | None = None
        received = self._forwarded.received

        async def watch_client(_begun: float) -> bool:
            await received.wait()  # until then the request reads what the client sends
            while (await receive())["type"] != "http.disconnect":
                pass
            return not self._ended

        try:
            async with ClientMonitor(watch_client, self._service.settings.keep_alive):
                try:
                    with self._forwarded.outcome:
                        await self._make(scope, send)
                except BridgeError as error:
                    refused = error
            if refused is not None:
                raise refused
        finally:
            vars(self).clear()  # tracebacks refer to this object until the next garbage collection

    async def _make(self, scope: Scope, send: Send) -> None:
        """Send the request and its answer. Raises HttpError if it fails before the answer has begun."""
        gate, total = self._service.gate, self._service.settings.timeouts.total
        failure: HttpError | None = None
        try:
            async with asyncio.timeout(total) as deadline, gate.slot(self._forwarded.owner, waits=False):
                gate.deadlines.add(deadline)
                try:
                    async with self._forwarded.attempts as reply:
                        self._forwarded.received.set()  # answered, perhaps before it was read completely
                        await self._answer(cast(ForwardedReply, reply), send)
                finally:
                    gate.deadlines.discard(deadline)
        except TimeoutError:
            failure = shutting_down() if gate.cut.is_set() else too_slow(total)
        except HttpError as error:
            failure = error
        if failure is None:
            return
        if not self._begun:
            raise failure
        self._ended = True
        self._forwarded.end(failure)
        if self._streams:
            last = b"\n\ndata: %b\n\n" % error_body(failure)
            await send({"type": "http.response.body", "body": last, "more_body": False})
        else:
            cut_of(scope)()

    async def _answer(self, reply: ForwardedReply, send: Send) -> None:
        forwarded, most = self._forwarded, self._service.settings.limits.output_bytes
        started = time.perf_counter()
        reader = BodyReader(reply)
        data = await reader.read()
        forwarded.attempts.commit()
        forwarded.outcome.answered_at = time.perf_counter()
        forwarded.timing.first = time.perf_counter() - started
        headers = self._headers(reply.headers)
        forwarded.usage.begin(headers["content-type"])
        announced = headers.get("content-length")
        if announced is not None and int(announced) > most:
            raise too_long(most)
        head = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        self._begun = True
        size = 0
        while data:
            size += len(data)
            if size > most:
                raise too_long(most)
            forwarded.usage.feed(data)
            await send({"type": "http.response.body", "body": data, "more_body": True})
            data = await reader.read()
        self._ended = True
        forwarded.end()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the headers of the answer. Only these few of the upstream's are passed on, if they are
        well-formed: others are about its connection, its cookies or its accounts."""
        kind = headers.get("content-type", "")
        shown = {
            "content-type": kind if _TYPE.fullmatch(kind) else _UNKNOWN_TYPE,
            "x-content-type-options": "nosniff",
        }
        self._streams = shown["content-type"].lower().startswith(_STREAM_TYPE)
        if self._streams:
            shown |= {"cache-control": "no-store", "x-accel-buffering": "no"}
        length, disposition = headers.get("content-length", ""), headers.get("content-disposition", "")
        if _LENGTH.fullmatch(length) and "content-encoding" not in headers and not self._streams:
            shown["content-length"] = length
        if _DISPOSITION.fullmatch(disposition):
            shown["content-disposition"] = disposition
        return shown | self._forwarded.headers | tried_header(self._forwarded.attempts.choice.tried)

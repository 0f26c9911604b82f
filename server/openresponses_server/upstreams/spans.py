"""A span for each request to an upstream, from its sending to the end of the answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import msgspec
from opentelemetry import context, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from openresponses_server.errors import UpstreamError
from openresponses_server.observation.tracing import LONGEST, outgoing, tracer
from openresponses_server.settings import Timeouts
from openresponses_server.upstreams.base import Upstream, UpstreamReply, UpstreamRequest, UpstreamWrapper
from openresponses_server.upstreams.connections import Connect, HttpResponse, Requests


class SpannedUpstream(UpstreamWrapper):
    """An `Upstream` each of whose requests is a span; what its answer brings passes untouched."""

    def __init__(self, upstream: Upstream) -> None:
        super().__init__(upstream)
        self._tracer = tracer()
        self._where = _place(upstream.address)
        self._where["gen_ai.provider.name"] = upstream.name

    def open(self, request: UpstreamRequest) -> AbstractAsyncContextManager[UpstreamReply]:
        span = self._tracer.start_span("chat", kind=SpanKind.CLIENT)
        # Without an SDK, or where this one is not sampled, the context has what is passed on already.
        if span is trace.INVALID_SPAN or not span.is_recording():
            return self.inner.open(request)
        return self._open(request, span)

    @asynccontextmanager
    async def _open(self, request: UpstreamRequest, span: Span) -> AsyncIterator[UpstreamReply]:
        model = _model_of(request.body)[:LONGEST]
        span.update_name(f"chat {model}")
        span.set_attributes(self._where)
        span.set_attributes({"gen_ai.operation.name": "chat", "gen_ai.request.model": model})
        try:
            async with AsyncExitStack() as stack:
                token = context.attach(trace.set_span_in_context(span))
                try:
                    reply = await stack.enter_async_context(self.inner.open(request))
                finally:
                    context.detach(token)
                yield reply
        except UpstreamError as error:
            span.set_attributes({"error.type": error.code, "http.response.status_code": error.http_status})
            span.set_status(Status(StatusCode.ERROR, error.code))
            raise
        finally:
            span.end()


def propagating(connect: Connect) -> Connect:
    """The same connections; requests name the span in whose context they are made."""

    def connected(name: str, timeouts: Timeouts) -> Requests:
        return _Propagating(connect(name, timeouts))

    return connected


class _Propagating:
    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], data: bytes = b""
    ) -> HttpResponse:
        return await self._requests.request(method, url, headers={**headers, **outgoing()}, data=data)

    async def close(self) -> None:
        await self._requests.close()


class _Named(msgspec.Struct):
    model: str = ""


def _model_of(body: bytes) -> str:
    """The model that a request names; the rest of it is not decoded."""
    try:
        return msgspec.json.decode(body, type=_Named).model
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return ""


def _place(address: str) -> dict[str, str | int]:
    parts = urlsplit(address)
    if not parts.hostname:
        return {}
    port = parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    found: dict[str, str | int] = {"server.address": parts.hostname}
    if port is not None:
        found["server.port"] = port
    return found

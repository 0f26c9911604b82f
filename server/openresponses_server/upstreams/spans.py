"""A span for each request to an upstream, from its sending to the end of the answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import msgspec
from opentelemetry import context, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from openresponses_server.errors import UpstreamError
from openresponses_server.http.client.upload import Upload
from openresponses_server.observation.tracing import LONGEST, outgoing, tracer
from openresponses_server.settings import Timeouts
from openresponses_server.settings.hosts import PORTS
from openresponses_server.upstreams.base import (
    HttpClient,
    HttpClientFactory,
    HttpResponse,
    Upstream,
    UpstreamReply,
    UpstreamRequest,
    UpstreamWrapper,
)


class SpannedUpstream(UpstreamWrapper):
    """An `Upstream` that makes a span for each request."""

    def __init__(self, upstream: Upstream) -> None:
        super().__init__(upstream)
        self._tracer = tracer()
        self._server_attributes = _server_attributes_of(upstream.address)
        self._server_attributes["gen_ai.provider.name"] = upstream.name

    def open(self, request: UpstreamRequest) -> AbstractAsyncContextManager[UpstreamReply]:
        span = self._tracer.start_span("chat", kind=SpanKind.CLIENT)
        # without an SDK, and for a request that is not sampled, the context already has the outer span
        if span is trace.INVALID_SPAN or not span.is_recording():
            return self.inner.open(request)
        return self._open(request, span)

    @asynccontextmanager
    async def _open(self, request: UpstreamRequest, span: Span) -> AsyncIterator[UpstreamReply]:
        model = (request.model or _model_of(request.body))[:LONGEST]
        span.update_name(f"{request.operation} {model}")
        span.set_attributes(self._server_attributes)
        span.set_attributes({"gen_ai.operation.name": request.operation, "gen_ai.request.model": model})
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


def propagating(connect: HttpClientFactory) -> HttpClientFactory:
    """A factory of the same clients, whose requests carry the current span's context."""

    def propagating_client(name: str, timeouts: Timeouts) -> HttpClient:
        return _PropagatingClient(connect(name, timeouts))

    return propagating_client


class _PropagatingClient:
    """An `HttpClient` that adds the headers of the current span's context."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        data: bytes | Upload = b"",
        session: str = "",
    ) -> HttpResponse:
        traced = {**headers, **outgoing()}
        return await self._client.request(method, url, headers=traced, data=data, session=session)

    async def close(self) -> None:
        await self._client.close()


class _RequestModel(msgspec.Struct):
    """The only field of a request that is decoded."""

    model: str = ""


def _model_of(body: bytes) -> str:
    """The model that a request names, or ""."""
    try:
        return msgspec.json.decode(body, type=_RequestModel).model
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return ""


def _server_attributes_of(address: str) -> dict[str, str | int]:
    parts = urlsplit(address)
    if not parts.hostname:
        return {}
    port = parts.port or PORTS.get(parts.scheme)
    found: dict[str, str | int] = {"server.address": parts.hostname}
    if port is not None:
        found["server.port"] = port
    return found

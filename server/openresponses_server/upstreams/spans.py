"""A span for each request to an upstream, from its sending to the end of the answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from opentelemetry import context, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from openresponses_server.errors import UpstreamError
from openresponses_server.http.client.upload import Upload
from openresponses_server.http.flow import Sink
from openresponses_server.observation.measurements import Measurements
from openresponses_server.observation.spans import stop_sequences
from openresponses_server.observation.tracing import (
    Attributes,
    error_of,
    error_type,
    name_of,
    number_of,
    outgoing,
    tracer,
)
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
from openresponses_server.upstreams.providers import provider_of


class SpannedUpstream(UpstreamWrapper):
    """An `Upstream` that makes a span for each request, and measures it if there is `measured`."""

    def __init__(self, upstream: Upstream, measured: Measurements | None = None) -> None:
        super().__init__(upstream)
        self._tracer = tracer()
        self._measured = measured
        self._known = known_of(upstream)
        self._attributes = {**self._known, "openresponses.upstream": upstream.name}

    def open(self, request: UpstreamRequest) -> AbstractAsyncContextManager[UpstreamReply]:
        operation, model = request.operation, name_of(request.model)
        span = self._tracer.start_span(
            f"{operation} {model}",
            kind=SpanKind.CLIENT,
            # a sampler may want them
            attributes={
                **self._attributes,
                "gen_ai.operation.name": operation,
                "gen_ai.request.model": model,
            },
        )
        # without an SDK, and for a request that is not sampled, the context already has the outer span
        if self._measured is None and (span is trace.INVALID_SPAN or not span.is_recording()):
            return self.inner.open(request)
        return self._open(request, span)

    @asynccontextmanager
    async def _open(self, request: UpstreamRequest, span: Span) -> AsyncIterator[UpstreamReply]:
        started, error, accepted = time.perf_counter(), "", False
        try:
            if span.is_recording():
                span.set_attributes(sent_attributes(request.body))
            async with AsyncExitStack() as stack:
                token = context.attach(trace.set_span_in_context(span))
                try:
                    reply = await stack.enter_async_context(self.inner.open(request))
                finally:
                    context.detach(token)
                accepted = True
                chunks = _Chunks(span, started, self._measured, self._named(request, accepted=True))
                yield TimedReply(reply, chunks) if request.stream else reply
        except UpstreamError as failure:
            error = error_type(failure.code)
            span.set_attribute("http.response.status_code", failure.http_status)
            raise
        except (Exception, asyncio.CancelledError) as raised:
            error = error_of(raised)
            raise
        finally:
            if self._measured is not None:
                named = self._named(request, accepted=accepted)
                self._measured.requested(named, time.perf_counter() - started, error)
            if error:
                span.set_attribute("error.type", error)
                span.set_status(Status(StatusCode.ERROR, error))
            span.end()

    def _named(self, request: UpstreamRequest, *, accepted: bool) -> Attributes:
        """The attributes of what is measured of a request."""
        if self._measured is None:
            return {}
        return self._measured.of_request(self._known, request.operation, request.model, accepted=accepted)


class _Chunks:
    """Measures the chunks of one answer."""

    __slots__ = ("_attributes", "_last", "_measured", "_span", "_started")

    def __init__(
        self, span: Span, started: float, measured: Measurements | None, attributes: Attributes
    ) -> None:
        """`started` is when the request was made, by the performance counter."""
        self._span = span
        self._started = started
        self._measured = measured
        self._attributes = attributes
        self._last = 0.0

    def received(self) -> bool:
        """A chunk was received; returns whether the next one is to be measured."""
        now, measured = time.perf_counter(), self._measured
        if self._last:
            if measured is not None:
                measured.chunk(self._attributes, now - self._last)
        else:
            seconds = now - self._started
            self._span.set_attribute("gen_ai.response.time_to_first_chunk", seconds)
            if measured is not None:
                measured.first_chunk(self._attributes, seconds)
        self._last = now
        return measured is not None


class TimedReply:
    """The reply to a streamed request. A chunk is what one read brings."""

    __slots__ = ("_chunks", "_reply", "_sink", "losses", "pause", "resume", "whole")

    def __init__(self, reply: UpstreamReply, chunks: _Chunks) -> None:
        self._reply = reply
        self._chunks: _Chunks | None = chunks
        self._sink: Sink | None = None
        self.losses, self.whole = reply.losses, reply.whole
        self.pause, self.resume = reply.pause, reply.resume

    def start(self, sink: Sink) -> None:
        if self._chunks is None:
            self._reply.start(sink)
            return
        self._sink = sink
        self._reply.start(self)

    def feed(self, data: bytes) -> None:
        """The next bytes of the stream."""
        if self._chunks is not None and not self._chunks.received():
            self._chunks = None
        if self._sink is not None:
            self._sink.feed(data)

    def end(self, error: Exception | None) -> None:
        """The stream has ended."""
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.end(error)


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

    def prewarm(
        self, url: str, *, headers: Mapping[str, str], session: str = "", conversation: str = ""
    ) -> None:
        self._client.prewarm(
            url, headers={**headers, **outgoing()}, session=session, conversation=conversation
        )

    async def close(self) -> None:
        await self._client.close()


class _Sent(msgspec.Struct):
    """The fields of a request in any dialect that are parameters; nothing else of it is kept."""

    stream: Any = None
    max_tokens: Any = None
    max_completion_tokens: Any = None
    max_output_tokens: Any = None
    temperature: Any = None
    top_p: Any = None
    top_k: Any = None
    seed: Any = None
    frequency_penalty: Any = None
    presence_penalty: Any = None
    n: Any = None
    stop: Any = None
    stop_sequences: Any = None
    text: Any = None
    response_format: Any = None
    output_config: Any = None
    interactions: Any = msgspec.field(default=None, name="generation_config")
    gemini: Any = msgspec.field(default=None, name="generationConfig")
    bedrock: Any = msgspec.field(default=None, name="inferenceConfig")


_NUMBERS: Final = {
    "max_tokens": (
        "max_tokens",
        "max_completion_tokens",
        "max_output_tokens",
        "maxOutputTokens",
        "maxTokens",
    ),
    "temperature": ("temperature",),
    "top_p": ("top_p", "topP"),
    "top_k": ("top_k", "topK"),
    "seed": ("seed",),
    "frequency_penalty": ("frequency_penalty", "frequencyPenalty"),
    "presence_penalty": ("presence_penalty", "presencePenalty"),
    "choice.count": ("n", "candidateCount"),
}
"""A parameter in the convention → its names in the dialects."""
_STOPS: Final = ("stop", "stop_sequences", "stopSequences")


def sent_attributes(body: bytes) -> dict[str, Any]:
    """The parameters of a request in a dialect, by the convention's names; none of a body that is not
    JSON."""
    try:
        sent = msgspec.structs.asdict(msgspec.json.decode(body, type=_Sent))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return {}
    for dialect in ("interactions", "gemini", "bedrock"):
        if isinstance(sent[dialect], dict):
            sent |= sent[dialect]
    attributes: dict[str, Any] = {}
    for name, spellings in _NUMBERS.items():
        value = next((sent[each] for each in spellings if sent.get(each) is not None), None)
        if (number := number_of(value)) is not None:
            attributes[f"gen_ai.request.{name}"] = number
    if attributes.get("gen_ai.request.choice.count") == 1:
        del attributes["gen_ai.request.choice.count"]
    stops = next(filter(None, map(stop_sequences, map(sent.get, _STOPS))), None)
    if stops is not None:
        attributes["gen_ai.request.stop_sequences"] = stops
    if sent["stream"] is True:
        attributes["gen_ai.request.stream"] = True
    if (output_type := _output_type(sent)) is not None:
        attributes["gen_ai.output.type"] = output_type
    return attributes


def _output_type(sent: dict[str, Any]) -> str | None:
    """The kind of output that a request in any dialect asks for in so many words."""
    formats = (sent["response_format"], _format_in(sent["text"]), _format_in(sent["output_config"]))
    kind = next((each.get("type") for each in formats if isinstance(each, dict)), None)
    if kind == "text" or sent.get("responseMimeType") == "text/plain":
        return "text"
    is_json = kind in ("json_object", "json_schema") or sent.get("responseMimeType") == "application/json"
    return "json" if is_json else None


def _format_in(value: Any) -> Any:
    return value.get("format") if isinstance(value, dict) else None


def known_of(upstream: Upstream) -> Attributes:
    """What is known of an upstream: its provider and its address."""
    attributes: Attributes = {"gen_ai.provider.name": provider_of(upstream.address, upstream.name)}
    parts = urlsplit(upstream.address)
    if not parts.hostname:
        return attributes
    port = parts.port or PORTS.get(parts.scheme)
    attributes["server.address"] = parts.hostname
    if port is not None:
        attributes["server.port"] = port
    return attributes

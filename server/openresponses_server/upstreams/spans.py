"""A span for each request to an upstream, from its sending to the end of the answer."""

from __future__ import annotations

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
from openresponses_server.observation.spans import stop_sequences
from openresponses_server.observation.tracing import error_type, name_of, number_of, outgoing, tracer
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
    """An `Upstream` that makes a span for each request."""

    def __init__(self, upstream: Upstream) -> None:
        super().__init__(upstream)
        self._tracer = tracer()
        self._attributes = {
            **_server_attributes_of(upstream.address),
            "gen_ai.provider.name": provider_of(upstream.address, upstream.name),
            "openresponses.upstream": upstream.name,
        }

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
        if span is trace.INVALID_SPAN or not span.is_recording():
            return self.inner.open(request)
        return self._open(request, span)

    @asynccontextmanager
    async def _open(self, request: UpstreamRequest, span: Span) -> AsyncIterator[UpstreamReply]:
        try:
            span.set_attributes(sent_attributes(request.body))
            async with AsyncExitStack() as stack:
                token = context.attach(trace.set_span_in_context(span))
                try:
                    started = time.perf_counter()
                    reply = await stack.enter_async_context(self.inner.open(request))
                finally:
                    context.detach(token)
                yield TimedReply(reply, span, started) if request.stream else reply
        except UpstreamError as error:
            span.set_attribute("http.response.status_code", error.http_status)
            _fail(span, error_type(error.code))
            raise
        except Exception as error:
            _fail(span, type(error).__name__)
            raise
        finally:
            span.end()


def _fail(span: Span, kind: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, kind))


class TimedReply:
    """The reply to a streamed request. Its first chunk is what the first read brings."""

    __slots__ = ("_reply", "_sink", "_span", "_started", "losses", "pause", "resume", "whole")

    def __init__(self, reply: UpstreamReply, span: Span, started: float) -> None:
        """`started` is when the request was made, by the performance counter."""
        self._reply = reply
        self._span: Span | None = span
        self._started = started
        self._sink: Sink | None = None
        self.losses, self.whole = reply.losses, reply.whole
        self.pause, self.resume = reply.pause, reply.resume

    def start(self, sink: Sink) -> None:
        if self._span is None:
            self._reply.start(sink)
            return
        self._sink = sink
        self._reply.start(self)

    def feed(self, data: bytes) -> None:
        """The next bytes of the stream."""
        span, self._span = self._span, None
        if span is not None:
            seconds = time.perf_counter() - self._started
            span.set_attribute("gen_ai.response.time_to_first_chunk", seconds)
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
    found: dict[str, Any] = {}
    for name, spellings in _NUMBERS.items():
        given = next((sent[each] for each in spellings if sent.get(each) is not None), None)
        if (number := number_of(given)) is not None:
            found[f"gen_ai.request.{name}"] = number
    if found.get("gen_ai.request.choice.count") == 1:
        del found["gen_ai.request.choice.count"]
    stops = next(filter(None, map(stop_sequences, map(sent.get, _STOPS))), None)
    if stops is not None:
        found["gen_ai.request.stop_sequences"] = stops
    if sent["stream"] is True:
        found["gen_ai.request.stream"] = True
    if (wanted := _output_type(sent)) is not None:
        found["gen_ai.output.type"] = wanted
    return found


def _output_type(sent: dict[str, Any]) -> str | None:
    """The kind of output that a request in any dialect asks for in so many words."""
    formats = (sent["response_format"], _format_in(sent["text"]), _format_in(sent["output_config"]))
    wanted = next((each.get("type") for each in formats if isinstance(each, dict)), None)
    if wanted == "text" or sent.get("responseMimeType") == "text/plain":
        return "text"
    is_json = wanted in ("json_object", "json_schema") or sent.get("responseMimeType") == "application/json"
    return "json" if is_json else None


def _format_in(value: Any) -> Any:
    return value.get("format") if isinstance(value, dict) else None


def _server_attributes_of(address: str) -> dict[str, str | int]:
    parts = urlsplit(address)
    if not parts.hostname:
        return {}
    port = parts.port or PORTS.get(parts.scheme)
    found: dict[str, str | int] = {"server.address": parts.hostname}
    if port is not None:
        found["server.port"] = port
    return found

"""A span for each response, from its request to its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import Token
from typing import Any, Final

from msgspec import Struct
from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from openresponses_bridge.protocol.request import CreateResponse, JsonSchemaFormatParam
from openresponses_bridge.protocol.response import JsonObjectFormat, Response, TextFormat
from openresponses_bridge.protocol.usage import Usage
from openresponses_server.observation.measurements import Measurements
from openresponses_server.observation.responses import HANDED_OVER, EndedRun, LoggedEnd, RunWatch
from openresponses_server.observation.tracing import (
    TOOL,
    Attributes,
    ToolSpan,
    error_of,
    error_type,
    name_of,
    number_of,
    tracer,
)

_PROPAGATOR: Final = TraceContextTextMapPropagator()
_TRACEPARENT: Final = "traceparent"
_EXECUTE: Final = "execute_tool"
_MOST_STOPS: Final = 16  # stop sequences in a span
_REASONS: Final = {"max_output_tokens": "length", "content_filter": "content_filter"}


class Spans:
    """Makes the spans of one application's responses. `upstreams` has the attributes of each upstream, by its
    name in the settings; `measured` has the metrics, None without an SDK for them."""

    def __init__(self, upstreams: Mapping[str, Attributes], measured: Measurements | None) -> None:
        self._tracer = tracer()
        self._upstreams = upstreams
        self._measured = measured

    def parent(self, headers: Mapping[str, str]) -> Context:
        """Return the parent of a response's span: the current span, else the one in the client's headers."""
        current = context.get_current()
        if current and trace.get_current_span(current).get_span_context().is_valid:
            return current
        return _PROPAGATOR.extract(headers) if _TRACEPARENT in headers else Context()

    def response(
        self,
        parent: Any,
        model: str,
        request_id: str,
        operation: str = "chat",
        asked: Callable[[], Attributes] = dict,
        answered: Callable[[Sequence[Any], str], Attributes] | None = None,
    ) -> ResponseSpan:
        """Return the span of a response, as a `Watch`."""
        named = name_of(model), request_id, operation
        return ResponseSpan(self._tracer, self._upstreams, self._measured, parent, *named, asked, answered)

    def tool(self, name: str, call_id: str, kind: str) -> RunningTool:
        """Return the span of one run of a tool."""
        return RunningTool(self._tracer, self._measured, name, call_id, kind)


class RunningTool:
    """The span of one run of a tool, while it is entered. It has no baggage, which the MCP SDK would send."""

    __slots__ = (
        *("_asked_at", "_attributes", "_error", "_measured", "_name", "_span", "_started", "_tokens"),
        "_tracer",
    )

    def __init__(
        self, tracer: trace.Tracer, measured: Measurements | None, name: str, call_id: str, kind: str
    ) -> None:
        self._tracer = tracer
        self._measured = measured
        self._started = 0.0
        self._asked_at: float | None = None  # when an MCP server was asked
        self._name = name_of(name)
        self._attributes: Attributes = {
            "gen_ai.operation.name": _EXECUTE,
            "gen_ai.tool.name": self._name,
            "gen_ai.tool.call.id": name_of(call_id),
            "gen_ai.tool.type": kind,
        }
        self._error = ""
        self._span: trace.Span = trace.INVALID_SPAN
        self._tokens: tuple[Token[ToolSpan | None], Any] | None = None

    def __enter__(self) -> RunningTool:
        self._span = self._tracer.start_span(f"{_EXECUTE} {self._name}", attributes=self._attributes)
        self._started = time.perf_counter()
        if self._span is not trace.INVALID_SPAN or self._measured is not None:
            current = trace.set_span_in_context(self._span, Context())
            self._tokens = TOOL.set(self), context.attach(current)
        return self

    def add(self, attributes: Attributes) -> None:
        if "mcp.method.name" in attributes:
            self._asked_at = time.perf_counter()
        self._attributes |= attributes
        self._span.set_attributes(attributes)
        if (name := attributes.get("gen_ai.tool.name")) is not None:
            self._span.update_name(f"{_EXECUTE} {name}")

    def fail(self, kind: str) -> None:
        self._error = error_type(kind)

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None, _: object) -> None:
        if self._tokens is not None:
            TOOL.reset(self._tokens[0])
            context.detach(self._tokens[1])
            self._tokens = None
        if raised is not None:
            self._error = error_of(raised)
        if (measured := self._measured) is not None:
            now = time.perf_counter()
            measured.ran_tool(self._attributes, now - self._started, self._error)
            if self._asked_at is not None:
                measured.called_mcp(self._attributes, now - self._asked_at, self._error)
        if self._error:
            self._span.set_attribute("error.type", self._error)
            self._span.set_status(Status(StatusCode.ERROR, self._error))
        self._span.end()


class ResponseSpan(RunWatch, Struct):
    """The span of a run. It is the current span during the run, so that the spans of upstreams are its
    children."""

    tracer: trace.Tracer
    upstreams: Mapping[str, Attributes]
    measured: Measurements | None
    parent: Any
    model: str
    request_id: str
    operation: str
    asked: Callable[[], Attributes]
    answered: Callable[[Sequence[Any], str], Attributes] | None
    span: trace.Span = trace.INVALID_SPAN
    token: Any = None

    def begin(self) -> None:
        self.span = self.tracer.start_span(
            f"{self.operation} {self.model}",
            context=self.parent,
            kind=SpanKind.SERVER,
            attributes={
                "gen_ai.operation.name": self.operation,
                "gen_ai.request.model": self.model,
                "openresponses.request.id": self.request_id,
            },
        )
        if self.span is not trace.INVALID_SPAN:  # spans are not collected, and the client sent none
            self.token = context.attach(trace.set_span_in_context(self.span))
        if self.span.is_recording():
            self.span.set_attributes(self.asked())
        else:
            self.answered = None
        self.asked = dict  # it refers to the request, which is freed before the response ends

    def end(self, ended: EndedRun, logged_end: LoggedEnd) -> None:
        if self.token is not None:
            context.detach(self.token)
            self.token = None
        span, error = self.span, error_type(logged_end.code or "") if logged_end.status == "failed" else ""
        if self.measured is not None and logged_end != HANDED_OVER:
            of_upstream = self.upstreams.get(ended.upstream, {})
            answered = ended.timing.first is not None
            named = self.measured.of_request(of_upstream, self.operation, ended.model, accepted=answered)
            self.measured.responded(named, ended, error)
        if span is trace.INVALID_SPAN:
            return
        if span.is_recording():
            span.set_attributes(_attributes(ended, logged_end))
            if self.answered is not None:
                output = ended.response.output
                span.set_attributes(self.answered(output, _finish_reason(ended.response, logged_end)))
            if ended.upstream:
                of_upstream = self.upstreams.get(ended.upstream, {})
                provider = of_upstream.get("gen_ai.provider.name", ended.upstream)
                span.set_attribute("gen_ai.provider.name", provider)
            if error:
                span.set_attribute("error.type", error)
                span.set_status(Status(StatusCode.ERROR, error))
            for case in ended.noticed:
                span.add_event(
                    f"openresponses.{case.kind}",
                    {"openresponses.where": name_of(case.where), "openresponses.times": case.times},
                )
        span.end()


def request_attributes(body: CreateResponse, *, stream: bool, choices: int, conversation: str) -> Attributes:
    """Return what a request sets, without what a person or a model wrote. The body is read without copying
    it."""
    attributes: Attributes = {
        "gen_ai.request.max_tokens": number_of(body.max_output_tokens),
        "gen_ai.request.temperature": number_of(body.temperature),
        "gen_ai.request.top_p": number_of(body.top_p),
        "gen_ai.request.top_k": number_of(body.top_k),
        "gen_ai.request.seed": number_of(body.seed),
        "gen_ai.request.frequency_penalty": number_of(body.frequency_penalty),
        "gen_ai.request.presence_penalty": number_of(body.presence_penalty),
        "gen_ai.request.stop_sequences": stop_sequences(body.stop),
        "gen_ai.request.stream": stream or None,
        "gen_ai.request.choice.count": choices if choices != 1 else None,
        "gen_ai.output.type": _output_type(body),
        "gen_ai.conversation.id": name_of(conversation) or None,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def stop_sequences(stop: Any) -> list[str] | None:
    """Return the first stop sequences, each cut to the length of a name; None without any."""
    texts = [stop] if isinstance(stop, str) else stop if isinstance(stop, list) else []
    return [name_of(each) for each in texts[:_MOST_STOPS] if isinstance(each, str)] or None


def _output_type(body: CreateResponse) -> str | None:
    """Return the kind of output that the request explicitly asks for; None if it does not."""
    text_format = None if body.text is None else body.text.format
    if isinstance(text_format, TextFormat):
        return "text"
    return "json" if isinstance(text_format, JsonObjectFormat | JsonSchemaFormatParam) else None


def _attributes(ended: EndedRun, logged_end: LoggedEnd) -> Attributes:
    response = ended.response
    attributes: Attributes = {
        "gen_ai.response.id": response.id,
        "gen_ai.response.finish_reasons": [_finish_reason(response, logged_end)],
        "openresponses.response.status": logged_end.status,
    }
    if ended.model:
        attributes["gen_ai.response.model"] = name_of(ended.model)
        attributes["openresponses.upstream"] = ended.upstream
    if response.usage is not None:
        attributes |= _tokens(response.usage)
    if ended.timing.first is not None:
        attributes["openresponses.first_token_seconds"] = ended.timing.first
    return attributes


def _tokens(usage: Usage) -> Attributes:
    """Return the counts of tokens in a response. Those of parts are left out if they are 0: an upstream that
    has none and one that does not report them can't be distinguished."""
    attributes: Attributes = {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
    }
    parts = {
        "gen_ai.usage.cache_read.input_tokens": usage.input_tokens_details.cached_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.output_tokens_details.reasoning_tokens,
    }
    attributes |= {name: tokens for name, tokens in parts.items() if tokens}
    if usage.estimated is True:
        attributes["openresponses.usage.estimated"] = True
    return attributes


def _finish_reason(response: Response, logged_end: LoggedEnd) -> str:
    if logged_end.status == "completed":
        calls = any(item.type.endswith("_call") for item in response.output)
        return "tool_calls" if calls else "stop"
    return _REASONS.get(
        logged_end.code or "", "error" if logged_end.status == "failed" else logged_end.status
    )

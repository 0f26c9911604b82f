"""A span for each response, from its request to its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct
from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from openresponses_bridge.protocol.response import Response
from openresponses_server.observation.responses import EndedRun, LoggedEnd, RunWatch
from openresponses_server.observation.tracing import LONGEST, tracer

_PROPAGATOR: Final = TraceContextTextMapPropagator()
_TRACEPARENT: Final = "traceparent"
_REASONS: Final = {"max_output_tokens": "length", "content_filter": "content_filter"}


class Spans:
    """Makes the spans of one application's responses."""

    def __init__(self) -> None:
        self._tracer = tracer()

    def parent(self, headers: Mapping[str, str]) -> Context:
        """The parent of a response's span: the current span, else the one in the client's headers."""
        current = context.get_current()
        if current and trace.get_current_span(current).get_span_context().is_valid:
            return current
        return _PROPAGATOR.extract(headers) if _TRACEPARENT in headers else Context()

    def response(self, parent: Any, model: str, request_id: str, operation: str = "chat") -> ResponseSpan:
        """The span of a response, as a `Watch`."""
        return ResponseSpan(self._tracer, parent, model[:LONGEST], request_id, operation)


class ResponseSpan(RunWatch, Struct):
    """The span of a run. It is the current span during the run, so that the spans of upstreams are its
    children."""

    tracer: trace.Tracer
    parent: Any
    model: str
    request_id: str
    operation: str = "chat"
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

    def end(self, ended: EndedRun, said: LoggedEnd) -> None:
        if self.token is not None:
            context.detach(self.token)
            self.token = None
        span = self.span
        if span is trace.INVALID_SPAN:
            return
        if span.is_recording():
            span.set_attributes(_attributes(ended, said))
            if said.status == "failed":
                span.set_attribute("error.type", said.code or "_OTHER")
                span.set_status(Status(StatusCode.ERROR, said.code))
            for case in ended.noticed:
                span.add_event(
                    f"openresponses.{case.kind}",
                    {"openresponses.where": case.where[:LONGEST], "openresponses.times": case.times},
                )
        span.end()


def _attributes(ended: EndedRun, said: LoggedEnd) -> dict[str, Any]:
    response = ended.response
    found: dict[str, Any] = {
        "gen_ai.response.id": response.id,
        "gen_ai.response.finish_reasons": [_finish_reason(response, said)],
        "openresponses.response.status": said.status,
    }
    if ended.model:
        found["gen_ai.response.model"] = ended.model[:LONGEST]
        found["gen_ai.provider.name"] = ended.upstream
    if response.usage is not None:
        found["gen_ai.usage.input_tokens"] = response.usage.input_tokens
        found["gen_ai.usage.output_tokens"] = response.usage.output_tokens
    if ended.timing.first is not None:
        found["openresponses.first_token_seconds"] = ended.timing.first
    return found


def _finish_reason(response: Response, said: LoggedEnd) -> str:
    if said.status == "completed":
        calls = any(item.type.endswith("_call") for item in response.output)
        return "tool_calls" if calls else "stop"
    return _REASONS.get(said.code or "", "error" if said.status == "failed" else said.status)

"""The tracer, and the context of spans in headers.

The conventions for generative AI are those of the schema that the spans name; where they have nothing,
attributes begin with `openresponses.`. Of the context only `traceparent` and `tracestate` are read and sent:
baggage is what strangers wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Protocol

from openresponses_server.observation.responses import Watch

if TYPE_CHECKING:  # it may be missing, and is loaded when the first span is made
    from opentelemetry.trace import Tracer

SCHEMA: Final = "https://opentelemetry.io/schemas/1.37.0"
LONGEST: Final = 80  # characters of a name that a client gives


class ResponseSpans(Protocol):
    """What makes the spans of responses: `spans.Spans`, where OpenTelemetry's API is there."""

    def parent(self, headers: Mapping[str, str]) -> Any:
        """The context of a request with these headers, in which its responses are made."""
        ...

    def response(self, parent: Any, model: str, request_id: str) -> Watch:
        """The span of a response that is to be made."""
        ...


def is_installed() -> bool:
    """Whether OpenTelemetry's API is there (the extra `[otel]`)."""
    return find_spec("opentelemetry") is not None and find_spec("opentelemetry.trace") is not None


def tracer() -> Tracer:
    """Makes spans, which are nothing as long as no SDK is configured."""
    from opentelemetry import trace

    return trace.get_tracer("openresponses-bridge", schema_url=SCHEMA)


def outgoing() -> dict[str, str]:
    """The headers that name the span which is open now."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers)
    return headers

"""The tracer, and the context of spans in headers.

Attributes follow the conventions for generative AI of the schema that the spans name; others begin with
`openresponses.`. Only `traceparent` and `tracestate` are read and sent, not baggage, which anyone could have
written.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Protocol

from openresponses_server.observation.responses import Watch

if TYPE_CHECKING:  # it may be missing, and is imported with the first span
    from opentelemetry.trace import Tracer

SCHEMA: Final = "https://opentelemetry.io/schemas/1.37.0"
LONGEST: Final = 80  # characters of a name from a client


class ResponseSpans(Protocol):
    """Makes the spans of responses: `spans.Spans`, if OpenTelemetry's API is installed."""

    def parent(self, headers: Mapping[str, str]) -> Any:
        """The context in which the responses to a request with these headers are made."""
        ...

    def response(self, parent: Any, model: str, request_id: str, operation: str = "chat") -> Watch:
        """The span of a response that is to be made; `operation` is in OpenTelemetry's names."""
        ...


def is_installed() -> bool:
    """Return True if OpenTelemetry's API is installed (the extra `[otel]`)."""
    return find_spec("opentelemetry") is not None and find_spec("opentelemetry.trace") is not None


def tracer() -> Tracer:
    """The tracer. Without a configured SDK its spans do nothing."""
    from opentelemetry import trace

    return trace.get_tracer("openresponses-bridge", schema_url=SCHEMA)


def outgoing() -> dict[str, str]:
    """The headers that name the current span."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers)
    return headers

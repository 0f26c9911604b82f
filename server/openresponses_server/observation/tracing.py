"""The tracer, and the context of spans in headers.

Attributes follow OpenTelemetry's conventions for generative AI, in the version of the schema that the spans
name; our own begin with `openresponses.`. Only `traceparent` and `tracestate` are read and sent, not baggage,
which anyone could have written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Protocol

from openresponses_server.observation.responses import Watch

if TYPE_CHECKING:  # OpenTelemetry may be missing, and is imported with the first span
    from opentelemetry.metrics import Meter
    from opentelemetry.trace import Tracer

SCHEMA: Final = "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev"
LONGEST: Final = 80  # characters of a name from a client or an upstream
_BEYOND: Final = 2**63  # OTLP has integers of 64 bits
_API: Final = "opentelemetry.metrics"  # the module of the API's own providers
OTHER: Final = "_OTHER"
"""The convention's `error.type` for errors without a name."""

Attributes = dict[str, Any]
"""Attributes of a span, by the names of the convention."""


class ResponseSpans(Protocol):
    """Makes the spans of responses: `spans.Spans`, if OpenTelemetry's API is installed."""

    def parent(self, headers: Mapping[str, str]) -> Any:
        """Return the context in which the responses to a request with these headers are made."""
        ...

    def response(
        self,
        parent: Any,
        model: str,
        request_id: str,
        operation: str = "chat",
        asked: Callable[[], Attributes] = dict,
        answered: Callable[[Sequence[Any], str], Attributes] | None = None,
    ) -> Watch:
        """Return the span of a response that is to be made; `operation` is one of OpenTelemetry's names.
        `asked` returns attributes of the request, and is called once if the span is recorded; `answered` then
        returns attributes of the output and of the reason why it ended."""
        ...

    def tool(self, name: str, call_id: str, kind: str) -> AbstractContextManager[ToolSpan]:
        """Return the span of one run of a tool, a child of the current span and the parent of the tool's own
        requests; `kind` is a `gen_ai.tool.type`. It is entered in a task of its own."""
        ...


class ToolSpan(Protocol):
    """The span of a tool that runs."""

    def add(self, attributes: Attributes) -> None:
        """Add attributes that are known by now."""
        ...

    def fail(self, kind: str) -> None:
        """Record that the tool has failed, with this `error.type`."""
        ...


TOOL: Final[ContextVar[ToolSpan | None]] = ContextVar("tool_span", default=None)
"""The span of the tool that the current task runs."""


def describe_tool(attributes: Attributes) -> None:
    """Add these attributes to the span of the tool that the current task runs, if there is one."""
    if (span := TOOL.get()) is not None:
        span.add(attributes)


def is_installed() -> bool:
    """Return True if OpenTelemetry's API is installed (the extra `[otel]`)."""
    return find_spec("opentelemetry") is not None and find_spec("opentelemetry.trace") is not None


def tracer() -> Tracer:
    """Return the tracer. Its spans do nothing if no SDK is configured."""
    from opentelemetry import trace

    return trace.get_tracer("openresponses-bridge", schema_url=SCHEMA)


def meter() -> Meter | None:
    """Return the meter; None if no SDK is configured, so that only the API's own providers exist."""
    from opentelemetry import metrics

    provider = metrics.get_meter_provider()
    if type(provider).__module__.startswith(_API):
        return None
    return provider.get_meter("openresponses-bridge", schema_url=SCHEMA)


def outgoing() -> dict[str, str]:
    """The headers that name the current span."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers)
    return headers


def name_of(text: str) -> str:
    """Return the text as the value of an attribute: a name of limited length, without incomplete characters,
    because of which an exporter would lose its whole batch."""
    return text[:LONGEST].encode(errors="replace").decode()


def number_of(value: Any) -> int | float | None:
    """Return the number as the value of an attribute; None for one that no exporter can send."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and abs(value) < _BEYOND else None


def error_type(code: str) -> str:
    """Return an error's code as `error.type`: a short word, or the convention's value for all others."""
    return name_of(code) if 0 < len(code) <= LONGEST and len(code.split()) == 1 else OTHER


def error_of(raised: BaseException) -> str:
    """Return the `error.type` of an exception: its class, or that the work was cancelled."""
    return "cancelled" if isinstance(raised, asyncio.CancelledError) else error_type(type(raised).__name__)

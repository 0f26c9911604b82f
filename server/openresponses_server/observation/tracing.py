"""The tracer, and the context of spans in headers.

Attributes follow OpenTelemetry's conventions for generative AI, in the schema that the spans name; others
begin with `openresponses.`. Only `traceparent` and `tracestate` are read and sent, not baggage, which anyone
could have written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Protocol

from openresponses_server.observation.responses import Watch

if TYPE_CHECKING:  # it may be missing, and is imported with the first span
    from opentelemetry.metrics import Meter
    from opentelemetry.trace import Tracer

SCHEMA: Final = "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev"
LONGEST: Final = 80  # characters of a name from a client or an upstream
_BEYOND: Final = 2**63  # OTLP has integers of 64 bits
_API: Final = "opentelemetry.metrics"  # where its own providers are
OTHER: Final = "_OTHER"
"""The convention's `error.type` for what has no name."""

Attributes = dict[str, Any]
"""Attributes of a span, by the names of the convention."""


class ResponseSpans(Protocol):
    """Makes the spans of responses: `spans.Spans`, if OpenTelemetry's API is installed."""

    def parent(self, headers: Mapping[str, str]) -> Any:
        """The context in which the responses to a request with these headers are made."""
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
        """The span of a response that is to be made; `operation` is in OpenTelemetry's names. `asked` gives
        what the request has set, and is called once, if the span is recorded; `answered` then gives what more
        there is to say of the output and why it ended."""
        ...

    def tool(self, name: str, call_id: str, kind: str) -> AbstractContextManager[ToolSpan]:
        """The span of one run of a tool, as a child of the current span and the parent of what the tool
        asks; `kind` is a `gen_ai.tool.type`. A task of its own enters it."""
        ...


class ToolSpan(Protocol):
    """The span of a tool that runs."""

    def add(self, attributes: Attributes) -> None:
        """Add what is known of the tool by now."""
        ...

    def fail(self, kind: str) -> None:
        """The tool has failed, with this `error.type`."""
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
    """The tracer. Without a configured SDK its spans do nothing."""
    from opentelemetry import trace

    return trace.get_tracer("openresponses-bridge", schema_url=SCHEMA)


def meter() -> Meter | None:
    """The meter; None without a configured SDK, whose place the API's own providers keep."""
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
    """The text as the value of an attribute: a name of bounded length, in whole characters, without which an
    exporter loses all that it sends together."""
    return text[:LONGEST].encode(errors="replace").decode()


def number_of(value: Any) -> int | float | None:
    """The number as the value of an attribute; None for what no exporter can send as one."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and abs(value) < _BEYOND else None


def error_type(code: str) -> str:
    """An error's code as `error.type`: a short word, or the convention's value for all else."""
    return name_of(code) if 0 < len(code) <= LONGEST and len(code.split()) == 1 else OTHER


def error_of(raised: BaseException) -> str:
    """The `error.type` of an exception: its class, or that what it ended was cancelled."""
    return "cancelled" if isinstance(raised, asyncio.CancelledError) else error_type(type(raised).__name__)

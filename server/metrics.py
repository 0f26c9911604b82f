"""What Prometheus reads at `/metrics`: counts and times by surface and upstream, never by client, key,
model or content, so that no secret gets in and the number of series is bounded."""

from __future__ import annotations

from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from bridge.protocol.response import Response
from server.gate import Gate

_PREFIX: Final = "openresponses_bridge"
_SECONDS: Final = (0.005, 0.025, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)


class Metrics:
    """One per application."""

    def __init__(self, gate: Gate) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            f"{_PREFIX}_requests",
            "Requests that were answered.",
            ["route", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            f"{_PREFIX}_request_seconds",
            "Time from a request to the end of its answer.",
            ["route"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._first = Histogram(
            f"{_PREFIX}_first_byte_seconds",
            "Time from a request to the first byte of its answer.",
            ["route"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._asked = Counter(
            f"{_PREFIX}_upstream_requests",
            "Requests to upstreams; the outcome is `accepted` or the status of the refusal.",
            ["upstream", "outcome"],
            registry=self._registry,
        )
        self._responses = Counter(
            f"{_PREFIX}_responses",
            "Responses that have ended.",
            ["upstream", "status"],
            registry=self._registry,
        )
        self._tokens = Counter(
            f"{_PREFIX}_tokens",
            "Tokens as upstreams counted them.",
            ["upstream", "kind"],
            registry=self._registry,
        )
        for name, what, share in (
            ("running", "Responses being made now.", gate.runs),
            ("waiting", "Background responses that wait for their turn here now.", gate.waiting),
            ("readers", "Readers of stored responses now.", gate.readers),
        ):
            gauge = Gauge(f"{_PREFIX}_{name}", what, registry=self._registry)
            gauge.set_function(partial(getattr, share, "count"))

    def answered(self, route: str, status: int, first_byte: float | None, seconds: float) -> None:
        """A request has its answer; `status` 0 means that the client left before. Times are seconds."""
        self._requests.labels(route, str(status or "none")).inc()
        self._seconds.labels(route).observe(seconds)
        if first_byte is not None:
            self._first.labels(route).observe(first_byte)

    def asked(self, upstream: str, outcome: str) -> None:
        """An upstream has taken a request or refused it."""
        self._asked.labels(upstream, outcome).inc()

    def ended(self, upstream: str, response: Response) -> None:
        """A response is over."""
        self._responses.labels(upstream, response.status).inc()
        if response.usage is not None:
            self._tokens.labels(upstream, "input").inc(response.usage.input_tokens)
            self._tokens.labels(upstream, "output").inc(response.usage.output_tokens)

    def text(self) -> bytes:
        """All of it in Prometheus' format."""
        return generate_latest(self._registry)

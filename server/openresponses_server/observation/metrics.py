"""The metrics at `/metrics`: counts and times by surface, upstream and model, never by client, key or
content, so that they contain no secrets and the number of series is limited."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from openresponses_server.errors import Outage
from openresponses_server.observation.metric_values import FOLDER, BatchHistogram, remove_stopped
from openresponses_server.observation.responses import GAPS, EndedRun, LoggedEnd, Watch
from openresponses_server.tasks import jittered

# Metrics of responses are by upstream and model. Clients choose the names of models, so the number of names
# that become labels is limited.

_MOST_NAMES: Final = 100
_LONGEST: Final = 80  # characters of a label
_OTHER: Final = "other"
_FIRST_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2.5, 5, 10, 20, 30, 60, 120, 300)
_RUN_SECONDS: Final = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)


class Labels:
    """Maps names, such as those of models, to labels. Names in the settings always have a label of their own;
    of others, those that were answered first have one, and all further names are `other`."""

    def __init__(self, known: Collection[str] = (), most: int = _MOST_NAMES, *, other: str = _OTHER) -> None:
        self._known = frozenset(known)
        self._most = most
        self._other = other
        self._found: set[str] = set()

    def label(self, name: str, *, answered: bool) -> str:
        """Return the label of this name. A new one is added only if `answered`."""
        if not name or name in self._known or name in self._found:
            return name[:_LONGEST]
        if not answered or len(self._found) == self._most or len(name) > _LONGEST:
            return self._other
        self._found.add(name)
        return name


class RunMetrics(Watch):
    """Counters and times of responses; `known` are the models that the settings name."""

    def __init__(self, registry: CollectorRegistry, prefix: str, known: Collection[str] = ()) -> None:
        self._models = Labels(known)
        by_model = ["upstream", "model"]
        self._responses = Counter(
            f"{prefix}_responses",
            "Responses that have ended.",
            [*by_model, "status"],
            registry=registry,
        )
        self._tokens = Counter(
            f"{prefix}_tokens",
            "Tokens as upstreams counted them.",
            [*by_model, "kind"],
            registry=registry,
        )
        self._noticed = Counter(
            f"{prefix}_diagnostics",
            "What was repaired in an answer, lost of a request, or ignored, by kind.",
            [*by_model, "kind"],
            registry=registry,
        )
        self._first = Histogram(
            f"{prefix}_first_token_seconds",
            "Time from a request to the first output of its response.",
            by_model,
            buckets=_FIRST_SECONDS,
            registry=registry,
        )
        self._gaps = BatchHistogram(
            f"{prefix}_token_gap_seconds",
            "Time between two tokens; those that came in one read share the time since the one before.",
            by_model,
            buckets=GAPS,
            registry=registry,
        )
        self._seconds = Histogram(
            f"{prefix}_response_seconds",
            "Time from a request to the end of its response.",
            by_model,
            buckets=_RUN_SECONDS,
            registry=registry,
        )

        # A look-up in prometheus_client costs more than the update.
        self._responses_of = cache(self._responses.labels)
        self._tokens_of = cache(self._tokens.labels)
        self._noticed_of = cache(self._noticed.labels)
        self._first_of = cache(self._first.labels)
        self._gaps_of = cache(self._gaps.labels)
        self._seconds_of = cache(self._seconds.labels)

    def end(self, ended: EndedRun, logged_end: LoggedEnd) -> None:
        """Count a response that has ended."""
        if not ended.has_end:
            return
        response, timing = ended.response, ended.timing
        labels = ended.upstream, self._models.label(ended.model, answered=timing.first is not None)
        self._responses_of(*labels, response.status).inc()
        self._seconds_of(*labels).observe(ended.seconds)
        if response.usage is not None and response.usage.estimated is not True:
            self._tokens_of(*labels, "input").inc(response.usage.input_tokens)
            self._tokens_of(*labels, "output").inc(response.usage.output_tokens)
        for case in ended.noticed:
            self._noticed_of(*labels, case.kind).inc(case.times)
        if timing.first is not None:
            self._first_of(*labels).observe(timing.first)
            if any(timing.gaps):
                self._gaps_of(*labels).add(timing.gaps, timing.seconds)

    refused = end


_PREFIX: Final = "openresponses_bridge"
_REFRESHED_EVERY: Final = 2.0  # seconds
_CALL_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SECONDS: Final = (0.005, 0.025, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)


class HasCount(Protocol):
    """A current count."""

    @property
    def count(self) -> int: ...


class Occupancy(Protocol):
    """The gate's current counts. `waited` is called with the seconds that a run has waited."""

    waited: Callable[[float], None]

    @property
    def runs(self) -> HasCount: ...
    @property
    def waiting(self) -> HasCount: ...
    @property
    def readers(self) -> HasCount: ...
    @property
    def sockets(self) -> HasCount: ...


def _tasks() -> int:
    """Return the number of tasks in the running event loop; 0 if no loop runs."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        return 0


class SocketCounts(Protocol):
    """The counts of one upstream's WebSockets."""

    observe: Callable[[str], None]
    observe_prewarmed: Callable[[str], None]
    open: int


class Metrics:
    """The metrics of one application; `models` are those that the settings name."""

    def __init__(self, gate: Occupancy, models: Collection[str] = ()) -> None:
        self._registry = CollectorRegistry()
        self.responses = RunMetrics(self._registry, _PREFIX, models)
        self._requests = self._counter("requests", "Requests that were answered.", "route", "status")
        self._seconds = self._histogram(
            "request_seconds", "Time from a request to the end of its answer.", "route"
        )
        self._first = self._histogram(
            "first_byte_seconds", "Time from a request to the first byte of its answer.", "route"
        )
        what = "Requests to upstreams; the outcome is `accepted` or the status of the refusal."
        self._asked = self._counter("upstream_requests", what, "upstream", "outcome")
        what = "Requests for which another route was asked instead of this upstream, by cause."
        self._failovers = self._counter("failovers", what, "upstream", "cause")
        what = "Requests to upstreams with WebSockets: `continued`, `whole`, or over `http` instead."
        self._socket_requests = self._counter("upstream_websocket_requests", what, "upstream", "way")
        what = "WebSockets to upstreams to be opened ahead: `used`, `unused`, `refused` or `limited`."
        self._prewarmed_sockets = self._counter("upstream_websockets_prewarmed", what, "upstream", "outcome")
        self._sockets = Gauge(
            f"{_PREFIX}_upstream_websockets",
            "Open WebSockets to upstreams now.",
            ["upstream"],
            registry=self._registry,
            multiprocess_mode="livesum",
        )
        self._socket_counts: dict[str, SocketCounts] = {}
        what = "Time that calls of the session store took; `checkpoint` and `finish` keep runs."
        self._store_seconds = self._histogram("store_seconds", what, "call", buckets=_CALL_SECONDS)
        what = "Time that calls of a shared event log took, without those that a token waits for."
        self._log_seconds = self._histogram("event_log_seconds", what, "call", buckets=_CALL_SECONDS)
        what = "Calls of the session store, the event log and the shared limits that failed, by code."
        self._failures = self._counter("failures", what, "part", "call", "code")
        what = "Time that background responses waited: in the `queue` for a worker, and at it for a `place`."
        self._waited = self._histogram("background_wait_seconds", what, "where")
        what = "Responses of stopped workers that were ended here."
        self._settled = self._counter("runs_settled", what)
        what = "Responses that were deleted, or settled by another worker, while they were made here."
        self._lost = self._counter("runs_lost", what)
        what = "Requests beyond what their key may have: `requests`, `tokens` a minute, or `stored_bytes`."
        self._refused = self._counter("refused", what, "limit")
        self._requests_of = cache(self._requests.labels)
        self._seconds_of = cache(self._seconds.labels)
        self._first_of = cache(self._first.labels)
        self._asked_of = cache(self._asked.labels)
        self._routes_out = Gauge(
            f"{_PREFIX}_routes_out",
            "Upstreams, their keys and models with a key that are left out now, by state.",
            ["upstream", "state"],
            registry=self._registry,
            multiprocess_mode="livemax",
        )
        self.routes: Callable[[], Iterable[tuple[str, str, int]]] = tuple
        """Returns (upstream, state, number of its routes or their parts in that state)."""
        self.streams = 0
        """The number of answers in server-sent events that are being sent."""
        self.queued = 0
        """The number of background responses that wait for a worker, as of the last count."""
        gate.waited = self._waited.labels("place").observe
        self._gauges = self._gauges_of(gate)

    def _gauges_of(self, gate: Occupancy) -> list[tuple[Gauge, Callable[[], float]]]:
        return [
            (self._gauge(name, what, mode), value)
            for name, what, mode, value in (
                ("running", "Responses being made now.", "livesum", lambda: gate.runs.count),
                (
                    "waiting",
                    "Background responses that wait for a place now.",
                    "livesum",
                    lambda: gate.waiting.count,
                ),
                ("readers", "Readers of stored responses now.", "livesum", lambda: gate.readers.count),
                ("sockets", "Open WebSockets now.", "livesum", lambda: gate.sockets.count),
                ("streams", "Streamed answers being sent now.", "livesum", lambda: self.streams),
                ("tasks", "Tasks of the event loop now.", "livesum", _tasks),
                (
                    "queue_depth",
                    "Background responses that wait for any worker.",
                    "livemax",
                    lambda: self.queued,
                ),
            )
        ]

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(f"{_PREFIX}_{name}", what, labels, registry=self._registry)

    def _histogram(
        self, name: str, what: str, *labels: str, buckets: Sequence[float] = _SECONDS
    ) -> Histogram:
        return Histogram(f"{_PREFIX}_{name}", what, labels, buckets=buckets, registry=self._registry)

    def _gauge(self, name: str, what: str, mode: Any) -> Gauge:
        return Gauge(f"{_PREFIX}_{name}", what, registry=self._registry, multiprocess_mode=mode)

    def answered(self, route: str, status: int, first_byte: float | None, seconds: float) -> None:
        """Count a request that was answered; `status` is 0 if the client disconnected before. Times are in
        seconds."""
        self._requests_of(route, str(status or "none")).inc()
        self._seconds_of(route).observe(seconds)
        if first_byte is not None:
            self._first_of(route).observe(first_byte)

    def asked(self, upstream: str, outcome: str) -> None:
        """Count a request that an upstream has accepted or refused."""
        self._asked_of(upstream, outcome).inc()

    def moved(self, upstream: str, cause: str) -> None:
        """Count a request that is sent to another route instead of this upstream."""
        self._failovers.labels(upstream, cause).inc()

    def add_sockets(self, upstream: str, counts: SocketCounts) -> None:
        """Count the WebSockets of this upstream."""
        self._socket_counts[upstream] = counts
        counts.observe = lambda way: self._socket_requests.labels(upstream, way).inc()
        counts.observe_prewarmed = lambda outcome: self._prewarmed_sockets.labels(upstream, outcome).inc()

    def called(self, part: str, call: str, seconds: float, failure: str | None) -> None:
        """Count a call of the `store` or the `log`; `failure` is the code of its error."""
        (self._store_seconds if part == "store" else self._log_seconds).labels(call).observe(seconds)
        if failure is not None:
            self._failures.labels(part, call, failure).inc()

    def collected(self, seconds: float) -> None:
        """Count a background response that was claimed from the queue after these seconds."""
        self._waited.labels("queue").observe(max(seconds, 0.0))

    def settled(self) -> None:
        """Count a response of a stopped worker that this worker has ended."""
        self._settled.inc()

    def lost(self) -> None:
        """Count a response of this worker that was lost."""
        self._lost.inc()

    def refused(self, limit: str) -> None:
        """Count a request that exceeds this limit of its key."""
        self._refused.labels(limit).inc()

    def limits_failed(self, call: str, code: str) -> None:
        """Count a failed call of the shared limits."""
        self._failures.labels("limits", call, code).inc()

    def refresh(self) -> None:
        """Update the gauges, for the worker that serves `/metrics`."""
        for gauge, value in self._gauges:
            gauge.set(value())
        for upstream, state, count in self.routes():
            self._routes_out.labels(upstream, state).set(count)
        for upstream, counts in self._socket_counts.items():
            self._sockets.labels(upstream).set(counts.open)

    async def keep(self, depth: Callable[[], Awaitable[int]] | None) -> None:
        """Update the gauges periodically, until cancelled; `depth` counts the queued responses."""
        while True:
            if depth is not None:
                with suppress(Outage):
                    self.queued = await depth()
            self.refresh()
            await asyncio.sleep(jittered(_REFRESHED_EVERY))

    def text(self) -> bytes:
        """Return all metrics in Prometheus' format: those of all processes that share a folder, or of this
        one."""
        self.refresh()
        if FOLDER is None:
            return generate_latest(self._registry)
        remove_stopped(Path(FOLDER))
        together = CollectorRegistry()
        MultiProcessCollector(together, FOLDER)  # type: ignore[no-untyped-call]
        return generate_latest(together)

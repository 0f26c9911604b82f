"""What Prometheus reads of responses: by upstream and by model. Clients name models, so that there is a bound
on how many of those names become labels."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import Final

from prometheus_client import CollectorRegistry

from openresponses_server.observation.metric_values import Count, Spread
from openresponses_server.observation.responses import GAPS, Ended

_MOST_MODELS: Final = 100
_LONGEST: Final = 80  # characters of a label
_OTHER: Final = "other"
_FIRST_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2.5, 5, 10, 20, 30, 60, 120, 300)
_SECONDS: Final = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)


class Models:
    """Names of models → labels. Those that the settings name always have their own; of others the first
    ones for which an upstream has answered, and the rest is `other`."""

    def __init__(self, known: Collection[str] = (), most: int = _MOST_MODELS) -> None:
        self._known = frozenset(known)
        self._most = most
        self._found: set[str] = set()

    def label(self, model: str, *, answered: bool) -> str:
        """The label of this model; only one that has `answered` takes a place among those."""
        if not model or model in self._known or model in self._found:
            return model[:_LONGEST]
        if not answered or len(self._found) == self._most or len(model) > _LONGEST:
            return _OTHER
        self._found.add(model)
        return model


class RunMetrics:
    """Counters and times of responses; `known` are the models that the settings name."""

    def __init__(self, registry: CollectorRegistry, prefix: str, known: Collection[str] = ()) -> None:
        self._models = Models(known)
        by_model = ["upstream", "model"]
        self._responses = Count(
            f"{prefix}_responses",
            "Responses that have ended.",
            [*by_model, "status"],
            registry=registry,
        )
        self._tokens = Count(
            f"{prefix}_tokens",
            "Tokens as upstreams counted them.",
            [*by_model, "kind"],
            registry=registry,
        )
        self._noticed = Count(
            f"{prefix}_diagnostics",
            "What was repaired in an answer, lost of a request, or ignored, by kind.",
            [*by_model, "kind"],
            registry=registry,
        )
        self._first = Spread(
            f"{prefix}_first_token_seconds",
            "Time from a request to the first output of its response.",
            by_model,
            buckets=_FIRST_SECONDS,
            registry=registry,
        )
        self._gaps = Spread(
            f"{prefix}_token_gap_seconds",
            "Time between two tokens; those that came in one read share the time since the one before.",
            by_model,
            buckets=GAPS,
            registry=registry,
        )
        self._seconds = Spread(
            f"{prefix}_response_seconds",
            "Time from a request to the end of its response.",
            by_model,
            buckets=_SECONDS,
            registry=registry,
        )

        # A look-up in prometheus_client costs more than the count itself.
        self._responses_of = cache(self._responses.labels)
        self._tokens_of = cache(self._tokens.labels)
        self._noticed_of = cache(self._noticed.labels)
        self._first_of = cache(self._first.labels)
        self._gaps_of = cache(self._gaps.labels)
        self._seconds_of = cache(self._seconds.labels)

    def ended(self, ended: Ended) -> None:
        """A response is over."""
        response, pace = ended.response, ended.pace
        labels = ended.upstream, self._models.label(ended.model, answered=pace.first is not None)
        self._responses_of(*labels, response.status).inc()
        self._seconds_of(*labels).observe(ended.seconds)
        if response.usage is not None and response.usage.estimated is not True:
            self._tokens_of(*labels, "input").inc(response.usage.input_tokens)
            self._tokens_of(*labels, "output").inc(response.usage.output_tokens)
        for case in ended.noticed:
            self._noticed_of(*labels, case.kind).inc(case.times)
        if pace.first is not None:
            self._first_of(*labels).observe(pace.first)
            self._gaps_of(*labels).add(pace.gaps, pace.seconds)

"""Prometheus' counters and histograms without what costs more than the count itself, as every request counts
in a dozen of them: no exemplars, and children of labelled metrics alone are counted in."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from prometheus_client import Counter, Histogram


class Count(Counter):
    """What is counted rises."""

    def inc(self, amount: float = 1, exemplar: dict[str, str] | None = None) -> None:
        self._value.inc(amount)


class Spread(Histogram):
    """How many values are below each bound."""

    def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:
        self._sum.inc(amount)
        self._buckets[bisect_left(self._upper_bounds, amount)].inc(1)

    def add(self, counts: Sequence[int], total: float) -> None:
        """As many observations below each bound and beyond the last, which are `total` together."""
        for bucket, count in zip(self._buckets, counts, strict=True):
            if count:
                bucket.inc(count)
        self._sum.inc(total)

"""Prometheus' counters and histograms without what costs more than the count itself, as every request counts
in a dozen of them: no exemplars, and children of labelled metrics alone are counted in. A process that counts
by itself takes no lock, since only the thread of its event loop counts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final

from prometheus_client import Counter, Histogram

from openresponses_server.observation.metrics_folder import FOLDER

_ALONE: Final = FOLDER is None


class _Number:
    """A value of this process alone, with what the library asks of its own."""

    __slots__ = ("value",)

    def __init__(self, value: float) -> None:
        self.value = value

    def get(self) -> float:
        return self.value

    def get_exemplar(self) -> None:
        return None


class Count(Counter):
    """What is counted rises."""

    def _metric_init(self) -> None:
        super()._metric_init()
        self._value = _lighter(self._value)

    def inc(self, amount: float = 1, exemplar: dict[str, str] | None = None) -> None:
        if _ALONE:
            self._value.value += amount
        else:
            self._value.inc(amount)


class Spread(Histogram):
    """How many values are below each bound."""

    def _metric_init(self) -> None:
        super()._metric_init()
        self._sum = _lighter(self._sum)
        self._buckets: list[Any] = list(map(_lighter, self._buckets))

    def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:
        bucket = self._buckets[bisect_left(self._upper_bounds, amount)]
        if _ALONE:
            self._sum.value += amount
            bucket.value += 1
        else:
            self._sum.inc(amount)
            bucket.inc(1)

    def add(self, counts: Sequence[int], total: float) -> None:
        """As many observations below each bound and beyond the last, which are `total` together."""
        for bucket, count in zip(self._buckets, counts, strict=True):
            if count and _ALONE:
                bucket.value += count
            elif count:
                bucket.inc(count)
        if _ALONE:
            self._sum.value += total
        else:
            self._sum.inc(total)


def _lighter(value: Any) -> Any:
    """What counts like this new value of the library's; itself where other processes read it."""
    return _Number(value.get()) if _ALONE else value

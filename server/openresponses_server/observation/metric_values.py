"""Additions to prometheus-client: the folder through which the workers of a host add up their metrics, and a
histogram to which many observations are added at once."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.values import ValueClass

# The folder through which the workers of a host count together (prometheus-client's multi-process mode). Each
# worker writes its own files there; the one that serves `/metrics` adds them up.

_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"

FOLDER: Final = os.environ.get(_VARIABLE) or None
"""The folder; None if this process counts for itself. Read once at import, as prometheus-client does."""

if FOLDER is not None:
    os.makedirs(FOLDER, mode=0o700, exist_ok=True)


def share_metrics(workers: int) -> None:
    """Make the worker processes that this one starts count together. A folder that the environment names may
    be shared by several servers of this host."""
    if workers > 1 and not os.environ.get(_VARIABLE):
        folder = tempfile.mkdtemp(prefix="openresponses-bridge-metrics-")
        os.environ[_VARIABLE] = folder
        atexit.register(shutil.rmtree, folder, ignore_errors=True)


def remove_stopped(folder: Path) -> None:
    """Remove the gauges of stopped processes; their counters stay."""
    for file in folder.glob("gauge_live*.db"):
        number = file.stem.rpartition("_")[2]
        if number.isdecimal() and not _runs(int(number)):
            file.unlink(missing_ok=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class BatchHistogram:
    """A histogram to which many observations can be added at once, unlike prometheus-client's own."""

    def __init__(
        self,
        name: str,
        what: str,
        labels: Sequence[str],
        *,
        buckets: Sequence[float],
        registry: CollectorRegistry,
    ) -> None:
        self._name = name
        self._what = what
        self._labelnames = tuple(labels)
        self._bounds = [*(str(float(bound)) for bound in buckets), "+Inf"]
        self._children: dict[tuple[str, ...], _Observed] = {}
        registry.register(self)

    def labels(self, *values: str) -> _Observed:
        """Return the observations with these labels."""
        if values not in self._children:
            self._children[values] = _Observed(
                self._value("_sum", self._labelnames, values),
                [
                    self._value("_bucket", (*self._labelnames, "le"), (*values, bound))
                    for bound in self._bounds
                ],
            )
        return self._children[values]

    def collect(self) -> Iterator[Metric]:
        """Yield the metric for the registry of a single process. With several workers their files are read
        instead."""
        family = HistogramMetricFamily(self._name, self._what, labels=self._labelnames)
        for labels, child in self._children.items():
            up_to = accumulate(bucket.get() for bucket in child.buckets)
            family.add_metric(labels, list(zip(self._bounds, up_to, strict=True)), child.total.get())
        yield family

    def _value(self, suffix: str, labels: Sequence[str], values: Sequence[str]) -> Any:
        return ValueClass("histogram", self._name, self._name + suffix, labels, values, self._what)


class _Observed(NamedTuple):
    total: Any
    buckets: list[Any]

    def add(self, counts: Sequence[int], total: float) -> None:
        """Add observations: `counts` are the numbers of values up to each bound and beyond the last, `total`
        is their sum."""
        for bucket, count in zip(self.buckets, counts, strict=True):
            if count:
                bucket.inc(count)
        self.total.inc(total)

"""Prometheus' counters and histograms without what costs more than the count itself, as every request counts
in a dozen of them: no exemplars, and children of labelled metrics alone are counted in. A process that counts
by itself takes no lock, since only the thread of its event loop counts."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from prometheus_client import Counter, Histogram

# The folder through which the workers of a host count together (prometheus-client's multi-process mode).
#
# Each writes files of its own there, and whichever is asked for `/metrics` adds them up.

_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"

FOLDER: Final = os.environ.get(_VARIABLE) or None
"""None when this process counts by itself. prometheus-client looks once, when it is loaded; so does this."""

if FOLDER is not None:
    os.makedirs(FOLDER, mode=0o700, exist_ok=True)


def share_metrics(workers: int) -> None:
    """Have the worker processes that are started from here count together. A folder that the environment
    names already may be shared by several servers of this host."""
    if workers > 1 and not os.environ.get(_VARIABLE):
        folder = tempfile.mkdtemp(prefix="openresponses-bridge-metrics-")
        os.environ[_VARIABLE] = folder
        atexit.register(shutil.rmtree, folder, ignore_errors=True)


def forget_stopped(folder: Path) -> None:
    """Remove what stopped processes said there is at the moment; what they counted stays."""
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

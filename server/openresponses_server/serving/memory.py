"""The memory of the process: malloc's thresholds, garbage collection, and returning freed memory."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from contextlib import suppress
from typing import Final

# glibc's <malloc.h>
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8

_SETTINGS: Final = {
    _MMAP_THRESHOLD: ("MALLOC_MMAP_THRESHOLD_", 128 * 1024),
    _TRIM_THRESHOLD: ("MALLOC_TRIM_THRESHOLD_", 512 * 1024),
    _ARENA_MAX: ("MALLOC_ARENA_MAX", 2),
}

_MIN_REQUESTS: Final = 50  # before a collection is worth its time
_IDLE_TICKS: Final = 20  # in a row
_LONG_IDLE_TICKS: Final = 300  # after which connections to upstreams are closed
# thresholds of `gc.set_threshold`; a few fragments of one request already reach the default of 700 objects
_GENERATION_0: Final = 5_000
_GENERATION_1: Final = 1  # a collection of generation 1 takes 5 ms then
_GENERATION_2: Final = 50  # at most 500,000 objects in cycles wait for a collection


def tune_gc() -> None:
    """Freeze the objects of the start, and collect less often, since collections took a twentieth of the
    time.

    Older objects belong to running responses and are freed with them by reference counts: a full collection
    blocks the event loop, for 200 ms with 2,000 streams, and finds only what libraries leave in cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GENERATION_0, _GENERATION_1, _GENERATION_2)


class MemoryTrimmer:
    """Collects garbage and trims the heap when the process becomes idle after some requests, since that takes
    some milliseconds; and once more after a long idle time, when the connections to upstreams are closed: an
    object in one of Python's free lists keeps the megabyte of its arena."""

    def __init__(self) -> None:
        self._seen = 0
        self._idle = 0
        self._again = False

    def tick(self, requests: int, busy: bool) -> None:
        """Handle a tick, ten times a second, with the number of requests so far and whether one is in
        progress."""
        self._idle = 0 if busy else self._idle + 1
        if self._idle == _IDLE_TICKS and requests - self._seen >= _MIN_REQUESTS:
            self._seen = requests
            self._again = True
            trim_memory()
        elif self._idle == _LONG_IDLE_TICKS and self._again:
            self._again = False
            trim_memory()


def trim_memory() -> None:
    """Collect garbage and return freed memory to the system."""
    gc.collect()
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # musl has no malloc_trim
            ctypes.CDLL(None).malloc_trim(0)


def fix_malloc_thresholds() -> None:
    """Fix malloc's mmap threshold, trim threshold and number of arenas.

    glibc raises the mmap threshold to the largest block freed so far, up to 32 MB. After one long response,
    large blocks are allocated among small ones, and freed memory stays with the process: 385 MB instead of
    121 MB after three responses of 24 MB. An operator's own `MALLOC_…` variable is respected; without glibc
    this does nothing.
    """
    if sys.platform != "linux":
        return
    with suppress(OSError, AttributeError):  # musl has no mallopt
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, (variable, value) in _SETTINGS.items():
            if variable not in os.environ:
                mallopt(parameter, value)

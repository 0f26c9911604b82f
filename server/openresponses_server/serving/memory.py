"""How the process deals with memory: the C library's large blocks, Python's looks for garbage."""

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

_ENOUGH: Final = 50  # requests, after which it is worth to look what can be given back
_IDLE: Final = 20  # ticks in a row
_LONG_IDLE: Final = 300  # ticks, after which connections to upstreams that were kept have been closed
_NEW_OBJECTS: Final = 5_000  # between two looks for garbage; 700 are what some fragments of one request make
_SOON: Final = 1  # looks at new objects, between two at what these have left, which takes 5 ms then
_RARELY: Final = 500  # looks at those, between two at all


def look_less_for_garbage() -> None:
    """What is there when serving begins stays and is not looked at again; what is made later is looked
    at less often. Without this a twentieth of the time goes into it.

    What is not new any more belongs to responses that are being made, and goes with them: to look at all of
    it holds everything up, 200 ms with 2,000 streams, and finds nothing.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, _SOON, _RARELY)


class GivingBack:
    """Gives memory back when a process that had something to do is idle: what refers to itself is freed, and
    what the C library keeps of freed blocks goes to the system. Only then, as it takes some milliseconds; and
    again when all that was kept for further requests has been let go of: Python keeps some freed objects of
    a type for the next ones, and each of them holds the megabyte that it lies in."""

    def __init__(self) -> None:
        self._seen = 0
        self._idle = 0
        self._again = False

    def tick(self, requests: int, busy: bool) -> None:
        """Called ten times a second; `requests` is how many there have been, `busy` that one is being
        answered."""
        self._idle = 0 if busy else self._idle + 1
        if self._idle == _IDLE and requests - self._seen >= _ENOUGH:
            self._seen = requests
            self._again = True
            give_back_now()
        elif self._idle == _LONG_IDLE and self._again:
            self._again = False
            give_back_now()


def give_back_now() -> None:
    """Free what only refers to itself, and return what the C library holds of freed memory."""
    gc.collect()
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # musl has no malloc_trim
            ctypes.CDLL(None).malloc_trim(0)


def give_back_freed_memory() -> None:
    """Fix from which size a block is memory of its own.

    glibc raises that size to the largest block freed so far, up to 32 MB. After one long response the blocks
    of all later ones lie among small ones, and what is freed between those stays with the process: 385 MB
    instead of 121 MB after three responses of 24 MB. A variable of glibc's that an operator has set is left
    as it is; elsewhere than with glibc this does nothing.
    """
    if sys.platform != "linux":
        return
    with suppress(OSError, AttributeError):  # musl has no mallopt
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, (variable, value) in _SETTINGS.items():
            if variable not in os.environ:
                mallopt(parameter, value)

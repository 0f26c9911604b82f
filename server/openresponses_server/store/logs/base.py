"""Event logs behind one interface: what a run sends, readable from any number on, by any number of
readers, while it runs and for a while after.

A log is bounded, and may be lost; what was stored is not. A reader that gets `LogGap` or `LogGone` goes on
from the store's frames.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final, Protocol

from openresponses_server.errors import Outage
from openresponses_server.store.frames import Frames

LINGER: Final = 10.0
"""Seconds that a log stays after its run has ended and is stored: for those who were reading it."""

MARKED: Final = 300.0
"""Seconds that it is known of a log that it was discarded."""

LIFETIME: Final = 24 * 3600.0
"""Seconds that a log stays when nobody closes it; longer than any run."""

CHUNK_BYTES: Final = 64 * 1024
"""About how much a reader that is behind gets at once."""


class LogGone(Exception):
    """The log of this run does not exist: it was never opened, it expired, or it was lost."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"the event log of run {run_id} does not exist")
        self.run_id = run_id


class LogGap(Exception):
    """The log has frames after those that were read, but not the next ones: its limit was passed, or part
    of it was lost. `expected` is the number that is missing, `found` the first that is there."""

    def __init__(self, run_id: str, expected: int, found: int) -> None:
        super().__init__(f"the event log of run {run_id} goes on at {found}, not at {expected}")
        self.run_id = run_id
        self.expected = expected
        self.found = found


class LogError(Outage):
    """The log's server can't be reached: 503."""

    def __init__(
        self, message: str = "The event log can't be reached.", details: str = "", *, lasting: bool = False
    ) -> None:
        super().__init__("event_log_unavailable", message, details, lasting=lasting)


Answered = Callable[[Frames, bool], None]
"""Called with frames that a log was given, and whether they are known to be there."""


class EventLog(Protocol):
    """One writer per run, any number of readers. Readers never hold the writer up. One that is `at_hand`
    waits for no other machine and never raises LogError."""

    at_hand: bool

    async def check(self) -> None:
        """Ask once whether its server answers. Raises LogError."""
        ...

    async def open(self, run_id: str) -> None:
        """Begin an empty log; called before the run's id is sent anywhere. What was there is deleted. Raises
        LogGone when it was discarded."""
        ...

    async def append(self, run_id: str, frames: Frames) -> None:
        """Add the next frames; they are there for every reader when this returns.

        Raises LogGone when the log is closed, was discarded or never opened (unless its server lost it: then
        it begins anew), LogError when its server can't be reached. May then be called again.
        """
        ...

    def add(self, run_id: str, frames: Frames, answered: Answered) -> bool:
        """The same in a plain call, once for each read of an upstream: whether they are there. Otherwise
        `answered` is called later, where there is no task; frames that are not known to be there can be
        appended. Raises LogGone."""
        ...

    def read(self, run_id: str, after: int = -1, *, wait: bool = True) -> AsyncIterator[Frames]:
        """The frames with a number above `after`, to the byte, then, with `wait`, those to come until the log
        is closed. Raises LogGone, LogGap, LogError; the frames before that were whole."""
        ...

    async def close(self, run_id: str) -> None:
        """The run has ended: readers end behind its last frame, and after a while the log goes."""
        ...

    async def discard(self, run_id: str) -> None:
        """Delete the log for good; its readers get LogGone, and so does a writer."""
        ...

    async def shutdown(self) -> None:
        """Close connections and free memory."""
        ...

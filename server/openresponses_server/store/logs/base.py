"""The interface of event logs: the events that a run sends, readable from any number on, by any number of
readers, during the run and for a while after it. A log is bounded and may be lost; the store is not. A reader
that gets `LogGap` or `LogGone` continues with the store's frames."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final, Protocol

from openresponses_server.errors import Outage
from openresponses_server.store.frames import Frames

LINGER: Final = 10.0
"""Seconds that a log is kept for its readers after its run has ended and is stored."""

MARKED: Final = 300.0
"""Seconds that a discarded log is remembered."""

LIFETIME: Final = 24 * 3600.0
"""Seconds that a log is kept if nobody closes it; longer than any run."""

CHUNK_BYTES: Final = 64 * 1024
"""The size in bytes, about, of what a reader that is behind gets at once."""


class LogGone(Exception):
    """The log of this run does not exist: it was never opened, it expired, or it was lost."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"the event log of run {run_id} does not exist")
        self.run_id = run_id


class LogGap(Exception):
    """The log has later frames, but not the next ones: its limit was exceeded, or part of it was lost.
    `expected` is the missing number, `found` the first present one."""

    def __init__(self, run_id: str, expected: int, found: int) -> None:
        super().__init__(f"the event log of run {run_id} goes on at {found}, not at {expected}")
        self.run_id = run_id
        self.expected = expected
        self.found = found


class LogError(Outage):
    """The log's server can't be reached, or its disk can't be written: 503."""

    def __init__(
        self, message: str = "The event log can't be reached.", details: str = "", *, permanent: bool = False
    ) -> None:
        super().__init__("event_log_unavailable", message, details, permanent=permanent)


Failed = Callable[[asyncio.Future[bool]], None]
"""Called with the future that an `Appender` returned if it is not known that its frames are appended."""

Appender = Callable[[Frames, Failed], asyncio.Future[bool] | None]
"""Appends frames to one log. Returns None if they are appended, else a future whose result becomes True once
they are. If that can't be known, `Failed` is called instead, after this call has returned, and sets the
result itself. Raises LogGone, and LogError if these frames can't be appended now."""


class EventLog(Protocol):
    """An event log: one writer per run, any number of readers. Readers never block the writer."""

    at_hand: bool
    """True if it waits for no other machine and appends in a plain call."""

    shared: bool
    """True if other processes read and end these logs, and still have them when this process was killed."""

    async def check(self) -> None:
        """Check once whether the log's server answers soon. Raises LogError with the address in `details`."""
        ...

    async def open(self, run_id: str) -> None:
        """Open an empty log and delete an existing one; called before the run's id is sent anywhere. Raises
        LogGone if it was discarded."""
        ...

    async def append(self, run_id: str, frames: Frames) -> None:
        """Append frames; every reader can read them when this returns. Raises LogGone if the log is closed,
        was discarded or never opened (if its server lost the log, it begins anew), LogError if the server
        can't be reached. May be called again after that."""
        ...

    def appender(self, run_id: str) -> Appender | None:
        """Return a plain call that does the same without a task, used once for each read from an upstream
        until it fails; None if there is none before the next `append`. Frames that are not known to be
        appended may be appended again."""
        ...

    def read(self, run_id: str, after: int = -1, *, wait: bool = True) -> AsyncIterator[Frames]:
        """Yield the frames with a number above `after`, byte for byte; with `wait` also future ones until the
        log is closed. Raises LogGone, LogGap, LogError; all frames before that were complete."""
        ...

    async def acquire(self, run_id: str) -> None:
        """Take over the log from its writer, which has lost the run or was killed: what that one appends from
        now on is refused or not part of the log. Raises LogError."""
        ...

    def leave(self, run_id: str) -> None:
        """Append nothing more to a log that this writer does not close: another writer has it now, or it is
        gone."""
        ...

    async def close(self, run_id: str) -> None:
        """Close the log at the end of its run: readers end after its last frame, and later the log is
        deleted."""
        ...

    async def discard(self, run_id: str) -> None:
        """Delete the log for good; its readers get LogGone, and so does a writer."""
        ...

    async def shutdown(self) -> None:
        """Close connections and free memory."""
        ...

"""Writes the files of event logs to the disk at intervals, on a thread.

A disk reports an error only once: Linux returns it from the first `fsync` afterwards, and then no longer
knows that data are missing. So a log for which an error was reported is not relied on: its next events are
stored before they are sent, together with all since the last checkpoint. Events are logged again once a new
file was written to the disk.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

import structlog

_TOGETHER: Final = 32  # logs whose descriptors are duplicated at once
_LATE: Final = 10.0  # seconds after which a disk that does not answer is reported
_PROBE: Final = b"This file is written to the disk, and deleted.\n" * 100
_log = structlog.get_logger(__name__)


class Growing(Protocol):
    """A log, as far as it is written to the disk."""

    file: int
    """The descriptor of its file; negative when nothing more is appended here."""
    before: int
    """The descriptor of the previous file, if that may not be on the disk; else negative."""
    generation: int
    """A number that increases when the log continues in another file."""
    at: int
    """The bytes of its file."""
    on_disk: int
    """The number of those bytes that are on the disk."""
    distrusted: bool
    """True if the disk has refused what was appended to the log, or refused other logs when it was opened."""

    def release_before(self) -> None:
        """Close the descriptor of the previous file."""
        ...


class DiskSync:
    """Writes these logs, in this folder, to the disk every `seconds`: a power cut then loses no more than
    what was appended in that time. If one turn takes longer, the next waits for it. `name` is that of a file
    for testing whether the disk works."""

    def __init__(self, seconds: float, folder: Path, name: str, logs: Mapping[str, Growing]) -> None:
        self._seconds = seconds
        self._folder = folder
        self._probe = folder / name
        self._logs = logs
        self._timer: asyncio.TimerHandle | None = None
        self._is_going = False
        self._begun_at: float | None = None  # when the turn began
        self._refused: OSError | None = None  # in this turn
        self._is_tried = False
        self.error: OSError | None = None
        """The error of the disk; None while it works."""

    def begin(self) -> None:
        """Start writing the logs to the disk."""
        self._is_going = True
        self._pause()

    def end(self) -> None:
        """Start no more turns."""
        self._is_going = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def check(self) -> None:
        """Check that the disk can be written, by writing a file if nothing is known. Raises OSError, and
        TimeoutError if a turn takes far too long."""
        if not self._is_going and (self.error is not None or not self._is_tried):
            self._report(await asyncio.to_thread(_write_anew, self._probe))
        if self.error is not None:
            raise self.error
        if self._begun_at is not None and time.monotonic() - self._begun_at > self._seconds + _LATE:
            raise TimeoutError("the disk does not answer")

    def _pause(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._turn)

    def _turn(self) -> None:
        """Write what has changed to the disk, and a new file if the disk has refused."""
        logs = [log for log in self._logs.values() if log.file >= 0 and _has_grown(log)]
        if not logs and self.error is None:
            self._pause()
            return
        self._begun_at, self._refused = time.monotonic(), None
        self._go_on(logs)

    def _go_on(self, logs: Sequence[Growing]) -> None:
        """Write the first of these logs to the disk, through duplicated descriptors, since a log may be
        closed meanwhile."""
        some, rest = logs[:_TOGETHER], logs[_TOGETHER:]
        positions = [(log, log.generation, log.at) for log in some if log.file >= 0]
        files: list[int] = []
        try:
            for log, *_ in positions:
                files += (os.dup(file) for file in (log.before, log.file) if file >= 0)
        except OSError as error:
            _close_all(files)
            self._end_some(positions, (), error)
            return
        probe = self._probe if self.error is not None and not rest else None
        work = asyncio.get_running_loop().run_in_executor(
            None, _write_to_disk, files, None if rest else self._folder, probe
        )
        work.add_done_callback(lambda done: self._end_some(positions, rest, _error_of(done)))

    def _end_some(
        self,
        positions: Sequence[tuple[Growing, int, int]],
        rest: Sequence[Growing],
        error: OSError | None,
    ) -> None:
        for log, generation, at in positions:
            if error is None and log.generation == generation:
                log.on_disk = at
                log.release_before()
        self._refused = self._refused or error
        if error is not None:
            self._report(error)
        if not self._is_going:
            return
        if rest:
            self._go_on(rest)
            return
        self._begun_at = None
        self._report(self._refused)
        self._pause()

    def _report(self, error: OSError | None) -> None:
        """Distrust all logs if there is an error, and log the first one of several."""
        self._is_tried = True
        if error is not None:
            for log in self._logs.values():
                log.distrusted = True
            if self.error is None:
                reason = error.strerror or str(error)
                _log.warning("event_log.not_synced", folder=str(self._folder), reason=reason)
        self.error = error


def _has_grown(log: Growing) -> bool:
    return log.at != log.on_disk or log.before >= 0


def _error_of(done: asyncio.Future[OSError | None]) -> OSError | None:
    return None if done.cancelled() else done.result()


def _write_to_disk(files: list[int], folder: Path | None, probe: Path | None) -> OSError | None:
    """Write these files to the disk and close them, then their names in the folder. Returns an error, if
    there was one; all files are tried despite it."""
    failed: OSError | None = None
    for file in files:
        failed = _tried_on(file) or failed
    _close_all(files)
    if probe is not None:
        failed = _write_anew(probe) or failed
    if folder is not None:
        failed = _write_names(folder) or failed
    return failed


def _tried_on(file: int) -> OSError | None:
    write = getattr(os, "fdatasync", os.fsync)  # macOS has the second only
    try:
        write(file)
    except OSError as error:
        return error
    return None


def _write_names(folder: Path) -> OSError | None:
    try:
        names = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(names)
        finally:
            os.close(names)
    except OSError as error:
        return error
    return None


def _write_anew(path: Path) -> OSError | None:
    """Write a new file to the disk, and delete it. Returns the error, if there was one."""
    try:
        path.unlink(missing_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            if os.write(file, _PROBE) < len(_PROBE):
                return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return _tried_on(file)
        finally:
            os.close(file)
            with suppress(OSError):
                path.unlink()
    except OSError as error:
        return error


def _close_all(files: list[int]) -> None:
    for file in files:
        os.close(file)

"""A loop's entries in a file: each durable before the loop goes on, read when it is resumed."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path
from types import TracebackType
from typing import Final

from openresponses_bridge.loop import (
    JournalError,
    LoopBegun,
    LoopEntry,
    LoopState,
    RoundMade,
    decode_entries,
    encode_entry,
)
from openresponses_bridge.loop.journal import LINE_END

_MOST_BYTES: Final = 1 << 30
_BEGINNING: Final = encode_entry(LoopBegun(""))[:15]  # of any journal


class JournalFile:
    """A context manager: opens the file, made for its user alone if there is none, and locks it against other
    runs; `entries` are those that it has. Raises JournalError for a file that another run has open or that is
    not a journal, OSError where it can't be used."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        self._last_round: RoundMade | None = None
        self.entries: list[LoopEntry] = []

    def __enter__(self) -> JournalFile:
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._lock()
            self._read()
        except BaseException:
            os.close(self._file)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    @property
    def identity(self) -> tuple[int, int]:
        """The device and the number of the file that is open."""
        status = os.fstat(self._file)
        return status.st_dev, status.st_ino

    def record(self, entry: LoopEntry) -> None:
        """Append an entry, on the disk when this returns. Raises OSError, and the file is then as it was."""
        before = os.lseek(self._file, 0, os.SEEK_END)
        rest = memoryview(encode_entry(entry, self._last_round))
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
            os.fsync(self._file)
        except OSError:
            os.ftruncate(self._file, before)
            raise
        self._remember(entry)

    def _remember(self, entry: LoopEntry) -> None:
        """The next round's line refers to this one's."""
        if isinstance(entry, RoundMade):
            self._last_round = entry

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise JournalError(JournalError.INVALID, f"{self._path} is in use by another run") from error

    def _read(self) -> None:
        status = os.fstat(self._file)
        if not stat.S_ISREG(status.st_mode):  # a device may be read without end
            raise JournalError(JournalError.INVALID, f"{self._path} is not a regular file")
        if status.st_size > _MOST_BYTES:
            raise JournalError(JournalError.INVALID, f"{self._path} is larger than {_MOST_BYTES} bytes")
        with os.fdopen(os.dup(self._file), "rb") as file:
            data = file.read()
        try:
            self.entries = list(decode_entries(data))
            LoopState(self.entries)
        except JournalError as error:
            raise JournalError(JournalError.INVALID, f"{self._path}: {error.message}") from error
        for entry in self.entries:
            self._remember(entry)
        if not self.entries and not data.startswith(_BEGINNING) and not _BEGINNING.startswith(data):
            raise JournalError(JournalError.INVALID, f"{self._path} is not a journal of a run")
        os.ftruncate(self._file, data.rfind(LINE_END) + 1)  # a process stopped while it wrote the rest

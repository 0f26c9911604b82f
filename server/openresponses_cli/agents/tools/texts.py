"""Reads all texts of a folder within limits of files, bytes and time, so that no repository can keep a tool
busy or exhaust the memory."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from openresponses_agent.tools.errors import CancellationToken, ToolInvocationError
from openresponses_cli.agents.tools.folder import Folder

SKIPPED: Final = frozenset(
    {
        ".git",
        "node_modules",
        "__pycache__",
        ".venv",
        ".hypothesis",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
    }
)
"""Folders that are skipped: their files were not written for this project."""
_MOST_FILES: Final = 20_000  # and folders
_MOST_FILE_BYTES: Final = 1_000_000
_MOST_BYTES: Final = 64_000_000
_SECONDS: Final = 10.0


class Text(NamedTuple):
    """A file: its path relative to the folder, and its text with bytes that are not UTF-8 replaced."""

    path: str
    text: str


class Texts:
    """One pass over a folder. Files that are larger than `most_file_bytes`, binary or not readable are
    skipped; `cut_short` is the reason if not all files were read, else "". It runs in a thread, which can't
    be stopped: between two files it checks its token and raises ToolCallCancelledError.
    """

    def __init__(
        self,
        folder: Folder,
        token: CancellationToken,
        *,
        most_files: int = _MOST_FILES,
        most_file_bytes: int = _MOST_FILE_BYTES,
        most_bytes: int = _MOST_BYTES,
        seconds: float = _SECONDS,
    ) -> None:
        self.cut_short = ""
        self._folder = folder
        self._token = token
        self._most_files = most_files
        self._most_file_bytes = most_file_bytes
        self._left = most_bytes
        self._until = time.monotonic() + seconds
        self._seconds = seconds
        self._folders = 0

    def read(self, first: Iterable[str] = ()) -> Iterator[Text]:
        """Yield all texts, those at the paths `first` before the others."""
        names = list(dict.fromkeys("/".join(self._folder.steps(path)) for path in first))
        try:
            for name in names:
                yield from self._file(name)
            seen, files = frozenset(names), 0
            for name in self._folder.files("", skipped=SKIPPED, most=self._most_files, go_on=self._go_into):
                files += 1
                if name not in seen:
                    yield from self._file(name)
            if max(files, self._folders) >= self._most_files:
                self.cut_short = f"there are more than {self._most_files} files or folders"
        except _LimitReached:
            return

    def _file(self, name: str) -> Iterator[Text]:
        self._go_on()
        try:
            data = self._folder.read(name, self._most_file_bytes)
        except ToolInvocationError:
            return
        self._left -= len(data)
        if self._left < 0:
            self._over("the files have too many bytes")
        if b"\0" not in data:
            yield Text(name, data.decode(errors="replace"))

    def _go_into(self) -> None:
        self._folders += 1
        self._go_on()

    def _go_on(self) -> None:
        self._token.check()
        if time.monotonic() > self._until:
            self._over(f"it took more than {self._seconds:g} seconds")

    def _over(self, why: str) -> None:
        self.cut_short = why
        raise _LimitReached

    def omission(self) -> str:
        """Return a line for the result that says that files were not read; "" if all were."""
        return f"\n(Not all files were looked through: {self.cut_short}.)" if self.cut_short else ""


class _LimitReached(Exception):
    """A limit was reached."""

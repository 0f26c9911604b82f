"""Progress bars on stderr, on terminals only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Final, Literal

from openresponses_cli.commands.terminal import console_options

Advance = Callable[[int], None]
"""Called with the progress since the last call."""
Unit = Literal["bytes", ""]
_PER_SECOND: Final = 5  # redraws


@contextmanager
def progress(what: str, total: int | None = None, unit: Unit = "") -> Iterator[Advance]:
    """Show a progress bar while the context lasts; without a `total` only the count. Nothing is shown if
    stderr is not a terminal."""
    if not _is_seen():
        yield _nothing
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    done: Any = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
    counted = [BarColumn()] if total is not None else [SpinnerColumn("line")]
    columns = [TextColumn("{task.description}", markup=False), *counted, done, TimeElapsedColumn()]
    console = Console(**console_options(stderr=True))
    # other output appears above the bar; piped output is not changed
    with Progress(
        *columns,
        console=console,
        transient=True,
        refresh_per_second=_PER_SECOND,
        redirect_stdout=sys.stdout.isatty(),
        disable=console.is_dumb_terminal,
    ) as shown:
        task = shown.add_task(what, total=total)
        yield lambda more: shown.advance(task, more)


class CountedReader:
    """A file that reports how many bytes have been read, line by line."""

    def __init__(self, source: BinaryIO, advance: Advance) -> None:
        self._source = source
        self._advance = advance

    def readline(self, limit: int = -1, /) -> bytes:
        line = self._source.readline(limit)
        self._advance(len(line))
        return line

    def seekable(self) -> bool:
        return self._source.seekable()


def _is_seen() -> bool:
    return sys.stderr.isatty()


def _nothing(_more: int) -> None:
    pass

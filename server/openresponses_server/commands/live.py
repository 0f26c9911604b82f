"""What changes on the screen while something comes: redrawn in place on a terminal, not shown elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from rich.console import Console, RenderableType
from rich.live import Live

from openresponses_server.commands.tree import Newest, Space

_PAUSE: Final = 0.1  # seconds between two drawings
_SHARE: Final = 0.1  # of the time may go into drawing


class LiveView:
    """Draws what `build` gives for the space there is, at `tick`, and not more often than is seen. At its end
    the drawing is gone, so that the whole can be printed in its place."""

    def __init__(self, console: Console, build: Callable[[Space], RenderableType]) -> None:
        self._live = (
            Live(Newest(build), console=console, auto_refresh=False, transient=True, redirect_stdout=False)
            if console.is_terminal and not console.is_dumb_terminal
            else None
        )
        self._due = 0.0

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def tick(self) -> None:
        """Something has come."""
        if self._live is None:
            return
        begun = time.monotonic()
        if begun < self._due:
            return
        self._live.refresh()
        took = time.monotonic() - begun
        self._due = begun + max(_PAUSE, took / _SHARE)

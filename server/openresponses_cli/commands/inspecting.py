"""Converts payloads of any dialect to watched responses, and draws the live view of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from rich.console import Console, RenderableType
from rich.live import Live

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_event, decode_response
from openresponses_cli.commands.judging import CaptureJudge
from openresponses_cli.commands.tree import NewestLines, Space, WatchedResponse
from openresponses_server.observation.recordings.captures import Payload
from openresponses_server.observation.recordings.dialects import CaptureStep, StepKind
from openresponses_server.observation.recordings.observing import Reported
from openresponses_server.observation.recordings.playing import AUTO, CaptureReader

_WIRE: Final = "openai"  # the spelling in which tool calls of other dialects keep their names


class Inspection:
    """Reads one stream or capture in the dialect of this name. Events of the protocol are checked against
    its rules; payloads of other dialects are translated, and repairs and losses are recorded. `now` returns
    the time, in seconds, of the payload that is fed; without it there are no times.
    """

    def __init__(self, dialect: str = AUTO, now: Callable[[], float] | None = None) -> None:
        self.watched: list[WatchedResponse] = []
        self._reader = CaptureReader(dialect, _WIRE, as_sent=True)
        self._now = now
        self._judge = CaptureJudge()
        self._reported: Reported | None = None
        self._open = False

    def feed(self, payload: Payload) -> None:
        """Read the next payload. Raises UnreadableCapture if no dialect knows it."""
        for step in self._reader.feed(payload):
            self._feed(step)

    def close(self) -> None:
        """End the last response."""
        for step in self._reader.close():
            self._feed(step)

    def _feed(self, step: CaptureStep) -> None:
        for event in step.events:
            self._latest().feed(event)
            self._add_diagnostics()
        if step.kind is StepKind.TRANSLATED:
            return
        if step.payload is None:
            self._end(step)
            return
        watched = self._latest()
        violations = self._judge.feed(step)
        if step.payload.value is not None:
            try:
                if step.kind is StepKind.RESPONSE:
                    watched.whole(decode_response(step.payload.data))
                else:
                    watched.feed(decode_event(step.payload.data))
            except WireError:  # the judge reports the error
                watched.count_unreadable()
        watched.add_violations(violations)

    def _end(self, step: CaptureStep) -> None:
        if self._open:
            self._latest().add_violations(self._judge.feed(step))
            self._add_diagnostics()
        self._open, self._reported = False, None

    def _add_diagnostics(self) -> None:
        self._reported = self._reported or Reported(self._reader.cases)
        if new := self._reported.new():
            self._latest().add_diagnostics(new)

    def _latest(self) -> WatchedResponse:
        if not self._open:
            self._open = True
            self.watched.append(WatchedResponse(self._now))
        return self.watched[-1]


# The live view is redrawn in place on a terminal, and not shown elsewhere.

_PAUSE: Final = 0.1  # seconds between two redraws
_SHARE: Final = 0.1  # of the time that drawing may take


class LiveView:
    """Draws what `build` returns for the available space, when `tick` is called, at a limited rate. It is
    erased at the end, so that the complete tree can be printed in its place."""

    def __init__(self, console: Console, build: Callable[[Space], RenderableType]) -> None:
        self._live = (
            Live(
                NewestLines(build), console=console, auto_refresh=False, transient=True, redirect_stdout=False
            )
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
        """Redraw if it is time, since something has changed."""
        if self._live is None:
            return
        begun = time.monotonic()
        if begun < self._due:
            return
        self._live.refresh()
        elapsed = time.monotonic() - begun
        self._due = begun + max(_PAUSE, elapsed / _SHARE)

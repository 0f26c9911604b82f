"""Payloads of any dialect to watched responses, and the live view of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from itertools import chain
from types import TracebackType
from typing import Final, Self

from rich.console import Console, RenderableType
from rich.live import Live

from openresponses_bridge.dialects import responses
from openresponses_bridge.dialects.base import type_of
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_event, decode_response
from openresponses_bridge.protocol.events import ResponseCreated
from openresponses_server.commands.tree import NewestLines, Space, WatchedResponse
from openresponses_server.observation.recordings.captures import Payload, begins_response
from openresponses_server.observation.recordings.dialects import (
    AUTO,
    CaptureTranslator,
    Translated,
    dialect_of,
    open_translator,
)
from openresponses_server.observation.recordings.judging import CaptureJudge
from openresponses_server.observation.recordings.observing import Reported

_WIRE: Final = "openai"  # the spelling in which tool calls of other dialects keep their names


class Inspection:
    """Reads one stream or capture. Events of the protocol are checked against its rules; payloads of other
    dialects are translated, and repairs and losses are noted. `now` returns the time, in seconds, of the
    payload that is fed; without it there are no times.
    """

    def __init__(self, source: str = AUTO, now: Callable[[], float] | None = None) -> None:
        self.watched: list[WatchedResponse] = []
        self._source_name = source
        self._now = now
        self._judge = CaptureJudge()
        self._foreign: CaptureTranslator | None = None
        self._reported: Reported | None = None
        self._seen = False
        self._over = False  # the next event begins another response

    def feed(self, payload: Payload) -> None:
        """Read the next payload. Raises Unreadable if no dialect knows it."""
        if not self._seen and payload.value is not None:
            self._seen = True
            name = dialect_of(payload) if self._source_name == AUTO else self._source_name
            if name != responses.DIALECT.name:
                self._foreign = open_translator(self._source_name, payload, _WIRE)
        if self._foreign is not None:
            self._feed_events(self._foreign.feed(payload))
        elif payload.value is None:
            self._latest().add_violations(self._judge.feed(payload))
        else:
            self._feed_responses(payload)

    def close(self) -> None:
        """End the last response."""
        if self._foreign is not None:
            self._feed_events(self._foreign.close())
            self._pin()
        elif self.watched:
            self.watched[-1].add_violations(self._judge.close())

    def _feed_responses(self, payload: Payload) -> None:
        whole = payload.value is not None and "type" not in payload.value
        if self._over and begins_response(payload):
            # violations at this event belong to the new response: add those of the old one first
            self.watched[-1].add_violations(self._judge.close())
            self._begin()
        watched = self._latest()
        found = self._judge.feed(payload)
        try:
            if whole:
                watched.whole(decode_response(payload.data))
            else:
                watched.feed(decode_event(payload.data))
        except WireError:  # the judge reports the error
            watched.count_unreadable()
        self._over = watched.ended or type_of(payload.value or {}) == "error"
        watched.add_violations(found)

    def _feed_events(self, translated: Iterable[Translated]) -> None:
        for event in chain.from_iterable(each.events for each in translated):
            if isinstance(event, ResponseCreated) and self.watched and self.watched[-1].ended:
                self._pin()  # diagnostics from the end of the previous response
                self._reported = None  # each answer has its own report
                self._begin()
            self._latest().feed(event)
            self._pin()

    def _pin(self) -> None:
        assert self._foreign is not None
        self._reported = self._reported or Reported(self._foreign.cases)
        if new := self._reported.new():
            self._latest().add_diagnostics(new)

    def _latest(self) -> WatchedResponse:
        return self.watched[-1] if self.watched else self._begin()

    def _begin(self) -> WatchedResponse:
        self.watched.append(WatchedResponse(self._now))
        return self.watched[-1]


# The live view is redrawn in place on a terminal, and not shown elsewhere.

_PAUSE: Final = 0.1  # seconds between redraws
_SHARE: Final = 0.1  # of the time that may be spent drawing


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
        """Redraw if it is time: something has changed."""
        if self._live is None:
            return
        begun = time.monotonic()
        if begun < self._due:
            return
        self._live.refresh()
        took = time.monotonic() - begun
        self._due = begun + max(_PAUSE, took / _SHARE)

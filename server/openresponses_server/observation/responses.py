"""The timing of a response's tokens, and the observers of its end.

Timing is needed for every token, so its numbers are kept per response, updated once for each read from the
upstream, and added to the metrics at the end.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple

from openresponses_bridge.diagnostics import Diagnostic
from openresponses_bridge.protocol.events import Event, ResponseCreated, ResponseInProgress
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.protocol.usage import Usage

GAPS: Final = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 10)
"""The upper bounds of the gaps that are counted, in seconds. Longer gaps are counted after the last bound."""
_NO_OUTPUT: Final = (ResponseCreated, ResponseInProgress)


class TokenTiming:
    """The timing of one response's tokens. A token is an event of output; the tokens of one read share the
    time since the previous read."""

    __slots__ = ("_first_at", "_now", "_read_at", "_started", "first", "gaps")

    def __init__(self, now: Sequence[float] | None = None) -> None:
        self._now = time.perf_counter if now is None else iter(now).__next__
        self._started = self._now()
        self._first_at = self._read_at = 0.0
        self.first: float | None = None
        """Seconds from the beginning to the first output; None before."""
        self.gaps = [0] * (len(GAPS) + 1)
        """The number of tokens with a gap up to each of `GAPS`, and of those with a longer one."""

    @property
    def seconds(self) -> float:
        """Seconds from the first output to the last."""
        return self._read_at - self._first_at

    def read(self, events: list[Event]) -> None:
        """Record the events of one read of the upstream."""
        tokens = len(events)
        if not tokens:
            return
        now = self._now()
        if self.first is None:
            if not isinstance(events[-1], _NO_OUTPUT):
                self.first = now - self._started
                self._first_at = self._read_at = now
            return
        self.gaps[bisect_left(GAPS, (now - self._read_at) / tokens)] += tokens
        self._read_at = now


class EndedRun(NamedTuple):
    """A run that has ended. `upstream` accepted its request, under the name `model`; both are "" if none did.
    `noticed` are the losses and repairs, `seconds` is the duration of the run, and `first_bytes` the time
    until an upstream's answer began, None if none did. `has_end` is True if the response has ended; otherwise
    it was refused, its client has disconnected, or another worker ends it. `rounds` has the usage of each
    answer where the server ran tools between them. `cost` is in 10⁻¹² US dollars, None if it is not known.
    `counts` is True if an upstream has begun to answer, or the client has given up before that, so that an
    answer may have been made."""

    upstream: str
    model: str
    response: Response
    timing: TokenTiming
    noticed: Sequence[Diagnostic]
    seconds: float
    first_bytes: float | None
    has_end: bool
    rounds: Sequence[Usage] = ()
    cost: int | None = None
    counts: bool = False


class LoggedEnd(NamedTuple):
    """The end as it is logged: `status` of the response, `code` of its error or of the reason why it is
    incomplete, and `cause` for the operator."""

    status: str
    code: str | None = None
    cause: str | None = None


HANDED_OVER: Final = LoggedEnd("handed_over")
"""The end of a run whose response another worker ends: nothing is logged."""


class Watch:
    """An observer of one run, or of all. Its methods are called in the task of the run, and must not fail."""

    def end(self, ended: EndedRun, logged_end: LoggedEnd) -> None:
        """Handle the end of the run, after its exchanges with upstreams."""

    def refused(self, ended: EndedRun, logged_end: LoggedEnd) -> None:
        """Log a run without an end of its own: its response ended as failed, while its client's other choices
        continue."""


class RunWatch(Watch):
    """An observer of one run from its beginning."""

    def begin(self) -> None:
        """Handle the beginning of the run."""
        raise NotImplementedError

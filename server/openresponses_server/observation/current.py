"""The trace of the response that is being made. It is in the context of the task that makes it, so that what
stands between an upstream and its connections finds it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, Protocol

from openresponses_server.observation.recordings.writer import Place


class Traced(Protocol):
    """The trace of one response."""

    def of_exchange(self, upstream: str) -> Place:
        """Where its next exchange, with this upstream, is recorded."""
        ...


RUN: Final[ContextVar[Traced | None]] = ContextVar("traced_run", default=None)
"""Set while a response is made that is traced."""


class OfTheRun:
    """Where exchanges with an upstream are recorded: in the trace of the response for which it is asked."""

    def of_exchange(self, upstream: str) -> Place | None:
        run = RUN.get()
        return None if run is None else run.of_exchange(upstream)

    def close(self) -> None:
        return None  # its response closes it

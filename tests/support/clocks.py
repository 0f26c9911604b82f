"""A clock that a test moves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from openresponses_server.http.registry import ConnectionRegistry
from tests.support.waiting import wait_until


class Clock:
    """A clock in seconds since the epoch, which moves when a test says so."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class ConnectionClock(Clock):
    """The clock by which a server measures the timeouts of its connections. The server checks them at
    intervals; `checks` counts the checks."""

    def __init__(self) -> None:
        super().__init__(0.0)
        self.checks = 0

    def passes(self, seconds: float) -> None:
        """Let so many seconds pass, and return after the next check of the connections; there has to be one.
        Callbacks that were already due have run before."""
        self._wait_for_check()
        self.now += seconds
        self._wait_for_check()

    def passes_until(self, holds: Callable[[], object], seconds: float) -> None:
        """Let so many seconds pass after each check, until the condition holds. If the condition is that a
        connection is closed, it may have been the last one, and then there are no more checks."""
        seen = -1
        while not holds():
            if self.checks != seen:
                seen = self.checks
                self.now += seconds
            time.sleep(0.005)

    def _wait_for_check(self) -> None:
        before = self.checks
        wait_until(lambda: self.checks > before)


@contextmanager
def connection_clock() -> Iterator[ConnectionClock]:
    """A clock for a server that is started within the context."""
    clock = ConnectionClock()
    check = ConnectionRegistry._check_all

    def counted(registry: ConnectionRegistry) -> None:
        check(registry)
        clock.checks += registry.clock is clock

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConnectionRegistry, "_check_all", counted)
        yield clock

"""How many connections a process has, which of them can go, and the one timer that looks after all."""

from __future__ import annotations

import asyncio
import resource
from collections import Counter, OrderedDict
from itertools import islice
from typing import Final, Protocol

import structlog

from openresponses_server.settings import Limits, Settings

_LONGEST_PAUSE: Final = 1.0  # seconds between two looks at the connections
_LOOKS: Final = 4  # of them at least within the shortest of the times
_OTHER_FILES: Final = 128  # that the process has open beside connections
_CANDIDATES: Final = 8  # connections that are asked to make room
_log = structlog.get_logger(__name__)


class Watched(Protocol):
    """A connection, as the registry sees it."""

    def look(self, now: float) -> None:
        """End what has taken too long at `now`, the event loop's time."""

    def retire(self) -> None:
        """Its next answer is its last."""

    def make_room(self) -> bool:
        """Close at once if nothing is lost by it; whether it did."""


class ConnectionRegistry:
    """One per process. A new connection beyond `limits.connections` is let in when one that waits for a
    request can be closed for it, the longest waiting first, so that silent ones don't keep others out."""

    def __init__(self, settings: Settings) -> None:
        limits = settings.limits
        self.limits: Limits = limits
        self.largest_message = settings.max_body_bytes
        seconds = (
            *(limits.header_seconds, limits.body_seconds, limits.body_total_seconds),
            *(limits.write_seconds, limits.idle_seconds),
        )
        self._pause = min(_LONGEST_PAUSE, min(seconds) / _LOOKS)
        self._open: set[Watched] = set()
        self._waiting: OrderedDict[Watched, None] = OrderedDict()
        self._refused: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None
        self.retiring = False
        """The server is to leave: each answer is the last on its connection."""

    def enter(self, connection: Watched) -> bool:
        """Whether there is room for one more."""
        if len(self._open) >= self._most() and not self._has_made_room():
            return False
        self._open.add(connection)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._pause, self._look)
        return True

    def leave(self, connection: Watched) -> None:
        """It is closed."""
        self._open.discard(connection)
        self._waiting.pop(connection, None)

    def waits(self, connection: Watched) -> None:
        """It waits for a request from now on."""
        if connection in self._open:
            self._waiting[connection] = None

    def serves(self, connection: Watched) -> None:
        """It has got a request."""
        self._waiting.pop(connection, None)

    def retire(self) -> None:
        """From now on each answer closes its connection, so that the client's next request goes to a server
        that stays."""
        self.retiring = True
        for connection in self._open:
            connection.retire()

    def refused(self, code: str) -> None:
        """Something was refused before it was a request. Logged in sums, so that many of them do not fill the
        log."""
        self._refused[code] += 1

    def _most(self) -> int:
        # Each answer may need a connection to an upstream beside that of its client.
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if files == resource.RLIM_INFINITY:
            return self.limits.connections
        return min(self.limits.connections, max(1, (files - _OTHER_FILES) // 2))

    def _has_made_room(self) -> bool:
        for connection in list(islice(self._waiting, _CANDIDATES)):
            if connection.make_room():
                self.leave(connection)
                self.refused("connection_evicted")
                return True
        return False

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in list(self._open):
            connection.look(now)
        if self._refused:
            _log.warning("connections.refused", **self._refused)
            self._refused.clear()
        self._timer = loop.call_later(self._pause, self._look) if self._open else None

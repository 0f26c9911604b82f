"""How many connections a process has, which of them can go, and the one timer that looks after all."""

from __future__ import annotations

import asyncio
import fcntl
import math
import resource
import socket
import struct
import termios
from collections import Counter, OrderedDict
from contextlib import suppress
from itertools import islice
from typing import Final, Protocol

import structlog
from uvicorn.protocols.http.flow_control import FlowControl

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


# Whether the peer of a connection still takes what is sent to it, and still sends what it began.

SLOWEST: Final = 1024
"""Bytes per second that a body or a message has to reach on average."""
_INT: Final = struct.Struct("i")
_NO_LINGER: Final = struct.pack("ii", 1, 0)


class Sending:
    """Looks after what a transport has not got rid of yet. Each acknowledged byte counts as progress."""

    __slots__ = ("_least", "_seconds", "_since", "_transport")

    def __init__(self, transport: asyncio.Transport, seconds: float) -> None:
        self._transport = transport
        self._seconds = seconds
        self._least: float = math.inf
        self._since = 0.0

    def moved(self) -> None:
        """The transport takes more again."""
        self._least = math.inf

    def is_stuck(self, now: float) -> bool:
        """To be asked while the transport is blocked or closing: whether the peer has accepted no byte for
        as long as it may."""
        unsent = _unsent(self._transport)
        if unsent == 0 or unsent < self._least:
            self._least, self._since = unsent or math.inf, now
            return False
        return now - self._since >= self._seconds


class Receiving:
    """Looks after a body or message that has begun: in each `seconds` at least SLOWEST bytes per second
    have to come, or its end, and all of it in `total` seconds."""

    __slots__ = ("_begun", "_ends", "_received", "_seconds", "_total")

    def __init__(self, seconds: float, total: float) -> None:
        self._seconds = seconds
        self._total = total
        self._begun = self._ends = 0.0
        self._received = 0

    def begin(self, now: float) -> None:
        """It begins now."""
        self._ends = now + self._total
        self._begun, self._received = now, 0

    def wait(self, now: float) -> None:
        """It is not read now: the time since then does not count."""
        self._ends += now - self._begun
        self._begun, self._received = now, 0

    def got(self, size: int) -> None:
        """So many bytes more."""
        self._received += size

    def is_slow(self, now: float) -> bool:
        """Whether too little came in the time that is over."""
        if now >= self._ends:
            return True
        if now - self._begun < self._seconds:
            return False
        slow = self._received < SLOWEST * self._seconds
        self._begun, self._received = now, 0
        return slow


def cut_off(transport: asyncio.Transport) -> None:
    """Close at once. What is unsent is dropped by the system too, which would offer it for minutes."""
    with suppress(OSError, AttributeError):
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()


def _unsent(transport: asyncio.Transport) -> int:
    """Bytes that the peer has not acknowledged: those in our buffer, and where it can be asked, in the
    system's."""
    ours = transport.get_write_buffer_size()
    try:
        held = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(_INT.size))
    except (OSError, AttributeError, ValueError):
        return ours
    return ours + int(_INT.unpack(held)[0])


class Flow(FlowControl):
    """Reading goes on when the application wants more, but not past what waits for its turn."""

    held = False

    def resume_reading(self) -> None:
        if not self.held:
            super().resume_reading()

"""The connections of a process: their number, the idle ones that can be closed, and one timer for all
timeouts."""

from __future__ import annotations

import asyncio
import fcntl
import math
import resource
import socket
import struct
import termios
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Final, Protocol

import structlog
from uvicorn.protocols.http.flow_control import FlowControl

from openresponses_server.settings import Limits, Settings

_LONGEST_PAUSE: Final = 1.0  # seconds between two checks of the connections
_CHECKS: Final = 4  # at least so many checks within the shortest timeout
_OTHER_FILES: Final = 128  # files that the process has open in addition to connections
_CANDIDATES: Final = 8  # idle connections that are tried for a new one
_LOOKED_AT: Final = 64  # of those that wait for their clients
_log = structlog.get_logger(__name__)


class MonitoredConnection(Protocol):
    """A connection in the registry."""

    def check_timeouts(self, now: float) -> None:
        """End what exceeds its timeout; `now` is the time of the registry's clock."""

    def retire(self) -> None:
        """Close the connection after its next answer."""

    def close_if_idle(self) -> bool:
        """Close at once if the connection is idle. Returns whether it was closed."""


class WaitingConnection(MonitoredConnection, Protocol):
    """A connection that waits for its client: for the rest of a request, or until it takes what was sent."""

    @property
    def owner(self) -> str:
        """The owner of its request, "" if that needs no key."""
        ...

    def abort(self) -> None:
        """Close at once."""


class ConnectionRegistry:
    """The registry of one process. A new connection beyond `limits.connections` is accepted if another can be
    closed for it: the one that has been idle longest, so that silent connections do not exclude others; else
    one that waits for its client. Of those that have waited longest it is one of the owner that has most of
    them, and more than one, so that nobody excludes others with bodies that do not end and answers that are
    not read. `clock` gives the seconds by which all timeouts are measured."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        limits = settings.limits
        self.limits: Limits = limits
        self.clock = clock
        self.largest_message = settings.max_body_bytes
        seconds = (
            *(limits.header_seconds, limits.body_seconds, limits.body_total_seconds),
            *(limits.write_seconds, limits.idle_seconds),
        )
        self._pause = min(_LONGEST_PAUSE, min(seconds) / _CHECKS)
        self._open: set[MonitoredConnection] = set()
        self._idle: OrderedDict[MonitoredConnection, None] = OrderedDict()
        self._waiting: dict[MonitoredConnection, WaitingConnection] = {}
        self._refused: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None
        self.retiring = False
        """True if the server drains: each answer is the last on its connection."""

    def add(self, connection: MonitoredConnection) -> bool:
        """Add a connection. Returns False if there are too many."""
        is_full = len(self._open) >= self._max_connections()
        if is_full and not (self._close_idle() or self._close_waiting()):
            return False
        self._open.add(connection)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._pause, self._check_all)
        return True

    def remove(self, connection: MonitoredConnection) -> None:
        """Remove a connection that is closed."""
        self._open.discard(connection)
        self._idle.pop(connection, None)
        self._waiting.pop(connection, None)

    def mark_idle(self, connection: MonitoredConnection) -> None:
        """The connection waits for a request from now on."""
        if connection in self._open:
            self._idle[connection] = None

    def mark_busy(self, connection: MonitoredConnection) -> None:
        """The connection has received a request."""
        self._idle.pop(connection, None)

    def mark_waiting(self, connection: WaitingConnection) -> None:
        """The connection waits for its client, until `mark_served`."""
        self._waiting[connection] = connection

    def mark_served(self, connection: WaitingConnection) -> None:
        """Record that the connection no longer waits."""
        self._waiting.pop(connection, None)

    def retire(self) -> None:
        """Close each connection after its next answer, so that the client's next request goes to another
        server."""
        self.retiring = True
        for connection in self._open:
            connection.retire()

    def refused(self, code: str) -> None:
        """Count a refusal before a request was complete. Sums are logged, so that many refusals do not fill
        the log."""
        self._refused[code] += 1

    def _max_connections(self) -> int:
        # Each answer may need a connection to an upstream in addition to its client's.
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if files == resource.RLIM_INFINITY:
            return self.limits.connections
        return min(self.limits.connections, max(1, (files - _OTHER_FILES) // 2))

    def _close_idle(self) -> bool:
        for connection in list(islice(self._idle, _CANDIDATES)):
            if connection.close_if_idle():
                self.remove(connection)
                self.refused("connection_evicted")
                return True
        return False

    def _close_waiting(self) -> bool:
        oldest = list(islice(self._waiting.values(), _LOOKED_AT))
        for owner, number in Counter(each.owner for each in oldest).most_common(1):
            if number > 1:
                connection = next(each for each in oldest if each.owner == owner)
                connection.abort()
                self.remove(connection)
                self.refused("waiting_evicted")
                return True
        return False

    def _check_all(self) -> None:
        now = self.clock()
        for connection in list(self._open):
            connection.check_timeouts(now)
        if self._refused:
            _log.warning("connections.refused", **self._refused)
            self._refused.clear()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._pause, self._check_all) if self._open else None


SLOWEST: Final = 1024
"""The least bytes per second of a body or a message, on average."""
_INT: Final = struct.Struct("i")
_NO_LINGER: Final = struct.pack("ii", 1, 0)


class SendMonitor:
    """Monitors the unsent data of a transport. Each acknowledged byte is progress."""

    __slots__ = ("_least", "_seconds", "_since", "_transport")

    def __init__(self, transport: asyncio.Transport, seconds: float) -> None:
        self._transport = transport
        self._seconds = seconds
        self._least: float = math.inf
        self._since = 0.0

    def reset(self) -> None:
        """Begin anew: the transport accepts data again."""
        self._least = math.inf

    def is_stuck(self, now: float) -> bool:
        """Return True if the peer has not acknowledged any byte for `seconds`. Call this while the transport
        is blocked or closing."""
        unsent = _unsent(self._transport)
        if unsent == 0 or unsent < self._least:
            self._least, self._since = unsent or math.inf, now
            return False
        return now - self._since >= self._seconds


class ReceiveMonitor:
    """Monitors the rate of a body or message: in each interval of `seconds` at least SLOWEST bytes per
    second, or the end, must arrive, and everything within `total` seconds."""

    __slots__ = ("_begun", "_ends", "_received", "_seconds", "_total")

    def __init__(self, seconds: float, total: float) -> None:
        self._seconds = seconds
        self._total = total
        self._begun = self._ends = 0.0
        self._received = 0

    def begin(self, now: float) -> None:
        """Begin a body or message."""
        self._ends = now + self._total
        self._begun, self._received = now, 0

    def wait(self, now: float) -> None:
        """Do not count the time since the last check, in which the body was not read."""
        self._ends += now - self._begun
        self._begun, self._received = now, 0

    def add(self, size: int) -> None:
        """Add received bytes."""
        self._received += size

    def is_slow(self, now: float) -> bool:
        """Return True if too few bytes arrived in the last interval."""
        if now >= self._ends:
            return True
        if now - self._begun < self._seconds:
            return False
        slow = self._received < SLOWEST * self._seconds
        self._begun, self._received = now, 0
        return slow


def cut_off(transport: asyncio.Transport) -> None:
    """Close at once with a reset, so that the system drops unsent data too, which it would retransmit for
    minutes."""
    with suppress(OSError, AttributeError):
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()


def _unsent(transport: asyncio.Transport) -> int:
    """Return how many bytes the peer has not acknowledged: in our buffer and, if it can be read, in the
    system's."""
    ours = transport.get_write_buffer_size()
    try:
        raw = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(_INT.size))
    except (OSError, AttributeError, ValueError):
        return ours
    return ours + int(_INT.unpack(raw)[0])


class Flow(FlowControl):
    """Flow control that does not resume reading while data are kept unparsed."""

    held = False

    def resume_reading(self) -> None:
        if not self.held:
            super().resume_reading()

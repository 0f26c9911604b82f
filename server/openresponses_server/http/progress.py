"""Whether the peer of a connection still takes what is sent to it, and still sends what it began."""

from __future__ import annotations

import asyncio
import fcntl
import math
import socket
import struct
import termios
from contextlib import suppress
from typing import Final

from uvicorn.protocols.http.flow_control import FlowControl

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

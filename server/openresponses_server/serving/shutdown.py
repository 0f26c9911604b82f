"""How long requests may still take when the server shuts down (law S8). It has no clock and no loop."""

from __future__ import annotations

import math
import signal
from enum import IntEnum
from typing import Final


class ShutdownMode(IntEnum):
    """The pace of the shutdown; it only ever rises."""

    DRAIN = 0
    """Requests finish within the drain time."""
    GRACE = 1
    """Requests finish within the grace period."""
    CUT = 2
    """Requests are cut off now."""


MODE_OF_SIGNAL: Final = {signal.SIGTERM: ShutdownMode.DRAIN, signal.SIGINT: ShutdownMode.GRACE}
"""The mode of the first signal: SIGTERM comes from a deployment, Ctrl-C from a user who waits."""


class ShutdownDeadline:
    """The mode and deadline of a shutdown. `drain` and `grace` are seconds; times are of any monotonic
    clock."""

    def __init__(self, drain: float, grace: float) -> None:
        self._seconds = {ShutdownMode.DRAIN: drain, ShutdownMode.GRACE: grace, ShutdownMode.CUT: 0.0}
        self.mode: ShutdownMode | None = None
        """None while the server serves."""
        self.deadline = math.inf
        """When requests are cut off."""

    def handle_signal(self, number: int, now: float) -> None:
        """Begin the shutdown at the first signal, and raise the mode at each further one."""
        mode = MODE_OF_SIGNAL[signal.Signals(number)]
        self.request(
            mode if self.mode is None else ShutdownMode(min(max(self.mode + 1, mode), ShutdownMode.CUT)), now
        )

    def request(self, mode: ShutdownMode, now: float) -> None:
        """Shut down in this mode; a lower one than before changes nothing."""
        if self.mode is None or mode > self.mode:
            self.mode = mode
            self.deadline = min(self.deadline, now + self._seconds[mode])

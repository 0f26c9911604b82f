"""The time that requests still have when the server shuts down (law S8), without a clock or an event loop."""

from __future__ import annotations

import math
import signal
from enum import IntEnum
from typing import Final


class ShutdownMode(IntEnum):
    """The pace of the shutdown, which never decreases."""

    DRAIN = 0
    """Requests finish within the drain time."""
    GRACE = 1
    """Requests finish within the grace period."""
    CUT = 2
    """Requests are cut off now."""


MODE_OF_SIGNAL: Final = {signal.SIGTERM: ShutdownMode.DRAIN, signal.SIGINT: ShutdownMode.GRACE}
"""The mode that the first signal requests: SIGTERM comes from a deployment, Ctrl-C from a user who waits."""


class ShutdownDeadline:
    """The mode and deadline of a shutdown. `drain` and `grace` are seconds; times are of any monotonic
    clock."""

    def __init__(self, drain: float, grace: float) -> None:
        self._seconds = {ShutdownMode.DRAIN: drain, ShutdownMode.GRACE: grace, ShutdownMode.CUT: 0.0}
        self.mode: ShutdownMode | None = None
        """The mode; None while the server serves."""
        self.deadline = math.inf
        """The time at which requests are cut off."""

    def handle_signal(self, number: int, now: float) -> None:
        """Begin the shutdown at the first signal, and raise the mode at each further signal."""
        mode = MODE_OF_SIGNAL[signal.Signals(number)]
        self.request(
            mode if self.mode is None else ShutdownMode(min(max(self.mode + 1, mode), ShutdownMode.CUT)), now
        )

    def request(self, mode: ShutdownMode, now: float) -> None:
        """Shut down in this mode; a mode below the present one changes nothing."""
        if self.mode is None or mode > self.mode:
            self.mode = mode
            self.deadline = min(self.deadline, now + self._seconds[mode])

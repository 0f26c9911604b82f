"""How long what has begun may still take once the server is to leave (law S8). Without a clock or a loop."""

from __future__ import annotations

import math
import signal
from enum import IntEnum
from typing import Final


class Pace(IntEnum):
    """How soon the server is to have left; it is only ever raised."""

    DRAIN = 0
    """What has begun is finished, within the drain time."""
    HURRY = 1
    """What has begun has the grace that is left to it."""
    CUT = 2
    """What has begun is cut off now."""


PACE_OF: Final = {signal.SIGTERM: Pace.DRAIN, signal.SIGINT: Pace.HURRY}
"""The pace that the first signal asks for: SIGTERM comes from a deployment, Ctrl-C from somebody
who waits."""


class Leaving:
    """From when on the server leaves, and until when. `drain` and `grace` are seconds; times are those of
    any clock that only rises."""

    def __init__(self, drain: float, grace: float) -> None:
        self._seconds = {Pace.DRAIN: drain, Pace.HURRY: grace, Pace.CUT: 0.0}
        self.pace: Pace | None = None
        """None until it is to leave."""
        self.deadline = math.inf
        """When what still runs is cut off."""

    def signalled(self, number: int, now: float) -> None:
        """A signal came: the first one begins the leaving, each further one raises the pace."""
        pace = PACE_OF[signal.Signals(number)]
        self.ask(pace if self.pace is None else Pace(min(max(self.pace + 1, pace), Pace.CUT)), now)

    def ask(self, pace: Pace, now: float) -> None:
        """Leave at this pace; a lower one than asked for before changes nothing."""
        if self.pace is None or pace > self.pace:
            self.pace = pace
            self.deadline = min(self.deadline, now + self._seconds[pace])

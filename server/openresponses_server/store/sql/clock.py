"""What time it is by a server that many machines share."""

from __future__ import annotations

import math
import time
from typing import Final

_HOLDS: Final = 5.0  # seconds until the server is asked again
_DRIFT: Final = 0.001  # seconds by which two clocks may drift apart until then


class ServerClock:
    """Another machine's clock, estimated from its answers. Of several answers the one that came quickest is
    the most exact: its error is at most half the time that it took."""

    def __init__(self) -> None:
        self._ahead = 0.0
        self._unsure = math.inf
        self._set_at = -math.inf

    @property
    def doubtful(self) -> bool:
        """Whether it is to be asked (again)."""
        return time.monotonic() - self._set_at > _HOLDS

    def set(self, its_time: float, asked_at: float) -> None:
        """It answered with `its_time` (Unix seconds) and was asked at `asked_at` on this machine's monotonic
        clock."""
        answered_at = time.monotonic()
        unsure = (answered_at - asked_at) / 2
        self._set_at = answered_at
        self._unsure += _DRIFT
        if unsure < self._unsure:
            self._unsure = unsure
            self._ahead = its_time - (asked_at + answered_at) / 2

    def now(self) -> float:
        return self._ahead + time.monotonic()

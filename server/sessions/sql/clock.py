"""What time it is by a server that many machines share."""

from __future__ import annotations

import math
import time
from typing import Final

_HOLDS: Final = 5.0  # seconds until the server is asked again
_DRIFT: Final = 0.001  # seconds by which two clocks may part until then


class ServerClock:
    """Another machine's clock, as far as its answers tell. Of several answers the one that came quickest is
    the surest: it may be wrong by half the time that it took."""

    def __init__(self) -> None:
        self._ahead = 0.0
        self._unsure = math.inf
        self._set_at = -math.inf

    @property
    def doubtful(self) -> bool:
        """Whether it is to be asked (again)."""
        return time.monotonic() - self._set_at > _HOLDS

    def set(self, told: float, asked_at: float) -> None:
        """It told this time, and was asked when this machine's monotonic clock said that."""
        answered_at = time.monotonic()
        unsure = (answered_at - asked_at) / 2
        self._set_at = answered_at
        self._unsure += _DRIFT
        if unsure < self._unsure:
            self._unsure = unsure
            self._ahead = told - (asked_at + answered_at) / 2

    def now(self) -> float:
        return self._ahead + time.monotonic()

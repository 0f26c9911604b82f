"""Requests and tokens a minute as buckets that refill evenly (generic cell rate algorithm): how much of a
minute each key has used up. Redis stores the same number, so that both decide alike."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec import Struct

from openresponses_bridge.dialects.base import LimitState
from openresponses_server.settings import Limits

MINUTE: Final = 60.0
LONGEST_DEBT: Final = 60 * MINUTE
"""Seconds: the longest time for which a key is refused, however many tokens an upstream reports."""
MOST_TOKENS: Final = 2**40
"""More tokens than any response has; a higher report is not used."""
SLACK: Final = 1e-3
"""The part of one request that rounding may add up to."""
_MOST_KEYS: Final = 100_000


class Rates(NamedTuple):
    """The limits of one key per minute; None means unlimited."""

    requests: int | None
    tokens: int | None

    @property
    def request_seconds(self) -> float:
        """The part of the minute that one request takes, in seconds."""
        return MINUTE / self.requests if self.requests else 0.0

    def token_seconds(self, tokens: int) -> float:
        """Return the part of the minute that this many tokens take, in seconds."""
        return MINUTE / self.tokens * min(max(tokens, 0), MOST_TOKENS) if self.tokens else 0.0


RatesOf = Callable[[str], Rates]
"""The rates of an owner."""


def rates_of(limits: Limits) -> Rates:
    """The rates of the settings."""
    return Rates(limits.requests_per_minute_per_key, limits.tokens_per_minute_per_key)


class Used(NamedTuple):
    """Seconds of the minute that are used up by requests and by tokens. Tokens are counted when they have
    been used, so that their seconds may be more than a minute."""

    requests: float = 0.0
    tokens: float = 0.0

    def after(self, seconds: float) -> Used:
        """Return the use that is left this many seconds later."""
        return Used(max(self.requests - seconds, 0.0), max(self.tokens - seconds, 0.0))


class Decision(Struct, frozen=True):
    """The decision on one more request."""

    states: tuple[LimitState, ...]
    over: LimitState | None = None
    """The limit that the request would exceed; None if it may begin."""
    wait: float = 0.0
    """Seconds until it would not."""


def decision(rates: Rates, used: Used, *, admitted: bool | None = None) -> Decision:
    """Decide by the use so far, which includes the request itself if it is `admitted` already."""
    states = []
    over: LimitState | None = None
    wait = 0.0
    for name, limit, seconds, needed in (
        ("requests", rates.requests, used.requests, rates.request_seconds),
        ("tokens", rates.tokens, used.tokens, 0.0),
    ):
        if limit is None:
            continue
        left = (MINUTE - seconds) * limit / MINUTE
        state = LimitState(name, limit, max(int(left + SLACK), 0), seconds)
        states.append(state)
        beyond = seconds + needed - MINUTE
        refused = beyond >= 0 if needed == 0 else beyond > needed * SLACK
        if not admitted and refused and (over is None or beyond > wait):
            over, wait = state, beyond
    return Decision(tuple(states), over, wait)


class Buckets:
    """The use of each key in this process, kept until its bucket is full again."""

    def __init__(self, rates: RatesOf, clock: Callable[[], float] = time.monotonic) -> None:
        self._rates = rates
        self._clock = clock
        self._used: dict[str, tuple[Used, float]] = {}

    def __len__(self) -> int:
        return len(self._used)

    def used(self, owner: str) -> Used:
        """Return the use of this key."""
        used, at = self._used.get(owner, (Used(), 0.0))
        return used.after(self._clock() - at)

    def begin(self, owner: str) -> Used:
        """Count one more request, which was admitted."""
        used = self.used(owner)
        return self._store(owner, Used(used.requests + self._rates(owner).request_seconds, used.tokens))

    def spend(self, owner: str, tokens: int) -> None:
        """Count tokens that were used."""
        used = self.used(owner)
        spent = min(used.tokens + self._rates(owner).token_seconds(tokens), MINUTE + LONGEST_DEBT)
        self._store(owner, Used(used.requests, spent))

    def _store(self, owner: str, used: Used) -> Used:
        self._used.pop(owner, None)
        self._evict()
        self._used[owner] = used, self._clock()
        return used

    def _evict(self) -> None:
        """Evict the two oldest if their buckets are full again: two at a time, so that the cost does not grow
        with their number. If there are too many, evict the oldest in any case."""
        for owner in list(_first(self._used, 2)):
            if len(self._used) >= _MOST_KEYS or self.used(owner) == Used():
                del self._used[owner]


def _first(used: dict[str, tuple[Used, float]], count: int) -> list[str]:
    names = iter(used)
    return [name for _, name in zip(range(count), names, strict=False)]

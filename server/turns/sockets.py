"""How many WebSockets are open, in all and of each key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from server.errors import HttpError
from server.settings import Limits


class Sockets:
    """Counts the open ones of this process."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: Counter[str] = Counter()

    @contextmanager
    def held(self, owner: str) -> Iterator[None]:
        """One more is open, of this owner. Raises HttpError 429 when there are as many as there may be."""
        if self._open[owner] >= self._limits.sockets_per_key:
            raise _too_many(
                f"There are {self._limits.sockets_per_key} WebSockets open with this key already."
            )
        if self._open.total() >= self._limits.sockets:
            raise _too_many(f"There are {self._limits.sockets} WebSockets open already.")
        self._open[owner] += 1
        try:
            yield
        finally:
            self._open[owner] -= 1
            if not self._open[owner]:
                del self._open[owner]


def _too_many(message: str) -> HttpError:
    return HttpError(429, message, code="too_many_websockets", headers={"retry-after": "5"})

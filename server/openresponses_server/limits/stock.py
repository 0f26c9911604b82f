"""How many bytes of each key are stored: measured in the store, which all workers share, now and then, and
what was stored here since is added. Nothing is asked for a request."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import structlog

from openresponses_server.errors import HttpError
from openresponses_server.store.base import ResponseStore
from openresponses_server.store.errors import StoreError

_INTERVAL: Final = 5.0  # seconds between two measurements, at least
_REST: Final = 20  # times as long as a measurement takes, before the next one
_log = structlog.get_logger(__name__)


class Stock:
    """At most `most` bytes of each key in this store."""

    def __init__(self, store: ResponseStore, most: int, interval: float = _INTERVAL) -> None:
        self._store = store
        self._most = most
        self._interval = interval
        self._measured: dict[str, int] = {}
        self._grown: dict[str, int] = {}

    def of(self, owner: str) -> int:
        """How many bytes there are of this key, as far as is known."""
        return self._measured.get(owner, 0) + self._grown.get(owner, 0)

    def check(self, owner: str, size: int = 0) -> None:
        """Raises HttpError 429 when this key has as many as it may have, or would have with so many more."""
        if self.of(owner) + size < self._most:
            return
        raise HttpError(
            429,
            f"One API key may have {self._most} bytes stored, and this one has {self.of(owner)}: delete "
            "responses, or send `store: false`.",
            code="stored_bytes_exceeded",
            headers={"retry-after": "60", "x-should-retry": "false"},
        )

    def grow(self, owner: str, size: int) -> None:
        """About so many more were stored."""
        self._grown[owner] = self._grown.get(owner, 0) + size

    async def measure(self) -> float:
        """What there is now; the seconds until it should be measured again."""
        before, self._grown = self._grown, {}
        started = time.monotonic()
        try:
            self._measured = await self._store.stock()
        except StoreError as error:
            for owner, size in before.items():
                self.grow(owner, size)
            _log.warning("store.failed", code=error.code, reason=error.in_full)
        return max(self._interval, (time.monotonic() - started) * _REST)

    async def keep(self) -> None:
        """Measure for ever."""
        while True:
            await asyncio.sleep(await self.measure())

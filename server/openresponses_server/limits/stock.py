"""The stored bytes of each key (law S8), measured now and then in the store.

What was stored here since is added, and no request waits for the store. Workers that share a Redis take
turns: one measures for all.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol

import structlog

from openresponses_server.errors import HttpError, Outage
from openresponses_server.tasks import end_tasks, jittered

_SHORTEST_INTERVAL: Final = 5.0  # seconds between two measurements
_INTERVAL_PER_DURATION: Final = 20  # so that measuring takes at most a twentieth of the time
# What has grown here within this time before another worker's measurement counts twice, until the next one.
_LOOK_INTERVAL: Final = 1.0  # seconds
_log = structlog.get_logger(__name__)

Measure = Callable[[], Awaitable[dict[str, int]]]
"""How many bytes of each key are stored. Raises Outage."""


class Measurement(NamedTuple):
    """The stored bytes of each key; `sizes` is None if they can't be shared: each worker has to measure."""

    number: int
    sizes: dict[str, int] | None


class Look(NamedTuple):
    """The known measurements of all workers, numbered in the order in which they were begun."""

    begun: int
    """The number of the last one that has begun."""
    turn: bool
    """True if this worker must make it."""
    left: float
    """The seconds until another one may begin."""
    newer: Measurement | None
    """The last one that has ended, unless the worker has one with this number or a higher one."""


class AllMeasurements(Protocol):
    """The measurements of the workers that share the store of this name."""

    async def look(self, store: str, known: int) -> Look | None:
        """Return the measurements after number `known`, the last that the worker has (0: none); None if they
        can't be had."""
        ...

    async def hold(self, store: str, number: int) -> None:
        """Keep other workers from measuring while this one does, until cancelled."""
        ...

    async def publish(self, store: str, number: int, sizes: dict[str, int], pause: float) -> None:
        """Share with the others what was measured here; the next measurement may begin in `pause` seconds."""
        ...


_SINCE: Final = 1 << 62  # higher than any number: what grew since is in no measurement that has begun


class Stock:
    """The limit of the stored bytes of each key: `most`. `stored` measures them in the store of this name.
    With `others` one worker measures for all; while those do not answer, each measures by itself."""

    def __init__(
        self,
        stored: Measure,
        most: int,
        interval: float = _SHORTEST_INTERVAL,
        *,
        store: str = "",
        others: AllMeasurements | None = None,
    ) -> None:
        self._stored = stored
        self._most = most
        self._interval = interval
        self._store = store
        self._others = others
        self._measured: dict[str, int] = {}
        self._number: int | None = 0
        """That of the measurement; None: it was made here alone, and what the others have may be older."""
        self._due = 0.0  # on the monotonic clock: when this worker measures if the others do not answer
        self._grown: dict[str, int] = {}
        self._apart: dict[int, dict[str, int]] = {}
        """What had grown before, by the number of a measurement: those with a higher one contain it."""

    def of(self, owner: str) -> int:
        """The stored bytes of this key, as far as is known."""
        before = sum(grown.get(owner, 0) for grown in self._apart.values())
        return self._measured.get(owner, 0) + before + self._grown.get(owner, 0)

    def check(self, owner: str, size: int = 0) -> None:
        """Raises HttpError 429 if this key has reached its limit, or would exceed it with this many more
        bytes."""
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
        """Count about this many more stored bytes."""
        self._grown[owner] = self._grown.get(owner, 0) + size

    async def measure(self) -> float:
        """Measure here; returns the seconds until the next measurement."""
        measured, pause = await self._measure()
        if measured:
            self._number = None
        return pause

    async def look(self) -> float:
        """Take what another worker has measured, or measure for all if it is this one's turn; returns the
        seconds until the next look."""
        if self._others is None:
            return await self.measure()
        self._set_apart()  # what grows while they are asked may be in no measurement that they know
        answer = await self._others.look(self._store, self._number or 0)
        if answer is None:
            if time.monotonic() >= self._due:
                await self.measure()
            return jittered(_LOOK_INTERVAL)
        self._due = time.monotonic() + answer.left
        if self._number is None:
            self._number = answer.begun
        elif answer.newer is not None and answer.newer.sizes is not None:
            self._accept(answer.newer.number, answer.newer.sizes)
        elif answer.newer is not None and not answer.turn:
            await self.measure()
        self._order(answer.begun)
        if answer.turn:
            await self._measure_for_all(self._others, answer.begun)
        return jittered(_LOOK_INTERVAL)

    async def measure_repeatedly(self) -> None:
        """Measure, or take what others have measured, repeatedly, until cancelled."""
        while True:
            await asyncio.sleep(await self.look())

    async def _measure_for_all(self, others: AllMeasurements, number: int) -> None:
        holding = asyncio.create_task(others.hold(self._store, number))
        try:
            measured, pause = await self._measure()
        finally:
            await end_tasks([holding])
        if measured:
            self._number = number
            await others.publish(self._store, number, self._measured, pause)

    async def _measure(self) -> tuple[bool, float]:
        """Measure; return whether that was possible, and the seconds until the next measurement."""
        self._set_apart()
        started = time.monotonic()
        try:
            self._measured = await self._stored()
        except Outage as error:
            _log.warning("store.failed", code=error.code, reason=error.in_full)
            measured = False
        else:
            self._apart = {}
            measured = True
        ended = time.monotonic()
        pause = max(self._interval, (ended - started) * _INTERVAL_PER_DURATION)
        self._due = ended + pause
        return measured, pause

    def _accept(self, number: int, sizes: dict[str, int]) -> None:
        self._measured, self._number = sizes, number
        self._apart = {least: grown for least, grown in self._apart.items() if least >= number}

    def _set_apart(self) -> None:
        grown, self._grown = self._grown, {}
        self._add_apart(_SINCE, grown)

    def _order(self, begun: int) -> None:
        """Order what is set apart, which grew before a look that found this measurement as the last one:
        those that begin later contain it, and this one contains what grew before an earlier one was found
        so."""
        before, self._apart = self._apart, {}
        for number, grown in before.items():
            self._add_apart(begun - 1 if number < begun else begun, grown)

    def _add_apart(self, number: int, grown: dict[str, int]) -> None:
        there = self._apart.setdefault(number, grown)
        if there is not grown:
            for owner, size in grown.items():
                there[owner] = there.get(owner, 0) + size

"""The client of one run: what it has been handed, and what it is still owed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import anyio

from bridge.errors import BridgeError
from bridge.protocol.events import Event

Deliver = Callable[[list[Event]], Awaitable[None]]
"""Hands events to the client; returns when it can take more."""


async def _to_nobody(_events: list[Event]) -> None:
    return None


class Client:
    """Whoever reads along while the response is made. With `may_leave` the run goes on without it."""

    def __init__(self, *, may_leave: bool) -> None:
        self._may_leave = may_leave
        self._deliver: Deliver = _to_nobody
        self._owed: list[Event] = []
        self.told = False
        """Something has been handed over, so that a failure is told by events from now on."""
        self.told_at = anyio.current_time()
        """When that was, on the event loop's clock."""

    def came(self, deliver: Deliver) -> None:
        """Here it is."""
        self._deliver = deliver

    def left(self) -> None:
        """It is gone."""
        self._deliver = _to_nobody

    def owe(self, events: list[Event]) -> None:
        """These are for it, whatever comes between."""
        self._owed = events

    async def tell(self, events: list[Event]) -> None:
        """Hand over what it was owed."""
        self.told_at = anyio.current_time()
        self.told = True
        try:
            await self._deliver(events)
        except BridgeError:
            raise
        except Exception:
            if not self._may_leave:
                raise
            self.left()
        self._owed = []

    async def tell_last(self, events: list[Event], seconds: float) -> None:
        """Hand over the end, behind what an interruption kept from the client. One that has taken nothing
        for so long is let go: it would hold its run for ever."""
        try:
            async with asyncio.timeout(seconds):
                await self.tell([*self._owed, *events] if self._owed else events)
        except TimeoutError:
            self.left()

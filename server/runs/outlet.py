"""The way out of a run: what it makes is kept, where it is kept, and then delivered, batch after batch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bridge.protocol.events import Event
from server.runs.client import Batch, Client
from server.runs.eager import Rest
from server.sessions.persistence import ResponseSessionPersistenceTransformer

Settle = Callable[[Event | None], None]
"""How a run ended is known and, if it is stored, durable; with the event that is sent in the place of its
last one, when that could not be stored."""


class Outlet:
    """Of one run, to `client`; without `keeping` nothing is stored."""

    def __init__(self, client: Client, keeping: ResponseSessionPersistenceTransformer | None) -> None:
        self._client = client
        self._keeping = keeping
        self._order = asyncio.Lock()
        self.storing = False
        """It is the store that is waited for."""

    @property
    def is_taken(self) -> bool:
        """A batch is on its way."""
        return self._order.locked()

    @property
    def flows(self) -> bool:
        """What is passed on now waits for the client alone, and may begin to where there is no task."""
        free = self._client.begins_anywhere and not self._order.locked()
        return free and (self._keeping is None or self._keeping.flows)

    async def finish(self, rest: Rest) -> None:
        """Wait for a `pass_on` that was begun where nothing can wait."""
        self._client.wait_here()
        await rest

    async def pass_on(self, events: list[Event]) -> None:
        """Keep and deliver these."""
        async with self._order:
            self._client.set_unsent(events)
            batch = Batch(events)
            if self._keeping is not None:
                batch = await self._keep(self._keeping, events)
            await self._client.send(batch)

    async def pass_last(self, events: list[Event], seconds: float, settle: Settle) -> None:
        """Law S1: the end is durable before it is sent, or a failure is sent in its place. What an
        interruption kept from the client goes with it. The client may take `seconds` for it."""
        async with self._order:
            batch = Batch(events)
            if self._keeping is not None:
                batch = await self._keep(self._keeping, events)
            settle(batch.events[-1] if batch.events is not events else None)
            await self._client.send_last(batch, seconds)

    async def _keep(self, keeping: ResponseSessionPersistenceTransformer, events: list[Event]) -> Batch:
        """What may leave: these events, or the failure to store the end of the response."""
        self.storing = True
        try:
            kept = await keeping.take(events)
            return Batch(kept, keeping.batch.data)
        finally:
            self.storing = False

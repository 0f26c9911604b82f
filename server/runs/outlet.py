"""The way out of a run: what it makes is kept, where it is kept, and then delivered, batch after batch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bridge.protocol.events import Event
from server.runs.client import Batch, Client
from server.runs.eager import Rest, begin
from server.runs.order import Order
from server.sessions.persistence import ResponseSessionPersistenceTransformer

Settle = Callable[[Event | None], None]
"""How a run ended is known and, if it is stored, durable; with the event that is sent in the place of its
last one, when that could not be stored."""


class Outlet:
    """Of one run, to `client`; without `keeping` nothing is stored."""

    __slots__ = ("_client", "_keeping", "_order", "storing")

    def __init__(self, client: Client, keeping: ResponseSessionPersistenceTransformer | None) -> None:
        self._client = client
        self._keeping = keeping
        self._order = Order()
        self.storing = False
        """It is the store that is waited for."""

    @property
    def is_taken(self) -> bool:
        """A batch is on its way."""
        return not self._order.free

    @property
    def flows(self) -> bool:
        """What is passed on now waits for the client alone, and may begin to where there is no task."""
        return (
            self._order.free
            and self._client.begins_anywhere
            and (self._keeping is None or self._keeping.flows)
        )

    def pass_here(self, events: list[Event]) -> Rest | None:
        """Keep and deliver these where there is no task, while it `flows`: what is left for `finish`, if it
        has to be waited for."""
        batch = Batch(events)
        if self._keeping is not None:
            unkept = begin(self._keeping.take(events))
            if unkept is not None:
                return begin(self._wait_for_keeping(unkept, batch))
            batch = Batch(events, self._keeping.batch.data)
        rest = self._client.hand_over(batch)
        return None if rest is None else begin(self._wait_for(rest, batch))

    async def finish(self, rest: Rest) -> None:
        """Wait for what `pass_here` has left."""
        self._client.wait_here()
        await rest

    async def pass_on(self, events: list[Event]) -> None:
        """Keep and deliver these."""
        async with self._order:
            self._client.set_unsent(events)
            batch = Batch(events)
            if self._keeping is not None:
                batch = await self._keep(self._keeping, batch)
            await self._client.send(batch)

    async def pass_last(self, events: list[Event], seconds: float, settle: Settle) -> None:
        """Law S1: the end is durable before it is sent, or a failure is sent in its place. What an
        interruption kept from the client goes with it. The client may take `seconds` for it."""
        async with self._order:
            batch = Batch(events, last=True)
            if self._keeping is not None:
                batch = await self._keep(self._keeping, batch)
            settle(batch.events[-1] if batch.events is not events else None)
            await self._client.send_last(batch, seconds)

    async def _wait_for_keeping(self, unkept: Rest, batch: Batch) -> None:
        """What cannot be kept fails here; while it `flows`, the store and the log are not waited for."""
        async with self._order:
            self._client.set_unsent(batch.events)
            await unkept
            await self._client.send(batch)

    async def _wait_for(self, rest: Awaitable[None], batch: Batch) -> None:
        async with self._order:
            self._client.set_unsent(batch.events)
            await self._client.wait_for(rest, batch)

    async def _keep(self, keeping: ResponseSessionPersistenceTransformer, batch: Batch) -> Batch:
        """What may leave: these events, or the failure to store the end of the response."""
        self.storing = True
        try:
            kept = await keeping.take(batch.events)
            return Batch(kept, keeping.batch.data, batch.last)
        finally:
            self.storing = False

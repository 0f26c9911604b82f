"""The way out of a run: what it makes is kept, where it is kept, and then delivered, batch after batch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from openresponses_bridge.protocol.events import Event
from openresponses_server.runs.client import Batch, Client, failing
from openresponses_server.runs.eager import Rest, begin
from openresponses_server.runs.order import Order
from openresponses_server.store.persistence import ResponseSessionPersistenceTransformer

T = TypeVar("T")

Settle = Callable[[Event | None], None]
"""How a run ended is known and, if it is stored, durable; with the event that is sent in the place of its
last one, when that could not be stored."""

Later = Callable[[Rest | None], None]
"""Called when a batch that was under way has left, or with what is left of it."""


class Outlet:
    """Of one run, to `client`; without `keeping` nothing is stored."""

    def __init__(self, client: Client, keeping: ResponseSessionPersistenceTransformer | None) -> None:
        self._client = client
        self._keeping = keeping
        self._order = Order()
        self._left: list[Event] = []
        self.storing = False
        """It is the store that is waited for."""
        self.under_way = False
        """A batch leaves by itself when the log has it."""

    @property
    def is_taken(self) -> bool:
        """A batch is on its way."""
        return not self._order.free

    @property
    def flows(self) -> bool:
        """What is passed on now waits for the client and the log alone, and may begin to where there is no
        task."""
        return (
            self._order.free
            and self._client.begins_anywhere
            and (self._keeping is None or self._keeping.flows)
        )

    def pass_on(self, events: list[Event], later: Later | None = None) -> Rest | None:
        """Keep and deliver these: None when that is done, or what is left of it, to be awaited. Where there
        is no task this is called while it `flows`, with `later`, for a batch that gets `under_way`; what
        is left is for `finish` then."""
        if not self._order.free:
            return begin(self._pass_in_turn(events))
        batch = Batch(events)
        if self._keeping is not None:
            kept = self._kept(self._keeping, events)
            batch = Batch(events, self._keeping.batch.data)
            if kept is not None:
                return self._wait_for_keeping(kept, batch, later)
        rest = self._client.hand_over(batch)
        if rest is None:
            return None
        self._order.take()
        return begin(self._wait_for(rest, batch))

    async def finish(self, rest: Rest) -> None:
        """Wait for what was left where there was no task."""
        self._client.wait_here()
        await rest

    async def pass_last(self, events: list[Event], seconds: float, settle: Settle) -> None:
        """Law S1: the end is durable before it is sent, or a failure is sent in its place. What an
        interruption kept from the client goes with it. The client may take `seconds` for it."""
        async with self._order:
            given = [*self._left, *events] if self._left else events
            batch = Batch(given, last=True)
            if self._keeping is not None:
                kept = await self._while_storing(self._keeping.take(given))
                batch = Batch(kept, self._keeping.batch.data, last=True)
            settle(batch.events[-1] if batch.events is not given else None)
            await self._client.send_last(batch, seconds)

    def _kept(
        self, keeping: ResponseSessionPersistenceTransformer, events: list[Event]
    ) -> Awaitable[None] | None:
        """What is to be awaited before they may leave, if anything."""
        try:
            return keeping.keep(events)
        except Exception as error:
            return failing(error)  # in the task of the run

    def _wait_for_keeping(self, kept: Awaitable[None], batch: Batch, later: Later | None) -> Rest | None:
        self._order.take()
        if later is None or not isinstance(kept, asyncio.Future):
            return begin(self._send_when(kept, batch))
        self.under_way = True
        kept.add_done_callback(partial(self._leave, batch, later))
        return None

    def _leave(self, batch: Batch, later: Later, _kept: asyncio.Future[None]) -> None:
        self.under_way = False
        rest = self._client.hand_over(batch)
        if rest is None:
            self._order.release()
            later(None)
        else:
            later(begin(self._wait_for(rest, batch)))

    async def _pass_in_turn(self, events: list[Event]) -> None:
        try:
            await self._order.come()
        except BaseException:
            self._left += events  # nothing of them was kept or sent
            raise
        kept = None if self._keeping is None else self._kept(self._keeping, events)
        batch = Batch(events, None if self._keeping is None else self._keeping.batch.data)
        await self._send_when(kept, batch)

    async def _send_when(self, kept: Awaitable[None] | None, batch: Batch) -> None:
        try:
            self._client.set_unsent(batch.events)
            if kept is not None:
                await self._while_storing(kept)
            await self._client.send(batch)
        finally:
            self._order.release()

    async def _wait_for(self, rest: Awaitable[None], batch: Batch) -> None:
        try:
            self._client.set_unsent(batch.events)
            await self._client.wait_for(rest, batch)
        finally:
            self._order.release()

    async def _while_storing(self, kept: Awaitable[T]) -> T:
        self.storing = True
        try:
            return await kept
        finally:
            self.storing = False

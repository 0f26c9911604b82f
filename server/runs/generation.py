"""A run with its I/O: it opens the upstream, reads, delivers what came out, and stores the response.

One coroutine reads and delivers; there is no queue in between, so that a slow client slows its own
upstream and nothing else (law S4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bridge.protocol.events import Event
from bridge.protocol.input_items import InputItem
from server.errors import UpstreamError, too_slow
from server.runs.run import Run
from server.sessions.base import ResponseStore, StoredResponse
from server.upstreams.base import Upstream, UpstreamReply, UpstreamRequest

Deliver = Callable[[list[Event]], Awaitable[None]]


class Generation:
    """One response, ready to be made. `input` is what the request brought in; without a `store`
    nothing is kept. `total` bounds the whole of it, in seconds."""

    def __init__(
        self,
        run: Run,
        upstream: Upstream,
        request: UpstreamRequest,
        total: float,
        store: ResponseStore | None,
        input: list[InputItem],
    ) -> None:
        self.run = run
        self._upstream = upstream
        self._request = request
        self._total = total
        self._store = store
        self._input = input
        self.accepted = False
        """The upstream has taken the request and begun to answer: the status is known."""
        self.waiting = False
        """It is the upstream that is waited for, not the client."""

    async def generate(self, deliver: Deliver) -> None:
        """Run to the end, delivering the events of each read together.

        Raises UpstreamError when the upstream fails before anything was delivered (law S5); after that
        a failure is delivered as events.
        """
        try:
            async with asyncio.timeout(self._total), self._upstream.open(self._request) as reply:
                self.accepted = True
                await self._follow(reply, deliver)
        except TimeoutError:
            await self._end_badly(too_slow(self._total), deliver)
        except UpstreamError as error:
            await self._end_badly(error, deliver)

    async def abandon(self) -> None:
        """The client has left: what there is so far is kept as a cancelled response."""
        if not self.run.ended:
            self.run.cancel()
            await self._save()

    async def _follow(self, reply: UpstreamReply, deliver: Deliver) -> None:
        run = self.run
        data = await self._read(reply)
        if not data:
            raise UpstreamError(
                502, "the upstream answered with an empty stream", code=UpstreamError.INVALID_RESPONSE
            )
        while data:
            events = run.feed(data)
            if run.ended:
                break
            if events:
                await deliver(events)
            data = await self._read(reply)
        else:
            events = run.end()
        await self._save()
        await deliver(events)

    async def _read(self, reply: UpstreamReply) -> bytes:
        self.waiting = True
        data = await reply.read()
        self.waiting = False
        return data

    async def _end_badly(self, error: UpstreamError, deliver: Deliver) -> None:
        if not self.run.begun:
            raise error
        events = self.run.fail(error)
        await self._save()
        await deliver(events)

    async def _save(self) -> None:
        """Law S1: the record is there before the terminal event leaves."""
        if self._store is not None:
            await self._store.put(StoredResponse(self.run.snapshot, self._input))

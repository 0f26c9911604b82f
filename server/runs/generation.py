"""A run with its I/O: it opens the upstream, reads, delivers what came out, and stores the response.

One coroutine reads and delivers; there is no queue in between, so that a slow client slows its own
upstream and nothing else (law S4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import anyio

from bridge.protocol.events import Event
from bridge.protocol.input_items import InputItem
from bridge.protocol.response import Response
from server.errors import HttpError, UpstreamError, shutting_down, too_slow
from server.limits import Gate
from server.runs.run import Run
from server.runs.running import RunningResponses
from server.sessions.base import ResponseStore, StoredResponse
from server.upstreams.attempts import Attempts
from server.upstreams.base import UpstreamReply

Deliver = Callable[[list[Event]], Awaitable[None]]


class Generation:
    """One response, ready to be made. `input` is what the request brought in; without a `store`
    nothing is kept. `total` bounds the whole of it, in seconds; `gate` counts it while it runs, and
    `running` lists it for those who ask for it by its id. `beats`: its client needs events to know that
    it goes on. `owner` is whose it is; `ended` is told whose model it was and how it ended."""

    def __init__(
        self,
        run: Run,
        attempts: Attempts,
        gate: Gate,
        total: float,
        store: ResponseStore | None,
        input: list[InputItem],
        running: RunningResponses,
        beats: bool = False,
        owner: str = "",
        ended: Callable[[str, Response], None] | None = None,
    ) -> None:
        self.run = run
        self._attempts = attempts
        self._gate = gate
        self._total = total
        self._store = store
        self._input = input
        self._owner = owner
        self._ended = ended
        self._running = running
        self._beats = beats
        self._deadline: asyncio.Timeout | None = None
        self._cancelled: list[Event] = []
        """What cancelling caused and the client has not been told."""
        self.accepted = False
        """The upstream has taken the request and begun to answer: the status is known."""
        self.waiting = False
        """It is the upstream that is waited for, not the client."""
        self.delivered_at = anyio.current_time()
        """When events were last handed to the client, on the event loop's clock."""

    async def generate(self, deliver: Deliver) -> None:
        """Run to the end, delivering the events of each read together.

        Raises UpstreamError when the upstream fails before anything was delivered (law S5); after that
        a failure is delivered as events.
        """
        try:
            async with asyncio.timeout(self._total) as deadline:
                self._deadline = deadline
                with self._gate.held(deadline), self._running.hold(self.run.response_id, self._owner, self):
                    async with self._attempts.open() as reply:
                        self.accepted = True
                        await self._follow(reply, deliver)
        except TimeoutError:
            if self.run.ended:
                await deliver(self._cancelled)
                return
            await self._end_badly(shutting_down() if self._gate.cut else too_slow(self._total), deliver)
        except UpstreamError as error:
            await self._end_badly(error, deliver)
        finally:
            if self._ended is not None and self.run.ended:
                self._ended(self._attempts.chosen, self.run.snapshot)

    async def abandon(self) -> None:
        """The client has left: what there is so far is kept as a cancelled response."""
        if not self.run.ended:
            self.run.cancel()
            await self._save()

    async def cancel(self) -> Response:
        """Somebody wants no more of it: the response ends as cancelled, and its client is told."""
        if not self.run.ended:
            self._cancelled = self.run.cancel()
            if self._deadline is not None and (self.waiting or not self.accepted):
                self._deadline.reschedule(asyncio.get_running_loop().time())
            await self._save()
        return self.run.snapshot

    def sign_of_life(self) -> list[Event]:
        """What to send when nothing has been sent for a while: nothing before the status is known (law
        S6), then the first events, then an event that says nothing else to a client that needs one."""
        if self.run.ended or not (self.accepted and self.waiting):
            return []
        self.delivered_at = anyio.current_time()
        return self.run.beat() if self._beats and self.run.begun else self.run.begin()

    async def _follow(self, reply: UpstreamReply, deliver: Deliver) -> None:
        run = self.run
        data = await self._read(reply)
        if not data:
            raise UpstreamError(
                502, "the upstream answered with an empty stream", code=UpstreamError.INVALID_RESPONSE
            )
        events: list[Event] = []
        while data:
            events = run.feed(data)
            if run.ended:
                break
            if events:
                self.delivered_at = anyio.current_time()
                await deliver(events)
            if self.run.ended:  # cancelled while the client took its time
                events = self._cancelled
                break
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

    async def _end_badly(self, error: HttpError, deliver: Deliver) -> None:
        if not self.run.begun:
            raise error
        events = self.run.fail(error)
        await self._save()
        await deliver(events)

    async def _save(self) -> None:
        """Law S1: the record is there before the terminal event leaves."""
        if self._store is not None:
            await self._store.put(StoredResponse(self.run.snapshot, self._input, self._owner))

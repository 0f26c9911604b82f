"""A run: one response being generated. It opens the upstream, reads, and passes on what came out.

One coroutine reads, keeps and delivers; there is no queue in between, so that a slow client slows its own
upstream and nothing else (law S4). A response that is stored is made in a task of its own, one per run, so
that it goes on when its client leaves (law S3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bridge.errors import BridgeError
from bridge.protocol.events import Event
from bridge.protocol.response import Response
from server.budget import Hold
from server.errors import HttpError, UpstreamError, shutting_down, too_slow
from server.gate import Gate
from server.runs.active import ActiveRuns
from server.runs.client import Batch, Client, Deliver
from server.runs.keeper import Keeper
from server.runs.translation import Translation
from server.schemas.workers import Question, SchemaJudge
from server.sessions.endings import LOST
from server.sessions.persistence import ResponseSessionPersistenceTransformer
from server.upstreams.attempts import Attempts
from server.upstreams.base import UpstreamReply


class Run:
    """One response, ready to be made. What passes is kept by `keeping`, without it nothing is stored;
    `keeper` makes the checkpoints. `total` bounds the whole of it, in seconds; `gate` counts it while it
    runs, and `running` lists it for those who ask for it by its id. `beats`: its client needs events to know
    that it goes on. `owner` is whose it is, `hold` what it has in memory; `ended` is called with the
    upstream's name and the response as it ended. `background`: its client already has the queued response, so
    that everything later, failures too, is reported by its events. `placed`: its place is held."""

    def __init__(
        self,
        translation: Translation,
        attempts: Attempts,
        gate: Gate,
        total: float,
        keeping: ResponseSessionPersistenceTransformer | None,
        keeper: Keeper,
        running: ActiveRuns,
        judge: SchemaJudge,
        *,
        beats: bool,
        owner: str,
        hold: Hold,
        ended: Callable[[str, Response], None],
        background: bool,
        personal: bool,
        placed: bool = False,
    ) -> None:
        self.translation = translation
        self.keeping = keeping
        self.personal = personal
        """It needs its client's own key, which is not stored: no other worker can make it."""
        self._attempts = attempts
        self._gate = gate
        self._total = total
        self._keeper = keeper
        self.owner = owner
        self._hold = hold
        self._ended = ended
        self._running = running
        self._judge = judge
        self._beats = beats
        self._background = background
        self._placed = placed
        self.client = Client(may_leave=keeping is not None)
        self._order = asyncio.Lock()
        self._deadline: asyncio.Timeout | None = None
        self._stopped = False
        self._settled = asyncio.Event()
        """How it ended is known and, if it is stored, durable."""
        self.accepted = False
        """The upstream has taken the request and begun to answer: the status is known."""
        self._reading = self._storing = self._judging = self._in_line = False

    async def generate(self, deliver: Deliver) -> None:
        """Run to the end, delivering the events of each read together. When this is cancelled, a response
        that is stored goes on without its client, and another one is broken off.

        Raises UpstreamError when the upstream fails before anything was delivered (law S5) and StoreError
        when not even its beginning can be stored; after that a failure is delivered as events.
        """
        self.client.attach(deliver)
        if self.keeping is None:
            await self._make()
            return
        try:
            await asyncio.shield(self.start())
        finally:
            self.client.detach()

    def start(self) -> asyncio.Task[None]:
        """Run to the end in a task of its own."""
        if self._background and self.keeping is not None:
            self._keeper.add(self.keeping, self.lose)
            self._gate.waiting.take(self.owner)
            self._in_line = True
        return self._keeper.start(self._make())

    async def abandon(self) -> None:
        """The client has left, and `generate` was cancelled."""
        if self.keeping is None:
            self.translation.cancel()

    async def cancel(self) -> Response:
        """End the response as cancelled; its client gets that end."""
        self.stop()
        await self._settled.wait()
        return self.translation.snapshot

    def refuse(self, error: BridgeError) -> list[Event]:
        """The end of one that `generate` refused, where others of the same answer go on."""
        events = self.translation.fail(error)
        self._ended(self._attempts.chosen, self.translation.snapshot)
        return events

    def stop(self) -> None:
        """The same, without waiting for the end."""
        self._stopped = True
        self._interrupt()

    def lose(self) -> None:
        """Nothing of it can be stored any more: it fails."""
        self._interrupt()

    def _interrupt(self) -> None:
        if self._deadline is not None and not self._deadline.expired():
            self._deadline.reschedule(asyncio.get_running_loop().time())

    @property
    def last_kept(self) -> int | None:
        """The number of the last event that has passed to be kept, -1 before the first; None when nothing is
        kept of it."""
        return None if self.keeping is None else self.keeping.batch.last

    @property
    def waiting(self) -> bool:
        """It is the upstream, the store or the judge that is waited for, not the client."""
        return self._reading or self._storing or self._judging

    async def show_life(self) -> bool:
        """Deliver something when nothing has been sent for a while; whether there was something: nothing
        before the status is known (law S6), then the first events, then a keep-alive event to a client that
        needs one."""
        if self.translation.ended or self._order.locked() or not (self.accepted and self.waiting):
            return False
        events = (
            self.translation.beat() if self._beats and self.translation.begun else self.translation.begin()
        )
        if events:
            await self._pass(events)
        return bool(events)

    async def _make(self) -> None:
        try:
            with self._running.hold(self.translation.response_id, self.owner, self):
                last = await self._until_the_end()
                if last:
                    await self._pass_last(last)
        finally:
            self._leave_line()
            self._hold.release()
            self._settled.set()
            if self.keeping is not None:
                self._keeper.leave(self.keeping, ended=self.translation.ended)
            if self.translation.ended:
                self._ended(self._attempts.chosen, self.translation.snapshot)

    async def _until_the_end(self) -> list[Event]:
        """The last events, which have not been passed on. Raises HttpError when it fails before anything of
        it was sent."""
        try:
            async with asyncio.timeout(None) as deadline:
                self._deadline = deadline
                if self._stopped:
                    return self.translation.cancel()
                # A run in the background waits for a place instead of being refused.
                async with self._gate.place(self.owner, waits=self._background, held=self._placed):
                    self._leave_line()
                    if deadline.when() is None:  # it was not interrupted
                        deadline.reschedule(asyncio.get_running_loop().time() + self._total)
                    with self._gate.ended_by(deadline):
                        async with self._attempts.open() as reply:
                            self.accepted = True
                            return await self._follow(reply)
        except TimeoutError:
            return self._cut_short()
        except HttpError as error:
            return self._failed(error)
        finally:
            self._deadline = None

    def _leave_line(self) -> None:
        """It is made now, or not at all."""
        if self._in_line:
            self._in_line = False
            self._gate.waiting.give_back(self.owner)

    def _cut_short(self) -> list[Event]:
        if self._stopped:
            return self.translation.cancel()
        if self.keeping is not None and self.keeping.lost:
            return self._failed(LOST)
        return self._failed(shutting_down() if self._gate.cut else too_slow(self._total))

    def _failed(self, error: HttpError) -> list[Event]:
        if not self._known:
            raise error
        return self.translation.fail(error)

    @property
    def _known(self) -> bool:
        """Something of the response was sent, or it can be found in the store: it has to be brought to an
        end."""
        held = self.keeping is not None and self.keeping.held
        return self.client.has_sent or self._background or held

    async def _follow(self, reply: UpstreamReply) -> list[Event]:
        translation = self.translation
        data = await self._read(reply)
        if not data:
            raise UpstreamError(
                502, "the upstream answered with an empty stream", code=UpstreamError.INVALID_RESPONSE
            )
        while data:
            events = translation.feed(data)
            if translation.ended:
                return events
            if translation.question is not None:
                return await self._judged(events, translation.question)
            if events:
                await self._pass(events)
            data = await self._read(reply)
        events = translation.end()
        return events if translation.question is None else await self._judged(events, translation.question)

    async def _judged(self, events: list[Event], question: Question) -> list[Event]:
        """The last events, when these have been passed on and the answer is judged."""
        if events:
            await self._pass(events)
        self._judging = True
        try:
            return self.translation.settle(await self._judge.objection(question, self.owner))
        finally:
            self._judging = False

    async def _read(self, reply: UpstreamReply) -> bytes:
        self._reading = True
        try:
            return await reply.read()
        finally:
            self._reading = False

    async def _pass(self, events: list[Event]) -> None:
        async with self._order:
            self.client.set_unsent(events)
            batch = Batch(events)
            if self.keeping is not None:
                self._keeper.add(self.keeping, self.lose)
                batch = await self._keep(self.keeping, events)
            await self.client.send(batch)

    async def _pass_last(self, events: list[Event]) -> None:
        """Law S1: the end is durable before it is sent, or a failure is sent in its place. What an
        interruption kept from the client goes with it."""
        async with self._order:
            batch = Batch(events)
            if self.keeping is not None:
                batch = await self._keep(self.keeping, events)
                if batch.events is not events:
                    self._end_instead(batch.events)
            self._settled.set()
            await self.client.send_last(batch, self._total)

    async def _keep(self, keeping: ResponseSessionPersistenceTransformer, events: list[Event]) -> Batch:
        """What may leave: these events, or the failure to store the end of the response."""
        self._storing = True
        try:
            kept = await keeping.take(events)
            return Batch(kept, keeping.batch.data)
        finally:
            self._storing = False

    def _end_instead(self, failed: list[Event]) -> None:
        """The end could not be stored. Raises HttpError when nothing of the response was sent yet."""
        self.translation.end_instead(failed[-1])
        if not self._known and self.translation.failure is not None:
            raise self.translation.failure

"""A run: one response being generated, from its place in the line to its end.

One coroutine reads (`Reading`), keeps and delivers (`Outlet`); there is no queue in between, so that a slow
client slows its own upstream and nothing else (law S4). A response that is stored is made in a task of its
own, one per run, so that it goes on when its client leaves (law S3).
"""

from __future__ import annotations

import asyncio

from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.response import Response
from openresponses_server.errors import HttpError, shutting_down, too_slow
from openresponses_server.limits.gate import Gate
from openresponses_server.limits.memory import Hold
from openresponses_server.runs.keeper import Keeper
from openresponses_server.runs.outcome import Outcome
from openresponses_server.runs.outlet import Client, Deliver, Outlet
from openresponses_server.runs.reading import Reading
from openresponses_server.runs.schema_workers import SchemaJudge
from openresponses_server.runs.translation import Translation
from openresponses_server.store.endings import LOST
from openresponses_server.store.persistence import ResponseSessionPersistenceTransformer
from openresponses_server.upstreams.attempts import Attempts

# The responses that this process is making right now, by id.


class ActiveRuns:
    """Where a request about a response finds the run that makes it."""

    def __init__(self) -> None:
        self._runs: dict[str, tuple[str, Run]] = {}

    def add(self, response_id: str, owner: str, run: Run) -> None:
        """List the run, until it is removed."""
        self._runs[response_id] = owner, run

    def remove(self, response_id: str) -> None:
        """It has been made."""
        del self._runs[response_id]

    def get(self, response_id: str, owner: str) -> Run | None:
        """The run that makes this response; None when none does here for this owner (law S7)."""
        whose, run = self._runs.get(response_id, (owner, None))
        return run if whose == owner else None

    def find(self, response_id: str) -> Run | None:
        """The same, for any owner."""
        _, run = self._runs.get(response_id, (None, None))
        return run

    def in_line(self) -> list[Run]:
        """Those that wait for their turn."""
        return [run for _, run in self._runs.values() if run.in_line]

    def __len__(self) -> int:
        return len(self._runs)


class Run:
    """One response, ready to be made. What passes is kept by `keeping`, without it nothing is stored;
    `keeper` makes the checkpoints. `total` bounds the whole of it, in seconds; `gate` counts it while it
    runs, and `running` lists it for those who ask for it by its id. `beats`: its client needs events to know
    that it goes on. `owner` is whose it is, `hold` what it has in memory; `outcome` reports how it ends.
    `background`: its client already has the queued response, so that everything later, failures too, is
    reported by its events. `placed`: its place is held. `makings` is how often it was begun before."""

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
        outcome: Outcome,
        background: bool,
        personal: bool,
        placed: bool = False,
        makings: int = 0,
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
        self._outcome = outcome
        self._running = running
        self._beats = beats
        self._background = background
        self._placed = placed
        self._makings = makings
        self.client = Client(may_leave=keeping is not None)
        self._outlet = Outlet(self.client, keeping)
        self._reading = Reading(translation, self._outlet, judge, outcome, owner)
        self._deadline: asyncio.Timeout | None = None
        self._stopped = False
        self._is_settled = False  # how it ended is known and, if it is stored, durable
        self._settled: asyncio.Event | None = None  # made for those who wait for that
        self.accepted = False
        """The upstream has taken the request and begun to answer: the status is known."""
        self.in_line = False  # it is `making` in the background and waits for its turn

    async def generate(
        self, deliver: Deliver | None, *, may_fall_behind: bool = False, anywhere: bool = False
    ) -> None:
        """Run to the end, delivering the events of each read together; without `deliver` its client is sent
        nothing before the end. When this is cancelled, a response
        that is stored goes on without its client, and another one is broken off. With `may_fall_behind` a
        stored one also goes on without a client that is too slow, and this returns: `client.is_behind`.
        `anywhere` is as `Client.attach` has it.

        Raises UpstreamError when the upstream fails before anything was delivered (law S5) and StoreError
        when not even its beginning can be stored; after that a failure is delivered as events.
        """
        if deliver is not None:
            self.client.attach(deliver, may_fall_behind=may_fall_behind, anywhere=anywhere)
        elif self.keeping is not None:
            self.keeping.unheard = True
        try:
            await (self._make() if self.keeping is None else self.client.wait(self.start()))
        finally:
            self.client.detach()

    def start(self) -> asyncio.Task[None]:
        """Run to the end in a task of its own."""
        if self.keeping is not None:
            self._keeper.add(self.keeping, self.lose)
        if self._background:
            self._gate.waiting.take(self.owner)
            self.in_line = True
        self.making = self._keeper.start(self._make())
        return self.making

    async def abandon(self) -> None:
        """The client has left, and `generate` was cancelled."""
        if self.keeping is None:
            self.translation.cancel()

    async def cancel(self) -> Response:
        """End the response as cancelled; its client gets that end."""
        self.stop()
        await self.settled()
        return self.translation.snapshot

    async def settled(self) -> None:
        """Wait until it is known how it ended."""
        if self._is_settled:
            return
        if self._settled is None:
            self._settled = asyncio.Event()
        await self._settled.wait()

    def refuse(self, error: BridgeError) -> list[Event]:
        """The end of one that `generate` refused, where others of the same answer go on."""
        events = self.translation.fail(error)
        self._outcome.count()
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
    def shown(self) -> Response | None:
        """The response as it stands, to whoever asks; None when that is what is stored: it has ended, or none
        of its output is stored, so that it may be made again."""
        has_shown = self.keeping is not None and self.keeping.seen and not self.translation.ended
        return self.translation.snapshot if has_shown else None

    @property
    def last_kept(self) -> int | None:
        """The number of the last event that has passed to be kept, -1 before the first; None when nothing is
        kept of it."""
        return None if self.keeping is None else self.keeping.batch.last

    @property
    def waiting(self) -> bool:
        """It is the upstream, the store or the judge that is waited for, not the client."""
        return self._reading.waits or self._outlet.storing

    async def show_life(self) -> bool:
        """Deliver something when nothing has been sent for a while; whether there was something: nothing
        before the status is known (law S6), then the first events, then a keep-alive event to a client that
        needs one."""
        if self.translation.ended or self._outlet.is_taken or not (self.accepted and self.waiting):
            return False
        events = (
            self.translation.beat() if self._beats and self.translation.begun else self.translation.begin()
        )
        if events and (rest := self._outlet.pass_on(events)) is not None:
            await rest
        return bool(events)

    async def _make(self) -> None:
        response_id = self.translation.response_id
        try:
            with self._outcome:
                self._running.add(response_id, self.owner, self)
                try:
                    last = await self._until_the_end()
                    if last:
                        await self._outlet.pass_last(last, self._total, self._settle)
                finally:
                    self._running.remove(response_id)
        finally:
            if self.in_line:
                self._leave_line()
            self._hold.release()
            if not self._is_settled:
                self._note_settled()
            if self.keeping is not None:
                self._keeper.leave(self.keeping, ended=self.translation.ended)

    async def _until_the_end(self) -> list[Event]:
        """The last events, which have not been passed on. Raises HttpError when it fails before anything of
        it was sent."""
        try:
            # what waits for its turn has its time from then on
            async with asyncio.timeout(None if self._background else self._total) as deadline:
                self._deadline = deadline
                if self._stopped:
                    return self.translation.cancel()
                # A run in the background waits for a place instead of being refused.
                async with self._gate.place(self.owner, waits=self._background, held=self._placed):
                    if self.in_line:
                        self._leave_line()
                    if deadline.when() is None:  # it was not interrupted
                        deadline.reschedule(asyncio.get_running_loop().time() + self._total)
                    self._gate.ends(deadline)
                    try:
                        return await self._ask()
                    finally:
                        self._gate.ends_no_more(deadline)
        except TimeoutError:
            return self._reading.last or await self._cut_short()
        except HttpError as error:
            return self._failed(error)
        finally:
            self._deadline = None

    async def _ask(self) -> list[Event]:
        if self._background and self.keeping is not None and not await self._mark_begun(self.keeping):
            return self.translation.fail(LOST)
        async with self._attempts as reply:
            self.accepted = True
            return await self._reading.follow(reply)

    async def _mark_begun(self, keeping: ResponseSessionPersistenceTransformer) -> bool:
        """Store that it is made now, so that it is known how often its worker has died of it; whether it is
        this run's to make. Of a first making there is no event yet: the upstream's answer may say what
        `response.created` shows."""
        if self._makings:
            if (rest := self._outlet.pass_on(self.translation.begin_again(self._makings))) is not None:
                await rest
        else:
            await keeping.begin()
        return not keeping.lost

    def _leave_line(self) -> None:
        self.in_line = False
        self._gate.waiting.give_back(self.owner)

    async def _cut_short(self) -> list[Event]:
        if self._stopped:
            return self.translation.cancel()
        if self._gate.cut.is_set() and await self._given_back():
            return []
        if self.keeping is not None and self.keeping.lost:
            return self.translation.fail(LOST)  # unless there is a stored end to send instead
        return self._failed(shutting_down() if self._gate.cut.is_set() else too_slow(self._total))

    async def _given_back(self) -> bool:
        """Whether another worker makes it instead: nobody has seen anything of it."""
        return self.keeping is not None and not self.personal and await self.keeping.give_back()

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

    def _settle(self, instead: Event | None) -> None:
        if instead is not None:
            self._end_instead(instead)
        self._note_settled()

    def _note_settled(self) -> None:
        self._is_settled = True
        if self._settled is not None:
            self._settled.set()

    def _end_instead(self, last: Event) -> None:
        """This end is sent instead. Raises HttpError when it is a failure and nothing was sent yet."""
        self.translation.end_instead(last)
        unknown = self._is_secret or not self._known
        if unknown and self.translation.failure is not None:
            raise self.translation.failure

    @property
    def _is_secret(self) -> bool:
        """Nothing of it was sent or stored, whatever was made of it."""
        return self.keeping is not None and self.keeping.unheard and not self.keeping.held

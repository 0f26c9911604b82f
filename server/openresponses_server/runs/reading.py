"""An upstream's answer, read to its end: translated, passed on, and judged where it has to fit a schema."""

from __future__ import annotations

from openresponses_bridge.protocol.events import Event
from openresponses_server.errors import UpstreamError
from openresponses_server.runs.outcome import Outcome
from openresponses_server.runs.outlet import Outlet, Rest
from openresponses_server.runs.schema_workers import Question, SchemaJudge
from openresponses_server.runs.translation import Translation
from openresponses_server.upstreams.base import Again, UpstreamReply
from openresponses_server.upstreams.whole_answers import WholeReply


class Reading:
    """For one response of `owner`'s. What comes leaves by `outlet`, read by read, so that a slow client slows
    its own upstream and nothing else (law S4)."""

    __slots__ = (
        "_again",
        "_held",
        "_judge",
        "_outcome",
        "_outlet",
        "_owner",
        "_pace",
        "_rest",
        "_translation",
        "last",
        "waits",
    )

    def __init__(
        self, translation: Translation, outlet: Outlet, judge: SchemaJudge, outcome: Outcome, owner: str
    ) -> None:
        self._translation = translation
        self._outlet = outlet
        self._judge = judge
        self._outcome = outcome
        self._pace = outcome.pace
        self._owner = owner
        self.waits = False
        """It is the upstream or the judge that is waited for."""
        self.last: list[Event] | None = None
        """The last events, when they came where nothing could wait, until `follow` returns them."""
        self._rest: Rest | None = None
        self._again: Again | None = None
        self._held = b""

    async def follow(self, reply: UpstreamReply) -> list[Event]:
        """The last events of the response, which have not been passed on. Raises UpstreamError when nothing
        came."""
        translation = self._translation
        data = await self._read(reply)
        if not data:
            raise UpstreamError(
                502,
                "the upstream answered with an empty stream",
                code=UpstreamError.INVALID_RESPONSE,
                cause="its stream was empty",
            )
        self._outcome.upstream_spoke()
        pace = self._pace = self._outcome.pace
        while data:
            events = translation.feed(data)
            pace.read(events)
            if translation.has_all:
                break
            if isinstance(reply, WholeReply) and reply.is_read:
                events += translation.end()
                break
            if events:
                await self._pass_on(events)
            data, last = await self._next(reply)
            if last is not None:
                events = last
                break
        else:
            events = translation.end()
        return events if translation.question is None else await self._judged(events, translation.question)

    async def _judged(self, events: list[Event], question: Question) -> list[Event]:
        """The last events, when these have been passed on and the answer is judged."""
        if events:
            await self._pass_on(events)
        self.waits = True
        try:
            return self._translation.settle(await self._judge.objection(question, self._owner))
        finally:
            self.waits = False

    async def _pass_on(self, events: list[Event]) -> None:
        if (rest := self._outlet.pass_on(events)) is not None:
            await rest

    async def _read(self, reply: UpstreamReply) -> bytes:
        self.waits = True
        try:
            return await reply.read()
        finally:
            self.waits = False

    async def _next(self, reply: UpstreamReply) -> tuple[bytes, list[Event] | None]:
        """What comes next that was not passed on where it arrived, or the last events of it."""
        while True:
            self.waits = True
            try:
                data = await reply.read(self._take)
            except BaseException:
                self._drop_rest()
                raise
            finally:
                self.waits = False
            if self.last is not None:
                return b"", self.last
            if self._rest is None:
                held, self._held = self._held, b""
                return data or held, None
            rest, self._rest = self._rest, None
            await self._outlet.finish(rest)

    def _drop_rest(self) -> None:
        """It is interrupted: the client gets with the end what it has not got yet."""
        self._again = None
        if self._rest is not None:
            self._rest.close()
            self._rest = None

    def _take(self, data: bytes, again: Again) -> bool | None:
        """Pass it on where it arrived, as far as that needs no waiting but for the log; whether more may come
        here."""
        outlet = self._outlet
        if not outlet.flows:
            self._held = data
            return False
        translation = self._translation
        events = translation.feed(data)
        self._pace.read(events)
        if translation.has_all:
            self.last = events
            return False
        if events:
            if (rest := outlet.pass_on(events, self._passed)) is not None:
                self._rest = rest
                return False
            if outlet.under_way:
                self._again = again
                return None
        return True

    def _passed(self, rest: Rest | None) -> None:
        """What was under way has left, but for this."""
        again, self._again = self._again, None
        if again is not None:
            self._rest = rest
            again(rest is None)
        elif rest is not None:
            rest.close()  # it was interrupted meanwhile

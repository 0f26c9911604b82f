"""The stages of a response from the first request to an upstream to its end, and the run's task in them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from enum import Enum, auto
from functools import partial
from typing import Final, NamedTuple, Protocol

import structlog
from msgspec import Struct

from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.events import Event
from openresponses_server.errors import HttpError, UpstreamError
from openresponses_server.runs import exchange
from openresponses_server.runs.client import Batch
from openresponses_server.runs.exchange import AnswerStage, Exchange, Outflow, Passage, Translation
from openresponses_server.runs.hosted_stream import CallsToRun, Condensed, Unsettled
from openresponses_server.runs.rounds import Rounds
from openresponses_server.runs.schema_workers import SchemaCheck, SchemaJudge
from openresponses_server.upstreams.base import UpstreamReply
from openresponses_server.upstreams.preamble import Preamble
from openresponses_server.upstreams.routing.attempts import Attempts

_log = structlog.get_logger(__name__)

OnEnd = Callable[[Event | None], None]
"""Called when the end of a run is known and, if the response is stored, durable; with the event that replaces
the last one if that could not be stored."""


class Stage(Enum):
    """The stages of a response."""

    ASKING = auto()
    """No upstream has accepted its request."""
    BUFFERING = auto()
    """An upstream has accepted it, and may still send a refusal instead of an answer."""
    OPEN = auto()
    """Its answer is being read."""
    BETWEEN = auto()
    """The calls in one answer are run, or it is judged, or it was a summary: another one may be asked for."""
    ENDING = auto()
    """The last events are known, and are being stored."""
    ENDED = auto()


class Rules(NamedTuple):
    """The rules of a stage: whether it may ask an upstream, read one, send events; and the stages that may
    follow."""

    asks: bool
    reads: bool
    sends: bool
    next: frozenset[Stage]


STAGES: Final = {
    # nothing is sent before the status is known (law S6)
    Stage.ASKING: Rules(True, False, False, frozenset({Stage.BUFFERING, Stage.BETWEEN, Stage.ENDING})),
    Stage.BUFFERING: Rules(True, True, True, frozenset({Stage.OPEN, Stage.BETWEEN, Stage.ENDING})),
    # once an answer has begun, it is the answer (law S5)
    Stage.OPEN: Rules(False, True, True, frozenset({Stage.BETWEEN, Stage.ENDING})),
    Stage.BETWEEN: Rules(True, False, True, frozenset({Stage.BUFFERING, Stage.ENDING})),
    # the end is stored before it is sent (law S1)
    Stage.ENDING: Rules(False, False, False, frozenset({Stage.ENDED})),
    Stage.ENDED: Rules(False, False, False, frozenset()),
}


class ProgressNotes(exchange.ProgressNotes, Protocol):
    """Measures when bytes and events arrive, and of whose answer."""

    def asks(self, attempts: Attempts) -> None: ...


class Pipeline(Struct, eq=False):
    """One run's way from its upstreams to its client: an `Exchange` reads each answer, the `Outflow` stores
    and sends the events of all. The run's task waits in `follow` for the end, and until events are stored and
    sent where that takes time; meanwhile the upstream is paused, so that a slow client slows its own run
    alone (law S4)."""

    translation: Translation
    outflow: Outflow
    judge: SchemaJudge
    progress: ProgressNotes
    owner: str
    rounds: Rounds | None
    stage: Stage = Stage.ASKING
    last: list[Event] = []
    """The last events, once they are known."""

    @property
    def draining(self) -> bool:
        """True if the run waits for its client."""
        return self.outflow.stage is Passage.SENDING

    def send_keepalive(self, *, as_event: bool) -> bool:
        """Send something while the upstream is silent: the first events, or later, with `as_event`, a
        keep-alive event. Returns whether there was anything to send."""
        translation, outflow = self.translation, self.outflow
        if not STAGES[self.stage].sends or outflow.stage is not Passage.FREE or translation.ended:
            return False
        if outflow.exchange is not None and outflow.exchange.stage is AnswerStage.READ:
            return False
        events = translation.keepalive() if as_event and translation.begun else translation.begin()
        if events:
            outflow.store(events)
        return bool(events)

    async def send(self, events: list[Event]) -> None:
        """Store and send these events while no upstream is read."""
        await self.outflow.clear()  # of a keep-alive
        if events:
            self.outflow.store(events)
            await self.outflow.clear()

    async def follow(self, attempts: Attempts) -> list[Event]:
        """Wait for the end of the answer, and of those that follow the calls in it. Returns the last events,
        which have not been sent. Raises UpstreamError if no upstream accepts, or an answer ends too early,
        unless that was a summary."""
        following: Attempts | None = attempts
        if self.rounds is not None:
            following = await self._before(self.rounds, attempts)
        while following is not None:
            if following is not attempts:
                self.progress.asks(following)
            outflow = self.outflow
            try:
                async with following as reply:
                    self._move(Stage.BUFFERING)
                    answer = self._read(reply, following)
                    while answer.stage is not AnswerStage.READ or outflow.stage is not Passage.FREE:
                        if outflow.work is not None:
                            await outflow.clear()
                            answer.go_on()
                        elif answer.stage is AnswerStage.REFUSED:
                            answer = await self._ask_otherwise(answer, following)
                        elif answer.stage is AnswerStage.CUT and answer.error is not None:
                            raise answer.error
                        else:
                            await self.outflow.wakeup.wait()
                    failure = self.translation.failure
                    following.was_cut = failure is not None and failure.code != UpstreamError.TOO_LONG
                question = answer.question
            except UpstreamError as error:
                if self.rounds is None or not self.rounds.is_compacting:
                    raise
                if outflow.exchange is not None:
                    outflow.exchange.close()
                await outflow.clear()  # of keep-alives, which were sent meanwhile
                question = Condensed("", error.message)
            finally:
                if outflow.exchange is not None:
                    self.last, outflow.exchange = outflow.exchange.close(), None
                if outflow.work is not None:
                    outflow.interrupt()
            following = None if question is None else await self._settle(question)
        return self.last

    async def _before(self, rounds: Rounds, attempts: Attempts) -> Attempts | None:
        """Run the calls that were approved. Returns the attempts for the first answer, or for the summary
        before it."""
        if rounds.released is None:
            return await rounds.before(attempts)
        self._move(Stage.BETWEEN)
        await self.send(self.translation.begin())
        return await self._settle(rounds.released)

    def _read(self, reply: UpstreamReply, attempts: Attempts) -> Exchange:
        """Begin to read this reply."""
        answer = Exchange(
            reply,
            reply.whole,
            self.translation,
            self.outflow,
            self.progress,
            partial(self._open, attempts),
            None if attempts.replaceable is None else Preamble(attempts.replaceable),
        )
        self.outflow.exchange = answer
        reply.start(answer)
        return answer

    def _open(self, attempts: Attempts) -> None:
        """The answer begins: from now on no other request replaces it."""
        self._move(Stage.OPEN)
        attempts.commit()

    async def _ask_otherwise(self, refused: Exchange, attempts: Attempts) -> Exchange:
        """Ask again after a refusal that came instead of an answer. Returns the other answer, or the refusal
        as the answer."""
        reply, refused.reply = refused.reply, None
        assert isinstance(refused.error, UpstreamError)
        other = await attempts.ask_instead(refused.error)
        await self.outflow.clear()  # of keep-alives, which were sent meanwhile
        if other is not None:
            return self._read(other, attempts)
        refused.answer_as_refused(reply)
        return refused

    async def _settle(self, question: Unsettled) -> Attempts | None:
        """Judge an answer, run its calls or continue with its summary. Returns the attempts for the next
        answer, or None if the response ends: `last` then has its last events."""
        if STAGES[self.stage].reads:
            self._move(Stage.BETWEEN)
        if not isinstance(question, SchemaCheck):
            following = await self._next_round(question)
            judged = self.translation.question
            if following is not None or not isinstance(judged, SchemaCheck):
                return following
            question = judged
        return await self._judged(question)

    async def _next_round(self, question: CallsToRun | Condensed) -> Attempts | None:
        """Run these calls, or continue with this summary. Returns the attempts for the next answer, or None
        if the response ends or its text must be judged."""
        rounds, translation = self.rounds, self.translation
        assert rounds is not None
        try:
            if isinstance(question, CallsToRun):
                steps = rounds.answer(question)
            else:
                if question.summary:
                    await self.send(translation.begin())
                steps = rounds.go_on(question)
            async with aclosing(steps):
                async for events in steps:
                    await self.send(events)
            await self.outflow.clear()
        except HttpError:
            raise
        except BridgeError as error:  # the output can't hold an item
            self.last = translation.fail(error)
            return None
        if rounds.next is None:
            self.last = translation.settle(None)
            if translation.question is not None:
                await self.send(self.last)
        return rounds.next

    async def _judged(self, question: SchemaCheck) -> Attempts | None:
        """Judge the answer. Returns the attempts for another one instead, or None if the response ends."""
        objection = await self.judge.objection(question, self.owner)
        await self.outflow.clear()
        if objection is not None and self.rounds is not None:
            following = await self.rounds.correct(objection)
            if following is not None:
                _log.info("answer.corrected", response_id=self.translation.response_id)
                return following
        self.last = self.translation.settle(objection)
        return None

    async def finish(self, events: list[Event], seconds: float, on_end: OnEnd) -> None:
        """Store the end, then send it, or a failure in its place (law S1), and with it the batch that an
        interruption has left unsent, unless the end replaces it. The client may take `seconds` for it."""
        self._move(Stage.ENDING)
        outflow, unsent, is_logged = self.outflow, None, False
        if outflow.stage is not Passage.FREE:
            unsent, is_logged = outflow.interrupt()
        batch = Batch(events, last=True)
        if outflow.persistence is not None:
            unlogged = unsent if is_logged else None
            outgoing = await outflow.persistence.persist(
                events, None if unlogged is None else unlogged.events
            )
            batch = Batch(outgoing, outflow.persistence.batch.data, last=True)
            if unlogged is not None and outflow.persistence.ended_elsewhere:
                unsent = None
        on_end(None if batch.events is events else batch.events[-1])
        if unsent is not None:
            batch = Batch([*unsent.events, *batch.events], last=True)
        outflow.stage = Passage.SENDING
        await outflow.client.send_last(batch, seconds)
        self._move(Stage.ENDED)

    def _move(self, stage: Stage) -> None:
        if stage not in STAGES[self.stage].next:
            raise AssertionError(f"a response does not go from {self.stage.name} to {stage.name}")
        self.stage = stage

"""The way of one response from its upstream to its client: bytes → frames → dialect → machine → events →
store, log and client. Synchronous from socket to socket; what has to be waited for pauses the upstream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol, cast

import structlog

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import Inbound
from openresponses_bridge.emitter.stopping import StopFilter
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.events import Event, ResponseFailed
from openresponses_bridge.protocol.response import ErrorPayload, Response
from openresponses_bridge.sse import SSEDecoder
from openresponses_bridge.state import TERMINAL_PHASES, ResponseStreamPhase
from openresponses_server.errors import HttpError, UpstreamError, too_long
from openresponses_server.observation.responses import TokenTiming
from openresponses_server.runs.client import Batch, Client, drop, failing
from openresponses_server.runs.rounds import CallsToRun, Condensed, EndHolder, Rounds, Unsettled
from openresponses_server.runs.schema_workers import SchemaCheck, SchemaJudge
from openresponses_server.store.endings import RESTARTED
from openresponses_server.store.persistence import ResponseSessionPersistenceTransformer
from openresponses_server.upstreams.attempts import SHALLOW, Attempts, Preamble, check_frame
from openresponses_server.upstreams.base import UpstreamReply

KEEP_ALIVE: Final = "openresponses-bridge:keepalive"
_INTERNAL = ErrorPayload("server_error", "internal_error", "The server failed.", None)
_log = structlog.get_logger(__name__)
_FEW: Final = 4096  # bytes: more are a batch by themselves, and dearer as a part of one twice as long
_EMPTY: Final = 128  # bytes that are added for a comment, or a frame without an event


class Translation:
    """Splits the bytes into frames, decodes them with the dialect's inbound, and calls the machine.

    A failure of any kind ends the response as failed, never as completed; `failure` then has the error,
    unless the upstream reported it inside its stream. `most` is how many bytes an upstream may send for one
    response (law S8); what gives no event counts for more. `text_after_tools`: clients of Chat Completions
    are sent the text that comes after a tool call. If the machine ends at a stop sequence, the read that
    brings it is translated to its end, for its token counts, and is the last one.
    """

    def __init__(
        self,
        machine: ResponseStream,
        inbound: Inbound,
        *,
        most: int | None = None,
        judged: EndHolder | None = None,
        text_after_tools: bool = True,
    ) -> None:
        self._most = most
        self._bytes_read = 0
        self._machine = machine
        self._judged = judged
        self.is_complete = False
        """The response has ended, or its end is kept back: nothing more is read from the upstream."""
        self._stops = machine if isinstance(machine, StopFilter) else None
        self.set_inbound(inbound, text_after_tools)
        self.failure: BridgeError | None = None
        self._replaced_end: Response | None = None

    def set_inbound(self, inbound: Inbound, text_after_tools: bool = True) -> None:
        """Decode a new stream with this inbound."""
        self._inbound = inbound
        self._frames = SSEDecoder()
        self._skipped = 0
        self._template = inbound.template if self._stops is None else None
        self._at_frame_start = False  # what is fed next begins with a frame
        self.text_after_tools = text_after_tools

    @property
    def begun(self) -> bool:
        return self._machine.phase is not ResponseStreamPhase.IDLE

    @property
    def ended(self) -> bool:
        return self._machine.phase in TERMINAL_PHASES

    @property
    def diagnostics(self) -> Diagnostics:
        return self._machine.diagnostics

    @property
    def response_id(self) -> str:
        return self._machine.response_id

    @property
    def snapshot(self) -> Response:
        return self._machine.snapshot if self._replaced_end is None else self._replaced_end

    @property
    def in_one_form(self) -> Response:
        """The snapshot for clients that have one place for reasoning."""
        return self._machine.in_one_form if self._replaced_end is None else self._replaced_end

    @property
    def upstream_response_id(self) -> str | None:
        """The id under which the upstream has stored the response itself, if it says so."""
        return self._inbound.kept_id

    @property
    def question(self) -> Unsettled | None:
        """What has to be judged, run or continued before the response can end."""
        return None if self._judged is None else self._judged.question

    def begin(self) -> list[Event]:
        """Start before the upstream has sent anything, so that the client can be sent events while it
        waits."""
        return [] if self.begun else self._machine.start()

    def restart(self, previous_attempts: int) -> list[Event]:
        """Start a response of which nobody has seen any output, after so many attempts: the first events are
        the same to the byte, and an event for each new attempt follows."""
        started = self.begin()
        for attempt in range(2, previous_attempts + 2):
            started += self._machine.extension_event(RESTARTED, {"attempt": attempt})
        return started

    def feed(self, data: bytes) -> list[Event]:
        """The events for the bytes of one read."""
        events: list[Event] | None = None
        self._bytes_read += len(data)
        try:
            if self._most is not None and self._bytes_read > self._most:
                raise too_long(self._most)
            if self._at_frame_start and self._template is not None:
                events = self._template.sse.feed(data)
                if events is not None:
                    if len(events) == 1:
                        return events  # a delta: an end is more than one event
                    self._count_empty(1 - len(events))
            if events is None:
                events = []
                frames = self._frames.feed(data)
                for frame in frames:
                    if self._judged is not None and self._judged.question is not None:
                        break  # what follows the end of the output is not read
                    if len(frame.data) > SHALLOW:
                        check_frame(frame.data)
                    events += self._inbound.feed(frame.data, frame.event)
                self._at_frame_start = self._frames.is_between
                if len(frames) > len(events) or self._frames.skipped != self._skipped:
                    self._count_empty(len(frames) - len(events))
            if self._judged is None or self._judged.question is None:
                events += self._inbound.read_done()
        except BridgeError as error:
            events = (events or []) + self.fail(error)
        except Exception:
            events = (events or []) + self._fail_internally()
        if self._stops is not None:
            events += self._end_at_stop(self._stops)
        self.is_complete = self._machine.phase in TERMINAL_PHASES or (
            self._judged is not None and self._judged.question is not None
        )
        if self.is_complete:
            self._template = None
        return events

    def _count_empty(self, frames: int) -> None:
        """Count frames that gave no event, comments and blocks without data: they have few bytes but take
        time, and a compressed stream may have millions."""
        comments, self._skipped = self._frames.skipped - self._skipped, self._frames.skipped
        self._bytes_read += _EMPTY * (max(frames, 0) + comments)

    def end(self) -> list[Event]:
        """The upstream's stream has ended: if its answer has not, the response fails."""
        events: list[Event] = []
        try:
            for frame in self._frames.close():
                if self.question is None:
                    if len(frame.data) > SHALLOW:
                        check_frame(frame.data)
                    events += self._inbound.feed(frame.data, frame.event)
            if not self.ended and self.question is None:
                events += self._inbound.close()
        except BridgeError as error:
            events += self.fail(error)
        except Exception:
            events += self._fail_internally()
        return events if self._stops is None else events + self._end_at_stop(self._stops)

    def settle(self, objection: str | None) -> list[Event]:
        """The question has been judged, or its calls have run: end the response."""
        try:
            return [] if self._judged is None else self._judged.settle(objection)
        except BridgeError as error:
            return self.fail(error)

    def fail(self, error: BridgeError) -> list[Event]:
        """End with this error."""
        if self._stops is not None and self._stops.stopped:
            return self._end_at_stop(self._stops)  # what failed came after the stop sequence
        self.failure = error
        return [] if self.ended else self.begin() + self._machine.fail(error)

    def cancel(self) -> list[Event]:
        """End as cancelled."""
        return [] if self.ended else self.begin() + self._machine.cancel()

    def replace_end(self, last: Event) -> None:
        """Replace the end, which could not be stored, by this event; the snapshot is the response in it."""
        self._replaced_end = cast(ResponseFailed, last).response
        error = self._replaced_end.error
        self.failure = None if error is None else HttpError(503, error.message, code=error.code)

    def keepalive(self) -> list[Event]:
        """A keep-alive event."""
        return self._machine.extension_event(KEEP_ALIVE, {})

    def _end_at_stop(self, stops: StopFilter) -> list[Event]:
        try:
            return stops.end() if stops.stopped else []
        except BridgeError as error:
            return self.fail(error)

    def _fail_internally(self) -> list[Event]:
        _log.exception("run.internal_error", response_id=self._machine.response_id)
        return [] if self.ended else self.begin() + self._machine.fail(_INTERNAL)


OnEnd = Callable[[Event | None], None]
"""Called when the end of a run is known and, if the response is stored, durable; with the event that replaces
the last one if that could not be stored."""


class Stage(Enum):
    """Where a response is on its way."""

    ASKING = auto()
    """No upstream has accepted its request."""
    BUFFERING = auto()
    """One has accepted it, and may still refuse in the place of an answer."""
    OPEN = auto()
    """Its answer comes."""
    BETWEEN = auto()
    """The calls in one answer are run, or it was a summary, and another answer is asked for."""
    ENDING = auto()
    """The last events are known, and are being stored."""
    ENDED = auto()


class Rules(NamedTuple):
    """What a stage allows: to ask an upstream, to read one, to send events; and what may follow."""

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


def _nothing() -> None:
    return None


class ProgressNotes(Protocol):
    """Measures when bytes and events arrive."""

    @property
    def timing(self) -> TokenTiming: ...

    def asks(self, attempts: Attempts) -> None: ...

    def first_bytes_received(self) -> None: ...


class Pipeline:
    """The sink of one run's upstream. Events are stored by `persistence`, if the response is stored, and then
    sent to `client`. The run's task waits in `follow` for the end, and until events are stored and sent where
    that takes time; meanwhile the upstream is paused, so that a slow client slows its own run alone (law
    S4)."""

    def __init__(
        self,
        translation: Translation,
        client: Client,
        persistence: ResponseSessionPersistenceTransformer | None,
        judge: SchemaJudge,
        progress: ProgressNotes,
        owner: str,
        rounds: Rounds | None = None,
    ) -> None:
        self.stage = Stage.ASKING
        self._translation = translation
        self._client = client
        self._persistence = persistence
        self._judge = judge
        self._progress = progress
        self._timing = progress.timing
        self._owner = owner
        self._rounds = rounds
        if rounds is not None:
            rounds.persistence = persistence
        self._reply: UpstreamReply | None = None
        self._whole = False
        self._preamble: Preamble | None = None
        self._commit: Callable[[], None] = _nothing  # drops the other attempts
        self._has_received = False  # something of the answer
        self._refusal: UpstreamError | None = None  # came in the place of an answer
        self._buffered = b""  # the bytes of the refusal
        self._end_error: UpstreamError | None = None  # ended it before anything of an answer had come
        self._error: Exception | None = None  # ended the answer too early
        self._is_read = False  # all that is wanted of the answer
        self._question: Unsettled | None = None  # is judged, run or continued before the end
        self._is_held = False  # while that is done
        self._events: list[Event] = []  # of an answer that is sent as a whole
        self.last: list[Event] = []
        """The last events, once they are known."""
        self._unsent: Batch | None = None  # is being stored or sent
        self._unlogged: Batch | None = None  # was last given to the log
        self._arrived: list[bytes] = []  # meanwhile, and is translated before anything else
        self._late_end: tuple[Exception | None] | None = None  # its end, which came meanwhile
        self._is_paused = False  # the source
        self._storing: Awaitable[object] | None = None  # to be awaited before it is sent
        self._sending: Awaitable[None] | None = None  # to be awaited until it is sent
        self._waiter: asyncio.Future[None] | None = None  # of the run's task
        self.draining = False
        """The run waits for its client."""

    def feed(self, data: bytes) -> None:
        """Receive bytes of the upstream's answer."""
        if self._unsent is not None or self._arrived:
            self._arrived.append(data)
            self._pause()
            return
        try:
            if self.stage is not Stage.OPEN and not self._begins(data):
                return
            translation = self._translation
            events = translation.feed(data)
            self._timing.read(events)
            if translation.is_complete:
                self._finish_reading(events)
            elif events:
                if self._whole:
                    self._events += events
                elif self._persistence is None:
                    self._send(Batch(events))
                else:
                    self._store(events, self._persistence)
        except Exception as error:  # a defect: the connection that calls this can do nothing about it
            self._fail(error)

    def end(self, error: Exception | None) -> None:
        """The upstream's answer has ended, with this error if it is not complete."""
        if self._is_read:
            return  # nothing more of it was wanted
        if self._unsent is not None or self._arrived:
            self._late_end = (error,)
            return
        if error is None and not self._has_received:
            what = "the upstream answered with an empty stream"
            code, cause = UpstreamError.INVALID_RESPONSE, "its stream was empty"
            error = UpstreamError(502, what, code=code, cause=cause)
        if error is not None:
            if self._preamble is not None and isinstance(error, UpstreamError):
                self._refusal = self._end_error = error  # another request may be answered
                self._wake()
            else:
                self._fail(error)
        elif self._preamble is None or not self._is_refused(b""):
            if self._preamble is not None and not self._preamble.over:
                what = "the upstream's stream ended before its answer"
                self._refusal = UpstreamError(502, what, code=UpstreamError.INVALID_RESPONSE)
                self._wake()
            else:
                self._finish_reading(self._translation.end())

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._pause()
        self._wake()

    def _begins(self, data: bytes) -> bool:
        """Whether these bytes are to be translated now: a refusal in the place of an answer may be avoided by
        another request."""
        if not self._has_received:
            self._has_received = True
            self._progress.first_bytes_received()
            self._timing = self._progress.timing
        if self._preamble is not None and STAGES[self.stage].asks and self._is_refused(data):
            return False
        if self._preamble is None or self._preamble.over:
            self._preamble = None
            self._commit()
            self._move(Stage.OPEN)
        return True

    def _is_refused(self, data: bytes) -> bool:
        assert self._preamble is not None
        self._refusal = self._preamble.refusal(data)
        if self._refusal is None:
            return False
        self._buffered = data
        self._pause()
        self._wake()
        return True

    def _finish_reading(self, events: list[Event]) -> None:
        self._is_read = True
        self._pause()
        self._question = self._translation.question
        events, self._events = self._events + events, []
        if self._question is None:
            self.last = events
        elif events:
            self._store_and_send(events)
        self._wake()

    @property
    def is_busy(self) -> bool:
        """A batch is being stored or sent."""
        return self._unsent is not None

    def send_keepalive(self, *, as_event: bool) -> bool:
        """Send something while the upstream is silent: the first events, later a keep-alive event if
        `as_event`. Returns whether there was anything to send."""
        translation = self._translation
        is_over = self._is_read and not self._is_held
        if not STAGES[self.stage].sends or self.is_busy or is_over or translation.ended:
            return False
        events = translation.keepalive() if as_event and translation.begun else translation.begin()
        if events:
            self._store_and_send(events)
        return bool(events)

    async def send(self, events: list[Event]) -> None:
        """Store and send these events while no upstream is read."""
        await self._finish_batch()  # of a keep-alive
        if events:
            self._store_and_send(events)
            await self._finish_batch()

    def _store_and_send(self, events: list[Event]) -> None:
        """Store these events, if the response is stored, and send them. What has to be awaited is left to the
        run's task."""
        if self._persistence is None:
            self._send(Batch(events))
        else:
            self._store(events, self._persistence)

    def _store(self, events: list[Event], persistence: ResponseSessionPersistenceTransformer) -> None:
        """What has to be awaited is left to the run's task, except for a future of the log."""
        try:
            kept = persistence.append(events)
        except Exception as error:
            kept = failing(error)
        batch = Batch(events, persistence.batch.data)
        if kept is None:
            self._send(batch)
            return
        self._unlogged = self._unsent = batch
        if isinstance(kept, asyncio.Future):
            # mostly the log answers before anything more arrives, which would pause the source
            kept.add_done_callback(self._send_stored)
        else:
            self._storing = kept
            self._pause()
            self._wake()

    def _send(self, batch: Batch) -> bool:
        """Send this batch. Returns whether that is done, so that nothing has to be awaited."""
        client = self._client
        client.has_sent = True
        if (deliver := client.deliver) is None:
            return True
        try:
            rest = deliver(batch)
        except Exception as error:
            rest = failing(error)
        if rest is None:
            client.last_sent = batch.events[-1].sequence_number
            return True
        self._unsent, self._sending = batch, rest
        self._pause()
        self._wake()
        return False

    def _send_stored(self, _stored: asyncio.Future[bool]) -> None:
        """Send the batch, which the log has stored."""
        batch, persistence = self._unsent, self._persistence
        if batch is None or not STAGES[self.stage].sends or persistence is None or persistence.lost:
            return  # the run was interrupted: the batch is sent with the end, or the end of another worker
        self._unsent = None
        if self._send(batch):
            if self._reply is None or self._is_read:
                self._wake()  # the task waits for this
            elif self._arrived or self._late_end is not None or self._is_paused:
                self._go_on(self._reply)

    def _go_on(self, reply: UpstreamReply) -> None:
        """Read on after a batch was sent, beginning with what arrived meanwhile. What the source has buffered
        since it was paused joins that: by itself it would be one more batch, for which the log is asked."""
        if self._is_paused and 0 < sum(map(len, self._arrived)) <= _FEW:
            self._is_paused = False
            reply.resume()
        arrived, self._arrived = self._arrived, []
        if arrived:
            self.feed(b"".join(arrived))
        if self._unsent is None and not self._is_read:
            if self._late_end is not None:
                (error,), self._late_end = self._late_end, None
                self.end(error)
            elif self._error is None and self._refusal is None:
                self._is_paused = False
                reply.resume()

    async def follow(self, attempts: Attempts) -> list[Event]:
        """Wait for the end of the answer, and of those that follow the calls in it; the last events, which
        have not been sent. Raises UpstreamError if no upstream accepts, or an answer ends too early, unless
        that was a summary."""
        following: Attempts | None = attempts
        if self._rounds is not None and self._rounds.released is not None:
            self._move(Stage.BETWEEN)
            await self.send(self._translation.begin())
            following = await self._next_round(self._rounds.released)
        elif self._rounds is not None:
            following = await self._rounds.before(attempts)
        while following is not None:
            if following is not attempts:
                self._progress.asks(following)
            try:
                async with following as reply:
                    self._move(Stage.BUFFERING)
                    self._open(reply, following)
                    while not self._is_read or self._unsent is not None:
                        if self._unsent is not None and (self._storing or self._sending):
                            await self._finish_batch()
                            if not self._is_read and self._reply is not None:
                                self._go_on(self._reply)
                        elif self._refusal is not None:
                            await self._ask_otherwise(self._refusal, following)
                        elif self._error is not None:
                            raise self._error
                        else:
                            await self._wait()
                    failure = self._translation.failure
                    following.was_cut = failure is not None and failure.code != UpstreamError.TOO_LONG
            except UpstreamError as error:
                if self._rounds is None or not self._rounds.is_compacting:
                    raise
                self._reply = self._error = self._refusal = None
                await self._finish_batch()  # of keep-alives, which were sent meanwhile
                self._question = Condensed("", error.message)
            finally:
                self._reply = None
                if self._storing is not None or self._sending is not None:
                    self._drop_pending()
            following = None
            if isinstance(self._question, CallsToRun | Condensed):
                if STAGES[self.stage].reads:
                    self._move(Stage.BETWEEN)
                following = await self._next_round(self._question)
            if isinstance(self._question, SchemaCheck):
                following = await self._judged(self._question)
        return self.last

    async def _next_round(self, asked: CallsToRun | Condensed) -> Attempts | None:
        """Run these calls, or go on with this summary; the attempts for the next answer, or None if the
        response ends: then `last` has its last events, unless its text has to be judged."""
        rounds, translation = self._rounds, self._translation
        assert rounds is not None
        self._is_held = True
        try:
            if isinstance(asked, CallsToRun):
                steps = rounds.answer(asked)
            else:
                if asked.summary:
                    await self.send(translation.begin())
                steps = rounds.go_on(asked)
            async with aclosing(steps):
                async for events in steps:
                    await self.send(events)
            await self._finish_batch()
        except HttpError:
            raise
        except BridgeError as error:  # the output can't hold an item
            self.last = translation.fail(error)
            return None
        finally:
            self._is_held = False
        self._question = None
        if rounds.next is not None:
            self._is_read = False
            return rounds.next
        self.last = translation.settle(None)
        self._question = translation.question
        if self._question is not None:
            await self.send(self.last)
        return None

    async def _judged(self, question: SchemaCheck) -> Attempts | None:
        """Have the answer judged; the attempts for another one in its place, or None if the response ends:
        then `last` has its last events."""
        self._is_held = True
        try:
            objection = await self._judge.objection(question, self._owner)
        finally:
            self._is_held = False
        await self._finish_batch()
        if objection is not None and self._rounds is not None:
            following = await self._rounds.correct(objection)
            if following is not None:
                _log.info("answer.corrected", response_id=self._translation.response_id)
                if self.stage is not Stage.BETWEEN:
                    self._move(Stage.BETWEEN)
                self._is_read, self._question = False, None
                return following
        self.last = self._translation.settle(objection)
        return None

    async def finish(self, events: list[Event], seconds: float, on_end: OnEnd) -> None:
        """Store the end, then send it, or a failure in its place (law S1), and with it the batch that an
        interruption has left unsent, unless the end replaces it. The client may take `seconds` for it."""
        self._move(Stage.ENDING)
        batch = Batch(events, last=True)
        if self._persistence is not None:
            unlogged = self._unsent if self._unsent is self._unlogged else None
            kept = await self._persistence.persist(events, None if unlogged is None else unlogged.events)
            batch = Batch(kept, self._persistence.batch.data, last=True)
            if unlogged is not None and self._persistence.ended_elsewhere:
                self._unsent = None
        on_end(None if batch.events is events else batch.events[-1])
        if self._unsent is not None:
            batch = Batch([*self._unsent.events, *batch.events], last=True)
        self.draining = True
        await self._client.send_last(batch, seconds)
        self._move(Stage.ENDED)

    def _open(self, reply: UpstreamReply, attempts: Attempts) -> None:
        self._preamble = None if attempts.replaceable is None else Preamble(attempts.replaceable)
        self._reply, self._whole, self._has_received = reply, reply.whole, False
        self._end_error = self._late_end = None
        self._arrived, self._is_paused = [], False
        self._commit = attempts.commit
        reply.start(self)

    async def _ask_otherwise(self, error: UpstreamError, attempts: Attempts) -> None:
        data, self._refusal, self._buffered = self._buffered, None, b""
        reply, self._reply, self._preamble = self._reply, None, None
        other = await attempts.ask_instead(error)
        await self._finish_batch()  # of keep-alives, which were sent meanwhile
        if other is not None:
            self._open(other, attempts)
            return
        self._reply = reply
        if not data:
            self.end(self._end_error)
            return
        self.feed(data)
        if reply is not None and not self.is_busy and not self._is_read:
            self._go_on(reply)

    async def _finish_batch(self) -> None:
        """Wait until the batch is stored and sent."""
        while (batch := self._unsent) is not None:
            if self._storing is not None:
                kept, self._storing = self._storing, None
                await kept
                if self._persistence is None or not self._persistence.lost:
                    self._unsent = None
                    self._send(batch)
            elif self._sending is not None:
                rest, self._sending = self._sending, None
                self.draining = True
                try:
                    await self._client.drain(rest, batch)
                finally:
                    self.draining = False
                self._unsent = None
            else:
                await self._wait()  # for the log

    def _drop_pending(self) -> None:
        """Storing or sending was interrupted: the batch is sent with the end."""
        for work in (self._storing, self._sending):
            if work is not None:
                drop(work)
        self._storing = self._sending = None

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _pause(self) -> None:
        if self._reply is not None:
            self._is_paused = True
            self._reply.pause()

    def _move(self, stage: Stage) -> None:
        if stage not in STAGES[self.stage].next:
            raise AssertionError(f"a response does not go from {self.stage.name} to {stage.name}")
        self.stage = stage

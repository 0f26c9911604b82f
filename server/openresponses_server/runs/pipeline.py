"""The way of one response from its upstream to its client: bytes → frames → dialect → machine → events →
store, log and client. Synchronous from socket to socket; what has to be waited for pauses the upstream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
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
from openresponses_bridge.sse import Frame, SSEDecoder
from openresponses_bridge.state import TERMINAL_PHASES, ResponseStreamPhase
from openresponses_server.errors import HttpError, UpstreamError, too_long
from openresponses_server.observation.responses import TokenTiming
from openresponses_server.runs.client import Batch, Client, drop, failing
from openresponses_server.runs.schema_workers import Question, SchemaJudge
from openresponses_server.store.endings import RESTARTED
from openresponses_server.store.persistence import ResponseSessionPersistenceTransformer
from openresponses_server.upstreams.attempts import Attempts, Preamble
from openresponses_server.upstreams.base import UpstreamReply

KEEP_ALIVE: Final = "openresponses-bridge:keepalive"
_INTERNAL = ErrorPayload("server_error", "internal_error", "The server failed.", None)
_log = structlog.get_logger(__name__)
_EMPTY: Final = 128  # bytes that are added for a comment, or a frame without an event


class EndHolder(Protocol):
    """Keeps back the end of the output while there is a `question`, until `settle` is called with the judge's
    objection, or None, and returns the last events."""

    question: Question | None

    def settle(self, objection: str | None) -> list[Event]: ...


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
        """The response has ended or is to be judged: nothing more is read from the upstream."""
        self._stops = machine if isinstance(machine, StopFilter) else None
        # not bound methods: an object that refers to itself stays until the garbage collector runs
        self._feed_split = Translation._feed_frames if judged is None else Translation._feed_until_question
        self.set_inbound(inbound, text_after_tools)
        self.failure: BridgeError | None = None
        self._replaced_end: Response | None = None

    def set_inbound(self, inbound: Inbound, text_after_tools: bool = True) -> None:
        """Decode a new stream with this inbound."""
        self._inbound = inbound
        self._frames = SSEDecoder()
        self._skipped = 0
        plain = self._judged is None and self._stops is None
        self._template = inbound.template if plain else None
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
    def question(self) -> Question | None:
        """What has to be judged before the response can end."""
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
                if events is not None and len(events) == 1:
                    return events  # a delta: an end is more than one event
            if events is None:
                events = []
                frames = self._frames.feed(data)
                self._feed_split(self, frames, events)
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
            self._feed_split(self, self._frames.close(), events)
            if not self.ended and self.question is None:
                events += self._inbound.close()
        except BridgeError as error:
            events += self.fail(error)
        except Exception:
            events += self._fail_internally()
        return events if self._stops is None else events + self._end_at_stop(self._stops)

    def settle(self, objection: str | None) -> list[Event]:
        """The question has been judged: end the response."""
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

    def _feed_frames(self, frames: list[Frame], events: list[Event]) -> None:
        feed = self._inbound.feed
        for frame in frames:
            events += feed(frame.data, frame.event)

    def _feed_until_question(self, frames: list[Frame], events: list[Event]) -> None:
        """Feed frames until there is a question: what follows the end of the output is not read."""
        for frame in frames:
            if self.question is None:
                events += self._inbound.feed(frame.data, frame.event)

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
    Stage.ASKING: Rules(True, False, False, frozenset({Stage.BUFFERING, Stage.ENDING})),
    Stage.BUFFERING: Rules(True, True, True, frozenset({Stage.OPEN, Stage.ENDING})),
    # once an answer has begun, it is the answer (law S5)
    Stage.OPEN: Rules(False, True, True, frozenset({Stage.ENDING})),
    # the end is stored before it is sent (law S1)
    Stage.ENDING: Rules(False, False, False, frozenset({Stage.ENDED})),
    Stage.ENDED: Rules(False, False, False, frozenset()),
}


def _nothing() -> None:
    return None


class Progress(Protocol):
    """Notes when bytes and events come."""

    @property
    def timing(self) -> TokenTiming: ...

    def first_bytes_received(self) -> None: ...


class Pipeline:
    """Of one run: the sink of its upstream. `client` is sent what comes, and `persistence`, if there is any,
    keeps it first. The run's task waits in `follow` for the end and does there what has to be waited for;
    while there is such work the upstream is paused, so that a slow client slows its own alone (law S4)."""

    def __init__(
        self,
        translation: Translation,
        client: Client,
        persistence: ResponseSessionPersistenceTransformer | None,
        judge: SchemaJudge,
        progress: Progress,
        owner: str,
    ) -> None:
        self.stage = Stage.ASKING
        self._translation = translation
        self._client = client
        self._persistence = persistence
        self._judge = judge
        self._progress = progress
        self._timing = progress.timing
        self._owner = owner
        self._reply: UpstreamReply | None = None
        self._whole = False
        self._preamble: Preamble | None = None
        self._commit: Callable[[], None] = _nothing  # to the upstream whose answer has begun
        self._has_come = False  # a byte has
        self._refused: UpstreamError | None = None  # in the place of an answer
        self._buffered = b""  # what came with that
        self._error: Exception | None = None  # what cut the answer
        self._read = False  # to its end, as far as it is wanted
        self._judged = False  # it is being
        self._events: list[Event] = []  # of a whole answer
        self.last: list[Event] = []
        """The last events, when they are known."""
        self._unsent: Batch | None = None  # what the log or the client is waited for
        self._kept: Awaitable[None] | None = None  # what it waits for before it is sent
        self._rest: Awaitable[None] | None = None  # what is left of sending it
        self._waiting: asyncio.Future[None] | None = None
        self.draining = False
        """It is the client that is waited for."""

    # ── the upstream's side ────────────────────────────────────────────────────────────────────────────
    def feed(self, data: bytes) -> None:
        """What an upstream has sent."""
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
                    self._send(events, None)
                else:
                    self._store(events, self._persistence)
        except Exception as error:  # a defect: the connection that calls this can do nothing about it
            self._cut(error)

    def end(self, error: Exception | None) -> None:
        """The upstream has ended."""
        if self._read:
            return  # nothing more of it was wanted
        if error is not None:
            self._cut(error)
        elif not self._has_come:
            what = "the upstream answered with an empty stream"
            code, cause = UpstreamError.INVALID_RESPONSE, "its stream was empty"
            self._cut(UpstreamError(502, what, code=code, cause=cause))
        elif self._preamble is None or not self._is_refused(b""):
            self._finish_reading(self._translation.end())

    def _cut(self, error: Exception) -> None:
        self._error = error
        self._pause()
        self._wake()

    def _begins(self, data: bytes) -> bool:
        """Whether these bytes are to be translated: a refusal in the place of an answer may be answered by
        asking otherwise."""
        if not self._has_come:
            self._has_come = True
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
        self._refused = self._preamble.refusal(data)
        if self._refused is None:
            return False
        self._buffered = data
        self._pause()
        self._wake()
        return True

    def _finish_reading(self, events: list[Event]) -> None:
        self._read = True
        self._pause()
        if events and self._translation.question is not None:
            self._pass(self._events + events)
        else:
            self.last = self._events + events
        self._wake()

    # ── the client's side ──────────────────────────────────────────────────────────────────────────────
    @property
    def is_busy(self) -> bool:
        """A batch is on its way."""
        return self._unsent is not None

    def send_keepalive(self, *, as_event: bool) -> bool:
        """Have something sent while the upstream says nothing, and whether there was something: the first
        events, then `as_event` an event that means nothing else."""
        translation = self._translation
        is_over = self._read and not self._judged
        if not STAGES[self.stage].sends or self.is_busy or is_over or translation.ended:
            return False
        events = translation.keepalive() if as_event and translation.begun else translation.begin()
        if events:
            self._pass(events)
        return bool(events)

    async def send(self, events: list[Event]) -> None:
        """Send these before an upstream is asked."""
        self._pass(events)
        await self._work()

    def _pass(self, events: list[Event]) -> None:
        """Store these, if the response is stored, then send them, as far as that waits for nothing."""
        if self._persistence is None:
            self._send(events, None)
        else:
            self._store(events, self._persistence)

    def _store(self, events: list[Event], persistence: ResponseSessionPersistenceTransformer) -> None:
        """What has to be waited for is left to the run's task, but for a log, whose answer comes without
        one."""
        try:
            kept = persistence.append(events)
        except Exception as error:
            kept = failing(error)
        if kept is None:
            self._send(events, persistence.batch.data)
            return
        self._unsent = Batch(events, persistence.batch.data)
        self._pause()
        if isinstance(kept, asyncio.Future):
            kept.add_done_callback(self._send_kept)
        else:
            self._kept = kept
            self._wake()

    def _send(self, events: list[Event], frames: bytes | None) -> bool:
        """Whether the client has them, or there is none, and nothing has to be waited for."""
        client = self._client
        client.has_sent = True
        if (deliver := client.deliver) is None:
            return True
        batch = Batch(events, frames)
        try:
            rest = deliver(batch)
        except Exception as error:
            rest = failing(error)
        if rest is None:
            client.last_sent = events[-1].sequence_number
            return True
        self._unsent, self._rest = batch, rest
        self._pause()
        self._wake()
        return False

    def _send_kept(self, _kept: asyncio.Future[None]) -> None:
        """The log has it."""
        batch = self._unsent
        if batch is None or not STAGES[self.stage].reads:
            return  # it was interrupted: this is sent with the end
        self._unsent = None
        if self._send(batch.events, batch.frames):
            if self._reply is None or self._read:
                self._wake()  # the task waits for this
            else:
                self._reply.resume()

    # ── the run's task ─────────────────────────────────────────────────────────────────────────────────
    async def follow(self, attempts: Attempts) -> list[Event]:
        """The last events of the response, which have not been sent. Raises UpstreamError when no upstream
        accepts or the answer is cut."""
        try:
            async with attempts as reply:
                self._move(Stage.BUFFERING)
                self._open(reply, attempts)
                while not self._read or self._unsent is not None:
                    if self._unsent is not None and (self._kept or self._rest):
                        await self._work()
                        if not self._read:
                            self._reply.resume()  # type: ignore[union-attr]
                    elif self._refused is not None:
                        await self._ask_otherwise(self._refused, attempts)
                    elif self._error is not None:
                        raise self._error
                    else:
                        await self._wait()
        finally:
            self._reply = None
            self._drop_work()
        question = self._translation.question
        return self.last if question is None else await self._settled(question)

    async def _settled(self, question: Question) -> list[Event]:
        """The last events, when the answer is judged."""
        self._judged = True
        try:
            objection = await self._judge.objection(question, self._owner)
        finally:
            self._judged = False
        await self._work()
        return self._translation.settle(objection)

    async def finish(self, events: list[Event], seconds: float, on_end: OnEnd) -> None:
        """Law S1: the end is durable before it is sent, or a failure is sent in its place. What an
        interruption kept from the client goes with it. The client may take `seconds` for it."""
        self._move(Stage.ENDING)
        batch = Batch(events, last=True)
        if self._persistence is not None:
            kept = await self._persistence.persist(events)
            batch = Batch(kept, self._persistence.batch.data, last=True)
        on_end(None if batch.events is events else batch.events[-1])
        if self._unsent is not None:
            batch = Batch([*self._unsent.events, *batch.events], last=True)
        self.draining = True
        await self._client.send_last(batch, seconds)
        self._move(Stage.ENDED)

    def _open(self, reply: UpstreamReply, attempts: Attempts) -> None:
        self._preamble = Preamble() if attempts.may_ask_otherwise else None
        self._reply, self._whole, self._has_come = reply, reply.whole, False
        self._commit = attempts.commit
        reply.start(self)

    async def _ask_otherwise(self, error: UpstreamError, attempts: Attempts) -> None:
        data, self._refused, self._buffered = self._buffered, None, b""
        reply, self._reply, self._preamble = self._reply, None, None
        other = await attempts.instead(error)
        await self._work()  # what was sent meanwhile to keep the connection alive
        if other is not None:
            self._open(other, attempts)
            return
        self._reply = reply
        if not data:
            self.end(None)
            return
        self.feed(data)
        if reply is not None and not self.is_busy and not self._read:
            reply.resume()

    async def _work(self) -> None:
        """What has to be waited for."""
        while (batch := self._unsent) is not None:
            if self._kept is not None:
                kept, self._kept = self._kept, None
                await kept
                self._unsent = None
                self._send(batch.events, batch.frames)
            elif self._rest is not None:
                rest, self._rest = self._rest, None
                self.draining = True
                try:
                    await self._client.drain(rest, batch)
                finally:
                    self.draining = False
                self._unsent = None
            else:
                await self._wait()  # for the log

    def _drop_work(self) -> None:
        """It is interrupted: the client gets with the end what it has not got yet."""
        for work in (self._kept, self._rest):
            if work is not None:
                drop(work)
        self._kept = self._rest = None

    async def _wait(self) -> None:
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            await self._waiting
        finally:
            self._waiting = None

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _pause(self) -> None:
        if self._reply is not None:
            self._reply.pause()

    def _move(self, stage: Stage) -> None:
        if stage not in STAGES[self.stage].next:
            raise AssertionError(f"a response does not go from {self.stage.name} to {stage.name}")
        self.stage = stage

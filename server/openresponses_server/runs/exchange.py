"""One upstream's answer on its way to its client: bytes → frames → dialect → machine → events → store, log
and client. Synchronous from socket to socket; what has to be waited for pauses the upstream.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol, cast

import structlog
from msgspec import Struct, field

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import KEEP_ALIVE_EVENT, Inbound
from openresponses_bridge.emitter.stopping import StopFilter
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.events import Event, ResponseFailed
from openresponses_bridge.protocol.response import ErrorPayload, Response
from openresponses_bridge.protocol.usage import Usage
from openresponses_bridge.sse import SSEDecoder
from openresponses_bridge.state import TERMINAL_PHASES, ResponseStreamPhase
from openresponses_server.errors import HttpError, UpstreamError, too_long, without_frames
from openresponses_server.observation.responses import TokenTiming
from openresponses_server.runs.client import Batch, Client, drop, failing
from openresponses_server.runs.hosted_stream import EndHolder, Unsettled
from openresponses_server.store.endings import RESTARTED
from openresponses_server.store.persistence import ResponseSessionPersistenceTransformer
from openresponses_server.upstreams.base import GZIP, UpstreamReply, packed
from openresponses_server.upstreams.preamble import SHALLOW, Preamble, check_frame

_INTERNAL = ErrorPayload("server_error", "internal_error", "The server failed.", None)
_log = structlog.get_logger(__name__)
_FEW: Final = 4096  # bytes: a larger piece is a batch by itself, since adding it to another would cost more
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
        self.response_id = machine.response_id
        self.diagnostics: Diagnostics = machine.diagnostics
        self._judged = judged
        self.is_complete = False
        """True if the response has ended, or its end is kept back: nothing more is read from the upstream."""
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
    def snapshot(self) -> Response:
        return self._machine.snapshot if self._replaced_end is None else self._replaced_end

    @property
    def in_one_form(self) -> Response:
        """The snapshot for clients that have one place for reasoning."""
        return self._machine.in_one_form if self._replaced_end is None else self._replaced_end

    @property
    def usage_at_start(self) -> Usage | None:
        """The usage that the upstream has reported before its answer began."""
        return self._machine.usage_at_start

    @property
    def upstream_response_id(self) -> str | None:
        """The id under which the upstream has stored the response itself, if it says so."""
        return self._inbound.kept_id

    @property
    def question(self) -> Unsettled | None:
        """The question that must be settled before the response can end: a judgement, calls to run, or a
        continuation."""
        return None if self._judged is None else self._judged.question

    def begin(self) -> list[Event]:
        """Start before the upstream has sent anything, so that the client can be sent events while it
        waits."""
        return [] if self.begun else self._machine.start()

    def restart(self, previous_attempts: int) -> list[Event]:
        """Start a response again of which nobody has seen any output, after this many attempts: its first
        events are the same bytes, and an event for each new attempt follows."""
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
        else:
            self._at_frame_start = self._frames.is_between
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
        without_frames(error)
        return [] if self.ended else self.begin() + self._inbound.flush() + self._machine.fail(error)

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
        return self._machine.extension_event(KEEP_ALIVE_EVENT, {})

    def _end_at_stop(self, stops: StopFilter) -> list[Event]:
        try:
            return stops.end() if stops.stopped else []
        except BridgeError as error:
            return self.fail(error)

    def _fail_internally(self) -> list[Event]:
        _log.exception("run.internal_error", response_id=self._machine.response_id)
        return [] if self.ended else self.begin() + self._machine.fail(_INTERNAL)


class Wakeup(Struct, eq=False):
    """Wakes the task of a run, which waits for it alone."""

    waiter: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Wait for the next `wake`."""
        self.waiter = asyncio.get_running_loop().create_future()
        try:
            await self.waiter
        finally:
            self.waiter = None

    def wake(self) -> None:
        """End the wait; without one, nothing is remembered."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class Passage(Enum):
    """Where the latest batch is on its way to the client."""

    FREE = auto()
    """No batch is on its way: the next one may follow."""
    LOGGING = auto()
    """The event log stores it, and calls back."""
    STORING = auto()
    """The run's task must await that it is stored."""
    SENDING = auto()
    """The run's task must await that the client has taken it."""
    HELD = auto()
    """It was interrupted, and is sent with the end of the response."""


PASSAGES: Final = {
    Passage.FREE: frozenset({Passage.LOGGING, Passage.STORING, Passage.SENDING}),
    # stored before it is sent (law S1)
    Passage.LOGGING: frozenset({Passage.FREE, Passage.HELD}),
    Passage.STORING: frozenset({Passage.FREE, Passage.HELD}),
    Passage.SENDING: frozenset({Passage.FREE, Passage.HELD}),
    Passage.HELD: frozenset({Passage.SENDING}),
}
"""The stages of a batch, and those that may follow."""


class Outflow(Struct, eq=False):
    """Stores batches of events, if the response is stored, and then sends them. It takes one at a time: the
    next only after the one before has been sent."""

    client: Client
    persistence: ResponseSessionPersistenceTransformer | None
    wakeup: Wakeup
    stage: Passage = Passage.FREE
    exchange: Exchange | None = None
    """The answer that is being read, which is paused while a batch takes time; None between two answers."""
    work: Awaitable[object] | None = None
    """The awaitable that the run's task must await before the batch continues."""
    batch: Batch | None = None
    """The latest batch that was not sent at once."""
    is_logged: bool = False
    """True if that batch was given to the log but may not be in it."""

    def store(self, events: list[Event]) -> None:
        """Store these events, if the response is stored, then send them. Whatever must be awaited for this is
        left to the run's task, except for a future of the log."""
        persistence = self.persistence
        if persistence is None:
            self.send(Batch(events))
            return
        try:
            pending = persistence.append(events)
        except Exception as error:
            pending = failing(error)
        batch = Batch(events, persistence.batch.data)
        if pending is None:
            self.send(batch)
            return
        self.batch, self.is_logged = batch, True
        if isinstance(pending, asyncio.Future):
            # mostly the log answers before anything more arrives, which would pause the source
            self.stage = Passage.LOGGING
            pending.add_done_callback(self._send_logged)
        else:
            self._leave_to_task(Passage.STORING, pending)

    def send(self, batch: Batch) -> bool:
        """Send this batch. Returns True if it was sent and nothing must be awaited."""
        client = self.client
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
        self.batch, self.is_logged = batch, self.is_logged and batch is self.batch
        self._leave_to_task(Passage.SENDING, rest)
        return False

    async def clear(self) -> None:
        """Wait until the batch is stored and sent."""
        while self.stage is not Passage.FREE:
            batch, work, self.work = self.batch, self.work, None
            if work is None:
                await self.wakeup.wait()  # for the log
            elif self.stage is Passage.STORING:
                await work
                if batch is not None and not (self.persistence is not None and self.persistence.lost):
                    self.stage = Passage.FREE
                    self.send(batch)
            elif batch is not None:
                await self.client.drain(cast(Awaitable[None], work), batch)
                self.stage = Passage.FREE

    def interrupt(self) -> tuple[Batch | None, bool]:
        """Stop waiting for the batch, which is then sent with the end. Returns (the batch, or None if there
        is none; whether the log may lack it)."""
        if self.stage is Passage.FREE:
            return None, False
        if self.stage is not Passage.HELD:
            self._move(Passage.HELD)
        if self.work is not None:
            drop(self.work)
            self.work = None
        return self.batch, self.is_logged

    def _send_logged(self, _stored: asyncio.Future[bool]) -> None:
        """Send the batch, which the log has stored, and read on."""
        exchange, persistence, batch = self.exchange, self.persistence, self.batch
        if self.stage is not Passage.LOGGING or batch is None or persistence is None or persistence.lost:
            return  # the run was interrupted: the batch is sent with the end, or the end of another worker
        self.stage = Passage.FREE
        if self.send(batch):
            if exchange is None or not ANSWERS[exchange.stage].reads:
                self.wakeup.wake()  # the task waits for this
            elif exchange.is_paused or exchange.late or exchange.late_end is not None:
                exchange.go_on()

    def _leave_to_task(self, stage: Passage, work: Awaitable[object]) -> None:
        self._move(stage)
        self.work = work
        if self.exchange is not None:
            self.exchange.pause()
        self.wakeup.wake()

    def _move(self, stage: Passage) -> None:
        if stage not in PASSAGES[self.stage]:
            raise AssertionError(f"a batch does not go from {self.stage.name} to {stage.name}")
        self.stage = stage


class AnswerStage(Enum):
    """The stages of one upstream's answer, by what was received of it."""

    SILENT = auto()
    """Nothing."""
    BUFFERING = auto()
    """Its beginning: the upstream may still turn out to refuse."""
    REFUSED = auto()
    """A refusal instead of it, which another request may avoid."""
    OPEN = auto()
    """A part of it."""
    CUT = auto()
    """A part of it: it ended too early."""
    READ = auto()
    """All of it that is wanted."""


class AnswerRules(NamedTuple):
    """The rules of a stage: whether it reads on, and the stages that may follow."""

    reads: bool
    next: frozenset[AnswerStage]


_ENDS: Final = frozenset({AnswerStage.CUT, AnswerStage.READ})
ANSWERS: Final = {
    AnswerStage.SILENT: AnswerRules(
        True, _ENDS | {AnswerStage.BUFFERING, AnswerStage.REFUSED, AnswerStage.OPEN}
    ),
    AnswerStage.BUFFERING: AnswerRules(True, _ENDS | {AnswerStage.REFUSED, AnswerStage.OPEN}),
    AnswerStage.REFUSED: AnswerRules(False, frozenset({AnswerStage.BUFFERING})),
    # once an answer has begun, it is the answer (law S5)
    AnswerStage.OPEN: AnswerRules(True, _ENDS),
    # by a defect, while its last events were handed on
    AnswerStage.READ: AnswerRules(False, frozenset({AnswerStage.CUT})),
    AnswerStage.CUT: AnswerRules(False, frozenset()),
}


_FREE: Final = Passage.FREE
_OPEN: Final = AnswerStage.OPEN


class ProgressNotes(Protocol):
    """Measures when bytes and events arrive."""

    answered_at: float | None
    """When the first bytes of the answer arrived, by `time.perf_counter`."""

    @property
    def timing(self) -> TokenTiming: ...


class Exchange(Struct, eq=False):
    """The sink of one upstream's answer. What arrives while a batch is on its way waits, and pauses the
    source."""

    reply: UpstreamReply | None
    """The source; None when nothing more is read from it."""
    whole: bool
    """True if the answer is sent as a whole."""
    translation: Translation
    outflow: Outflow
    progress: ProgressNotes
    opened: Callable[[], None]
    """Called when the answer begins."""
    preamble: Preamble | None
    """Looks for a refusal instead of an answer until the answer begins; None if no refusal can be avoided."""
    stage: AnswerStage = AnswerStage.SILENT
    error: Exception | None = None
    """The refusal, or what ended the answer too early."""
    events: list[Event] = field(default_factory=list)
    """The events so far of an answer that is sent as a whole; at the end of the response, its last events."""
    question: Unsettled | None = None
    """The question that must be settled before the response can end; known when all is read."""
    late: list[bytes] = field(default_factory=list)
    """Bytes that have arrived and are translated before any others."""
    late_end: tuple[Exception | None] | None = None
    """The end of the answer, if it arrived after those bytes."""
    is_paused: bool = False
    """True if the source is paused."""

    def feed(self, data: bytes) -> None:
        """Receive bytes of the upstream's answer."""
        outflow = self.outflow
        if outflow.stage is not _FREE or self.late:
            self.late.append(data)
            self.pause()
            return
        try:
            if self.stage is not _OPEN and not self._begins(data):
                return
            translation = self.translation
            events = translation.feed(data)
            self.progress.timing.read(events)
            if translation.is_complete:
                self._finish(events)
            elif events:
                if self.whole:
                    self.events += events
                elif outflow.persistence is None:
                    outflow.send(Batch(events))
                else:
                    outflow.store(events)
        except Exception as error:  # a defect: the connection that calls this can do nothing about it
            self._stop(AnswerStage.CUT, error)

    def end(self, error: Exception | None) -> None:
        """The upstream's answer has ended, with this error if it is not complete."""
        if self.stage in _ENDS:
            return  # nothing more of it was wanted
        if self.outflow.stage is not Passage.FREE or self.late:
            self.late_end = (error,)
            return
        preamble = self.preamble
        if error is None and self.stage is AnswerStage.SILENT:
            what = "the upstream answered with an empty stream"
            code, cause = UpstreamError.INVALID_RESPONSE, "its stream was empty"
            error = UpstreamError(502, what, code=code, cause=cause)
        if error is not None:
            if preamble is not None and isinstance(error, UpstreamError):
                self.late_end = (error,)
                self._stop(AnswerStage.REFUSED, error)
            else:
                self._stop(AnswerStage.CUT, error)
            return
        if preamble is not None:
            refusal = preamble.refusal(b"")
            if refusal is None and not preamble.over:
                what = "the upstream's stream ended before its answer"
                refusal = UpstreamError(502, what, code=UpstreamError.INVALID_RESPONSE)
            if refusal is not None:
                self.late_end = (None,)
                self._stop(AnswerStage.REFUSED, refusal)
                return
        self._finish(self.translation.end())

    def answer_as_refused(self, reply: UpstreamReply | None) -> None:
        """Treat the refusal as the answer, since no other request avoids it; its rest comes from `reply`."""
        self.reply = reply
        self._move(AnswerStage.BUFFERING)
        self.preamble = self.error = None
        late, self.late = self.late, []
        if late:
            self.feed(b"".join(late))
        if self.outflow.stage is Passage.FREE:
            self.go_on()

    def go_on(self) -> None:
        """Read on after a batch was sent, beginning with what arrived meanwhile. What the source buffered
        while it was paused is added to that: by itself it would be one more batch to be stored in the log."""
        if not ANSWERS[self.stage].reads:
            return
        if self.is_paused and 0 < sum(map(len, self.late)) <= _FEW:
            self._resume()
        late, self.late = self.late, []
        if late:
            self.feed(b"".join(late))
        if self.outflow.stage is Passage.FREE and ANSWERS[self.stage].reads:
            if self.late_end is not None:
                (error,), self.late_end = self.late_end, None
                self.end(error)
            else:
                self._resume()

    def pause(self) -> None:
        """Pause the source."""
        if self.reply is not None:
            self.is_paused = True
            self.reply.pause()

    def close(self) -> list[Event]:
        """Read nothing more. Returns the last events of the response, if they are known."""
        self.reply = None  # which refers to its sink
        return self.events if self.stage is AnswerStage.READ else []

    def _resume(self) -> None:
        if self.reply is not None:
            self.is_paused = False
            self.reply.resume()

    def _begins(self, data: bytes) -> bool:
        """Return whether these bytes are to be translated now. They are not if they are a refusal instead of
        an answer, which another request may avoid."""
        if self.stage is AnswerStage.SILENT:
            self.progress.answered_at = time.perf_counter()
            if data[:2] == GZIP:
                self.end(packed())
                return False
        elif self.stage is not AnswerStage.BUFFERING:
            return False  # nothing more of it is wanted
        if self.preamble is not None:
            refusal = self.preamble.refusal(data)
            if refusal is not None:
                self.late.append(data)
                self._stop(AnswerStage.REFUSED, refusal)
                return False
            if not self.preamble.over:
                self.stage = AnswerStage.BUFFERING
                return True
            self.preamble = None
        self._move(AnswerStage.OPEN)
        self.opened()
        return True

    def _stop(self, stage: AnswerStage, error: Exception) -> None:
        self._move(stage)
        self.error = error
        self.pause()
        self.outflow.wakeup.wake()

    def _finish(self, events: list[Event]) -> None:
        """Finish reading: keep the last events, unless something has to be settled before."""
        self._move(AnswerStage.READ)
        self.pause()
        events, self.events = self.events + events, []
        self.question = self.translation.question
        if self.question is None:
            self.events = events
        elif events:
            self.outflow.store(events)
        self.outflow.wakeup.wake()

    def _move(self, stage: AnswerStage) -> None:
        if stage not in ANSWERS[self.stage].next:
            raise AssertionError(f"an answer does not go from {self.stage.name} to {stage.name}")
        self.stage = stage

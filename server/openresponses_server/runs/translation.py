"""What an upstream sends for one response, translated into events. Sans-IO.

What one read brings goes through here as a whole; nothing is done per event but the core's own work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, cast

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
from openresponses_server.errors import HttpError, too_long
from openresponses_server.runs.schema_workers import Question
from openresponses_server.store.endings import RESTARTED

KEEP_ALIVE: Final = "openresponses-bridge:keepalive"
_INTERNAL = ErrorPayload("server_error", "internal_error", "The server failed.", None)
_FeedRead = Callable[[bytes], list[Event] | None]
_log = structlog.get_logger(__name__)
_EMPTY: Final = 128  # bytes that a comment, or a frame without an event, counts beyond its own


class Judged(Protocol):
    """Stands before the machine and keeps the end back until the answer is judged: there may be a `question`,
    and `settle` with the objection to it, or None, gives the last events."""

    question: Question | None

    def settle(self, objection: str | None) -> list[Event]: ...


class Translation:
    """The machine, the dialect in front of it and the frames in front of that.

    Whatever goes wrong ends the response as failed, never as completed. `failure` then holds the
    error, unless the upstream reported it inside its stream. `most` bounds what an upstream may send for
    one response, in bytes (law S8); what gives no event counts as more than it has. `judged` is what keeps
    the end back, if anything does. `text_after_tools` says whether clients of Chat Completions get the text
    that comes after a tool call. A machine that ends at a stop sequence ends with the read that brings it,
    whose token counts are still taken: nothing more of the upstream's is wanted.
    """

    def __init__(
        self,
        machine: ResponseStream,
        inbound: Inbound,
        *,
        most: int | None = None,
        judged: Judged | None = None,
        text_after_tools: bool = True,
    ) -> None:
        self._most = most
        self._taken = 0
        self._machine = machine
        self._judged = judged
        self.has_all = False
        """With what was fed last the response has ended, or is to be judged before it does: nothing more is
        read of the upstream."""
        self._stops = machine if isinstance(machine, StopFilter) else None
        # not as bound methods: what refers to itself stays until the next look for garbage
        self._take = Translation._take_plain if judged is None else Translation._take_held
        self.read_as(inbound, text_after_tools)
        self.failure: BridgeError | None = None
        self._ended_instead: Response | None = None

    def read_as(self, inbound: Inbound, text_after_tools: bool = True) -> None:
        """What comes from now on is read by this inbound, from the beginning of a stream."""
        self._inbound = inbound
        self._frames = SSEDecoder()
        self._skipped = 0
        plain = self._judged is None and self._stops is None
        self._feed_read: _FeedRead | None = getattr(inbound, "feed_read", None) if plain else None
        self._between = False  # what is fed next begins with a frame
        self.text_after_tools = text_after_tools
        self._read_done: Callable[[], list[Event]] | None = getattr(inbound, "read_done", None)

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
        return self._machine.snapshot if self._ended_instead is None else self._ended_instead

    @property
    def in_one_form(self) -> Response:
        """The same for clients that have one place for reasoning."""
        return self._machine.in_one_form if self._ended_instead is None else self._ended_instead

    @property
    def kept_there(self) -> str | None:
        """The id under which the upstream itself keeps the response, if it says that it does."""
        kept: str | None = getattr(self._inbound, "kept_id", None)
        return kept

    @property
    def question(self) -> Question | None:
        """What has to be judged before the response can end; nothing more is read of it then."""
        return None if self._judged is None else self._judged.question

    def begin(self) -> list[Event]:
        """Start before the upstream has said anything, so that events can be sent while the client waits."""
        return [] if self.begun else self._machine.start()

    def begin_again(self, makings: int) -> list[Event]:
        """Start a response that was begun so often before and showed nothing; what was sent of it is sent
        again to the byte, and then that it is made again."""
        started = self.begin()
        for attempt in range(2, makings + 2):
            started += self._machine.extension_event(RESTARTED, {"attempt": attempt})
        return started

    def feed(self, data: bytes) -> list[Event]:
        """What one read brought."""
        events: list[Event] | None = None
        self._taken += len(data)
        try:
            if self._most is not None and self._taken > self._most:
                raise too_long(self._most)
            if self._between and self._feed_read is not None:
                events = self._feed_read(data)
                if events is not None and len(events) == 1:
                    return events  # a delta: an end is more than one event
            if events is None:
                events = []
                frames = self._frames.feed(data)
                self._take(self, frames, events)
                self._between = self._frames.is_between
                self._count_empty(len(frames) - len(events))
            if self._read_done is not None and self.question is None:
                events += self._read_done()
        except BridgeError as error:
            events = (events or []) + self.fail(error)
        except Exception:
            events = (events or []) + self._fail_internally()
        if self._stops is not None:
            events += self._end_at_stop(self._stops)
        self.has_all = self.ended or self.question is not None
        return events

    def _count_empty(self, frames: int) -> None:
        """So many frames gave no event. With comments and blocks without data they take time, though they
        have next to no bytes: a compressed stream may bring millions."""
        comments, self._skipped = self._frames.skipped - self._skipped, self._frames.skipped
        self._taken += _EMPTY * (max(frames, 0) + comments)

    def end(self) -> list[Event]:
        """The upstream has ended; if it had not finished, the response fails."""
        events: list[Event] = []
        try:
            self._take(self, self._frames.close(), events)
            if not self.ended and self.question is None:
                events += self._inbound.close()
        except BridgeError as error:
            events += self.fail(error)
        except Exception:
            events += self._fail_internally()
        return events if self._stops is None else events + self._end_at_stop(self._stops)

    def settle(self, objection: str | None) -> list[Event]:
        """The question has been judged: end."""
        try:
            return [] if self._judged is None else self._judged.settle(objection)
        except BridgeError as error:
            return self.fail(error)

    def fail(self, error: BridgeError) -> list[Event]:
        """End in this error."""
        if self._stops is not None and self._stops.stopped:
            return self._end_at_stop(self._stops)  # what fails now was not wanted
        self.failure = error
        return [] if self.ended else self.begin() + self._machine.fail(error)

    def cancel(self) -> list[Event]:
        """End as cancelled."""
        return [] if self.ended else self.begin() + self._machine.cancel()

    def end_instead(self, last: Event) -> None:
        """This event is sent in the place of the end: that could not be stored, or another one is. The
        snapshot is the response in it."""
        self._ended_instead = cast(ResponseFailed, last).response
        error = self._ended_instead.error
        self.failure = None if error is None else HttpError(503, error.message, code=error.code)

    def beat(self) -> list[Event]:
        """An event that says nothing but that the response is still being made."""
        return self._machine.extension_event(KEEP_ALIVE, {})

    def _take_plain(self, frames: list[Frame], events: list[Event]) -> None:
        feed = self._inbound.feed
        for frame in frames:
            events += feed(frame.data, frame.event)

    def _take_held(self, frames: list[Frame], events: list[Event]) -> None:
        """Frame by frame: what follows the end of the output is not read."""
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

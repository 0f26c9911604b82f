"""Translates what an upstream sends for one response into events. Sans-IO.

The bytes of one read are translated together; nothing is done per event but by the library.
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
_TryFeedSse = Callable[[bytes], list[Event] | None]
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
        self._try_feed_sse: _TryFeedSse | None = getattr(inbound, "try_feed_sse", None) if plain else None
        self._at_frame_start = False  # what is fed next begins with a frame
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
        return self._machine.snapshot if self._replaced_end is None else self._replaced_end

    @property
    def in_one_form(self) -> Response:
        """The snapshot for clients that have one place for reasoning."""
        return self._machine.in_one_form if self._replaced_end is None else self._replaced_end

    @property
    def upstream_response_id(self) -> str | None:
        """The id under which the upstream has stored the response itself, if it says so."""
        kept: str | None = getattr(self._inbound, "kept_id", None)
        return kept

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
            if self._at_frame_start and self._try_feed_sse is not None:
                events = self._try_feed_sse(data)
                if events is not None and len(events) == 1:
                    return events  # a delta: an end is more than one event
            if events is None:
                events = []
                frames = self._frames.feed(data)
                self._feed_split(self, frames, events)
                self._at_frame_start = self._frames.is_between
                self._count_empty(len(frames) - len(events))
            if self._read_done is not None and self.question is None:
                events += self._read_done()
        except BridgeError as error:
            events = (events or []) + self.fail(error)
        except Exception:
            events = (events or []) + self._fail_internally()
        if self._stops is not None:
            events += self._end_at_stop(self._stops)
        self.is_complete = self.ended or self.question is not None
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

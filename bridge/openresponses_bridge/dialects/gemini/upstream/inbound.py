"""Answers of `generateContent`, streamed or whole → machine calls → events."""

from __future__ import annotations

from typing import Any, Final

from openresponses_bridge.dialects.base import (
    FrameString,
    FrameTemplate,
    OnceBegun,
    counted,
    unreadable,
)
from openresponses_bridge.dialects.gemini.types import SLUG
from openresponses_bridge.dialects.gemini.upstream.citations import search_in
from openresponses_bridge.dialects.gemini.upstream.decoding import (
    UNDECODABLE,
    LenientReader,
    decode_strict,
    text_of,
)
from openresponses_bridge.dialects.gemini.upstream.ending import FinishState, UsageCounter, error_payload
from openresponses_bridge.dialects.gemini.upstream.logprobs import logprobs_of
from openresponses_bridge.dialects.gemini.upstream.parts import PartReader
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.errors import BridgeError, WireError
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.response import ErrorPayload
from openresponses_bridge.seal import Sealer
from openresponses_bridge.state import TERMINAL_PHASES

_DONE: Final = b"[DONE]"
_GROUNDING: Final = "groundingMetadata"


class Inbound(OnceBegun):
    """One answer into one machine. `sealer` makes the envelopes for signatures. `choice`: read this one of
    several candidates, the others by inbounds and machines of their own; the usage is the first one's.
    Without it the first one is read, and any other is a loss.

    The terminal event waits for `close()`, since a server may give a finish reason with each chunk, and
    usage, signatures and errors follow it.
    """

    __slots__ = (
        "_choice",
        "_chunks",
        "_finish",
        "_grounding",
        "_number",
        "_parts",
        "_reader",
        "_sealer",
        "_usage",
        "template",
    )

    def __init__(
        self, machine: ResponseStream, sealer: Sealer | None = None, *, choice: int | None = None
    ) -> None:
        super().__init__(machine)
        self.template = FrameTemplate()
        self._choice = choice
        self._number = choice or 0
        self._sealer = sealer or Sealer()
        self._parts = PartReader(machine, self._sealer)
        self._reader = LenientReader(machine.diagnostics)
        self._finish = FinishState()
        self._usage = UsageCounter()
        self._grounding: dict[str, Any] = {}  # the last that says something
        self._chunks = 0

    def feed(self, data: bytes, event: str = "") -> list[Event]:
        """One frame's payload: a chunk, a whole answer, an error, or an array of them."""
        template = self.template
        if template.learned:
            if (alike := template.payload.feed(data)) is not None:
                return alike
            template.reset()
        if not self._live:
            return self._outside(data, event)
        self._chunks += 1
        try:
            try:
                chunk = decode_strict(data)
            except UNDECODABLE:
                return self._read(data)
            candidate = chunk.candidates[0]
            if candidate.index != self._number:
                return self._read(data)
            if chunk.usage_metadata is not None:
                self._usage.update(chunk.usage_metadata)
            part = candidate.content.parts[0]
            events = self._parts.end_call(whole=True)
            if part.text:
                say = self._parts.thought if part.thought else self._parts.text
                events += say(part.text)
                if len(events) == 1 and template.enabled:
                    template.learn(data, event, self._position, FrameString(part.text, text_of, say))
            return events
        except BridgeError as error:
            # the machine refused what the frames contain: the upstream's failure
            return self._fail(error)

    def close(self) -> list[Event]:
        """The upstream has ended. Without a finish reason before, the answer was cut."""
        if self._ended:
            return []
        events = self._begin()
        finish = self._finish
        try:
            finish.conclude(self._position, self._machine)
            if finish.failure is not None:
                return events + self._fail(finish.failure)
            events += self._parts.close(whole=finish.stopped)
            if self._grounding:
                if finish.stopped and (search := search_in(self._grounding, self._sealer)) is not None:
                    events += self._machine.item(search)
                events += self._machine.extension_event(SLUG + _GROUNDING, {_GROUNDING: self._grounding})
            if finish.explanation:
                events += self._machine.refusal(finish.explanation)
            self._report()
            events += self._machine.finish(finish.reason, incomplete=finish.incomplete)
        except BridgeError as error:
            return events + self._fail(error)
        self._mark_ended()
        return events

    @property
    def _position(self) -> int:
        """The number of the newest chunk."""
        return self._chunks + self.template.fed

    def _read(self, data: bytes) -> list[Event]:
        """Read what is not a chunk from the middle of a stream."""
        if data.strip() in (b"", _DONE):
            self.diagnostics.ignored("frame", "no chunk")
            return []
        events: list[Event] = []
        try:
            for chunk in self._reader.chunks(data):
                events += self._chunk(chunk)
                if self._ended:
                    break
        except WireError as error:
            events += self._fail(unreadable(self._position, error))
        except BridgeError as error:
            events += self._fail(error)
        return events

    def _chunk(self, chunk: dict[str, Any]) -> list[Event]:
        if chunk.get("error"):
            return self._fail(error_payload(chunk["error"]))
        if not self._number and (usage := self._reader.usage(chunk)) is not None:
            self._usage.update(usage)
        self._finish.block(self._reader.object(chunk, "promptFeedback"))
        events: list[Event] = []
        for candidate in self._reader.objects(chunk, "candidates"):
            index = self._reader.number(candidate, "index")
            if index == self._number:
                events += self._candidate(candidate)
            elif self._choice is None:
                self.diagnostics.loss("candidates", f"candidate {index} of several, only the first is kept")
        return events

    def _candidate(self, candidate: dict[str, Any]) -> list[Event]:
        finish, reader = self._finish, self._reader
        message = reader.text(candidate, "finishMessage")
        finish.record(candidate.get("finishReason"), message, self.diagnostics)
        logprobs = logprobs_of(reader.object(candidate, "logprobsResult"))
        events: list[Event] = []
        for part in reader.parts(reader.object(candidate, "content")):
            events += self._parts.part(part, logprobs, whole=finish.stopped)
            if part.get("text"):
                logprobs = []
        self._grounding = reader.object(candidate, _GROUNDING) or self._grounding
        if candidate.get("urlContextMetadata"):
            self.diagnostics.loss("urlContextMetadata", "can't be expressed")
        self._parts.annotate(candidate)
        return events

    def _report(self) -> None:
        usage = None if self._number else self._usage.total()
        if usage is not None:
            self._machine.usage(counted(usage, self.diagnostics))

    def _fail(self, error: ErrorPayload | BridgeError) -> list[Event]:
        self._mark_ended()
        if self._machine.phase in TERMINAL_PHASES:
            self.diagnostics.ignored("frame", "came after the response had ended")
            return []
        self._report()
        return self._machine.fail(error)

"""Converts answers of `generateContent`, streamed or whole, to calls of the machine, and so to events."""

from __future__ import annotations

from typing import Any, Final

from openresponses_bridge.dialects.base import (
    TIER,
    FrameString,
    FrameTemplate,
    OnceBegun,
    counted,
    error_in_frame,
    payload_of,
    unread,
)
from openresponses_bridge.dialects.gemini.carried import DIALECT
from openresponses_bridge.dialects.gemini.types import TIERS_OF_GOOGLE, USED_TIER, spelled
from openresponses_bridge.dialects.gemini.upstream.citations import search_in
from openresponses_bridge.dialects.gemini.upstream.decoding import (
    UNDECODABLE,
    LenientReader,
    decode_strict,
    text_of,
)
from openresponses_bridge.dialects.gemini.upstream.ending import FinishState, UsageCounter
from openresponses_bridge.dialects.gemini.upstream.logprobs import logprobs_of
from openresponses_bridge.dialects.gemini.upstream.native import NativeFields, model_in
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
    """Reads one answer into one machine. `sealer` seals signatures. `choice` is the one of several candidates
    to read; the others have inbounds and machines of their own, and the usage is the first one's. Without it,
    the first one is read, and any other is a loss.

    The terminal event waits for `close()`, since a server may send a finish reason with each chunk, and
    usage, signatures and errors follow it.
    """

    __slots__ = (
        "_choice",
        "_chunks",
        "_finish",
        "_grounding",
        "_native",
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
        self._grounding: dict[str, Any] = {}  # the last one with content
        self._native = NativeFields()
        self._chunks = 0

    def feed(self, data: bytes, event: str = "") -> list[Event]:
        """Read one frame's payload: a chunk, a whole answer, an error, or an array of them."""
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
                return self._read(data, event)
            candidate = chunk.candidates[0]
            if candidate.index != self._number:
                return self._read(data, event)
            if chunk.usage_metadata is not None:
                self._usage.update(chunk.usage_metadata)
            if candidate.safety_ratings is not None or chunk.create_time is not None:
                self._native.keep_strict(candidate.safety_ratings, chunk.create_time)
            part = candidate.content.parts[0]
            events: list[Event] = []
            if part.text:  # an empty one may be followed by more of a call
                events = self._parts.end_call(whole=True)
                say = self._parts.thought if part.thought else self._parts.text
                events += say(part.text)
                if len(events) == 1 and template.enabled:
                    template.learn(data, event, self._position, FrameString(part.text, text_of, say))
            return events
        except BridgeError as error:
            # the machine refused what the frames contain: the upstream's failure
            return self._fail(error)

    def close(self) -> list[Event]:
        """Handle the end of the upstream. Without an earlier finish reason, the answer was cut off."""
        if self._ended:
            return []
        events = self._begin()
        finish = self._finish
        try:
            finish.conclude(self._position, self._parts.has_output)
            if finish.failure is not None:
                return events + self._fail(finish.failure)
            events += self._parts.close(whole=finish.stopped)
            if self._grounding and finish.stopped:
                search = search_in(self._grounding, self._sealer)
                events += [] if search is None else self._machine.item(search)
            if finish.explanation:
                events += self._machine.refusal(finish.explanation)
            self._report()
            events += self._machine.finish(finish.reason, incomplete=finish.incomplete)
        except BridgeError as error:
            return events + self._fail(error)
        self._mark_ended()
        return events

    def flush(self) -> list[Event]:
        if self._live and self._machine.phase not in TERMINAL_PHASES:
            self._report()  # the counts until then
        return []

    @property
    def _position(self) -> int:
        """The number of the newest chunk."""
        return self._chunks + self.template.fed

    def _read(self, data: bytes, event: str) -> list[Event]:
        """Read a payload that is not a chunk from the middle of a stream."""
        if data.strip() in (b"", _DONE):
            self.diagnostics.ignored("frame", "no chunk")
            return []
        events: list[Event] = []
        try:
            for chunk in self._reader.chunks(data):
                events += self._chunk(chunk, event)
                if self._ended:
                    break
        except WireError as error:
            failed = unread(self._position, error, data, event, self.diagnostics)
            events += [] if failed is None else self._fail(failed)
        except BridgeError as error:
            events += self._fail(error)
        return events

    def _chunk(self, frame: dict[str, Any], event: str) -> list[Event]:
        if error_in_frame(frame, event) is not None:
            return self._fail(payload_of(frame, DIALECT))
        chunk = spelled(frame)
        counts = {} if self._number else self._reader.object(chunk, "usageMetadata")
        if (usage := self._reader.usage(counts)) is not None:
            self._usage.update(usage, counts)
        self._finish.block(self._reader.object(chunk, "promptFeedback"))
        self._native.keep_answer(chunk)
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
        logprobs = logprobs_of(reader.object(candidate, "logprobsResult"), self.diagnostics)
        self._native.keep_candidate(candidate, finish)
        events: list[Event] = []
        parts = [*reader.parts(reader.object(candidate, "content"))]
        for number, part in enumerate(parts, 1):
            # what is followed by another part was not cut off
            whole = finish.stopped or (finish.failure is None and number < len(parts))
            events += self._parts.part(part, logprobs, whole=whole)
            if part.get("text"):
                logprobs = []
        self._grounding = reader.object(candidate, _GROUNDING) or self._grounding
        self._parts.annotate(candidate)
        return events

    def _report(self) -> None:
        usage = None if self._number else self._usage.total()
        if usage is not None:
            self._machine.usage(counted(usage, self.diagnostics))
        counts = {} if self._number else self._usage.native()
        tier = counts.pop(USED_TIER, None)
        self._machine.report_names(service_tier=TIERS_OF_GOOGLE.get(str(tier), tier))
        fields = self._native.said(counts, self._parts.carried) | ({} if tier is None else {TIER: tier})
        if fields:
            self._machine.native(DIALECT, fields)

    def _read_first(self, data: bytes) -> None:
        self._machine.report_names(model_in(data))

    def _fail(self, error: ErrorPayload | BridgeError) -> list[Event]:
        self._mark_ended()
        if self._machine.phase in TERMINAL_PHASES:
            self.diagnostics.ignored("frame", "came after the response had ended")
            return []
        self._report()
        return self._machine.fail(error)

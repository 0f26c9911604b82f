"""Chat Completions chunks, or one whole completion → machine calls → events.

What a stream says is taken at its word where it is well formed, repaired where the meaning is plain,
and ended as a failure where it is not: an upstream that lies or is cut never ends as completed.
"""

from __future__ import annotations

from typing import Any

import msgspec

from bridge.dialects.chat_completions import failures
from bridge.dialects.chat_completions.answer import Answer
from bridge.dialects.chat_completions.lenient import read
from bridge.dialects.chat_completions.types import ChatChoice, ChatOutput, ChatUsage, PlainChunk
from bridge.dialects.chat_completions.usage import usage_of
from bridge.emitter.machine import ResponseStreamStateMachine
from bridge.errors import BridgeError, WireError
from bridge.protocol.codec import decode_json
from bridge.protocol.errors import ErrorPayload
from bridge.protocol.events import Event
from bridge.state import TERMINAL_PHASES, ResponseStreamPhase

_decode = msgspec.json.Decoder(ChatOutput).decode
_decode_plain = msgspec.json.Decoder(PlainChunk).decode
_UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_MISSES = 16  # how often a stream may fail to be plain text before nobody tries any more
_DONE = b"[DONE]"
_NO_REASON = frozenset({"null", "none"})


class Inbound:
    """One upstream stream into one machine. `think_tags`: a `<think>` that opens the text is reasoning.

    The terminal event waits for `[DONE]` or `close()`, because usage may follow the finish reason.
    `diagnostics` are the machine's own, so that one report holds all that was repaired and lost.
    """

    __slots__ = (
        "_answer",
        "_ended",
        "_failure",
        "_frames",
        "_live",
        "_machine",
        "_misses",
        "_plain",
        "_reason",
        "_usage",
        "_whole",
        "diagnostics",
    )

    def __init__(self, machine: ResponseStreamStateMachine, *, think_tags: bool = True) -> None:
        self._machine = machine
        self.diagnostics = machine.diagnostics
        self._answer = Answer(machine, think_tags)
        self._usage: ChatUsage | None = None
        self._reason: str | None = None
        self._failure: ErrorPayload | None = None
        self._frames = 0
        self._plain = False  # the next chunk is likely to hold nothing but text
        self._misses = 0
        self._whole = False  # a complete answer came in one object
        self._live = False  # between the first frame and the end
        self._ended = False

    def feed(self, data: bytes) -> list[Event]:
        """One frame's payload: a chunk, a whole completion, an error, or `[DONE]`."""
        if self._plain:
            try:
                chunk = _decode_plain(data)
            except _UNDECODABLE:
                self._plain = False
                self._misses += 1
            else:
                self._frames += 1
                try:
                    return self._answer.text(chunk.choices[0].delta.content)
                except BridgeError as error:
                    return self._lie(error)
        if not self._live:
            return self._outside(data)
        self._frames += 1
        try:
            output = _decode(data)
        except _UNDECODABLE:
            return self._odd_frame(data)
        events = self._one(output)
        return self._take(output, data) if events is None else events

    def close(self) -> list[Event]:
        """The upstream has ended. Without `[DONE]` or a finish reason before, it was cut."""
        return [] if self._ended else [*self._begin(), *self._end(self._whole)]

    # ── frames that are no plain text ──────────────────────────────────────────────────────────────
    def _one(self, output: ChatOutput) -> list[Event] | None:
        """The quick way for a chunk that says one thing; None for all others, with nothing done."""
        choices = output.choices
        if choices is None or len(choices) != 1 or output.usage is not None or output.error is not None:
            return None
        choice = choices[0]
        if choice.finish_reason is not None or choice.index or choice.logprobs is not None:
            return None
        delta = choice.delta
        if delta is None:
            return None
        try:
            events = self._answer.one(delta)
        except BridgeError as error:
            return self._lie(error)
        # text may go on as nothing but text; servers that always send more than that miss each time
        self._plain = bool(delta.content) and self._misses < _MISSES
        return events

    def _outside(self, data: bytes) -> list[Event]:
        if self._ended:
            self.diagnostics.ignored("frame", "came after the end")
            return []
        return self._begin() + self.feed(data)

    def _begin(self) -> list[Event]:
        self._live = True
        return self._machine.start() if self._machine.phase is ResponseStreamPhase.IDLE else []

    def _odd_frame(self, data: bytes) -> list[Event]:
        frame = data.strip()
        if frame == _DONE:
            return self._end(said_done=True)
        if not frame:
            self.diagnostics.ignored("frame", "empty")
            return []
        try:
            value = decode_json(frame)
        except WireError as error:
            return self._fail(failures.failure(failures.INVALID_JSON, f"{self._place}: {error.message}"))
        if isinstance(value, list) and value:
            value = value[0]  # Gemini puts its error into an array
        if not isinstance(value, dict):
            return self._fail(failures.failure(failures.INVALID_SHAPE, f"{self._place}: not a JSON object"))
        return self._take(read(ChatOutput, value, self.diagnostics), frame, value)

    @property
    def _place(self) -> str:
        return f"frame {self._frames} of the upstream's stream"

    def _take(self, output: ChatOutput, data: bytes, value: Any = None) -> list[Event]:
        events: list[Event] = []
        try:
            self._read(output, events)
            error = output.error or (output.x_groq and output.x_groq.error)
            if error:
                events += self._fail(failures.reported(error))
            elif output.choices is None and output.usage is None and output.x_groq is None:
                events += self._without_choices(decode_json(data) if value is None else value)
        except BridgeError as lie:
            events += self._lie(lie)
        return events

    def _read(self, output: ChatOutput, events: list[Event]) -> None:
        for choice in output.choices or ():
            if choice.index:
                self.diagnostics.loss("choices", f"choice {choice.index} of n, only the first is kept")
            else:
                self._choice(choice, events)
        groq = output.x_groq.usage if output.x_groq is not None else None
        self._usage = output.usage or groq or self._usage
        if output.citations:
            self.diagnostics.loss("citations", "a list of sources without their places in the text")

    def _choice(self, choice: ChatChoice, events: list[Event]) -> None:
        if choice.delta is not None:
            self._answer.delta(choice.delta, choice.logprobs, events)
        elif choice.message is not None:
            self._whole = True
            self._answer.message(choice.message, choice.logprobs, events)
        self._usage = choice.usage or self._usage
        if choice.error:
            self._failure = failures.reported(choice.error)
        if choice.finish_reason:
            self._finish_reason(choice.finish_reason)

    def _finish_reason(self, reason: str) -> None:
        known = reason.strip().lower()
        if known in _NO_REASON:
            return
        if known in failures.FAILING_REASONS:
            self._failure = self._failure or failures.failure(known, failures.FAILING_REASONS[known])
        elif self._reason is None:
            self._reason = reason
            self._machine.defer_finish(reason)
        elif known != self._reason.strip().lower():
            self.diagnostics.ignored("finish_reason", "another one after the first")

    def _without_choices(self, frame: dict[str, Any]) -> list[Event]:
        if failures.is_error_object(frame):
            return self._fail(failures.reported(frame))
        self.diagnostics.ignored("frame", "no choices, usage or error in it")
        return []

    # ── the end ────────────────────────────────────────────────────────────────────────────────────
    def _end(self, said_done: bool) -> list[Event]:
        events: list[Event] = []
        try:
            events += self._answer.close()
            if self._failure is None and self._reason is None:
                self._failure = self._unexplained(said_done)
            if self._failure is not None:
                return events + self._fail(self._failure)
            self._tell_usage()
            events += self._machine.finish()
            self._live = self._plain = False
            self._ended = True
        except BridgeError as lie:
            events += self._lie(lie)
        return events

    def _unexplained(self, said_done: bool) -> ErrorPayload | None:
        """An end without a finish reason: what it is, None when it may pass as a stop (field case 26)."""
        if not said_done:
            after = f"after {self._frames} frames" if self._frames else "before its first frame"
            return failures.failure(failures.CUT, f"the upstream's stream was cut {after}")
        if not self._machine.snapshot.output:
            return failures.failure(failures.EMPTY, "the upstream ended without output or finish reason")
        self.diagnostics.repair("finish_reason", "missing, taken as stop")
        self._machine.defer_finish("stop")
        return None

    def _tell_usage(self) -> None:
        if self._usage is not None:
            self._machine.usage(usage_of(self._usage, self.diagnostics))

    def _fail(self, error: ErrorPayload | BridgeError) -> list[Event]:
        self._live = self._plain = False
        self._ended = True
        if self._machine.phase in TERMINAL_PHASES:
            self.diagnostics.ignored("frame", "came after the response had ended")
            return []
        self._tell_usage()
        return self._machine.fail(error)

    def _lie(self, error: BridgeError) -> list[Event]:
        """The machine refused what the upstream's frames amount to: that is the upstream's failure."""
        return self._fail(error)

"""Chat Completions chunks, or one whole completion → machine calls → events.

Well-formed input is accepted, input with one plain meaning is repaired, and anything else ends the response
as failed: an upstream that contradicts itself or is cut never ends as completed.
"""

from __future__ import annotations

from typing import Any

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import (
    EMPTY,
    INVALID_JSON,
    INVALID_SHAPE,
    LONGEST_NAME,
    NO_MESSAGE,
    UPSTREAM_ERROR,
    BaseInbound,
    FrameTemplate,
    counted,
    cut_after,
    error_text,
    failure,
    name,
)
from openresponses_bridge.dialects.chat_completions.options import DEFAULT_OPTIONS, ChatOptions
from openresponses_bridge.dialects.chat_completions.types import (
    ChatChoice,
    ChatDelta,
    ChatLogProbs,
    ChatOutput,
    ChatUsage,
)
from openresponses_bridge.dialects.chat_completions.upstream.decoding import (
    UNDECODABLE,
    decode_output,
    decode_strict,
    read_lenient,
    usage_of,
)
from openresponses_bridge.dialects.chat_completions.upstream.deltas import DeltaReader
from openresponses_bridge.emitter.failures import outcome
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.errors import BridgeError, WireError
from openresponses_bridge.protocol.codec import decode_frame
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.items import CustomToolCall, FunctionCall
from openresponses_bridge.protocol.response import ErrorPayload, Response
from openresponses_bridge.seal import Sealer
from openresponses_bridge.state import TERMINAL_PHASES, ResponseStreamPhase

_NO_REASON = frozenset({"null", "none"})
_ENDED = "the upstream ended with an error"
# finish reasons that stand for a failure → its message; so do others that end in `_error`
FAILING_REASONS: dict[str, str] = {
    "error": _ENDED,
    "failed": _ENDED,
    "network_error": "the upstream lost the connection to its model",
    "insufficient_system_resource": "the upstream ran out of resources",
    "abort": "the upstream aborted the generation",
    "aborted": "the upstream aborted the generation",
    "timeout": "the upstream's model ran out of time",
    "malformed_function_call": "the upstream's model made a function call that could not be read",
    "unexpected_tool_call": "the upstream's model called a tool it was not given",
}


class FinishState:
    """How the stream ended: `reason` is its first known finish reason, `failure` its error; both None at
    first."""

    __slots__ = ("_diagnostics", "failure", "reason")

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self.reason: str | None = None
        self.failure: ErrorPayload | None = None

    def record(self, reason: str) -> None:
        """Record a finish reason."""
        known = reason.strip().lower()
        if known in _NO_REASON:
            return
        if known in FAILING_REASONS or known.endswith("_error"):
            message = FAILING_REASONS.get(known, _ENDED)
            self.failure = self.failure or failure(known[:LONGEST_NAME], message)
        elif self.reason is None:
            self.reason = reason
        elif known != self.reason.strip().lower():
            self._diagnostics.ignored("finish_reason", "another one after the first")

    def conclude(self, said_done: bool, frames: int, machine: ResponseStream) -> None:
        """Decide how a stream without a finish reason ended: it was cut or is empty, or counts as a stop
        (field case 26). `said_done`: the upstream sent its end marker."""
        if not said_done:
            self.failure = cut_after(frames)
        elif not machine.snapshot.output:
            self.failure = failure(EMPTY, "the upstream ended without output or finish reason")
        else:
            self._diagnostics.repair("finish_reason", "missing, taken as stop")
            self.reason = "stop"


def error_payload(error: Any) -> ErrorPayload:
    """An error that the upstream reported: text, or an object with any of type, code, message, param."""
    if isinstance(error, dict):
        inner = error.get("error")
        if isinstance(inner, dict | str):
            return error_payload(inner)
        kind = name(error.get("type"))
        code = name(error.get("code")) or name(error.get("status")) or kind or UPSTREAM_ERROR
        message = error_text(error.get("message")) or error_text(error.get("detail")) or NO_MESSAGE
        return ErrorPayload(kind or "server_error", code, message, name(error.get("param")))
    return failure(UPSTREAM_ERROR, error_text(error) or NO_MESSAGE)


def is_error_object(frame: dict[str, Any]) -> bool:
    """A frame that is an error itself instead of holding one (older vLLM, FastAPI, gateways)."""
    return frame.get("object") == "error" or "detail" in frame or ("message" in frame and "code" in frame)


_DONE = b"[DONE]"
_LISTS = {"citations": "url", "search_results": "url", "web_search": "link"}
"""Lists of sources, of Perplexity and Z.AI, and the names of the fields with the addresses in them."""
_CALLS = (FunctionCall, CustomToolCall)


class Inbound(BaseInbound):
    """One upstream stream into one machine. `options` are those of the upstream.
    `choice`: read this one of several choices, the others by inbounds and machines of their own; the usage of
    the stream is the first choice's. Without it the first one is read, and any other is a loss. `sealer`: for
    what has to come back to the upstream as it is. `identities`: the tools of the request, for calls that are
    written as text.

    The terminal event waits for `[DONE]` or `close()`, because usage may follow the finish reason.
    """

    __slots__ = (
        "_choice",
        "_deltas",
        "_ended",
        "_finish",
        "_frames",
        "_live",
        "_machine",
        "_message",
        "_number",
        "_usage",
        "_whole",
        "diagnostics",
        "template",
    )

    def __init__(
        self,
        machine: ResponseStream,
        *,
        options: ChatOptions = DEFAULT_OPTIONS,
        choice: int | None = None,
        sealer: Sealer | None = None,
        identities: ToolIdentityMap | None = None,
    ) -> None:
        self.diagnostics = machine.diagnostics
        self.template = FrameTemplate()
        self._machine = machine
        self._choice = choice
        self._number = choice or 0
        self._deltas = DeltaReader(
            machine, options, sealer or Sealer(), ToolIdentityMap() if identities is None else identities
        )
        self._usage: ChatUsage | None = None
        self._finish = FinishState(machine.diagnostics)
        self._frames = 0
        self._message: ChatDelta | None = None  # the last that came beside deltas or behind them
        self._whole = False  # a complete answer came in one object
        self._live = False  # between the first frame and the end
        self._ended = False

    def feed(self, data: bytes, event: str = "") -> list[Event]:
        """One frame's payload: a chunk, a whole completion, an error, or `[DONE]`."""
        template = self.template
        if template.learned:
            if (alike := template.payload.feed(data)) is not None:
                return alike
            template.reset()
        if not self._live:
            return self._feed_outside(data)
        self._frames += 1
        if data == _DONE:
            return self._end(said_done=True)
        try:
            chunk = decode_strict(data)
            choice = chunk.choices[0]
            events = self._deltas.continued(choice.delta) if choice.index == self._number else None
        except UNDECODABLE:
            return self._feed_lenient(data)
        except BridgeError as error:
            return self._fail(error)
        if events is None:
            return self._feed_lenient(data)
        if chunk.usage is not None:
            if not self._number:
                self._record_usage(chunk.usage)
        elif len(events) == 1 and template.enabled:
            string = self._deltas.string_of(choice.delta)
            if string is not None:
                template.learn(data, event, self._position, string)
        return events

    def close(self) -> list[Event]:
        """The upstream has ended. Without `[DONE]` or a finish reason before, it was cut."""
        return [] if self._ended else [*self._begin(), *self._end(self._whole)]

    def _feed_outside(self, data: bytes) -> list[Event]:
        if self._ended:
            self.diagnostics.ignored("frame", "came after the end")
            return []
        return self._begin() + self.feed(data)

    def _begin(self) -> list[Event]:
        self._live = True
        return self._machine.start() if self._machine.phase is ResponseStreamPhase.IDLE else []

    def _feed_lenient(self, data: bytes) -> list[Event]:
        """Feed what is not a chunk from the middle of a stream."""
        try:
            return self._dispatch(decode_output(data), data)
        except UNDECODABLE:
            return self._feed_repaired(data)

    def _feed_repaired(self, data: bytes) -> list[Event]:
        frame = data.strip()
        if frame == _DONE:
            return self._end(said_done=True)
        if not frame:
            self.diagnostics.ignored("frame", "empty")
            return []
        try:
            value = decode_frame(frame)
        except WireError as error:
            return self._fail(
                failure(INVALID_JSON, f"frame {self._position} of the upstream's stream: {error.message}")
            )
        if isinstance(value, list) and value:
            value = value[0]  # Gemini puts its error into an array
        if not isinstance(value, dict):
            return self._fail(
                failure(INVALID_SHAPE, f"frame {self._position} of the upstream's stream: not a JSON object")
            )
        return self._dispatch(read_lenient(ChatOutput, value, self.diagnostics), frame, value)

    @property
    def _position(self) -> int:
        """The number of the newest frame."""
        return self._frames + self.template.fed

    def _dispatch(self, output: ChatOutput, data: bytes, value: Any = None) -> list[Event]:
        events: list[Event] = []
        try:
            self._read(output, events)
            error = output.error or (output.x_groq and output.x_groq.error)
            if error:
                events += self._fail(error_payload(error))
            elif output.choices is None and output.usage is None and output.x_groq is None:
                events += self._without_choices(decode_frame(data) if value is None else value)
        except BridgeError as error:
            # the machine refused what the frames amount to: that is the upstream's failure
            events += self._fail(error)
        return events

    def _read(self, output: ChatOutput, events: list[Event]) -> None:
        for choice in output.choices or ():
            if (choice.index or 0) == self._number:
                self._read_choice(choice, events)
            elif self._choice is None:
                self.diagnostics.loss("choices", f"choice {choice.index} of n, only the first is kept")
            else:
                self._whole = self._whole or choice.message is not None
        if self._number:
            return
        usage = output.usage or (output.x_groq.usage if output.x_groq is not None else None)
        if usage is not None:
            self._record_usage(usage)
        for field, url in _LISTS.items():
            if listed := getattr(output, field):
                self._deltas.list_sources(listed, field, url)

    def _read_choice(self, choice: ChatChoice, events: list[Event]) -> None:
        if choice.delta is not None:
            self._deltas.delta(choice.delta, choice.logprobs, events)
            self._message = choice.message or self._message
        elif choice.message is not None:
            self._read_message(choice.message, choice.logprobs, events)
        if choice.usage is not None:
            self._record_usage(choice.usage)
        if choice.error:
            self._finish.failure = error_payload(choice.error)
        if choice.finish_reason:
            self._finish.record(choice.finish_reason)

    def _read_message(self, message: ChatDelta, logprobs: ChatLogProbs | None, events: list[Event]) -> None:
        # behind deltas it repeats them; asked once, since looking at the output costs its size
        if self._message is not None or self._machine.snapshot.output:
            self._message = message
        else:
            self._whole = True
            self._deltas.message(message, logprobs, events)

    def _read_deferred_message(self, message: ChatDelta) -> list[Event]:
        """Read the message that came beside deltas: it repeats them, unless there were none."""
        self._message = None
        events: list[Event] = []
        said = self._machine.snapshot
        if not said.output:
            self._deltas.message(message, None, events)
        elif _repeats(message, said):
            self.diagnostics.ignored("message", "repeats the deltas")
        else:
            self.diagnostics.loss("message", "differs from the deltas, which are kept")
        return events

    def _without_choices(self, frame: dict[str, Any]) -> list[Event]:
        if is_error_object(frame):
            return self._fail(error_payload(frame))
        self.diagnostics.ignored("frame", "no choices, usage or error in it")
        return []

    def _end(self, said_done: bool) -> list[Event]:
        events: list[Event] = []
        finish = self._finish
        try:
            events += self._deltas.close()
            if self._message is not None:
                events += self._read_deferred_message(self._message)
            if finish.failure is None and finish.reason is None:
                finish.conclude(said_done, self._position, self._machine)
            if finish.failure is not None:
                return events + self._fail(finish.failure)
            if self._usage is not None:
                self._report_usage(self._usage)
            if self._deltas.sources is not None and outcome(finish.reason)[0] is None:
                # behind all else; behind what was cut nothing may stand
                for item in self._deltas.sources.items():
                    events += self._machine.item(item)
            events += self._machine.finish(finish.reason)
            self._mark_ended()
        except BridgeError as error:
            # the machine refused what the frames amount to: that is the upstream's failure
            events += self._fail(error)
        return events

    def _record_usage(self, usage: ChatUsage) -> None:
        if self._usage is not None and not (
            (usage.prompt_tokens or usage.input_tokens) and (usage.completion_tokens or usage.output_tokens)
        ):
            self._report_usage(self._usage)  # what this one leaves out was counted before
        self._usage = usage

    def _report_usage(self, usage: ChatUsage) -> None:
        self._machine.usage(counted(usage_of(usage, self.diagnostics), self.diagnostics))

    def _mark_ended(self) -> None:
        self._live, self._ended = False, True
        if self.template.learned:
            self.template.reset()

    def _fail(self, error: ErrorPayload | BridgeError) -> list[Event]:
        self._mark_ended()
        if self._machine.phase in TERMINAL_PHASES:
            self.diagnostics.ignored("frame", "came after the response had ended")
            return []
        if self._usage is not None:
            self._report_usage(self._usage)
        return self._machine.fail(error)


def _repeats(message: ChatDelta, said: Response) -> bool:
    """Whether a message has nothing that was not sent before. Text at its beginning may have been sent as
    reasoning."""
    text = message.content if isinstance(message.content, str) else ""
    if text and not (said.output_text and text.endswith(said.output_text)):
        return False
    return not message.tool_calls or any(isinstance(item, _CALLS) for item in said.output)

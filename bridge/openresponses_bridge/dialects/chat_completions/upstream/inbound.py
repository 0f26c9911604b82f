"""Converts Chat Completions chunks, or one whole completion, to calls of the machine, and so to events.

Well-formed input is accepted, input with one plain meaning is repaired, and anything else ends the response
as failed: an upstream that contradicts itself or is cut never ends as completed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import (
    CHAT,
    EMPTY,
    LONGEST_NAME,
    TIER,
    FrameTemplate,
    OnceBegun,
    counted,
    cut_after,
    error_in_frame,
    failure,
    has_failed,
    payload_of,
    unread,
)
from openresponses_bridge.dialects.chat_completions.carried import (
    CHOICE,
    FINISH_REASON,
    REFUSED_TOKENS,
)
from openresponses_bridge.dialects.chat_completions.options import DEFAULT_OPTIONS, ChatOptions
from openresponses_bridge.dialects.chat_completions.types import (
    ChatChoice,
    ChatDelta,
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
from openresponses_bridge.dialects.chat_completions.upstream.said import head_of, said_by
from openresponses_bridge.emitter.failures import outcome
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.errors import BridgeError, WireError
from openresponses_bridge.protocol.codec import decode_frame
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.items import CustomToolCall, FunctionCall, Item
from openresponses_bridge.protocol.response import ErrorPayload, text_of_messages
from openresponses_bridge.seal import Sealer
from openresponses_bridge.state import TERMINAL_PHASES

_NO_REASON = frozenset({"null", "none"})
_ENDED = "the upstream ended with an error"
# finish reasons of failures → messages; all others that end in `_error` are failures too
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


class FinishState(msgspec.Struct):
    """What is known of a stream's end: `reason` is its first known finish reason, `failure` its error."""

    diagnostics: Diagnostics
    reason: str | None = None
    failure: ErrorPayload | None = None

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
            self.diagnostics.ignored("finish_reason", "a second one, which differs from the first")

    def conclude(self, said_done: bool, frames: int, has_output: bool) -> None:
        """Decide how a stream without a finish reason ended: it was cut off or is empty, or counts as a stop
        (field case 26). `said_done` is True if the upstream sent its end marker."""
        if not said_done:
            self.failure = cut_after(frames)
        elif not has_output:
            self.failure = failure(EMPTY, "the upstream ended without output or finish reason")
        else:
            self.diagnostics.repair("finish_reason", "missing, taken as stop")
            self.reason = "stop"


_DONE = b"[DONE]"
_LONG_PIECE = 8  # characters; shorter texts may well have the same piece twice
_MOST_OTHERS = 20_000  # pieces of other choices that are kept
_MOST_CHOICES = 16  # other choices of which pieces are kept
REPEATED = "repeats the text before it; the option repeated_text reads such an upstream"
_LISTS = {"citations": "url", "search_results": "url", "web_search": "link"}
"""The lists of sources of Perplexity and Z.AI → the names of the fields with the addresses in them."""
_CALLS = (FunctionCall, CustomToolCall)


class Inbound(OnceBegun):
    """One upstream stream into one machine. `options` are those of the upstream. `choice` is the one of
    several choices to read; the others have inbounds and machines of their own, and the usage of the stream
    is the first choice's. Without it, the first choice is read, and any other is a loss. `sealer` seals data
    that have to come back to the upstream unchanged. `identities` are the tools of the request, for calls
    that are written as text.

    The terminal event waits for `[DONE]` or `close()`, because usage may follow the finish reason.
    """

    __slots__ = (
        "_choice",
        "_deltas",
        "_finish",
        "_frames",
        "_last",
        "_message",
        "_number",
        "_other_pieces",
        "_others",
        "_pieces",
        "_said",
        "_tier",
        "_usage",
        "_whole",
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
        super().__init__(machine)
        self.template = FrameTemplate()
        self._choice = choice
        self._number = choice or 0
        self._deltas = DeltaReader(
            machine, options, sealer or Sealer(), ToolIdentityMap() if identities is None else identities
        )
        self._usage: ChatUsage | None = None
        self._finish = FinishState(machine.diagnostics)
        self._frames = 0
        self._last = ""  # the piece of text in the chunk with the finish reason
        self._message: ChatDelta | None = None  # the last message beside or after deltas
        self._said = 0  # the last frame whose further fields, for clients of this API, were kept
        self._tier: Any = None  # the last service tier that was reported
        self._whole = False  # the whole answer came in one object
        self._pieces = False  # a message came without an end: others may continue it
        # pieces of later choices, if one was asked for; None if they are too many to be parts of an answer
        self._others: dict[int, list[ChatChoice]] | None = {}
        self._other_pieces = 0

    def feed(self, data: bytes, event: str = "") -> list[Event]:
        """Read one frame's payload: a chunk, a whole completion, an error, or `[DONE]`."""
        template = self.template
        if template.learned:
            if (alike := template.payload.feed(data)) is not None:
                return alike
            template.reset()
        if not self._live:
            return self._outside(data, event)
        self._frames += 1
        if data == _DONE:
            return self._end(said_done=True)
        try:
            chunk = decode_strict(data)
            choice = chunk.choices[0]
            events = self._deltas.continued(choice.delta) if choice.index == self._number else None
        except UNDECODABLE:
            return self._feed_lenient(data, event)
        except BridgeError as error:
            return self._fail(error)
        if events is None:
            return self._feed_lenient(data, event)
        if chunk.usage is not None:
            if not self._number:
                self._record_usage(chunk.usage)
        elif len(events) == 1 and template.enabled:
            string = self._deltas.string_of(choice.delta)
            if string is not None:
                template.learn(data, event, self._position, string)
        return events

    def _read_first(self, data: bytes) -> None:
        self._said = 1
        with suppress(WireError):
            self._keep_said(data)

    def close(self) -> list[Event]:
        """Handle the end of the upstream. Without an earlier `[DONE]` or finish reason, it was cut off."""
        return [] if self._ended else [*self._begin(), *self._end(self._whole)]

    def _feed_lenient(self, data: bytes, event: str) -> list[Event]:
        """Feed a payload that is not a chunk from the middle of a stream."""
        try:
            return self._dispatch(decode_output(data), data, event)
        except UNDECODABLE:
            return self._feed_repaired(data, event)

    def _feed_repaired(self, data: bytes, event: str) -> list[Event]:
        frame = data.strip()
        if frame.strip(b'"').upper() == _DONE:
            return self._end(said_done=True)
        if not frame:
            self.diagnostics.ignored("frame", "empty")
            return []
        try:
            value = decode_frame(frame)
        except WireError as error:
            failed = unread(self._position, error, frame, event, self.diagnostics)
            return [] if failed is None else self._fail(failed)
        if isinstance(value, list) and value:
            value = value[0]  # Gemini sends its error in an array
        if not isinstance(value, dict):
            no_object = WireError(WireError.INVALID_SHAPE, "not a JSON object")
            failed = unread(self._position, no_object, frame, event, self.diagnostics)
            return [] if failed is None else self._fail(failed)
        return self._dispatch(read_lenient(ChatOutput, value, self.diagnostics), frame, event, value)

    @property
    def _position(self) -> int:
        """The number of the newest frame."""
        return self._frames + self.template.fed

    def _dispatch(self, output: ChatOutput, data: bytes, event: str, value: Any = None) -> list[Event]:
        events: list[Event] = []
        try:
            self._read(output, events)
            choices = output.choices
            ends = not choices or choices[0].finish_reason or choices[-1].finish_reason
            if ends and self._said != self._frames:  # it may have more fields than deltas do
                self._said = self._frames
                self._keep_said(data, value)
            if output.x_groq is not None and output.x_groq.error:
                events += self._fail(payload_of(output.x_groq.error, CHAT))
            elif (
                output.error
                or (output.base_resp and has_failed(output.base_resp))
                or not (output.choices or output.usage or output.x_groq)
            ):
                events += self._without_answer(output, decode_frame(data) if value is None else value, event)
        except BridgeError as error:
            # the machine refused what the frames mean, which is the upstream's failure
            events += self._fail(error)
        return events

    def _read(self, output: ChatOutput, events: list[Event]) -> None:
        numbers: set[int] = set()
        for position, choice in enumerate(output.choices or ()):
            number = position if choice.index is None else choice.index
            if number == self._number and number not in numbers:
                numbers.add(number)
                self._read_choice(choice, events)
            elif self._choice is None:
                self._keep_other(choice, max(number, position))
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
            if choice.text:
                self._read_text(choice.text, choice.delta, choice, events)
            if choice.finish_reason and isinstance(choice.delta.content, str):
                self._last = choice.delta.content
        elif choice.message is not None:
            self._read_message(choice.message, choice, events)
            if choice.text:
                self._read_text(choice.text, choice.message, choice, events)
        elif choice.text:
            self._deltas.delta(ChatDelta(content=choice.text), None, events)
        if choice.usage is not None:
            self._record_usage(choice.usage)
        if choice.error:
            self._finish.failure = payload_of(choice.error, CHAT)
        if choice.finish_reason:
            self._finish.record(choice.finish_reason)

    def _read_text(self, text: str, beside: ChatDelta, choice: ChatChoice, events: list[Event]) -> None:
        """Read the `text` of completions from before Chat, beside a delta or a message, which it repeats
        unless they are empty."""
        if beside.content or (choice.finish_reason and text_of_messages(self.own_output).endswith(text)):
            self.diagnostics.ignored("choices.text", "beside a delta")
        else:
            self._deltas.delta(ChatDelta(content=text), None, events)

    def _read_message(self, message: ChatDelta, choice: ChatChoice, events: list[Event]) -> None:
        if self._message is None and not self._deltas.has_output:
            self._whole, self._pieces = True, not choice.finish_reason
            self._deltas.message(message, choice.logprobs, events)
        elif not self._pieces or self._finish.reason is not None or self._is_repeated(message, choice):
            self._message = message  # after deltas it repeats them
        else:
            self._whole = False
            self.diagnostics.repair("message", "came in the place of a delta")
            self._deltas.delta(message, choice.logprobs, events)

    def _look_for_repetition(self) -> None:
        """Report if the last piece of a text may repeat all of it, or each of its pieces all before it; only
        the options can decide that. Checked once, since reading the text costs its size."""
        first, second = self._deltas.repeated or ("", "")
        if not second and len(self._last) < _LONG_PIECE:
            return
        text = text_of_messages(self.own_output)
        whole_again = len(self._last) >= _LONG_PIECE and text == self._last + self._last
        if whole_again or (second and text.startswith(first + second + second)):
            self.diagnostics.warning("content", REPEATED)

    def _is_repeated(self, message: ChatDelta, choice: ChatChoice) -> bool:
        return bool(choice.finish_reason) and _repeats(message, self.own_output)

    def _keep_other(self, choice: ChatChoice, number: int) -> None:
        """Keep a choice after the first one, though one was asked for: some servers divide one answer among
        choices."""
        others = self._others
        known = others is not None and (number in others or len(others) < _MOST_CHOICES)
        if others is not None and known and self._other_pieces < _MOST_OTHERS:
            others.setdefault(number, []).append(choice)
            self._other_pieces += 1
        else:
            self._others = None
            self.diagnostics.loss("choices", f"choice {number} of n, only the first is kept")

    def _join_others(self, others: dict[int, list[ChatChoice]], events: list[Event]) -> None:
        """Add another choice to the answer if it has the text or the calls and the first one has none."""
        has_calls, has_text = self._deltas.has_calls, self._deltas.has_text
        for number, other in sorted(others.items()):
            parts = [part for each in other if (part := each.delta or each.message) is not None]
            called = any(part.tool_calls or part.function_call for part in parts)
            said = any(part.content for part in parts)
            if (called and has_calls) or (said and has_text) or not (called or said):
                self.diagnostics.loss("choices", f"choice {number} of n, only the first is kept")
            else:
                self._join_other(other, events)

    def _join_other(self, other: list[ChatChoice], events: list[Event]) -> None:
        self.diagnostics.repair("choices", "one answer came in several, joined")
        for choice in other:
            if choice.delta is not None:
                self._deltas.delta(choice.delta, None, events)
            elif choice.message is not None:
                self._deltas.message(choice.message, None, events)
            if choice.finish_reason and self._finish.reason is None:
                self._finish.record(choice.finish_reason)
        events += self._deltas.close()

    def _read_deferred_message(self, message: ChatDelta) -> list[Event]:
        """Read the message that came beside deltas; it repeats them, unless there were none."""
        self._message = None
        events: list[Event] = []
        if not self._deltas.has_output:
            self._deltas.message(message, None, events)
        elif _repeats(message, self.own_output):
            self.diagnostics.ignored("message", "repeats the deltas")
        else:
            self.diagnostics.loss("message", "differs from the deltas, which are kept")
        return events

    def _keep_said(self, data: bytes, value: Any = None) -> None:
        """Keep the further fields of a frame, for clients of this API."""
        fields: dict[str, Any] = {}
        try:
            head = head_of(data)
            model, tier = head.model, head.service_tier
        except UNDECODABLE:
            frame = decode_frame(data) if value is None else value
            if not isinstance(frame, dict) or frame.get("error"):
                return
            fields = said_by(frame, self._number)
            model, tier = frame.get("model"), frame.get(TIER)
        if tier is not None and tier != self._tier:
            self._tier = fields[TIER] = tier
            self._machine.report_names(model, tier)
        elif not self._live:
            self._machine.report_names(model)
        if fields:
            self._machine.native(CHAT, fields)

    def _without_answer(self, output: ChatOutput, frame: dict[str, Any], event: str) -> list[Event]:
        """Read a frame that may be an error, or contain one."""
        if error_in_frame(frame, event) is not None:
            return self._fail(payload_of(frame, CHAT))
        if output.choices is None and output.usage is None and output.x_groq is None:
            self.diagnostics.ignored("frame", "no choices, usage or error in it")
        return []

    def _end(self, said_done: bool) -> list[Event]:
        events: list[Event] = []
        finish = self._finish
        try:
            events += self._deltas.close()
            if self._message is not None:
                events += self._read_deferred_message(self._message)
            if self._others:
                self._join_others(self._others, events)
            if self._last or self._deltas.repeated is not None:
                self._look_for_repetition()
            if finish.failure is None and finish.reason is None:
                finish.conclude(said_done, self._position, self._deltas.has_output)
            if finish.failure is not None:
                return events + self._fail(finish.failure)
            if self._usage is not None:
                self._report_usage(self._usage)
            if self._deltas.sources is not None or self._deltas.audio is not None:
                self._send_behind(finish.reason, events)
            if not (is_known := outcome(finish.reason)[1]) or self._deltas.refused:
                self._keep_end(finish.reason, is_known)
            events += self._machine.end_nameless()
            events += self._machine.finish(finish.reason)
            self._mark_ended()
        except BridgeError as error:
            # the machine refused what the frames mean, which is the upstream's failure
            events += self._fail(error)
        return events

    def _keep_end(self, reason: str | None, is_known: bool) -> None:
        """Keep the further fields of the choice's end for clients of this API."""
        fields: dict[str, Any] = {}
        if self._deltas.refused:
            fields[REFUSED_TOKENS] = msgspec.to_builtins(self._deltas.refused)
        if not is_known:
            fields[FINISH_REASON] = reason
        self._machine.native(CHAT, {CHOICE: fields})

    def _send_behind(self, reason: str | None, events: list[Event]) -> None:
        """Send the items that come after everything else; none may come after an answer that was cut off."""
        if outcome(reason)[0] is None:
            for item in self._deltas.items_behind():
                events += self._machine.item(item)
        elif self._deltas.audio is not None:
            self.diagnostics.loss("message.audio", "was cut off")

    def _record_usage(self, usage: ChatUsage) -> None:
        if self._usage is not None and not (
            (usage.prompt_tokens or usage.input_tokens) and (usage.completion_tokens or usage.output_tokens)
        ):
            self._report_usage(self._usage)  # what this one leaves out was counted before
        self._usage = usage

    def _report_usage(self, usage: ChatUsage) -> None:
        self._machine.usage(counted(usage_of(usage, self.diagnostics), self.diagnostics))

    def _fail(self, error: ErrorPayload | BridgeError) -> list[Event]:
        self._mark_ended()
        if self._machine.phase in TERMINAL_PHASES:
            self.diagnostics.ignored("frame", "came after the response had ended")
            return []
        events = self.flush()
        if self._usage is not None:
            self._report_usage(self._usage)
        return events + self._machine.fail(error)

    def flush(self) -> list[Event]:
        try:
            return self._deltas.close()
        except BridgeError:
            return []  # what was refused before is refused again


def _repeats(message: ChatDelta, sent: Sequence[Item]) -> bool:
    """Return True if a message only repeats what was sent. The beginning of its text may have been sent as
    reasoning."""
    text = message.content if isinstance(message.content, str) else ""
    sent_text = text_of_messages(sent)
    if text and not (sent_text and text.endswith(sent_text)):
        return False
    return not message.tool_calls or any(isinstance(item, _CALLS) for item in sent)

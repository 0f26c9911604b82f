"""`PartDecoder`: converts a Responses stream to VS Code's language-model parts (RFC 00022).

A table maps each event to its handler; the modules for prose, thinking, tool calls and endings do the work.
Unknown events are ignored and reported once per type.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping
from inspect import isawaitable
from typing import Any, Final, Literal, Protocol

from openresponses_bridge.calls.aggregator import MAX_ARGUMENT_BYTES
from openresponses_bridge.decoder.finish import (
    PREMATURE_END,
    FinishReason,
    PartResult,
    Terminal,
    ending_of,
    error_of,
    marker_part,
    usage_part,
)
from openresponses_bridge.decoder.parts import LanguageModelTextPart, Part
from openresponses_bridge.decoder.prose import BREAK, ModeSwitch, ProseDecoder
from openresponses_bridge.decoder.thinking import (
    CONTENT,
    SUMMARY,
    ImageDecoder,
    ThinkingDecoder,
    ThinkingPolicy,
)
from openresponses_bridge.decoder.tool_calls import CALL_ID_PREFIX, CallIdSource, ToolCallDecoder
from openresponses_bridge.errors import RemoteError, ToolError
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol import items as it
from openresponses_bridge.protocol.codec import event_of, normalized
from openresponses_bridge.protocol.content import ReasoningTextContent, SummaryTextContent
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.response import Response, ResponseError
from openresponses_bridge.protocol.unknown import UnknownEvent, UnknownItem
from openresponses_bridge.text import is_whole, repair_surrogates

# A stream of parts also closes what is open before anything else starts, reports each error once, and sends
# what only the final response has.


class PartStream:
    """The parts of one response, until `_ended`."""

    result: PartResult
    _flow: ModeSwitch
    _prose: ProseDecoder
    _thinking: ThinkingDecoder
    _images: ImageDecoder
    _calls: ToolCallDecoder
    _reported: tuple[str, ...]
    _model: str | None
    _ended = False

    def _record_identity(self, response: Response) -> None:
        self.result.response_id = response.id or self.result.response_id
        self.result.model = response.model or self.result.model

    def _feed_calls(self, method: Callable[..., list[Part]], *args: Any) -> list[Part]:
        """Close what is open and return the parts of the calls. Arguments above the limit end the stream."""
        try:
            parts = method(*args)
        except ToolError as error:
            return self._overflow(error)
        return self._flow.close() + parts if parts else parts

    def _overflow(self, error: ToolError) -> list[Part]:
        return self._end("error", self._fail(ResponseError(error.code, error.message)))

    def _finished(self, output_index: int, item: it.Item | None) -> list[Part]:
        """Return the parts of a finished item that were not sent before."""
        if isinstance(item, it.Message):
            return self._prose.item_done(output_index, item)
        if isinstance(item, it.ReasoningItem):
            return self._thinking.item_done(output_index, item)
        if isinstance(item, UnknownItem):
            return self._hosted(output_index, item)
        if isinstance(item, _PARTLESS):
            self.result.diagnostics.loss(item.type, "VS Code has no part for it, not shown")
        return self._feed_calls(self._calls.item_done, output_index, item)

    def _hosted(self, output_index: int, item: UnknownItem) -> list[Part]:
        if item.type.endswith("mcp_approval_request"):
            self.result.diagnostics.loss("mcp_approval_request", "VS Code can't answer it, not shown")
        images = self._images.item_done(output_index, item)
        return self._flow.close() + images if images else images

    def _remaining(self, response: Response, completed: bool) -> list[Part]:
        """Return the parts that only the final response has: calls if it is completed; text and reasoning if
        none were streamed, since their positions there need not be output indexes."""
        missing = {
            it.Message: self._prose.is_empty,
            it.ReasoningItem: self._thinking.is_empty,
            UnknownItem: True,
        }
        parts: list[Part] = []
        for position, item in enumerate(response.output):
            if self._ended:
                return parts  # it held more arguments than a call may have
            if type(item) in missing:
                parts += self._finished(position, item) if missing[type(item)] else []
            elif completed:
                parts += self._feed_calls(self._calls.final, position, item)
        return parts + self._feed_calls(
            self._calls.flush if completed and not response.output else self._calls.drain_waiting
        )

    def _fail(self, error: ResponseError) -> list[Part]:
        """Report an error, once."""
        if self.result.error is not None:
            return []
        self.result.error = error
        return self._feed_calls(self._calls.drain_waiting) + self._report(
            "Error", error.message or "The model's server reported an error."
        )

    def _report(self, kind: str, message: str) -> list[Part]:
        return self._line(kind, message) if kind in self._reported else []

    def _line(self, kind: str, message: str) -> list[Part]:
        parts = self._flow.close()
        before = BREAK if self._flow.text_written else ""
        return [*parts, LanguageModelTextPart(f"{before}**{kind}:** {repair_surrogates(message)}")]

    def _data(self, response: Response, completed: bool) -> list[Part]:
        """Return the closing data parts: usage and, if the response is stored, the marker with which to
        continue."""
        parts: list[Part] = []
        if response.usage is not None:
            self.result.usage = response.usage
            parts.append(usage_part(response.usage))
        model = self._model or self.result.model
        if completed and model and response.id and response.store:
            self.result.stateful_marker = response.id
            if "\\" in model + response.id or not is_whole(model + response.id):
                self.result.diagnostics.loss("stateful_marker", "can't contain this model or id, not sent")
            else:
                parts.append(marker_part(model, response.id))
        return parts

    def _end(self, reason: FinishReason, parts: list[Part]) -> list[Part]:
        """End the stream: close what is open, then send `parts`."""
        self.result.finish_reason = reason
        self._ended = True
        self._calls.clear()
        return self._flow.close() + parts


_PARTLESS = (it.CompactionItem, it.ShellCall, it.LocalShellCall, it.ApplyPatchCall)


Handler = Callable[["PartDecoder", Any], list[Part]]
ErrorPolicy = Literal["text", "notes", "none"]
# the last events that are recognised again: as many as a reader that resumes too early may get twice
_KNOWN_AGAIN: Final = 32
NO_RESPONSE: Final = "No response received: the model ended without text and without a tool call."
UNREADABLE_CALL: Final = "The model called a tool with arguments that are not JSON, so it was not run."
_REPORTED: Final[dict[ErrorPolicy, tuple[str, ...]]] = {
    "text": ("Error", "Note"),
    "notes": ("Note",),
    "none": (),
}


class PartDecoder(PartStream):
    """Decodes one response. `feed` returns the parts that an event completes, `close` ends the stream; after
    a terminal event, a `cancel` or a `close` no more parts are returned.

    - `thinking`: reasoning as thinking parts, as text, or not at all.
    - `call_id_prefix`: put before every tool-call id; `strip_call_id` takes it off again.
    - `call_id_source`: whether a call goes by its `call_id` or its item's id.
    - `custom_tools`: custom tool calls become tool calls with `{"input": text}`; otherwise they are lost.
    - `citations`: URL citations as inline links, or not at all.
    - `errors`: whether a line of text for the user ends failed and incomplete responses, incomplete ones only
      (`notes`), or neither: both are then in `result` only. A completed response of which no call could be
      read counts as incomplete.
    - `no_response`: a completed response without text, call or image ends with a line of text that says so.
    - `paragraph_breaks`: a blank line where text continues in another output item.
    - `include_encrypted_thinking`: encrypted reasoning as metadata of a thinking part.
    - `max_argument_bytes`: limit of the arguments of one call. Larger ones end the stream with the error
      `bridge.tools.arguments_too_large`.
    - `repair`: arguments that are not JSON are repaired where json-repair is installed, and recorded so.
    - `model`: the name in the stateful marker; by default the model that the response names.
    - `trace`: called with each event and the kinds of the parts it gave, never with content.

    An event that comes again under its sequence number, as after an interruption, is not read again.
    """

    def __init__(
        self,
        thinking: ThinkingPolicy = "part",
        call_id_prefix: str = CALL_ID_PREFIX,
        *,
        call_id_source: CallIdSource = "call_id",
        custom_tools: bool = True,
        citations: Literal["link", "drop"] = "link",
        errors: ErrorPolicy = "text",
        no_response: bool = False,
        paragraph_breaks: bool = False,
        include_encrypted_thinking: bool = False,
        max_argument_bytes: int = MAX_ARGUMENT_BYTES,
        repair: bool = False,
        model: str | None = None,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self.result = PartResult()
        diagnostics = self.result.diagnostics
        self._flow = ModeSwitch(paragraph_breaks)
        self._prose = ProseDecoder(self._flow, diagnostics, citations == "link")
        self._thinking = ThinkingDecoder(self._flow, diagnostics, thinking, include_encrypted_thinking)
        self._images = ImageDecoder(diagnostics)
        self._calls = ToolCallDecoder(
            diagnostics,
            prefix=call_id_prefix,
            id_source=call_id_source,
            custom=custom_tools,
            max_argument_bytes=max_argument_bytes,
            repair=repair,
        )
        self._reported = _REPORTED[errors]
        self._highest = -1  # sequence number
        self._recent: list[Event | None] = [None] * _KNOWN_AGAIN  # by sequence number
        self._names_silence = no_response
        self._model = model
        self._trace = trace

    def feed(self, event: Event | Mapping[str, Any]) -> list[Part]:
        """Return the parts that this event completes, in order. The event is a struct or its JSON object;
        anything else raises TypeError. The content of an event never raises."""
        read: Any = event
        handler = None if self._ended else _HANDLERS.get(type(read))
        if handler is None:
            read = event_of(event)
            handler = None if self._ended else _HANDLERS.get(type(read))
        number = read.sequence_number
        if number > self._highest:
            self._highest = number
            self._recent[number % _KNOWN_AGAIN] = read
        elif number > 0 and self._recent[number % _KNOWN_AGAIN] == read:
            self.result.diagnostics.repair("sequence_number", "seen before, the event is not read again")
            return []
        if self._trace is not None:
            return self._traced(read, handler)
        return [] if handler is None else handler(self, read)

    def close(self) -> list[Part]:
        """End the stream. Without a terminal event before, that is an error (field case 26)."""
        if self._ended:
            return []
        if self.result.error is not None:
            return self._end("error", self._feed_calls(self._calls.drain_waiting))
        cut = ResponseError(PREMATURE_END, "The stream ended before the response was complete.")
        return self._end("error", self._fail(cut))

    def cancel(self) -> None:
        """Cancel for the user: no more parts are returned, and errors are not reported. Does nothing after
        the end."""
        if not self._ended:
            self._end("cancelled", [])

    def fail(self, error: ResponseError) -> list[Part]:
        """End the stream with an error that occurred while it was read, like an `error` event and the end of
        the stream."""
        return [] if self._ended else self._end("error", self._fail(error))

    def _traced(self, event: Any, handler: Handler | None) -> list[Part]:
        parts = [] if handler is None else handler(self, event)
        summary = ", ".join(part.type for part in parts)
        assert self._trace is not None
        self._trace(f"{event.sequence_number} {event.type} -> {summary or 'nothing'}")
        return parts

    def _lifecycle(self, event: ev.ResponseCreated) -> list[Part]:
        self._record_identity(event.response)
        self._calls.tools = event.response.tools
        return []

    def _text_delta(self, event: ev.OutputTextDelta) -> list[Part]:
        delta = event.delta
        flow = self._flow
        if (
            event.output_index == flow.output_index
            and event.content_index == flow.content_index
            and delta
            and (delta.isascii() or is_whole(delta))
        ):
            return [LanguageModelTextPart(delta)]  # continues where the last delta ended
        return self._prose.text(event.output_index, event.content_index, delta)

    def _text_done(self, event: ev.OutputTextDone) -> list[Part]:
        return self._prose.text_done(event.output_index, event.content_index, event.text)

    def _refusal_delta(self, event: ev.RefusalDelta) -> list[Part]:
        return self._prose.refusal(event.output_index, event.content_index, event.delta)

    def _refusal_done(self, event: ev.RefusalDone) -> list[Part]:
        return self._prose.refusal_done(event.output_index, event.content_index, event.refusal)

    def _annotation(self, event: ev.OutputTextAnnotationAdded) -> list[Part]:
        return self._prose.annotation(event.output_index, event.annotation)

    def _reasoning_delta(self, event: ev.ReasoningDelta) -> list[Part]:
        section = (event.output_index, CONTENT, event.content_index)
        return self._thinking.delta(section, event.item_id, event.delta)

    def _reasoning_done(self, event: ev.ReasoningDone) -> list[Part]:
        section = (event.output_index, CONTENT, event.content_index)
        return self._thinking.done(section, event.item_id, event.text)

    def _summary_delta(self, event: ev.ReasoningSummaryTextDelta) -> list[Part]:
        section = (event.output_index, SUMMARY, event.summary_index)
        return self._thinking.delta(section, event.item_id, event.delta)

    def _summary_done(self, event: ev.ReasoningSummaryTextDone) -> list[Part]:
        section = (event.output_index, SUMMARY, event.summary_index)
        return self._thinking.done(section, event.item_id, event.text)

    def _summary_part_done(self, event: ev.ReasoningSummaryPartDone) -> list[Part]:
        section = (event.output_index, SUMMARY, event.summary_index)
        text = event.part.text if isinstance(event.part, SummaryTextContent) else ""
        return self._thinking.summary_part_done(section, event.item_id, text)

    def _part_done(self, event: ev.ContentPartDone) -> list[Part]:
        if isinstance(event.part, ReasoningTextContent):
            section = (event.output_index, CONTENT, event.content_index)
            return self._thinking.done(section, event.item_id, event.part.text)
        return self._prose.part_done(event.output_index, event.content_index, event.part)

    def _item_added(self, event: ev.OutputItemAdded) -> list[Part]:
        if isinstance(event.item, it.ReasoningItem):
            self._thinking.added(event.output_index, event.item)
        return self._feed_calls(self._calls.added, event.output_index, event.item)

    def _item_done(self, event: ev.OutputItemDone) -> list[Part]:
        return self._finished(event.output_index, event.item)

    def _call_delta(self, event: ev.FunctionCallArgumentsDelta) -> list[Part]:
        try:
            return self._calls.delta(event.output_index, event.item_id, event.delta)
        except ToolError as error:
            return self._overflow(error)

    def _arguments_done(self, event: ev.FunctionCallArgumentsDone) -> list[Part]:
        return self._feed_calls(
            self._calls.arguments_done, event.output_index, event.item_id, event.arguments
        )

    def _input_done(self, event: ev.CustomToolCallInputDone) -> list[Part]:
        return self._feed_calls(self._calls.arguments_done, event.output_index, event.item_id, event.input)

    def _error(self, event: ev.ErrorEvent) -> list[Part]:
        return self._fail(error_of(event.payload))

    def _terminal(self, event: Terminal) -> list[Part]:
        self._record_identity(event.response)
        self._calls.tools = event.response.tools or self._calls.tools
        reason, note, error = ending_of(event)
        completed = reason == "stop"
        parts = self._remaining(event.response, completed)
        if self._ended:
            return parts
        if error is not None:
            parts += self._fail(error)
        if note is not None:
            parts += self._report("Note", note)
        if completed and self._calls.any_emitted:
            reason = "tool-calls"
        elif completed and self._calls.any_unreadable:
            parts += self._report("Note", UNREADABLE_CALL)
        elif completed and self._names_silence and not (self._flow.text_written or self._images.any_shown):
            parts += self._line("Error", NO_RESPONSE)
        return parts + self._end(reason, self._data(event.response, completed))

    def _unknown(self, event: UnknownEvent) -> list[Part]:
        known = normalized(event)
        if known is not None:
            return _HANDLERS[type(known)](self, known)
        self.result.diagnostics.ignored(event.type[:80], "unknown event")
        return []


_HANDLERS: dict[type[Any], Handler] = {
    ev.ResponseCreated: PartDecoder._lifecycle,
    ev.ResponseQueued: PartDecoder._lifecycle,
    ev.ResponseInProgress: PartDecoder._lifecycle,
    ev.ResponseCompleted: PartDecoder._terminal,
    ev.ResponseIncomplete: PartDecoder._terminal,
    ev.ResponseFailed: PartDecoder._terminal,
    ev.OutputItemAdded: PartDecoder._item_added,
    ev.OutputItemDone: PartDecoder._item_done,
    ev.ContentPartDone: PartDecoder._part_done,
    ev.OutputTextDelta: PartDecoder._text_delta,
    ev.OutputTextDone: PartDecoder._text_done,
    ev.OutputTextAnnotationAdded: PartDecoder._annotation,
    ev.RefusalDelta: PartDecoder._refusal_delta,
    ev.RefusalDone: PartDecoder._refusal_done,
    ev.ReasoningDelta: PartDecoder._reasoning_delta,
    ev.ReasoningTextDelta: PartDecoder._reasoning_delta,
    ev.ReasoningDone: PartDecoder._reasoning_done,
    ev.ReasoningTextDone: PartDecoder._reasoning_done,
    ev.ReasoningSummaryTextDelta: PartDecoder._summary_delta,
    ev.ReasoningSummaryTextDone: PartDecoder._summary_done,
    ev.ReasoningSummaryPartDone: PartDecoder._summary_part_done,
    ev.FunctionCallArgumentsDelta: PartDecoder._call_delta,
    ev.FunctionCallArgumentsDone: PartDecoder._arguments_done,
    ev.CustomToolCallInputDelta: PartDecoder._call_delta,
    ev.CustomToolCallInputDone: PartDecoder._input_done,
    ev.ErrorEvent: PartDecoder._error,
    UnknownEvent: PartDecoder._unknown,
}


StreamResult = PartResult
"""What a stream reported in addition to its parts."""


class Progress(Protocol):
    """VS Code's `Progress<LanguageModelResponsePart>`. What `report` returns is awaited if it can be."""

    def report(self, value: Part, /) -> object: ...


class Cancellation(Protocol):
    """A flag that is set when the user has cancelled, such as `asyncio.Event` and `anyio.Event`."""

    def is_set(self) -> bool: ...

    async def wait(self) -> Any: ...


async def process_stream(
    events: AsyncIterable[Event | Mapping[str, Any]],
    progress: Progress,
    cancel: Cancellation | None = None,
    *,
    decoder: PartDecoder | None = None,
) -> StreamResult:
    """Report the parts of one response as they are completed. Returns the stream's further facts.

    After `cancel` nothing is reported. An exception from `events` is raised here if nothing was reported yet;
    otherwise it ends the parts as a failure does. `decoder` has options of its own; the default one reports a
    response without any output.
    """
    decoder = PartDecoder(no_response=True) if decoder is None else decoder
    reported = False
    try:
        async for event in events:
            if cancel is not None and cancel.is_set():
                break
            for part in decoder.feed(event):
                reported = True
                await _report(progress, part)
    except RemoteError as error:
        if not reported:
            raise
        for part in decoder.fail(ResponseError(error.code, error.message)):
            await _report(progress, part)
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()
    if cancel is not None and cancel.is_set():
        decoder.cancel()
    for part in decoder.close():
        await _report(progress, part)
    return decoder.result


async def _report(progress: Progress, part: Part) -> None:
    taken = progress.report(part)
    if isawaitable(taken):
        await taken

"""Converts OpenResponses events to Copilot's callback chunks and completions.

The order is that of Copilot's own reader of chat streams: the first tool call is announced, after a blank if
there was text; its arguments are sent as they grow; all calls are sent whole in one chunk at the end of the
choice.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import msgspec

from openresponses_bridge.calls.json_input import INPUT_KEY
from openresponses_bridge.calls.unwrap import wrap_input
from openresponses_bridge.decoder.tool_calls import unique_call_id
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import report_native
from openresponses_bridge.dialects.copilot.types import (
    FIELD_OF_EVENT,
    BeginToolCall,
    CallbackChunk,
    Chunk,
    CopilotError,
    FinishedCompletion,
    FinishedCompletionReason,
    FunctionCall,
    RequestId,
    ResponseDelta,
    Solution,
    TextAccumulator,
    Thinking,
    ToolCall,
    ToolCallUpdate,
)
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol import items as it
from openresponses_bridge.protocol.content import UrlCitation
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.items import CustomToolCall
from openresponses_bridge.protocol.items import FunctionCall as FunctionCallItem
from openresponses_bridge.protocol.response import ErrorPayload, Response, ResponseError
from openresponses_bridge.protocol.unknown import UnknownEvent
from openresponses_bridge.protocol.usage import Usage

AGENT = "openai"

# why a response is incomplete → Copilot's reason, else LENGTH with a loss: Copilot treats any other as an
# error and drops the text
_INCOMPLETE = {
    "max_output_tokens": FinishedCompletionReason.LENGTH,
    "content_filter": FinishedCompletionReason.CONTENT_FILTER,
    "cancelled": FinishedCompletionReason.CLIENT_TRIMMED,
}


def error_of(error: ErrorPayload | ResponseError) -> CopilotError:
    """Return an error in Copilot's form; one without a code is `unknown`."""
    param = error.param if isinstance(error, ErrorPayload) else None
    return CopilotError("error", error.code or "unknown", error.message, AGENT, param)


def usage_of(usage: Usage | None) -> dict[str, Any] | None:
    """Return the usage as APIUsage: the three totals, and details that are not 0."""
    if usage is None:
        return None
    counts: dict[str, Any] = {
        "completion_tokens": usage.output_tokens,
        "prompt_tokens": usage.input_tokens,
        "total_tokens": usage.total_tokens,
    }
    if usage.input_tokens_details.cached_tokens:
        counts["prompt_tokens_details"] = {"cached_tokens": usage.input_tokens_details.cached_tokens}
    if usage.output_tokens_details.reasoning_tokens:
        reasoning = usage.output_tokens_details.reasoning_tokens
        counts["completion_tokens_details"] = {"reasoning_tokens": reasoning}
    return counts


def reason_of(
    response: Response, called: FinishedCompletionReason | None, diagnostics: Diagnostics
) -> FinishedCompletionReason:
    """Return `called` or stop for a completed response, else the reason why it is incomplete."""
    if response.status == "completed":
        return called or FinishedCompletionReason.STOP
    if response.status == "cancelled":
        return FinishedCompletionReason.CLIENT_TRIMMED
    if response.status == "failed":
        return FinishedCompletionReason.SERVER_ERROR
    details = response.incomplete_details
    reason = details.reason if details is not None else ""
    if reason not in _INCOMPLETE:
        diagnostics.loss("reason", f"incomplete for {reason[:64] or 'no reason'}, reported as length")
    return _INCOMPLETE.get(reason, FinishedCompletionReason.LENGTH)


def completion_of(
    response: Response,
    pieces: list[str],
    index: int,
    calls: list[ToolCall],
    legacy: bool,
    diagnostics: Diagnostics,
) -> FinishedCompletion:
    """Return the completion of a response that has ended, with its whole calls; with `legacy`, the first one
    as `function_call`."""
    error = response.error
    whole_calls = calls if response.status == "completed" else []
    function = FunctionCall(whole_calls[0].name, whole_calls[0].arguments) if whole_calls and legacy else None
    called = FinishedCompletionReason.FUNCTION_CALL if legacy else FinishedCompletionReason.TOOL_CALLS
    return FinishedCompletion(
        Solution(list(pieces), []),
        reason_of(response, called if whole_calls else None, diagnostics),
        RequestId(response.id, response.created_at),
        index,
        usage_of(response.usage),
        None if error is None else {"code": error.code, "message": error.message},
        None if legacy else whole_calls or None,
        function,
    )


def interrupted(pieces: list[str], response: Response | None, index: int) -> FinishedCompletion:
    """Return the completion of a stream that was cut off."""
    origin = RequestId("", 0) if response is None else RequestId(response.id, response.created_at)
    reason = FinishedCompletionReason.CLIENT_ITERATION_DONE
    return FinishedCompletion(Solution(list(pieces), []), reason, origin, index)


# The tool calls of one choice for Copilot, which gets them whole and all at once.

AnyCall = FunctionCallItem | CustomToolCall
_BEGIN_INPUT = f'{{"{INPUT_KEY}":"'
_END_INPUT = '"}'


def arguments_of(item: AnyCall) -> str:
    """Return the JSON text of a call's arguments; free text is under `input`."""
    if isinstance(item, CustomToolCall):
        return wrap_input(item.input)
    return item.arguments


class OutgoingCalls:
    """Calls by output index, announced, growing and whole. Calls that never become whole are never sent
    (field case 25)."""

    __slots__ = ("_growing", "_open", "_seen", "_whole")

    def __init__(self) -> None:
        self._open: dict[int, AnyCall] = {}
        self._growing: dict[int, TextAccumulator] = {}
        self._seen: set[tuple[str, str, str]] = set()
        self._whole: dict[str, ToolCall] = {}

    def __len__(self) -> int:
        return len(self._whole)

    def begin(self, output_index: int, item: AnyCall) -> BeginToolCall | None:
        """Return Copilot's announcement of a call: for the first one only, to show that tools follow."""
        first = not self._open and not self._whole
        self._open[output_index] = item
        return BeginToolCall(item.name, item.call_id) if first else None

    def append(self, output_index: int, delta: str) -> ToolCallUpdate | None:
        """Return the arguments so far; None for a call that was not announced."""
        item = self._open.get(output_index)
        if item is None:
            return None
        text = self._growing.get(output_index)
        if text is None:
            text = self._growing[output_index] = TextAccumulator()
        return ToolCallUpdate(item.name, text.add(delta), item.call_id)

    def json_delta(self, output_index: int, delta: str) -> str:
        """Return the next piece of a custom tool's input, as part of the JSON that has it."""
        begun = output_index in self._growing
        return ("" if begun else _BEGIN_INPUT) + json.dumps(delta, ensure_ascii=False)[1:-1]

    def json_end(self, output_index: int) -> str:
        """Return the end of that JSON; empty if none of it was sent."""
        return _END_INPUT if output_index in self._growing else ""

    def end(self, output_index: int, item: AnyCall) -> None:
        """Handle the end of a call's item."""
        self._growing.pop(output_index, None)  # frees the text, which the whole call has too
        self.finish(item)

    def finish(self, item: AnyCall) -> None:
        """Add a whole call, once, whichever event had it. Another call with a call id in use gets an id of
        its own."""
        facts = item.name, arguments_of(item), item.call_id
        if item.status != "incomplete" and facts not in self._seen:
            self._seen.add(facts)
            call_id = unique_call_id(item.call_id, set(self._whole))
            self._whole[call_id] = ToolCall(item.name, facts[1], call_id)

    def all(self) -> list[ToolCall]:
        """Return the whole calls, in order."""
        return list(self._whole.values())


CALL_ITEMS = (it.FunctionCall, it.CustomToolCall)
BREAK = "\n\n"  # between two parts of one reasoning
SUMMARY_PART_DONE = {"vscode_reasoning_summary_part_done": True}


class Outbound:
    """One choice of one response.

    - `index`: the choice's number.
    - `opening`: send an empty delta first, as upstreams do whose first chunk has only the role.
    - `stateful_marker`: send the response's id as the marker that the next request continues from.
    - `legacy_functions`: send calls in the older `function_call` form.
    - `separator`: stands between the texts of two messages.
    """

    def __init__(
        self,
        index: int = 0,
        opening: bool = False,
        stateful_marker: bool = False,
        legacy_functions: bool = False,
        separator: str = "",
    ) -> None:
        self.diagnostics = Diagnostics()
        self._index = index
        self._opening = opening
        self._marker = stateful_marker
        self._legacy = legacy_functions
        self._separator = separator
        self._text = TextAccumulator()
        self._calls = OutgoingCalls()
        self._response: Response | None = None
        self._sent_error: CopilotError | None = None
        self._ended = False
        self._spoken: tuple[int, int] | None = None
        self._thought: dict[str, tuple[str, int]] = {}  # item id → the part with its last text

    def feed(self, event: Event) -> list[Chunk]:
        """Return the chunks of one event; none for events that Copilot has no field for."""
        handler = _HANDLERS.get(type(event))
        return [] if handler is None else handler(self, event)

    def close(self) -> list[Chunk]:
        """End the stream; without a terminal event it ends as for Copilot's reader, with `Iteration Done`."""
        if self._ended:
            return []
        self._ended = True
        return [interrupted(self._text.pieces, self._response, self._index)]

    def _chunk(self, text: str = "", **fields: Any) -> list[Chunk]:
        so_far = self._text.add(text) if text else self._text.current()
        return [CallbackChunk(so_far, self._index, ResponseDelta(text, **fields))]

    def _on_created(self, event: Any) -> list[Chunk]:
        self._response = event.response
        return []

    def _on_text(self, event: ev.OutputTextDelta) -> list[Chunk]:
        before = self._begin_text(event.output_index, event.content_index)
        if event.logprobs:
            content = msgspec.to_builtins(event.logprobs)
            return before + self._chunk(event.delta, logprobs={"content": content})
        return before + self._chunk(event.delta)

    def _begin_text(self, output_index: int, content_index: int) -> list[Chunk]:
        if self._spoken == (output_index, content_index):
            return []
        previous, self._spoken = self._spoken, (output_index, content_index)
        if previous is None:
            return self._chunk() if self._opening else []
        apart = self._separator and previous[0] != output_index
        return self._chunk(self._separator) if apart else []

    def _on_text_done(self, event: ev.OutputTextDone) -> list[Chunk]:
        # servers that send no deltas have it here
        if self._spoken == (event.output_index, event.content_index) or not event.text:
            return []
        return self._begin_text(event.output_index, event.content_index) + self._chunk(event.text)

    def _on_refusal(self, event: ev.RefusalDelta) -> list[Chunk]:
        self.diagnostics.loss("refusal", "sent as text")
        return self._begin_text(event.output_index, event.content_index) + self._chunk(event.delta)

    def _on_annotation(self, event: ev.OutputTextAnnotationAdded) -> list[Chunk]:
        cited = event.annotation
        if not isinstance(cited, UrlCitation):
            self.diagnostics.loss(f"annotation.{cited.type if cited else None}", "has no form in a delta")
            return []
        data = {"url": cited.url, "start_index": cited.start_index, "end_index": cited.end_index}
        shown = {"display_name": cited.title, "display_url": cited.url}
        return self._chunk(
            copilot_references=[{"type": cited.type, "id": cited.url, "data": data, "metadata": shown}]
        )

    def _on_reasoning(self, event: Any) -> list[Chunk]:
        return self._think(event.item_id, ("content", event.content_index), event.delta)

    def _on_summary(self, event: ev.ReasoningSummaryTextDelta) -> list[Chunk]:
        return self._think(event.item_id, ("summary", event.summary_index), event.delta)

    def _think(self, item_id: str, part: tuple[str, int], delta: str) -> list[Chunk]:
        before = self._thought.get(item_id, part)
        self._thought[item_id] = part
        return self._chunk(thinking=Thinking(item_id, delta if before == part else BREAK + delta))

    def _on_summary_done(self, event: ev.ReasoningSummaryPartDone) -> list[Chunk]:
        return self._chunk(thinking=Thinking(event.item_id, metadata=SUMMARY_PART_DONE))

    def _on_added(self, event: ev.OutputItemAdded) -> list[Chunk]:
        item = event.item
        if not isinstance(item, CALL_ITEMS):
            return []
        begun = self._calls.begin(event.output_index, item)
        if begun is None or self._legacy:
            return []
        # after the blank, Copilot's view shows the text that it holds back
        return self._chunk(" " if self._text.pieces else "", begin_tool_calls=[begun])

    def _on_arguments(self, event: ev.FunctionCallArgumentsDelta) -> list[Chunk]:
        return self._call_update(event.output_index, event.delta)

    def _on_input(self, event: ev.CustomToolCallInputDelta) -> list[Chunk]:
        return self._call_update(event.output_index, self._calls.json_delta(event.output_index, event.delta))

    def _on_input_done(self, event: ev.CustomToolCallInputDone) -> list[Chunk]:
        end = self._calls.json_end(event.output_index)
        return self._call_update(event.output_index, end) if end else []

    def _call_update(self, output_index: int, arguments: str) -> list[Chunk]:
        update = None if self._legacy else self._calls.append(output_index, arguments)
        return [] if update is None else self._chunk(copilot_tool_call_stream_updates=[update])

    def _on_done(self, event: ev.OutputItemDone) -> list[Chunk]:
        item = event.item
        if isinstance(item, CALL_ITEMS):
            self._calls.end(event.output_index, item)
        elif isinstance(item, it.ReasoningItem):
            return self._reasoning_done(item)
        elif isinstance(item, it.CompactionItem):
            return self._chunk(context_management=msgspec.to_builtins(item))
        elif isinstance(item, it.Message):
            return self._chunk(phase=item.phase) if item.phase else []
        elif item is not None:
            self.diagnostics.loss(f"item.{item.type}", "has no form in a delta")
        return []

    def _reasoning_done(self, item: it.ReasoningItem) -> list[Chunk]:
        shown = item.id in self._thought
        self._thought.pop(item.id, None)
        parts = [] if shown else [*(item.content or []), *item.summary]
        text = BREAK.join(text for part in parts if (text := getattr(part, "text", ""))) or None
        encrypted = item.encrypted_content or None
        return self._chunk(thinking=Thinking(item.id, text, encrypted)) if text or encrypted else []

    def _on_unknown(self, event: UnknownEvent) -> list[Chunk]:
        name = FIELD_OF_EVENT.get(event.type)
        if name is None:
            self.diagnostics.ignored(event.type, "unknown event")
            return []
        fields: dict[str, Any] = {name: event.raw.get("value")}
        return self._chunk(**fields)

    def _on_error(self, event: ev.ErrorEvent) -> list[Chunk]:
        return self._error(error_of(event.payload))

    def _error(self, error: CopilotError) -> list[Chunk]:
        if self._sent_error is not None:
            return []
        self._sent_error = error
        return self._chunk(copilot_errors=[error])

    def _on_terminal(self, event: Any) -> list[Chunk]:
        if self._ended:
            return []
        self._ended = True
        response: Response = event.response
        report_native(response, "copilot", self.diagnostics)
        chunks = self._last_text(response)
        if response.error is not None:
            chunks += self._error(error_of(response.error))
        return [*chunks, self._completion(response)]

    def _last_text(self, response: Response) -> list[Chunk]:
        if response.status == "failed":
            return []
        unsent = "" if self._text.pieces else response.output_text
        chunks = self._chunk(unsent) if unsent else []
        if response.status == "completed":
            for item in response.output:
                if isinstance(item, CALL_ITEMS):
                    self._calls.finish(item)
        elif self._calls:
            self.diagnostics.loss("tool_calls", "left out, the response is incomplete")
        marker = response.id if self._marker and response.status == "completed" else None
        return chunks + self._whole_calls(response.status == "completed", marker)

    def _whole_calls(self, completed: bool, marker: str | None) -> list[Chunk]:
        calls = self._calls.all() if completed else []
        if not calls:
            return self._chunk(stateful_marker=marker)
        if self._legacy:
            functions = [{"name": call.name, "arguments": call.arguments} for call in calls]
            return self._chunk(deprecated_function_calls=functions, stateful_marker=marker)
        return self._chunk(copilot_tool_calls=calls, stateful_marker=marker)

    def _completion(self, response: Response) -> FinishedCompletion:
        return completion_of(
            response, self._text.pieces, self._index, self._calls.all(), self._legacy, self.diagnostics
        )


_HANDLERS: Final[dict[type[Any], Callable[[Outbound, Any], list[Chunk]]]] = {
    ev.ResponseCreated: Outbound._on_created,
    ev.ResponseQueued: Outbound._on_created,
    ev.ResponseInProgress: Outbound._on_created,
    ev.OutputTextDelta: Outbound._on_text,
    ev.OutputTextDone: Outbound._on_text_done,
    ev.OutputTextAnnotationAdded: Outbound._on_annotation,
    ev.RefusalDelta: Outbound._on_refusal,
    ev.ReasoningDelta: Outbound._on_reasoning,
    ev.ReasoningTextDelta: Outbound._on_reasoning,
    ev.ReasoningSummaryTextDelta: Outbound._on_summary,
    ev.ReasoningSummaryPartDone: Outbound._on_summary_done,
    ev.OutputItemAdded: Outbound._on_added,
    ev.FunctionCallArgumentsDelta: Outbound._on_arguments,
    ev.CustomToolCallInputDelta: Outbound._on_input,
    ev.CustomToolCallInputDone: Outbound._on_input_done,
    ev.OutputItemDone: Outbound._on_done,
    ev.ErrorEvent: Outbound._on_error,
    ev.ResponseCompleted: Outbound._on_terminal,
    ev.ResponseIncomplete: Outbound._on_terminal,
    ev.ResponseFailed: Outbound._on_terminal,
    UnknownEvent: Outbound._on_unknown,
}

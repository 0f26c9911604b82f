"""Converts OpenResponses events to Chat Completions chunks.

One answer is one message in Chat: texts of several messages follow each other in `content`, and all calls are
beside them. What can't be expressed is a loss, reported in the diagnostics.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.calls.presentation import call_view
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import (
    CANCELLED,
    CHAT,
    CUT,
    SEARCH_CALL,
    TIER,
    Source,
    failure,
    native_of,
    object_in,
    other_fields,
    report_native,
    searched,
    tier_for,
)
from openresponses_bridge.dialects.chat_completions.carried import (
    AUDIO,
    AUDIO_DELTA,
    CHOICE,
    FINISH_REASON,
    MESSAGE,
    REFUSED_TOKENS,
    USAGE,
    open_carried,
)
from openresponses_bridge.dialects.chat_completions.client.chunks import (
    CHUNK,
    DONE,
    ChatError,
    Chunk,
    ChunkChoice,
    CustomForm,
    ErrorBody,
    ReasoningField,
    StreamChunk,
    TextAfterToolCall,
    chat_error,
)
from openresponses_bridge.dialects.chat_completions.types import (
    ChatAnnotation,
    ChatCustom,
    ChatDelta,
    ChatFunction,
    ChatLogProb,
    ChatLogProbs,
    ChatToolCall,
    ChatTopLogProb,
    ChatUrlCitation,
    ChatUsage,
    CompletionTokensDetails,
    PromptTokensDetails,
)
from openresponses_bridge.emitter.failures import outcome
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol import items as it
from openresponses_bridge.protocol.content import LogProb, UrlCitation
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.items import CustomToolCall, FunctionCall
from openresponses_bridge.protocol.response import ErrorPayload, Response
from openresponses_bridge.protocol.unknown import UnknownEvent, UnknownItem
from openresponses_bridge.protocol.usage import Usage
from openresponses_bridge.seal import Sealer

# A client gets tool calls with consecutive indexes, id and name first, then fragments. It has one field for
# reasoning, or none.

AnyCall = FunctionCall | CustomToolCall


class _OpenCall(NamedTuple):
    """A call that has begun: its index in the answer, and the kind of its fragments."""

    at: int
    form: Literal["function", "custom", "wrapped"]


class OutgoingCalls:
    """The calls of one answer as Chat's fragments. With `custom`, free-text calls become Chat's `custom`
    calls; otherwise functions with the argument `{"input": "…"}`, for clients that know only functions."""

    __slots__ = ("_custom", "_known", "whole")

    def __init__(self, custom: CustomForm) -> None:
        self._custom = custom
        self._known: dict[int, _OpenCall] = {}
        self.whole = 0
        """The number of complete calls."""

    def __len__(self) -> int:
        return len(self._known)

    def begin(self, output_index: int, item: AnyCall) -> ChatToolCall:
        """Return the fragment with the id and name of a call."""
        index = len(self._known)
        if isinstance(item, FunctionCall):
            self._known[output_index] = _OpenCall(index, "function")
        elif self._custom == "custom":
            self._known[output_index] = _OpenCall(index, "custom")
            return ChatToolCall(index, item.call_id, "custom", None, ChatCustom(item.name, ""))
        else:
            self._known[output_index] = _OpenCall(index, "wrapped")
            return ChatToolCall(index, item.call_id, "function", ChatFunction(item.name, '{"input":"'))
        return ChatToolCall(index, item.call_id, "function", ChatFunction(item.name, ""))

    def append(self, output_index: int, delta: str) -> ChatToolCall | None:
        """Return the next fragment; None for a call that was not announced."""
        known = self._known.get(output_index)
        if known is None:
            return None
        if known.form == "custom":
            return ChatToolCall(known.at, custom=ChatCustom(None, delta))
        if known.form == "wrapped":
            delta = json.dumps(delta, ensure_ascii=False)[1:-1]
        return ChatToolCall(known.at, function=ChatFunction(None, delta))

    def end(self, output_index: int, item: AnyCall) -> ChatToolCall | None:
        """End an item. Returns the fragment that is still missing. A call that was cut off is not closed,
        since it must not look complete (field case 25)."""
        known = self._known.get(output_index)
        if known is None or item.status == "incomplete":
            return None
        self.whole += 1
        if known.form != "wrapped":
            return None
        return ChatToolCall(known.at, function=ChatFunction(None, '"}'))


class OutgoingReasoning:
    """Reasoning and summaries, both in the reasoning field. If an item has both, the form that comes first is
    sent."""

    __slots__ = ("_diagnostics", "_field", "_shown", "_summary")

    def __init__(self, field: ReasoningField, diagnostics: Diagnostics) -> None:
        self._field = field
        self._diagnostics = diagnostics
        self._shown = (-1, "")  # the item, and its form that is sent
        self._summary: tuple[int, int] | None = None

    def raw(self, event: ev.ReasoningDelta | ev.ReasoningTextDelta) -> ChatDelta | None:
        if not self._is_sent(event.output_index, "content"):
            self._diagnostics.loss("reasoning.content", "left out beside its summary")
            return None
        return self._delta(event.delta)

    def summary(self, event: ev.ReasoningSummaryTextDelta) -> ChatDelta | None:
        """Return a summary's delta, with a blank line between parts."""
        if not self._is_sent(event.output_index, "summary"):
            self._diagnostics.loss("reasoning.summary", "left out beside the reasoning itself")
            return None
        before, self._summary = self._summary, (event.output_index, event.summary_index)
        apart = "" if before in (None, self._summary) else "\n\n"
        delta = self._delta(apart + event.delta)
        if delta is not None:
            self._diagnostics.loss("reasoning.summary", "sent as reasoning")
        return delta

    def _is_sent(self, output_index: int, form: str) -> bool:
        if self._shown[0] != output_index:
            self._shown = (output_index, form)
        return self._shown[1] == form

    def _delta(self, text: str) -> ChatDelta | None:
        if self._field == "reasoning_content":
            return ChatDelta(reasoning_content=text)
        if self._field == "reasoning":
            return ChatDelta(reasoning=text)
        self._diagnostics.loss("reasoning", "left out, as asked")
        return None


FAILED_CHOICE = "error"
"""The finish reason of a choice that failed while others continue."""

_INCOMPLETE = {"max_output_tokens": "length", "content_filter": "content_filter"}
_FAILED = failure("server_error", "the response failed")


def finish_reason(
    response: Response, calls: int, diagnostics: Diagnostics, called: str = "tool_calls"
) -> tuple[str | None, ErrorPayload | None]:
    """Return (finish_reason, None), or the error instead of it. `calls` is the number of complete calls;
    `called` is the finish reason for them."""
    if response.status == "failed":
        error = response.error
        payload = _FAILED if error is None else failure(error.code, error.message)
        return None, payload if error is None else replace(payload, native=error.native)
    if response.status == "completed":
        return (called if calls else "stop"), None
    reason = response.incomplete_details.reason if response.incomplete_details else ""
    if "cancelled" in (response.status, reason):
        return None, CANCELLED
    own = object_in(native_of(response, CHAT), CHOICE).get(FINISH_REASON)
    if isinstance(own, str) and outcome(own)[0] == reason:
        return own, None  # the own word of an upstream that also speaks this API
    if reason not in _INCOMPLETE:
        diagnostics.loss("finish_reason", f"incomplete for {reason[:64] or 'no reason'}, reported as length")
    return _INCOMPLETE.get(reason, "length"), None


def usage_out(usage: Usage) -> ChatUsage:
    """Return token counts in Chat's names."""
    return ChatUsage(
        usage.input_tokens,
        usage.output_tokens,
        usage.total_tokens,
        PromptTokensDetails(usage.input_tokens_details.cached_tokens, usage.cache_write_tokens or None),
        CompletionTokensDetails(usage.output_tokens_details.reasoning_tokens),
        estimated=usage.estimated is True or None,
    )


def summed(usages: Iterable[ChatUsage]) -> ChatUsage:
    """Return the usage of several choices: the prompt was paid for each."""
    sums = [0, 0, 0, 0, 0, 0]
    estimated = False
    for usage in usages:
        prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
        counts = (
            usage.prompt_tokens,
            usage.completion_tokens,
            usage.total_tokens,
            prompt and prompt.cached_tokens,
            completion and completion.reasoning_tokens,
            prompt and prompt.cache_write_tokens,
        )
        estimated = estimated or usage.estimated is True
        sums = [sum(pair) for pair in zip(sums, (count or 0 for count in counts), strict=True)]
    prompted, completed, total, cached, thought, written = sums
    return ChatUsage(
        prompted,
        completed,
        total,
        PromptTokensDetails(cached, written or None),
        CompletionTokensDetails(thought),
        estimated=estimated or None,
    )


def said_of_usage(response: Response) -> dict[str, Any]:
    """Return the further fields of the usage from an upstream of this dialect. If a response has several
    answers, they are of the last one."""
    of_many = response.usage is not None and response.usage.rounds
    return {} if of_many else object_in(native_of(response, CHAT), USAGE)


def with_said(usage: ChatUsage, *extras: Mapping[str, Any]) -> ChatUsage | dict[str, Any]:
    """Return the counts with the upstreams' further fields of them; those that are counts are added up."""
    if not any(extras):
        return usage
    whole: dict[str, Any] = msgspec.to_builtins(usage)
    known = {name: set(each) if isinstance(each, dict) else None for name, each in whole.items()}
    for each in extras:
        _add(whole, each, known)
    return whole


def _add(whole: dict[str, Any], extra: Mapping[str, Any], known: Mapping[str, set[str] | None]) -> None:
    for name, value in extra.items():
        there = whole.get(name)
        if isinstance(value, dict) and isinstance(there, dict):
            _add(there, value, dict.fromkeys(known.get(name) or ()))
        elif type(value) in (int, float) and type(there) in (int, float):
            whole[name] = there if name in known else there + value
        elif name not in known:
            whole[name] = dict(value) if isinstance(value, dict) else value


def logprobs_out(tokens: list[LogProb]) -> ChatLogProbs:
    """Return log probabilities of new tokens of the content."""
    return ChatLogProbs(
        [
            ChatLogProb(
                token.token,
                token.logprob,
                token.bytes,
                [ChatTopLogProb(other.token, other.logprob, other.bytes) for other in token.top_logprobs],
            )
            for token in tokens
        ]
    )


_CALLS = (it.FunctionCall, it.CustomToolCall)
_NOBODY = ToolIdentityMap()


class Outbound:
    """One choice of one answer.

    `choice` is its number; `id` and `created` (Unix seconds) are shared by all of an answer's choices, and by
    default those of the response. `include_usage` asks for the usage chunk. `reasoning_field` is the field
    for reasoning. `text_after_tool_call="drop"` ends the text where a tool call begins, for clients that
    accept no more. `custom_tools` is the form of free-text calls. `legacy_functions` sends the first call as
    `function_call`, for clients that sent `functions`; they can't have a second one. `sealer` opens data that
    an upstream of this dialect wants back; without it they are losses.
    """

    def __init__(
        self,
        *,
        choice: int = 0,
        id: str | None = None,
        created: int | None = None,
        model: str | None = None,
        include_usage: bool = False,
        reasoning_field: ReasoningField = "reasoning_content",
        text_after_tool_call: TextAfterToolCall = "pass",
        custom_tools: CustomForm = "custom",
        legacy_functions: bool = False,
        sealer: Sealer | None = None,
    ) -> None:
        self._sealer = sealer
        self._extra: dict[str, Any] | None = None  # of the next call
        self.diagnostics = Diagnostics()
        self._choice = choice
        self._id = id or ""
        self._created = created
        self._model = model or ""
        self._include_usage = include_usage
        self._usage: Any = None if include_usage else UNSET
        self._reasoning = OutgoingReasoning(reasoning_field, self.diagnostics)
        self._drops = text_after_tool_call == "drop"
        self._calls = OutgoingCalls("function" if legacy_functions else custom_tools)
        self._legacy = legacy_functions
        self._begun = False
        self._ended = False
        self._error: ErrorPayload | None = None
        self._found: list[Source] = []
        self._cited: set[str] = set()
        self._length = 0  # of the content so far, in code points
        self._starts: dict[tuple[int, int], int] = {}
        self._said: dict[str, Any] = {}  # of the whole answer, from an upstream of this dialect
        self._heard = False  # True if its sound came in pieces

    def feed(self, event: Event) -> list[Chunk]:
        """Return the chunks of one event; none for events that repeat others."""
        handler = _HANDLERS.get(type(event))
        return [] if handler is None or self._ended else handler(self, event)

    def close(self) -> list[Chunk]:
        """Return `[DONE]`, after an error if the response had not ended."""
        error = self._error or failure(CUT, "the response ended before it was complete")
        return [*([] if self._ended else self._fail(error)), DONE]

    def open(self) -> StreamChunk:
        """Return the chunk with the role only, for an answer whose choices begin together."""
        self._begun = True
        return self._chunk(ChatDelta("assistant"))

    def usage_chunk(self, usage: ChatUsage | dict[str, Any]) -> StreamChunk:
        """Return the chunk with the usage, which follows the last choice."""
        return replace(self._chunk(ChatDelta()), choices=[], usage=usage, extra=self._said or UNSET)

    def fail_alone(self, error: ChatError) -> StreamChunk:
        """Return the end of this choice in an answer whose other choices continue."""
        chunk = self._chunk(ChatDelta(), FAILED_CHOICE)
        return replace(
            chunk, choices=[replace(chunk.choices[0], error=error)], extra={} if error.extra else UNSET
        )

    def _chunk(
        self, delta: ChatDelta, finish_reason: str | None = None, logprobs: ChatLogProbs | None = None
    ) -> StreamChunk:
        choice = ChunkChoice(self._choice, delta, finish_reason, UNSET if logprobs is None else logprobs)
        return StreamChunk(self._id, CHUNK, self._created or 0, self._model, [choice], self._usage)

    def _content(self, delta: ChatDelta, logprobs: ChatLogProbs | None = None) -> list[Chunk]:
        """Return the chunks of a piece of the answer, after the role if it is the first one."""
        chunk = self._chunk(delta, None, logprobs)
        return [chunk] if self._begun else [*self._begin(delta), chunk]

    def _begin(self, first: ChatDelta) -> list[Chunk]:
        self._begun = True
        # an answer that begins with a call may have no text
        silent = first.tool_calls or first.function_call or first.audio
        head = self._chunk(ChatDelta("assistant", None if silent else ""))
        return [replace(head, extra=self._said) if self._said else head]

    def _on_text(self, event: ev.OutputTextDelta) -> list[Chunk]:
        delta = event.delta
        if self._drops and self._calls:
            self.diagnostics.loss("content", "text after a tool call was dropped")
            return []
        place = (event.output_index, event.content_index)
        if place not in self._starts:
            self._starts[place] = self._length
        self._length += len(delta)
        return self._content(
            ChatDelta(content=delta), logprobs_out(event.logprobs) if event.logprobs else None
        )

    def _on_annotation(self, event: ev.OutputTextAnnotationAdded) -> list[Chunk]:
        cited = event.annotation
        if self._drops and self._calls:
            return []
        if not isinstance(cited, UrlCitation):
            self.diagnostics.loss(f"annotation.{cited.type if cited else None}", "has no form in a chunk")
            return []
        # in Chat, indexes count in the whole content
        start = self._starts.get((event.output_index, event.content_index), self._length)
        self._cited.add(cited.url)
        there = ChatUrlCitation(cited.url, cited.title, start + cited.start_index, start + cited.end_index)
        return self._content(ChatDelta(annotations=[ChatAnnotation("url_citation", there)]))

    def _on_refusal(self, event: ev.RefusalDelta) -> list[Chunk]:
        if self._drops and self._calls:
            self.diagnostics.loss("refusal", "text after a tool call was dropped")
            return []
        return self._content(ChatDelta(refusal=event.delta))

    def _on_reasoning(self, event: Any) -> list[Chunk]:
        return self._reason(self._reasoning.raw(event))

    def _on_summary(self, event: ev.ReasoningSummaryTextDelta) -> list[Chunk]:
        return self._reason(self._reasoning.summary(event))

    def _reason(self, delta: ChatDelta | None) -> list[Chunk]:
        return [] if delta is None else self._content(delta)

    def _on_added(self, event: ev.OutputItemAdded) -> list[Chunk]:
        item = event.item
        if not isinstance(item, _CALLS):
            return []
        if item.namespace:
            self.diagnostics.loss("tool_calls.namespace", "can't be expressed")
        begun = self._calls.begin(event.output_index, item)
        begun.extra_content, self._extra = self._extra, None
        return self._call(begun)

    def _on_arguments(self, event: Any) -> list[Chunk]:
        return self._call(self._calls.append(event.output_index, event.delta))

    def _call(self, call: ChatToolCall | None) -> list[Chunk]:
        if call is None:
            return []
        if not self._legacy:
            return self._content(ChatDelta(tool_calls=[call]))
        if call.index:
            if call.id is not None:
                self.diagnostics.loss("function_call", "only the first of several calls has a place")
            return []
        return self._content(ChatDelta(function_call=call.function))

    def _on_done(self, event: ev.OutputItemDone) -> list[Chunk]:
        item = event.item
        if isinstance(item, _CALLS):
            return self._call(self._calls.end(event.output_index, item))
        if isinstance(item, it.ReasoningItem):
            if item.encrypted_content:
                return self._carry(item.encrypted_content)
        elif isinstance(item, it.Message):
            if item.phase:
                self.diagnostics.loss("message.phase", "can't be expressed")
        elif item is not None:
            return self._other(event.output_index, item)
        return []

    def _carry(self, encrypted: str) -> list[Chunk]:
        """Send what the upstream wants back, with the next call or with the message."""
        carried = None if self._sealer is None else open_carried(self._sealer, encrypted)
        if carried is None:
            self.diagnostics.loss("reasoning.encrypted_content", "can't be expressed")
        elif carried.call_id is not None:
            self._extra = carried.extra
        else:
            delta = ChatDelta(extra_content=carried.extra)
            setattr(delta, carried.field, carried.details)
            return self._content(delta)
        return []

    def _other(self, output_index: int, item: it.Item) -> list[Chunk]:
        """Send a shell or patch call as a function call. All other items can't be expressed."""
        image = _image_of(item)
        if image is not None:
            return self._content(ChatDelta(images=[image]))
        if isinstance(item, UnknownItem) and item.type == AUDIO:
            return [] if self._heard else self._content(ChatDelta(audio=object_in(item.raw, "audio")))
        if (search := searched(item)) is not None:
            self._found += search.sources  # the citations show them
            return []
        view = call_view(item, _NOBODY)
        if view is None or getattr(item, "status", None) == "incomplete":
            self.diagnostics.loss(f"item.{item.type}", "has no form in a chunk")
            return []
        call: AnyCall = it.FunctionCall(item.id, view.call_id, view.name, view.arguments, "completed")
        begun = self._call(self._calls.begin(output_index, call))
        grown = self._call(self._calls.append(output_index, view.arguments))
        self._calls.end(output_index, call)
        return begun + grown

    def _on_unknown(self, event: UnknownEvent) -> list[Chunk]:
        if SEARCH_CALL in event.type:
            return []  # of the call's progress
        if event.type == AUDIO_DELTA:
            self._heard = True
            return self._content(ChatDelta(audio=object_in(event.raw, "audio")))
        self.diagnostics.ignored(event.type or "event", "has no form in a chunk")
        return []

    def _on_created(self, event: Any) -> list[Chunk]:
        self._identify(event.response)
        return []

    def _identify(self, response: Response) -> None:
        self._id = self._id or "chatcmpl-" + response.id.removeprefix("resp_")
        self._model = self._model or response.model
        native = native_of(response, CHAT) if response.native else {}
        self._said = other_fields(native, (USAGE, CHOICE, MESSAGE))
        if (tier := tier_for(response, CHAT, self.diagnostics)) is not None:
            self._said[TIER] = tier
        if self._created is None:
            self._created = response.created_at

    def _on_error(self, event: ev.ErrorEvent) -> list[Chunk]:
        """Ignore the error, since `response.failed` follows, has the usage, and ends the answer."""
        self._error = event.payload
        return []

    def _fail(self, error: ErrorPayload) -> list[Chunk]:
        self._ended = True
        return [ErrorBody(chat_error(error))]

    def _on_terminal(self, event: Any) -> list[Chunk]:
        response: Response = event.response
        self._identify(response)
        report_native(response, CHAT, self.diagnostics)
        called = "function_call" if self._legacy else "tool_calls"
        reason, error = finish_reason(response, self._calls.whole, self.diagnostics, called)
        if error is not None:
            payload = replace(self._error, native=error.native) if self._error is not None else error
            return [*self._paid(response), *self._fail(payload)]
        self._ended = True
        if response.stop_sequence:
            self.diagnostics.loss("stop_sequence", "can't be expressed")
        if self._found and not self._cited.issuperset([each.url for each in self._found]):
            self.diagnostics.loss("item.web_search_call", "it found more than the answer cites")
        finish = ChatDelta()
        return [
            *([] if self._begun else self._begin(finish)),
            self._finished(self._chunk(finish, reason), response),
            *self._paid(response),
        ]

    def _finished(self, chunk: StreamChunk, response: Response) -> StreamChunk:
        """Return the chunk that ends a choice, with the upstream's further fields."""
        if not response.native:
            return replace(chunk, extra=self._said or UNSET)
        native = native_of(response, CHAT)
        extra = dict(object_in(native, CHOICE))
        refused = extra.pop(REFUSED_TOKENS, None)
        extra.pop(FINISH_REASON, None)
        (choice,) = chunk.choices
        if message := object_in(native, MESSAGE):
            choice = replace(choice, delta=message)
        if isinstance(refused, list):
            choice = replace(choice, logprobs=ChatLogProbs(refusal=refused))
        return replace(chunk, choices=[replace(choice, extra=extra)], extra=self._said)

    def _paid(self, response: Response) -> list[Chunk]:
        """Return the chunk with the usage, if it was asked for."""
        if not self._include_usage or response.usage is None:
            return []
        usage = usage_out(response.usage)
        return [self.usage_chunk(with_said(usage, said_of_usage(response)) if response.native else usage)]


_HANDLERS: Final[dict[type[Any], Callable[[Outbound, Any], list[Chunk]]]] = {
    ev.ResponseCreated: Outbound._on_created,
    ev.ResponseQueued: Outbound._on_created,
    ev.ResponseInProgress: Outbound._on_created,
    ev.OutputItemAdded: Outbound._on_added,
    ev.OutputTextDelta: Outbound._on_text,
    ev.OutputTextAnnotationAdded: Outbound._on_annotation,
    ev.RefusalDelta: Outbound._on_refusal,
    ev.ReasoningDelta: Outbound._on_reasoning,
    ev.ReasoningTextDelta: Outbound._on_reasoning,
    ev.ReasoningSummaryTextDelta: Outbound._on_summary,
    ev.FunctionCallArgumentsDelta: Outbound._on_arguments,
    ev.CustomToolCallInputDelta: Outbound._on_arguments,
    ev.OutputItemDone: Outbound._on_done,
    ev.ErrorEvent: Outbound._on_error,
    ev.ResponseCompleted: Outbound._on_terminal,
    ev.ResponseIncomplete: Outbound._on_terminal,
    ev.ResponseFailed: Outbound._on_terminal,
    UnknownEvent: Outbound._on_unknown,
}


def _image_of(item: it.Item) -> dict[str, Any] | None:
    """Return the image in an item, as a data URL (RFC 2397); None for any other item."""
    if not isinstance(item, UnknownItem) or item.type.removeprefix("openai:") != "image_generation_call":
        return None
    result, kind = item.raw.get("result"), item.raw.get("output_format") or "png"
    if not isinstance(result, str) or not result:
        return None
    return {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{result}"}}

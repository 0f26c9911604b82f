"""The 24 published stream events, and OpenAI's other names that clients and servers use.

Fields are in positional order: `sequence_number` first, then the place, then the content. Delta events have
no containers of their own, so the garbage collector does not track them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from msgspec import UNSET, Struct, UnsetType

from openresponses_bridge.protocol.content import Annotation, ContentPart, LogProb
from openresponses_bridge.protocol.items import Item
from openresponses_bridge.protocol.response import ErrorPayload, Response
from openresponses_bridge.protocol.unknown import UnknownEvent


class _Event(Struct, frozen=True, dict=True, tag_field="type"):
    repaired_from: ClassVar[bytes | str | dict[str, Any] | None] = None
    """The JSON from which the event was decoded, where something in it had to be repaired; else None. It is
    not encoded, compared or taken over to a changed event."""


class _ResponseEvent(_Event, frozen=True):
    sequence_number: int
    response: Response


class ResponseCreated(_ResponseEvent, frozen=True, tag="response.created"):
    type: ClassVar[Literal["response.created"]] = "response.created"


class ResponseQueued(_ResponseEvent, frozen=True, tag="response.queued"):
    type: ClassVar[Literal["response.queued"]] = "response.queued"


class ResponseInProgress(_ResponseEvent, frozen=True, tag="response.in_progress"):
    type: ClassVar[Literal["response.in_progress"]] = "response.in_progress"


class ResponseCompleted(_ResponseEvent, frozen=True, tag="response.completed"):
    type: ClassVar[Literal["response.completed"]] = "response.completed"


class ResponseFailed(_ResponseEvent, frozen=True, tag="response.failed"):
    type: ClassVar[Literal["response.failed"]] = "response.failed"


class ResponseIncomplete(_ResponseEvent, frozen=True, tag="response.incomplete"):
    type: ClassVar[Literal["response.incomplete"]] = "response.incomplete"


class _ItemEvent(_Event, frozen=True):
    sequence_number: int
    output_index: int
    item: Item | None


class OutputItemAdded(_ItemEvent, frozen=True, tag="response.output_item.added"):
    type: ClassVar[Literal["response.output_item.added"]] = "response.output_item.added"


class OutputItemDone(_ItemEvent, frozen=True, tag="response.output_item.done"):
    type: ClassVar[Literal["response.output_item.done"]] = "response.output_item.done"


class _PartEvent(_Event, frozen=True):
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    part: ContentPart


class ContentPartAdded(_PartEvent, frozen=True, tag="response.content_part.added"):
    type: ClassVar[Literal["response.content_part.added"]] = "response.content_part.added"


class ContentPartDone(_PartEvent, frozen=True, tag="response.content_part.done"):
    type: ClassVar[Literal["response.content_part.done"]] = "response.content_part.done"


class OutputTextDelta(_Event, frozen=True, tag="response.output_text.delta"):
    type: ClassVar[Literal["response.output_text.delta"]] = "response.output_text.delta"
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    delta: str
    logprobs: list[LogProb] | UnsetType = UNSET
    obfuscation: str | UnsetType = UNSET


class OutputTextDone(_Event, frozen=True, tag="response.output_text.done"):
    type: ClassVar[Literal["response.output_text.done"]] = "response.output_text.done"
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    text: str
    logprobs: list[LogProb] | UnsetType = UNSET


class OutputTextAnnotationAdded(_Event, frozen=True, tag="response.output_text.annotation.added"):
    type: ClassVar[Literal["response.output_text.annotation.added"]] = "response.output_text.annotation.added"
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    annotation_index: int
    annotation: Annotation | None


class _ContentDelta(_Event, frozen=True):
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    delta: str
    obfuscation: str | UnsetType = UNSET


class _ContentDone(_Event, frozen=True):
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    text: str


class RefusalDelta(_ContentDelta, frozen=True, tag="response.refusal.delta"):
    type: ClassVar[Literal["response.refusal.delta"]] = "response.refusal.delta"


class RefusalDone(_Event, frozen=True, tag="response.refusal.done"):
    type: ClassVar[Literal["response.refusal.done"]] = "response.refusal.done"
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    refusal: str


class ReasoningDelta(_ContentDelta, frozen=True, tag="response.reasoning.delta"):
    type: ClassVar[Literal["response.reasoning.delta"]] = "response.reasoning.delta"


class ReasoningDone(_ContentDone, frozen=True, tag="response.reasoning.done"):
    type: ClassVar[Literal["response.reasoning.done"]] = "response.reasoning.done"


class ReasoningTextDelta(_ContentDelta, frozen=True, tag="response.reasoning_text.delta"):
    """OpenAI's name for `response.reasoning.delta`."""

    type: ClassVar[Literal["response.reasoning_text.delta"]] = "response.reasoning_text.delta"


class ReasoningTextDone(_ContentDone, frozen=True, tag="response.reasoning_text.done"):
    """OpenAI's name for `response.reasoning.done`."""

    type: ClassVar[Literal["response.reasoning_text.done"]] = "response.reasoning_text.done"


class _SummaryPartEvent(_Event, frozen=True):
    sequence_number: int
    item_id: str
    output_index: int
    summary_index: int
    part: ContentPart


class ReasoningSummaryPartAdded(_SummaryPartEvent, frozen=True, tag="response.reasoning_summary_part.added"):
    type: ClassVar[Literal["response.reasoning_summary_part.added"]] = "response.reasoning_summary_part.added"


class ReasoningSummaryPartDone(_SummaryPartEvent, frozen=True, tag="response.reasoning_summary_part.done"):
    type: ClassVar[Literal["response.reasoning_summary_part.done"]] = "response.reasoning_summary_part.done"


class ReasoningSummaryTextDelta(_Event, frozen=True, tag="response.reasoning_summary_text.delta"):
    type: ClassVar[Literal["response.reasoning_summary_text.delta"]] = "response.reasoning_summary_text.delta"
    sequence_number: int
    item_id: str
    output_index: int
    summary_index: int
    delta: str
    obfuscation: str | UnsetType = UNSET


class ReasoningSummaryTextDone(_Event, frozen=True, tag="response.reasoning_summary_text.done"):
    type: ClassVar[Literal["response.reasoning_summary_text.done"]] = "response.reasoning_summary_text.done"
    sequence_number: int
    item_id: str
    output_index: int
    summary_index: int
    text: str


class _CallDelta(_Event, frozen=True):
    sequence_number: int
    item_id: str
    output_index: int
    delta: str
    obfuscation: str | UnsetType = UNSET


class FunctionCallArgumentsDelta(_CallDelta, frozen=True, tag="response.function_call_arguments.delta"):
    type: ClassVar[Literal["response.function_call_arguments.delta"]] = (
        "response.function_call_arguments.delta"
    )


class FunctionCallArgumentsDone(_Event, frozen=True, tag="response.function_call_arguments.done"):
    type: ClassVar[Literal["response.function_call_arguments.done"]] = "response.function_call_arguments.done"
    sequence_number: int
    item_id: str
    output_index: int
    arguments: str


class CustomToolCallInputDelta(_CallDelta, frozen=True, tag="response.custom_tool_call_input.delta"):
    """OpenAI: the next piece of a custom call's input."""

    type: ClassVar[Literal["response.custom_tool_call_input.delta"]] = "response.custom_tool_call_input.delta"


class CustomToolCallInputDone(_Event, frozen=True, tag="response.custom_tool_call_input.done"):
    """OpenAI: a custom call's whole input."""

    type: ClassVar[Literal["response.custom_tool_call_input.done"]] = "response.custom_tool_call_input.done"
    sequence_number: int
    item_id: str
    output_index: int
    input: str


class ErrorEvent(_Event, frozen=True, tag="error"):
    """Schema ErrorStreamingEvent. OpenAI puts its fields at the top level; `payload` reads both forms."""

    type: ClassVar[Literal["error"]] = "error"
    sequence_number: int
    error: ErrorPayload | UnsetType = UNSET
    code: str | UnsetType | None = UNSET
    message: str | UnsetType = UNSET
    param: str | UnsetType | None = UNSET

    @property
    def payload(self) -> ErrorPayload:
        """The error, in either form."""
        if self.error is not UNSET:
            return self.error
        return ErrorPayload("server_error", self.code or None, self.message or "", self.param or None)


KnownEvent = (
    ResponseCreated
    | ResponseQueued
    | ResponseInProgress
    | ResponseCompleted
    | ResponseFailed
    | ResponseIncomplete
    | OutputItemAdded
    | OutputItemDone
    | ContentPartAdded
    | ContentPartDone
    | OutputTextDelta
    | OutputTextDone
    | OutputTextAnnotationAdded
    | RefusalDelta
    | RefusalDone
    | ReasoningDelta
    | ReasoningDone
    | ReasoningTextDelta
    | ReasoningTextDone
    | ReasoningSummaryPartAdded
    | ReasoningSummaryPartDone
    | ReasoningSummaryTextDelta
    | ReasoningSummaryTextDone
    | FunctionCallArgumentsDelta
    | FunctionCallArgumentsDone
    | CustomToolCallInputDelta
    | CustomToolCallInputDone
    | ErrorEvent
)
TERMINAL_EVENTS: frozenset[type] = frozenset({ResponseCompleted, ResponseFailed, ResponseIncomplete})

if TYPE_CHECKING:
    Event = KnownEvent | UnknownEvent
else:
    Event = KnownEvent

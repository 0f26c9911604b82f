"""What may be wanted of an answer; `Outbound` says what each option means."""

from __future__ import annotations

from typing import Literal, TypedDict

CustomForm = Literal["custom", "function"]
ReasoningField = Literal["reasoning_content", "reasoning", "none"]
TextAfterToolCall = Literal["pass", "drop"]


class OutboundOptions(TypedDict, total=False):
    """What may be wanted of each choice of an answer."""

    model: str | None
    reasoning_field: ReasoningField
    text_after_tool_call: TextAfterToolCall
    custom_tools: CustomForm
    legacy_functions: bool


class ChoicesOptions(OutboundOptions, total=False):
    """The same where the answer is a stream."""

    include_usage: bool


class CompletionOptions(OutboundOptions, total=False):
    """The same where it is one body."""

    choice: int
    id: str | None
    created: int | None

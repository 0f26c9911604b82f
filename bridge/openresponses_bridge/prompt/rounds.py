"""Rounds of tool calling, as data: what a loop keeps, what a prompt is built from, what a file resumes from.

JSON is the seed's (camelCase; messages of a prompt as they are). Results stand beside the rounds, by a
call's own id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from openresponses_bridge.prompt.raw import ChatMessage, ThinkingPart
from openresponses_bridge.tools.results import LanguageModelToolResult


class ToolCall(Struct, frozen=True, rename="camel"):
    """A call of the model's. `id` is ours and unique, `call_id` the model's; `arguments` is its JSON text."""

    id: str
    name: str
    arguments: str
    call_id: str


class ThinkingDataItem(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What the model thought in a round. `thinking` is for people; `parts` are the blocks as they came, which
    go back to the model. `thinking_tokens` is their count, `associated_round` the round's index."""

    thinking: str
    thinking_tokens: int | None = None
    associated_round: int | None = None
    parts: list[ThinkingPart] = msgspec.field(default_factory=list)

    @property
    def blocks(self) -> list[ThinkingPart]:
        """The blocks; the text as one where none were kept."""
        return self.parts or ([ThinkingPart(self.thinking)] if self.thinking else [])


class ToolCallRound(Struct, frozen=True, omit_defaults=True, kw_only=True, rename="camel"):
    """One request and its answer. `prompt` are the messages sent, `response` the model's text, `timestamp`
    milliseconds since 1970. The answer is the last of its run when `tool_calls` is empty."""

    prompt: list[ChatMessage]
    response: str
    tool_calls: Sequence[ToolCall]
    id: str = ""
    stateful_marker: str | None = None
    thinking: ThinkingDataItem | None = None
    timestamp: int = 0


ToolCallResults = Mapping[str, LanguageModelToolResult]
"""Results by `ToolCall.id`."""

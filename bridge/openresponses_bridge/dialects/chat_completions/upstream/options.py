"""What differs between Chat Completions servers in what they take, as data."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from openresponses_bridge.dialects.base import EFFORTS


class ChatOptions(Struct, frozen=True, kw_only=True):
    """What one upstream wants where servers differ.

    `developer_role`: what developer messages are sent as; every server knows `system`.
    `max_tokens_field`: where the output limit goes; older servers know `max_tokens` only.
    `reasoning_field`: where reasoning of earlier turns goes; None leaves it out, with a loss.
    `reasoning_turns`: which of it goes there: `all`, or that of the `loop` of tool calls since the user's
    last message.
    `missing_reasoning`: what stands there in a message that calls tools and came without any, at servers that
    refuse such.
    `stream_usage`: ask for the usage chunk of a stream.
    `forward_store`: hand `store` and `metadata` on, so that the upstream stores as well.
    `json_schema`: what a schema for the output is sent as; as anything else than itself it is a loss.
    `takes_n`: it gives several choices to one request; else it is asked once for each.
    `tools_field`: where tools go; servers that know `functions` only make one call an answer.
    `efforts`: the levels of `reasoning.effort` that may be asked for; others are refused.
    `omit`: request fields (its names) that this upstream refuses; each use is a loss.
    """

    developer_role: Literal["system", "developer", "user"] = "system"
    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    reasoning_field: Literal["reasoning_content", "reasoning", "reasoning_details"] | None = None
    reasoning_turns: Literal["all", "loop"] = "all"
    missing_reasoning: str | None = None
    stream_usage: bool = True
    forward_store: bool = False
    json_schema: Literal["json_schema", "json_object"] = "json_schema"
    takes_n: bool = False
    tools_field: Literal["tools", "functions"] = "tools"
    efforts: frozenset[str] = EFFORTS
    omit: frozenset[str] = frozenset()


DEFAULT_OPTIONS = ChatOptions()

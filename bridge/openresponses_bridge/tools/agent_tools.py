"""Which tools a request offers: what the model can call, and what the user wants."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum

from openresponses_bridge.tools.registry import Tool


@dataclass(frozen=True)
class ModelCapabilities:
    """What a model can do with tools; `max_tools` is how many it takes in one request, None for no limit."""

    supports_tool_calling: bool = True
    supports_streaming_tool_calls: bool = True
    max_tools: int | None = None


class ToolCallMode(Enum):
    """How to ask a model so that it can call tools."""

    NONE = "none"  # it can't: a request offers no tools
    STREAMING = "streaming"
    WHOLE = "whole"  # it calls tools in answers that are not streamed: ask with `stream: false`


def tool_call_mode(capabilities: ModelCapabilities) -> ToolCallMode:
    """The mode for a request that offers tools."""
    if not capabilities.supports_tool_calling:
        return ToolCallMode.NONE
    return ToolCallMode.STREAMING if capabilities.supports_streaming_tool_calls else ToolCallMode.WHOLE


def get_agent_tools(
    tools: Iterable[Tool],
    capabilities: ModelCapabilities,
    disabled: Collection[str] = (),
) -> list[Tool]:
    """The tools of a registry to offer, in its order; of more than the model takes, the first. `disabled` are
    names and tags of tools that are not offered. Give `ToolsService` a registry of just these, and a model's
    call of any other is answered as one of a tool that it was not offered."""
    if not capabilities.supports_tool_calling:
        return []
    chosen = [tool for tool in tools if tool.name not in disabled and tool.tags.isdisjoint(disabled)]
    return chosen[: capabilities.max_tools]

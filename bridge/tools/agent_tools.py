"""Which tools a request offers: what the model can call, what experiments allow, what the user wants."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from bridge.tools.registry import Tool


@dataclass(frozen=True)
class ModelCapabilities:
    """What a model can do with tools; `max_tools` is how many it takes in one request, None for no limit."""

    supports_tool_calling: bool = True
    supports_streaming_tool_calls: bool = True
    supports_vision: bool = False
    max_tools: int | None = None


@dataclass(frozen=True)
class Experiments:
    """Tools switched on and off by name; `default` is for all others."""

    tools: Mapping[str, bool] = field(default_factory=dict)
    default: bool = True

    def is_tool_enabled(self, name: str) -> bool:
        return self.tools.get(name, self.default)


@dataclass(frozen=True)
class Preferences:
    """What a user has switched off, by name and by tag."""

    disabled_tools: Collection[str] = ()
    disabled_tags: Collection[str] = ()


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
    experiments: Experiments | None = None,
    preferences: Preferences | None = None,
) -> list[Tool]:
    """The tools of a registry to offer, in its order; of more than the model takes, the first."""
    if not capabilities.supports_tool_calling:
        return []
    tested, wanted = experiments or Experiments(), preferences or Preferences()
    chosen = [
        tool
        for tool in tools
        if tested.is_tool_enabled(tool.name)
        and tool.name not in wanted.disabled_tools
        and tool.tags.isdisjoint(wanted.disabled_tags)
    ]
    return chosen[: capabilities.max_tools]

"""The documented name of `openresponses_bridge.loop`, whose names are loaded when they are first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from openresponses_bridge.loop import ToolCallingLoop, ToolCallLimitBehavior, ToolCallRound

# The loop stands above the tools, which import nothing of it.
_HOME: Final = "openresponses_bridge.loop"

__all__ = ["ToolCallLimitBehavior", "ToolCallRound", "ToolCallingLoop"]


def __getattr__(name: str) -> Any:
    return getattr(import_module(_HOME), name)

from openresponses_bridge.loop import ToolCallingLoop, ToolCallLimitBehavior, ToolCallRound

__all__ = ["ToolCallLimitBehavior", "ToolCallRound", "ToolCallingLoop"]

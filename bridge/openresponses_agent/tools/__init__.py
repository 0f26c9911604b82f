"""Tools: how models call them over each dialect, and a registry of them with validation and invocation.

The names below are loaded at their first use, since a translator of streams needs none of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from openresponses_agent.tools.errors import (
        CancellationToken,
        ToolCallCancelledError,
        ToolDeclinedError,
        ToolFailureEncountered,
        ToolInputError,
        ToolInvocationError,
        ToolNotFoundError,
        ToolTimeoutError,
        ToolValidationError,
    )
    from openresponses_agent.tools.offering import (
        ModelCapabilities,
        ToolCallMode,
        ToolForm,
        get_agent_tools,
        tool_call_mode,
        tools_in_body,
    )
    from openresponses_agent.tools.registry import (
        TokenizationOptions,
        Tool,
        ToolCallOutcome,
        ToolInvocationContext,
        ToolInvocationOptions,
        ToolRegistry,
    )
    from openresponses_agent.tools.results import (
        LanguageModelToolResult,
        ToolResultDataPart,
        ToolResultPromptTsxPart,
        ToolResultTextPart,
    )
    from openresponses_agent.tools.service import ToolsService
    from openresponses_agent.tools.validation import deep_parse_nested_json, validate_tool_input

_MODULES: Final = {
    "errors": (
        "CancellationToken",
        "ToolCallCancelledError",
        "ToolDeclinedError",
        "ToolFailureEncountered",
        "ToolInputError",
        "ToolInvocationError",
        "ToolNotFoundError",
        "ToolTimeoutError",
        "ToolValidationError",
    ),
    "offering": (
        "ModelCapabilities",
        "ToolCallMode",
        "ToolForm",
        "get_agent_tools",
        "tool_call_mode",
        "tools_in_body",
    ),
    "registry": (
        "TokenizationOptions",
        "Tool",
        "ToolCallOutcome",
        "ToolInvocationContext",
        "ToolInvocationOptions",
        "ToolRegistry",
    ),
    "results": (
        "LanguageModelToolResult",
        "ToolResultDataPart",
        "ToolResultPromptTsxPart",
        "ToolResultTextPart",
    ),
    "service": ("ToolsService",),
    "validation": (
        "deep_parse_nested_json",
        "validate_tool_input",
    ),
}
_HOMES: Final = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "CancellationToken",
    "LanguageModelToolResult",
    "ModelCapabilities",
    "TokenizationOptions",
    "Tool",
    "ToolCallCancelledError",
    "ToolCallMode",
    "ToolCallOutcome",
    "ToolDeclinedError",
    "ToolFailureEncountered",
    "ToolForm",
    "ToolInputError",
    "ToolInvocationContext",
    "ToolInvocationError",
    "ToolInvocationOptions",
    "ToolNotFoundError",
    "ToolRegistry",
    "ToolResultDataPart",
    "ToolResultPromptTsxPart",
    "ToolResultTextPart",
    "ToolTimeoutError",
    "ToolValidationError",
    "ToolsService",
    "deep_parse_nested_json",
    "get_agent_tools",
    "tool_call_mode",
    "tools_in_body",
    "validate_tool_input",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)

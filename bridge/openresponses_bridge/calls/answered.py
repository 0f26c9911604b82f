"""The items of a response that its client answers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

CLIENT_ANSWERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "function_call": "function_call_output",
        "custom_tool_call": "custom_tool_call_output",
        "computer_call": "computer_call_output",
        "shell_call": "shell_call_output",
        "local_shell_call": "local_shell_call_output",
        "apply_patch_call": "apply_patch_call_output",
        "tool_search_call": "tool_search_output",
    }
)
"""The types of calls that a client answers, each with the type of its answer."""
BY_CLIENT: Final = "client"
"""The `execution` of a tool search that the client answers; others are answered by the upstream."""


def is_answered_by_client(item: Any) -> bool:
    """Return True if the client answers this item of a response."""
    return item.type in CLIENT_ANSWERS and getattr(item, "execution", BY_CLIENT) == BY_CLIENT

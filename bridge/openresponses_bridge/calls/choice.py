"""Which function a request's `tool_choice` means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from openresponses_bridge.calls.builtin_schemas import BUILTINS
from openresponses_bridge.calls.declarations import FunctionView
from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.protocol.tools import AllowedToolChoice, FunctionToolChoice
from openresponses_bridge.protocol.unknown import UnknownToolChoice

# tools without a name: a choice names them by their type
_NAMELESS: Final = frozenset(kind.value for kind in BUILTINS)


def plain_choice(choice: Any) -> dict[str, Any] | None:
    """An object choice as it stands on the wire; None for auto, none, required and nothing."""
    if choice is None:
        return None
    if isinstance(choice, UnknownToolChoice):
        return choice.raw
    if isinstance(choice, FunctionToolChoice):
        return {"type": "function", "name": choice.name or ""}
    if isinstance(choice, AllowedToolChoice):
        tools = [plain_choice(each) for each in choice.tools]
        return {"type": "allowed_tools", "mode": choice.mode, "tools": tools}
    return None


def named(choice: dict[str, Any]) -> str:
    """What a choice names, in the client's words: for errors and diagnostics."""
    return str(choice.get("name") or choice.get("type") or "")


def meant(
    choice: dict[str, Any], functions: Sequence[FunctionView], identities: ToolIdentityMap
) -> FunctionView | None:
    """The one of these functions that a choice of one tool means: by the client's name in its namespace,
    else by any name that a call of it might carry. None when it is not one of them or could be two."""
    name = choice.get("name") or (choice.get("type") if choice.get("type") in _NAMELESS else None)
    if not name:
        return None
    for view in functions:
        if (view.identity.name, view.identity.namespace) == (name, choice.get("namespace")):
            return view
    identity = identities.resolve(name)
    return next((view for view in functions if view.identity == identity), None)

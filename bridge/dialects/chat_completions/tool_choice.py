"""tool_choice, and the tools that it leaves: Chat has auto, none, required and one function."""

from __future__ import annotations

from typing import Any, NamedTuple

from bridge.diagnostics import Diagnostics
from bridge.dialects.chat_completions.declared_tools import DeclaredTools
from bridge.dialects.chat_completions.types import ChatTool
from bridge.errors import InvalidRequestError
from bridge.protocol.tools import AllowedToolChoice, FunctionToolChoice
from bridge.protocol.unknown import UnknownToolChoice
from bridge.tools.identity import ToolIdentity

_NAMELESS = frozenset({"shell", "local_shell", "apply_patch"})


class Chosen(NamedTuple):
    """What goes out; both None when there is nothing to choose from."""

    tools: list[ChatTool] | None
    choice: str | dict[str, Any] | None


def choose(choice: Any, declared: DeclaredTools, diagnostics: Diagnostics) -> Chosen:
    """Raises InvalidRequestError (`tool_choice`) when the choice can't be kept."""
    offered = list(declared.functions.values())
    raw = _raw(choice)
    if raw is None:
        if choice == "required" and not offered:
            raise _error("required", "needs a tool that the upstream can call")
        return Chosen(offered, choice) if offered else Chosen(None, None)
    if raw.get("type") == "allowed_tools":
        return _allowed(raw, declared, diagnostics)
    identity = _meant(raw, declared)
    if identity is None:
        raise _error(raw.get("name") or raw.get("type"), "is not among the tools that the upstream can call")
    return Chosen(offered, {"type": "function", "function": {"name": identity.upstream_name}})


def _raw(choice: Any) -> dict[str, Any] | None:
    """An object choice as it stands on the wire; None for auto, none, required and nothing."""
    if isinstance(choice, UnknownToolChoice):
        return choice.raw
    if isinstance(choice, FunctionToolChoice):
        return {"type": "function", "name": choice.name or ""}
    if isinstance(choice, AllowedToolChoice):
        return {"type": "allowed_tools", "mode": choice.mode, "tools": [_raw(each) for each in choice.tools]}
    return None


def _allowed(raw: dict[str, Any], declared: DeclaredTools, diagnostics: Diagnostics) -> Chosen:
    mode = raw["mode"]
    left: dict[str, ChatTool] = {}
    for each in raw["tools"]:
        identity = _meant(each, declared)
        if identity is None:
            diagnostics.loss("tool_choice.tools", f"{each.get('name') or each.get('type')} can't be called")
        else:
            left[identity.upstream_name] = declared.functions[identity.upstream_name]
    if not left and mode == "required":
        raise _error("allowed_tools", "leaves no tool that the upstream can call")
    return Chosen(list(left.values()), mode) if left else Chosen(None, None)


def _meant(raw: dict[str, Any], declared: DeclaredTools) -> ToolIdentity | None:
    name = raw.get("name") or (raw.get("type") if raw.get("type") in _NAMELESS else None)
    return declared.find(name, raw.get("namespace")) if name else None


def _error(what: Any, why: str) -> InvalidRequestError:
    return InvalidRequestError(
        InvalidRequestError.INVALID_VALUE, f"tool_choice {what!r} {why}", param="tool_choice"
    )

"""Calls of shells, patches and tool searches that a model made as plain functions → the items
the client declared them as (law E11). What can't be restored stays a function call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from openresponses_bridge.calls.identity import ToolKind
from openresponses_bridge.protocol.items import (
    ApplyPatchCall,
    ApplyPatchOperation,
    Item,
    ItemStatus,
    LocalShellAction,
    LocalShellCall,
    ShellAction,
    ShellCall,
    ToolSearchCall,
)

Maker = Callable[[str, str, dict[str, Any], ItemStatus], Item]


def restore(kind: ToolKind, item_id: str, call_id: str, arguments: str, status: ItemStatus) -> Item | None:
    """The item of this kind with these JSON arguments; None when they don't fit it."""
    try:
        given = msgspec.json.decode(arguments)
        return _MAKERS[kind](item_id, call_id, given, status) if isinstance(given, dict) else None
    except (msgspec.MsgspecError, RecursionError, TypeError):
        return None


def _shell(item_id: str, call_id: str, given: dict[str, Any], status: ItemStatus) -> Item:
    commands = given.get("commands", given.get("command"))
    action = {**given, "commands": [commands] if isinstance(commands, str) else commands}
    return ShellCall(item_id, call_id, msgspec.convert(action, ShellAction), status)


def _local_shell(item_id: str, call_id: str, given: dict[str, Any], status: ItemStatus) -> Item:
    command = given.get("command")
    argv = ["bash", "-lc", command] if isinstance(command, str) else command
    directory = given.get("working_directory", given.get("workdir"))
    action = {"env": {}, **given, "type": "exec", "command": argv}
    if directory is not None:
        action["working_directory"] = directory
    return LocalShellCall(item_id, call_id, msgspec.convert(action, LocalShellAction), status)


def _apply_patch(item_id: str, call_id: str, given: dict[str, Any], status: ItemStatus) -> Item:
    operation = given.get("operation", given)
    return ApplyPatchCall(item_id, call_id, msgspec.convert(operation, ApplyPatchOperation), status)


def _tool_search(item_id: str, call_id: str, given: dict[str, Any], status: ItemStatus) -> Item:
    return ToolSearchCall(item_id, given, call_id, "client", status)


_MAKERS: dict[ToolKind, Maker] = {
    ToolKind.SHELL: _shell,
    ToolKind.LOCAL_SHELL: _local_shell,
    ToolKind.APPLY_PATCH: _apply_patch,
    ToolKind.TOOL_SEARCH: _tool_search,
}
RESTORED_KINDS = frozenset(_MAKERS)

"""Reads notifications about tool calls, `response.output_item.*` and the deltas of arguments, into one
struct, under all the names in use for items, calls and deltas."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from openresponses_bridge.calls.argument_names import ARGUMENT_NAMES

CALL_TYPES: Final = frozenset({"function_call", "custom_tool_call"})
"""The types of items that are calls of the client's tools."""


class NotificationKind(Enum):
    """The kinds of notifications about a call."""

    ADDED = "added"
    DELTA = "delta"
    ARGUMENTS_DONE = "arguments_done"
    DONE = "done"


NOTIFICATIONS: Final[Mapping[str, NotificationKind]] = {
    "response.output_item.added": NotificationKind.ADDED,
    "response.function_call_arguments.delta": NotificationKind.DELTA,
    "response.custom_tool_call_input.delta": NotificationKind.DELTA,
    "response.function_call_arguments.done": NotificationKind.ARGUMENTS_DONE,
    "response.custom_tool_call_input.done": NotificationKind.ARGUMENTS_DONE,
    "response.output_item.done": NotificationKind.DONE,
}
"""The notifications that are about tool calls, or may be."""


class ToolCallNotification(NamedTuple):
    """One notification. `text` is a delta of the arguments, or all of them; missing facts are "" or None."""

    kind: NotificationKind
    output_index: int | None
    item_id: str
    call_id: str
    name: str = ""
    text: str = ""
    namespace: str = ""
    custom: bool = False


def read_notification(notification: Mapping[str, Any]) -> ToolCallNotification | None:
    """Read a notification, which has its name in `type`, or in `method` with its facts in `params`. Returns
    None for one that is not about a tool call."""
    params = notification.get("params")
    body = params if isinstance(params, Mapping) and "method" in notification else notification
    name = notification.get("type", notification.get("method"))
    kind = NOTIFICATIONS.get(name) if isinstance(name, str) else None
    if kind is None:
        return None
    if kind in (NotificationKind.ADDED, NotificationKind.DONE):
        return _of_item(kind, body)
    item_id, call_id, bare = _text(body, "item_id"), _text(body, "call_id"), _text(body, "id")
    text = (
        _text(body, "delta", "arguments_delta")
        if kind is NotificationKind.DELTA
        else _text(body, *ARGUMENT_NAMES)
    )
    # a bare `id` may be either one
    return ToolCallNotification(kind, _index(body), item_id or bare, call_id or bare, text=text)


def item_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the item that a notification is about; empty if there is none."""
    item = body.get("item") or body.get("output_item") or body.get("outputItem")
    return item if isinstance(item, dict) else {}


def _of_item(kind: NotificationKind, body: Mapping[str, Any]) -> ToolCallNotification | None:
    item = item_of(body)
    item_type = item.get("type")
    if not isinstance(item_type, str) or item_type not in CALL_TYPES:
        return None
    function = item.get("function")
    nested = _text(function, "name") if isinstance(function, Mapping) else ""
    return ToolCallNotification(
        kind,
        _index(body),
        _text(item, "id"),
        _text(item, "call_id"),
        _text(item, "name") or nested,
        _text(item, *ARGUMENT_NAMES),
        _text(item, "namespace"),
        item_type == "custom_tool_call",
    )


def _text(fields: Mapping[str, Any], *names: str) -> str:
    """Return the first of these fields that is a non-empty string."""
    for name in names:
        value = fields.get(name)
        if isinstance(value, str) and value:
            return value
    return ""


def _index(body: Mapping[str, Any]) -> int | None:
    index = body.get("output_index")
    return index if type(index) is int else None

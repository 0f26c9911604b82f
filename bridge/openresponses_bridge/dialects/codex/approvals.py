"""Codex asks the client for leave to do something → an extension event. Whoever reads the events answers
Codex under the event's `request_id`."""

from __future__ import annotations

from typing import Any

from openresponses_bridge.dialects.codex.turn import SLUG, TurnEmitter
from openresponses_bridge.dialects.codex.types import Notification, snake
from openresponses_bridge.protocol.events import Event

APPROVAL_REQUEST = SLUG + "approval_request"
_BOOKKEEPING = frozenset({"type", "kind", "thread_id", "turn_id", "conversation_id"})
# what the older requests call the things that they ask for
_KINDS = {"exec_command": "command_execution", "exec": "command_execution", "apply_patch": "file_change"}


def plain(body: dict[str, Any]) -> dict[str, Any]:
    """A notification's facts in our spelling, without what only says where it belongs."""
    fields = {snake(name): value for name, value in body.items() if value is not None}
    if "unified_diff" in fields:  # the older spelling
        fields["diff"] = fields.pop("unified_diff")
    return {name: value for name, value in fields.items() if name not in _BOOKKEEPING}


def request(turn: TurnEmitter, said: Notification) -> list[Event]:
    """A request: `item/<kind>/requestApproval`, or the older `<kind>Approval`."""
    *_, before, last = ["", *snake(said.name).split("/")]
    kind = before or last.removesuffix("_approval")
    return approval(turn, kind, said.request_id, said.body)


def approval(turn: TurnEmitter, kind: str, request_id: Any, body: dict[str, Any]) -> list[Event]:
    """`codex:approval_request {request_id, kind, item_id, …}`."""
    fields = plain(body)
    item_id = fields.pop("call_id", None)
    asked = {"request_id": request_id, "kind": _KINDS.get(kind, kind), "item_id": item_id, **fields}
    return turn.machine.extension_event(APPROVAL_REQUEST, asked)

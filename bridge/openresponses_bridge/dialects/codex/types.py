"""One notification in any envelope, and its generation."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Any, NamedTuple

LEGACY_PREFIX = "codex/event/"
RESPONSE_PREFIX = "response."
# the app-server's methods without a slash; the older ones look the same
_PLAIN_METHODS = frozenset(
    {
        "error",
        "warning",
        "guardianWarning",
        "deprecationNotice",
        "configWarning",
        "applyPatchApproval",
        "execCommandApproval",
    }
)
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Generation(IntEnum):
    """A spelling of a turn. Servers send the same turn in two of them side by side; the greater one has more
    content and is used."""

    NONE = 0
    """Answers to our own requests, and notifications about no turn."""
    LEGACY = 1
    APP_SERVER = 2
    RESPONSE = 3


class Notification(NamedTuple):
    """`name` is the method without its prefix (`item/started`, `agent_message_delta`, `response.completed`),
    `body` its parameters, `request_id` is set if it needs an answer; `thread_id` and `turn_id` are empty if
    it does not name them."""

    generation: Generation
    name: str
    body: dict[str, Any]
    request_id: int | str | None = None
    thread_id: str = ""
    turn_id: str = ""


def snake(name: str) -> str:
    """Return `command_execution` for `commandExecution`."""
    return _WORD.sub("_", name).lower()


def text_of(value: Any) -> str:
    """Return a string unchanged; "" for anything else."""
    return value if isinstance(value, str) else ""


def object_of(value: Any) -> dict[str, Any]:
    """Return an object unchanged; {} for anything else."""
    return value if isinstance(value, dict) else {}


def list_of(value: Any) -> list[Any]:
    """Return a list unchanged; [] for anything else."""
    return value if isinstance(value, list) else []


def count_of(value: Any) -> int:
    """Return a count; 0 for anything else."""
    return value if type(value) is int and value > 0 else 0


def notification_of(frame: dict[str, Any]) -> Notification | None:
    """Return the notification of a frame; None for one that the client sent.

    Envelopes: JSON-RPC (`{method, params}`), a recording's (`{dir, msg}`), a proxy's (`{type, …}`), the old
    protocol's own (`{id, msg: {type, …}}`).
    """
    if "dir" in frame and isinstance(frame.get("msg"), dict):
        return notification_of(frame["msg"]) if frame["dir"] == "in" else None
    method = text_of(frame.get("method"))
    if method:
        return _from_method(method, object_of(frame.get("params")), frame.get("id"))
    inner = object_of(frame.get("msg")) or frame
    name = text_of(inner.get("type"))
    if name.startswith(RESPONSE_PREFIX):
        return Notification(Generation.RESPONSE, name, inner)
    if name:
        return Notification(Generation.LEGACY, snake(name), inner)
    return Notification(Generation.NONE, "answer", frame, frame.get("id"))


def _from_method(method: str, params: dict[str, Any], request_id: Any) -> Notification:
    place = _place_in(params)
    if method.startswith(RESPONSE_PREFIX):
        return Notification(Generation.RESPONSE, method, params, None, *place)
    if method.startswith(LEGACY_PREFIX):
        message = object_of(params.get("msg")) or params
        return Notification(Generation.LEGACY, method.removeprefix(LEGACY_PREFIX), message, None, *place)
    valid_id = request_id if isinstance(request_id, int | str) else None
    if "/" in method or method in _PLAIN_METHODS:
        return Notification(Generation.APP_SERVER, method, params, valid_id, *place)
    return Notification(Generation.LEGACY, snake(method), params, valid_id, *place)


def _place_in(params: dict[str, Any]) -> tuple[str, str]:
    """Return the ids of the thread and the turn; the older generation calls them `conversationId` and
    `id`."""
    turn_id = text_of(params.get("turnId")) or text_of(object_of(params.get("turn")).get("id"))
    older = text_of(params.get("conversationId"))
    if not older:
        return text_of(params.get("threadId")), turn_id
    return older, turn_id or text_of(params.get("id"))

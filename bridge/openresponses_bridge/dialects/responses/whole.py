"""A whole response where a stream was asked for: the terminal event that would have held it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# status → the terminal event; a response that still runs is not an answer
_EVENTS = {
    "completed": "response.completed",
    "incomplete": "response.incomplete",
    "cancelled": "response.incomplete",
    "failed": "response.failed",
}


def whole_answer(value: Mapping[str, Any]) -> dict[str, Any] | None:
    """The event that stands for a response which came as JSON; None when it is not one that has ended."""
    if value.get("object") != "response" or "type" in value or not isinstance(value.get("output"), list):
        return None
    status = value.get("status")
    kind = _EVENTS.get(status) if isinstance(status, str) else None
    return None if kind is None else {"type": kind, "sequence_number": 0, "response": dict(value)}

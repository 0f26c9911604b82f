"""Events under names that are not in the vocabulary but mean one that is.

RFC 00022 and older servers say `reasoning_summary` without `_text`; proxies of Codex say
`response.done` and `response.error`.
"""

from __future__ import annotations

from typing import Any

from openresponses_bridge.protocol.codec import event_from
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.unknown import UnknownEvent

CANONICAL: dict[str, str] = {
    "response.reasoning_summary.delta": "response.reasoning_summary_text.delta",
    "response.reasoning_summary.done": "response.reasoning_summary_text.done",
    "response.done": "response.completed",
    "response.error": "error",
}


def normalized(event: UnknownEvent) -> Event | None:
    """The event under its usual name, or None when it is of a kind we don't know."""
    name = CANONICAL.get(event.type)
    if name is None:
        return None
    return event_from({**{key: _text(value) for key, value in event.raw.items()}, "type": name})


def _text(value: Any) -> Any:
    """Older summary events wrap their text: `{"text": "…"}`."""
    return (
        value["text"]
        if isinstance(value, dict) and value.keys() <= {"type", "text"} and "text" in value
        else value
    )

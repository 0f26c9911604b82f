"""Which wire a stream is on, by the first event that only one of them has."""

from __future__ import annotations

from typing import Any, Final

from openresponses_bridge.conformance.context import EventContext
from openresponses_bridge.conformance.published import OPENAI_EVENTS, SLUG
from openresponses_bridge.state import OPENAI_SLUG, PUBLISHED_EVENTS, PUBLISHED_ITEMS, WIRES

OPENRESPONSES: Final = "openresponses"
OPENAI: Final = "openai"
_ONLY_PUBLISHED: Final = PUBLISHED_EVENTS - OPENAI_EVENTS
_ONLY_OPENAI: Final = OPENAI_EVENTS - PUBLISHED_EVENTS
_CANCELLED: Final = WIRES[OPENAI].cancelled_status


def wire_of(context: EventContext) -> str | None:
    """The wire that alone has this event, its item or its spelling; None when both have it, or neither."""
    if context.type in _ONLY_PUBLISHED:
        return OPENRESPONSES
    if context.type in _ONLY_OPENAI:
        return OPENAI
    if context.type == "error":
        return OPENAI if "error" not in context.raw and "message" in context.raw else None
    response = context.object("response") or {}
    if response.get("status") == _CANCELLED:
        return OPENAI
    return wire_of_item(context.object("item"))


def wire_of_item(item: dict[str, Any] | None) -> str | None:
    """The wire that alone has items of this type."""
    kind = None if item is None else item.get("type")
    if not isinstance(kind, str) or not kind or kind in PUBLISHED_ITEMS:
        return None
    if kind.startswith(OPENAI_SLUG):
        return OPENRESPONSES
    return None if SLUG.fullmatch(kind) else OPENAI

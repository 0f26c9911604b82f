"""A conversation as plain text, for a model that is to condense it.

As text it needs neither declared tools nor paired calls, and upstreams do not refuse it for its shape.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.calls.presentation import call_view, output_view
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import Entry, understood
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.input_items import MessageParam, ReasoningParam
from openresponses_bridge.protocol.items import Message, ReasoningItem

# what a text can't hold → its placeholder
_PLACEHOLDERS: Final = {"input_image": "[image]", "input_video": "[video]", "input_file": "[file]"}

_PLACE: Final = "input"


def transcript(items: Iterable[Any]) -> str:
    """Who said what, what was called and what came back, in order. Reasoning is left out: what came of
    it is in the words after it."""
    identities = ToolIdentityMap()
    entries = understood([Entry(item, _PLACE, _PLACE) for item in items], Diagnostics())
    return "\n\n".join(filter(None, (_entry(entry.item, identities) for entry in entries)))


def _entry(item: Any, identities: ToolIdentityMap) -> str:
    if isinstance(item, MessageParam | Message):
        return f"[{item.role}]\n{_text(item.content)}"
    if isinstance(item, ReasoningParam | ReasoningItem):
        return ""
    call = call_view(item, identities)
    if call is not None:
        return f"[assistant calls {call.name}, {call.call_id}]\n{call.arguments}"
    output = output_view(item, identities)
    if output is not None:
        return f"[output of {output.call_id}]\n{_text(output.output)}"
    return f"[{item.type}]\n{encode(item).decode()}"


def _text(content: str | list[Any]) -> str:
    return content if isinstance(content, str) else "\n".join(map(_part, content))


def _part(part: Any) -> str:
    said = getattr(part, "text", None) or getattr(part, "refusal", None)
    if isinstance(said, str):
        return said
    named = getattr(part, "filename", None)
    placeholder = _PLACEHOLDERS.get(part.type, f"[{part.type}]")
    return f"{placeholder[:-1]} {named}]" if named else placeholder

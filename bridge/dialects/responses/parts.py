"""Content parts as other servers send them."""

from __future__ import annotations

import msgspec

from bridge.diagnostics import Diagnostics
from bridge.protocol import content as ct
from bridge.protocol.items import Message

_KINDS = {
    "output_text": "text",
    "text": "text",
    "refusal": "refusal",
    "reasoning_text": "reasoning",
    "summary_text": "summary",
}


def kind_of(part: ct.ContentPart) -> str:
    """Which kind of text a part holds; empty for one that holds none."""
    return _KINDS.get(part.type, "")


def text_of(part: ct.ContentPart) -> str:
    """The text of a part that has some."""
    text = part.refusal if isinstance(part, ct.RefusalContent) else getattr(part, "text", "")
    return text if isinstance(text, str) else ""


def sayable(message: Message, diagnostics: Diagnostics) -> Message:
    """The message with parts that an answer can hold; what is none of those is a loss."""
    content: list[ct.ContentPart] = []
    for part in message.content:
        if isinstance(part, ct.OutputTextContent | ct.RefusalContent):
            content.append(part)
        elif isinstance(part, ct.TextContent):
            content.append(ct.OutputTextContent(part.text, []))
        else:
            diagnostics.loss("output_item.content", f"a part of type {part.type}")
    return msgspec.structs.replace(message, content=content)

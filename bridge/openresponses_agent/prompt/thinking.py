"""Converts blocks of reasoning between Anthropic's blocks with signatures and the Responses API's items with
`encrypted_content`. Each can contain the other, sealed, if there is a sealer."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from openresponses_agent.prompt.raw import ThinkingPart
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.anthropic_messages import thinking
from openresponses_bridge.protocol.content import ReasoningTextContent, SummaryTextContent
from openresponses_bridge.protocol.input_items import ReasoningParam
from openresponses_bridge.seal import Sealer, SealError

_WHERE = "thinking"


def block_of(part: ThinkingPart, sealer: Sealer | None, diagnostics: Diagnostics) -> dict[str, Any] | None:
    """Return the block for Anthropic's API; None, and a loss, if it has no signature."""
    if part.redacted is not None:
        return {"type": "redacted_thinking", "data": part.redacted}
    if part.signature:
        return {"type": "thinking", "thinking": part.thinking, "signature": part.signature}
    if part.encrypted_content and sealer is not None:
        try:
            kind, block = thinking.open_sealed(sealer, part.encrypted_content)
        except SealError as error:
            diagnostics.loss(_WHERE, f"can't be opened here ({error.code})")
            return None
        if kind in (thinking.THINKING, thinking.REDACTED):
            return block
    diagnostics.loss(_WHERE, "has no signature, can't be sent back")
    return None


def part_of_block(block: dict[str, Any]) -> ThinkingPart:
    """Return the part for a `thinking` or `redacted_thinking` block of Anthropic's API."""
    if block["type"] == "redacted_thinking":
        return ThinkingPart(redacted=block["data"])
    return ThinkingPart(block["thinking"], signature=block.get("signature") or None)


def item_of(part: ThinkingPart, sealer: Sealer | None, diagnostics: Diagnostics) -> ReasoningParam:
    """Return the reasoning item. Without a sealer a signature is lost."""
    encrypted = part.encrypted_content
    if encrypted is None and (part.signature or part.redacted is not None):
        block = block_of(part, None, diagnostics)
        if sealer is None or block is None:
            diagnostics.loss(_WHERE, "its signature can't be expressed without a sealer")
        else:
            encrypted = thinking.seal_block(sealer, block)
    return ReasoningParam(
        [SummaryTextContent(text) for text in part.summary or ()],
        id=part.id or UNSET,
        content=[ReasoningTextContent(part.thinking)] if part.thinking else UNSET,
        encrypted_content=encrypted or UNSET,
    )


def part_of_item(item: Any) -> ThinkingPart:
    """Return the part for a reasoning item, of an input or an output."""
    return ThinkingPart(
        "\n\n".join(each.text for each in item.content or () if each.text),
        encrypted_content=item.encrypted_content or None,
        id=item.id or None,
        summary=[each.text for each in item.summary] or None,
    )

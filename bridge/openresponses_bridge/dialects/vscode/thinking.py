"""Thinking parts ↔ reasoning items. A block is a run of parts with one id."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from openresponses_bridge.decoder import LanguageModelThinkingPart, Part
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.vscode.types import ENCRYPTED, REASONING_DONE, SUMMARY_PART_DONE
from openresponses_bridge.protocol.content import ReasoningTextContent, SummaryTextContent
from openresponses_bridge.protocol.input_items import ReasoningParam

_SEPARATOR = "\n\n"


class ThinkingCollector:
    """Joins the pieces of one block. Text before the end mark of a summary part belongs to that part; other
    text is raw reasoning."""

    __slots__ = ("_diagnostics", "_encrypted", "_id", "_pieces", "_summary", "any")

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self.any = False
        self._start("")

    def _start(self, block: str) -> None:
        self._id = block
        self._pieces: list[str] = []
        self._summary: list[SummaryTextContent] = []
        self._encrypted = ""

    def feed(self, part: LanguageModelThinkingPart) -> list[ReasoningParam]:
        """Accept a part. Returns the items that ended before it."""
        self.any = True
        block = part.id or self._id
        metadata: dict[str, Any] = part.metadata or {}
        ended = self.flush() if block != self._id else []
        self._id = block
        text = part.value if isinstance(part.value, str) else "".join(part.value)
        if text:
            self._pieces.append(text)
        if metadata.get(SUMMARY_PART_DONE):
            self._end_summary_part()
        encrypted = metadata.get(ENCRYPTED)
        if isinstance(encrypted, str):
            self._encrypted = encrypted
        if "signature" in metadata or "redactedData" in metadata:
            self._diagnostics.loss("thinking.metadata", "another provider's signature")
        return ended + self.flush() if metadata.get(REASONING_DONE) else ended

    def feed_whole(self, block: str, text: str, encrypted: str) -> list[ReasoningParam]:
        """Accept a whole block. Returns the items that have ended."""
        ended = self.flush()
        self._id, self._encrypted = block, encrypted
        self._pieces = [text] if text else []
        return ended + self.flush()

    def flush(self) -> list[ReasoningParam]:
        """Return the block so far, as at most one item."""
        text = "".join(self._pieces)
        item = ReasoningParam(
            self._summary,
            self._id or UNSET,
            [ReasoningTextContent(text)] if text else UNSET,
            self._encrypted or UNSET,
        )
        has_content = bool(text or self._summary or self._encrypted)
        self._start("")
        return [item] if has_content else []

    def _end_summary_part(self) -> None:
        text = "".join(self._pieces)
        self._pieces = []
        text = text.removeprefix(_SEPARATOR) if self._summary else text
        if text:
            self._summary.append(SummaryTextContent(text))


def parts_of(item: Any) -> list[Part]:
    """Return the thinking parts of a reasoning item, as the decoder would."""
    block = item.id or UNSET
    parts: list[Part] = []
    for position, summary in enumerate(item.summary):
        before = _SEPARATOR if position else ""
        parts.append(LanguageModelThinkingPart(before + summary.text, block))
        parts.append(LanguageModelThinkingPart("", block, {SUMMARY_PART_DONE: True}))
    raw = "".join(getattr(part, "text", "") for part in item.content or ())
    if raw:
        parts.append(LanguageModelThinkingPart(raw, block))
    if item.encrypted_content:
        parts.append(LanguageModelThinkingPart("", block, {ENCRYPTED: item.encrypted_content}))
    if parts:
        parts.append(LanguageModelThinkingPart("", block, {REASONING_DONE: True}))
    return parts

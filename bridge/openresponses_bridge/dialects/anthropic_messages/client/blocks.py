"""Writes finished items as blocks: reasoning with its signature, whole calls, items of Anthropic's own tools.
Each method returns the chunks for an `output_item.done`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.calls.presentation import call_view
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.anthropic_messages import search, thinking
from openresponses_bridge.dialects.anthropic_messages import types as t
from openresponses_bridge.dialects.anthropic_messages.types import SLUG
from openresponses_bridge.dialects.base import searched
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.content import UrlCitation
from openresponses_bridge.protocol.items import CompactionItem, Item, ReasoningItem
from openresponses_bridge.protocol.unknown import UnknownItem
from openresponses_bridge.seal import Sealer, SealError

_CONDENSED = ("content", "encrypted_content")


class BlockWriter:
    """Starts and stops blocks. `kind` is that of the open block, "" if there is none; `last` is that of the
    newest block; `held` is a whole block that is sent before the next one."""

    __slots__ = ("held", "index", "kind", "last")

    def __init__(self) -> None:
        self.index = t.NO_INDEX
        self.kind = self.last = ""
        self.held: dict[str, Any] | None = None

    def start(self, block: dict[str, Any]) -> list[t.Chunk]:
        """Start a block, stopping the open one."""
        chunks = self.stop() + self.release()
        self.index += 1
        self.kind = self.last = block["type"]
        return [*chunks, t.ContentBlockStart(self.index, block)]

    def delta(self, delta: t.Delta) -> t.Chunk:
        return t.ContentBlockDelta(self.index, delta)

    def stop(self) -> list[t.Chunk]:
        """Stop the open block, if there is one."""
        if not self.kind:
            return []
        self.kind = ""
        return [t.ContentBlockStop(self.index)]

    def release(self) -> list[t.Chunk]:
        """Return the chunks of the held block."""
        block, self.held = self.held, None
        return [] if block is None else self.whole(block)

    def whole(self, block: dict[str, Any], *deltas: t.Delta) -> list[t.Chunk]:
        """Return the chunks of a whole block, from start to stop."""
        return [*self.start(block), *map(self.delta, deltas), *self.stop()]


class ItemWriter:
    """Writes finished items into one message's blocks."""

    def __init__(
        self, blocks: BlockWriter, sealer: Sealer, identities: ToolIdentityMap, diagnostics: Diagnostics
    ) -> None:
        self._blocks = blocks
        self._sealer = sealer
        self._identities = identities
        self._diagnostics = diagnostics
        self.sealed_summary = False
        """True if the last reasoning was sealed together with its summary."""

    def reasoning(self, item: ReasoningItem) -> list[t.Chunk]:
        """Return the end of a thinking block, or a whole one if its text was not sent before."""
        encrypted = item.encrypted_content
        self.sealed_summary = False
        if not encrypted:
            if self._blocks.kind:
                self._diagnostics.loss("reasoning", "has no signature, can't be sent back")
            return self._blocks.stop()
        try:
            kind, block = thinking.open_sealed(self._sealer, encrypted)
        except SealError:
            kind, block = "", {}
        sign = _SIGNERS.get(kind)
        return self._foreign(item, encrypted) if sign is None else sign(self, block)

    def _signed(self, block: dict[str, Any]) -> list[t.Chunk]:
        chunks: list[t.Chunk] = []
        if not self._blocks.kind:
            chunks = self._blocks.start({**block, "thinking": "", "signature": ""})
            if block["thinking"]:
                chunks.append(self._blocks.delta(t.ThinkingDelta(block["thinking"])))
        chunks.append(self._blocks.delta(t.SignatureDelta(block["signature"])))
        return chunks + self._blocks.stop()

    def _redacted(self, block: dict[str, Any]) -> list[t.Chunk]:
        return self._blocks.whole(block)

    def _foreign(self, item: ReasoningItem, encrypted: str) -> list[t.Chunk]:
        """Return another upstream's opaque reasoning, sealed into the field that Anthropic uses for its
        own."""
        summary = [getattr(part, "text", "") for part in item.summary]
        self.sealed_summary = True
        sealed = thinking.seal_reasoning(
            self._sealer, {"id": item.id, "summary": summary, "encrypted_content": encrypted}
        )
        if not self._blocks.kind:
            chunks = self._blocks.release()
            self._blocks.held = {"type": "redacted_thinking", "data": sealed}
            return chunks
        return [self._blocks.delta(t.SignatureDelta(sealed)), *self._blocks.stop()]

    def call(self, item: Item) -> list[t.Chunk] | None:
        """Return a call whose arguments were not streamed (shell, patch); None if the item is not a call."""
        view = call_view(item, self._identities)
        if view is None:
            return None
        block = {"type": "tool_use", "id": view.call_id, "name": view.name, "input": {}}
        return self._blocks.whole(block, t.InputJsonDelta(view.arguments))

    def hosted(self, item: UnknownItem) -> list[t.Chunk]:
        """Return the blocks of a search of the web, or a block of Anthropic's own, which an extension item
        has unchanged. Other items can't be expressed."""
        web_search = searched(item)
        if web_search is not None and (web_search.sealed or web_search.kind == "search"):
            blocks = thinking.open_search(self._sealer, web_search.sealed) if web_search.sealed else None
            blocks = search.blocks_of(web_search, item.id) if blocks is None else blocks
            return [chunk for block in blocks for chunk in self._hosted(block)]
        block = item.raw.get("block")
        if not item.type.startswith(SLUG) or not isinstance(block, dict) or "type" not in block:
            self._diagnostics.loss(f"item.{item.type}", "Anthropic has no such block")
            return []
        return self._hosted(block)

    def _hosted(self, block: dict[str, Any]) -> list[t.Chunk]:
        if "input" not in block:
            return self._blocks.whole(block)
        arguments = t.InputJsonDelta(encode(block["input"]).decode())
        return self._blocks.whole({**block, "input": {}}, arguments)

    def citation(self, cited: UrlCitation) -> dict[str, Any] | None:
        """Return a citation as Anthropic sent it; None for one of another upstream."""
        sealed = cited.encrypted_content
        return thinking.open_citation(self._sealer, sealed) if sealed else None

    def compaction(self, item: CompactionItem) -> list[t.Chunk]:
        """Return the block of a compacted history, if it is Anthropic's."""
        try:
            kind, block = thinking.open_sealed(self._sealer, item.encrypted_content)
        except SealError:
            kind, block = "", {}
        if kind != thinking.COMPACTION:
            self._diagnostics.loss("item.compaction", "compacted elsewhere")
            return []
        delta = t.CompactionDelta(block.get("content"), block.get("encrypted_content"))
        empty = {name: None if name in _CONDENSED else value for name, value in block.items()}
        return self._blocks.whole(empty, delta)


_SIGNERS: Final[dict[str, Callable[[ItemWriter, dict[str, Any]], list[t.Chunk]]]] = {
    thinking.THINKING: ItemWriter._signed,
    thinking.REDACTED: ItemWriter._redacted,
}

"""The blocks of an outgoing message: dense indexes, one open at a time."""

from __future__ import annotations

from typing import Any

from bridge.dialects.anthropic_messages import types as t


class Numbering:
    """`kind` is the open block's, "" when none is."""

    __slots__ = ("index", "kind")

    def __init__(self) -> None:
        self.index = t.NO_INDEX
        self.kind = ""

    def start(self, block: dict[str, Any]) -> list[t.Chunk]:
        """Begin a block, ending the open one."""
        chunks = self.stop()
        self.index += 1
        self.kind = block["type"]
        return [*chunks, t.ContentBlockStart(self.index, block)]

    def delta(self, delta: t.Delta) -> t.Chunk:
        return t.ContentBlockDelta(self.index, delta)

    def stop(self) -> list[t.Chunk]:
        """End the open block, if there is one."""
        if not self.kind:
            return []
        self.kind = ""
        return [t.ContentBlockStop(self.index)]

    def whole(self, block: dict[str, Any], *deltas: t.Delta) -> list[t.Chunk]:
        """A block from start to stop."""
        return [*self.start(block), *map(self.delta, deltas), *self.stop()]

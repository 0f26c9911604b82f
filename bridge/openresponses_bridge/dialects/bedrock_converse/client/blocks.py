"""Writes the blocks of an outgoing message, which are numbered from 0 and come one after another."""

from __future__ import annotations

from typing import Any

from openresponses_bridge.dialects.bedrock_converse.types import kind_of
from openresponses_bridge.protocol.codec import encode

Json = dict[str, Any]


class BlockWriter:
    """Starts and stops blocks. `kind` is that of the open block, "" if there is none; `last` is that of the
    newest block; `held` is a delta that is a whole block, and is sent before the next block."""

    __slots__ = ("held", "index", "kind", "last")

    def __init__(self) -> None:
        self.index = -1
        self.kind = self.last = ""
        self.held: Json | None = None

    def start(self, kind: str, start: Json | None = None) -> list[Json]:
        """Start a block of this kind, stopping the open one. Texts and reasoning have no event for that."""
        events = self.stop() + self.release()
        self.index += 1
        self.kind = self.last = kind
        if start is not None:
            within = {"start": {kind: start}, "contentBlockIndex": self.index}
            events.append({"contentBlockStart": within})
        return events

    def delta(self, delta: Json) -> Json:
        """Return a delta of the open block."""
        return {"contentBlockDelta": {"delta": delta, "contentBlockIndex": self.index}}

    def stop(self) -> list[Json]:
        """Stop the open block, if there is one."""
        if not self.kind:
            return []
        self.kind = ""
        return [{"contentBlockStop": {"contentBlockIndex": self.index}}]

    def release(self) -> list[Json]:
        """Return the events of the held block."""
        block, self.held = self.held, None
        return [] if block is None else self.whole(kind_of(block), None, block)

    def whole(self, kind: str, start: Json | None, *deltas: Json) -> list[Json]:
        """Return the events of a whole block, from start to stop."""
        return [*self.start(kind, start), *map(self.delta, deltas), *self.stop()]

    def own(self, block: Json) -> list[Json]:
        """Return a block of the server's own, such as a tool that it ran: an object with one object in it."""
        kind = kind_of(block)
        fields = dict(block[kind])
        if kind == "toolUse" and "input" in fields:
            delta = {kind: {"input": encode(fields.pop("input")).decode()}}
        elif kind == "toolResult" and isinstance(fields.get("content"), list):
            delta = {kind: fields.pop("content")}
        elif kind == "image" and "source" in fields:
            delta = {kind: {"source": fields.pop("source")}}
        else:
            return self.whole(kind, fields)
        return self.whole(kind, fields, delta)

"""What Codex does by itself (runs a command, changes files, …) → items of ours.

Such an item is an extension's: its type is `codex:` and Codex's own name, its fields are Codex's in
our spelling. `status` says whether it is over, as for every item; how it went stands in `outcome`
(completed, failed, declined).
"""

from __future__ import annotations

import base64
import binascii
import codecs
from typing import Any

from openresponses_bridge.dialects.base import extension
from openresponses_bridge.dialects.codex.types import snake
from openresponses_bridge.protocol.unknown import UnknownItem

SLUG = "codex:"
MAX_KEPT_OUTPUT = 1_000_000
"""Characters of a running item's output kept for the case that it never ends."""
_OWN = frozenset({"type", "id", "status"})


def kind_of(item_type: str) -> str:
    """`commandExecution` → `codex:command_execution`."""
    return extension(SLUG, snake(item_type))


def fields_of(item: dict[str, Any]) -> dict[str, Any]:
    """An item's facts in our spelling; those that are null say nothing."""
    return {snake(name): value for name, value in item.items() if name not in _OWN and value is not None}


class HostedItem:
    """One item from its start to its end."""

    __slots__ = ("_decoder", "_kept", "_pieces", "fields", "id", "kind")

    def __init__(self, kind: str, item_id: str, fields: dict[str, Any]) -> None:
        self.kind = kind
        self.id = item_id
        self.fields = fields
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pieces: list[str] = []
        self._kept = 0

    def output(self, delta: str) -> str:
        """The next piece of what it prints."""
        if self._kept < MAX_KEPT_OUTPUT:
            self._kept += len(delta)
            self._pieces.append(delta)
        return delta

    def encoded_output(self, chunk: str) -> str:
        """The next piece in base64; a character split between two is held until it is whole."""
        try:
            return self.output(self._decoder.decode(base64.b64decode(chunk, validate=True)))
        except (binascii.Error, ValueError):
            return ""

    def begun(self) -> UnknownItem:
        """The item when it starts."""
        return UnknownItem({"type": self.kind, "id": self.id, "status": "in_progress", **self.fields})

    def done(self, outcome: str, fields: dict[str, Any], over: bool = True) -> UnknownItem:
        """The finished item; its own account of the output counts over the pieces."""
        merged = {**self.fields, **fields}
        if self._pieces:
            merged.setdefault("aggregated_output", "".join(self._pieces))
        status = "completed" if over else "incomplete"
        return UnknownItem({"type": self.kind, "id": self.id, "status": status, "outcome": outcome, **merged})

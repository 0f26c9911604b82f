"""What the blocks of one incoming message share."""

from __future__ import annotations

from typing import Any

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.anthropic_messages import types as t
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.seal import Sealer


class MessageContext:
    """The machine, the sealer and what one block has to know of another.

    `position` is the length of the text so far in code points, `undecided` the call that ended without
    arguments: only what follows shows whether it had none or was cut (law E6). `unsigned` says that
    thinking ended without its signature: either way its item is still open.
    """

    __slots__ = ("calls", "diagnostics", "machine", "position", "sealer", "undecided", "unsigned")

    def __init__(self, machine: ResponseStream, sealer: Sealer) -> None:
        self.machine = machine
        self.sealer = sealer
        self.diagnostics: Diagnostics = machine.diagnostics
        self.position = 0
        self.calls = 0
        self.undecided: int | None = None
        self.unsigned = False

    def settle(self) -> list[Event]:
        """Something else begins, so what was left open was whole."""
        events: list[Event] = []
        if self.unsigned:
            self.unsigned = False
            events += self.machine.block_done()
        if self.undecided is not None:
            index, self.undecided = self.undecided, None
            events += self.machine.tool_call_done(index)
        return events

    def text_of(self, block: dict[str, Any], field: str) -> str:
        """A text of a block; empty where it has none, or one of another type, which is a loss."""
        found = block.get(field)
        if isinstance(found, str):
            return found
        if found is not None:
            self.diagnostics.loss(f"{block['type']}.{field}", f"can't be read: {type(found).__name__}")
        return ""

    def misplaced(self, delta: t.Delta, kind: str) -> list[Event]:
        self.diagnostics.loss(f"{kind}.{type(delta).__name__}", "does not belong there")
        return []

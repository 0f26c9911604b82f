"""Several choices of one answer, as Copilot's callback gets them: in any mixture, each under its own index,
with its own text so far, its own calls and its own completion."""

from __future__ import annotations

from typing import TypedDict, Unpack

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.copilot.outbound import Outbound
from openresponses_bridge.dialects.copilot.types import Chunk
from openresponses_bridge.protocol.events import Event


class OutboundOptions(TypedDict, total=False):
    """What may be wanted of each choice; `Outbound` says what it means."""

    opening: bool
    stateful_marker: bool
    legacy_functions: bool
    separator: str


class Choices:
    """`feed(choice, event)` takes the events of each machine. Options are those of `Outbound`, but for
    `index`. What one choice cost stands in its completion; a choice that failed says so in its own."""

    def __init__(self, n: int, **options: Unpack[OutboundOptions]) -> None:
        self._outbounds = [Outbound(index, **options) for index in range(n)]

    @property
    def diagnostics(self) -> Diagnostics:
        """All that was lost, of every choice."""
        found = Diagnostics()
        for outbound in self._outbounds:
            found.extend(outbound.diagnostics)
        return found

    def feed(self, choice: int, event: Event) -> list[Chunk]:
        """The chunks that one event of one choice gives."""
        return self._outbounds[choice].feed(event)

    def close(self) -> list[Chunk]:
        """Completions for choices that have none."""
        return [chunk for outbound in self._outbounds for chunk in outbound.close()]

"""The entry of the dialect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypedDict, Unpack

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import CaptureFormat, ClientSide, Dialect
from openresponses_bridge.dialects.copilot.inbound import Inbound
from openresponses_bridge.dialects.copilot.outbound import Outbound
from openresponses_bridge.dialects.copilot.types import CallbackChunk, Chunk, encode_chunk
from openresponses_bridge.protocol.events import Event

# Several choices of one answer, as Copilot's callback gets them: in any mixture, each with its own index, its
# own text so far, its own calls and its own completion.


class OutboundOptions(TypedDict, total=False):
    """Options for each choice of an answer; `Outbound` explains them."""

    opening: bool
    stateful_marker: bool
    legacy_functions: bool
    separator: str


class Choices:
    """The choices of one answer. `feed(choice, event)` is called with the events of each machine. Options are
    those of `Outbound`, except `index`. The usage and the failure of a choice are in its completion."""

    def __init__(self, n: int, **options: Unpack[OutboundOptions]) -> None:
        self._outbounds = [Outbound(index, **options) for index in range(n)]

    @property
    def diagnostics(self) -> Diagnostics:
        """All losses, of every choice."""
        losses = Diagnostics()
        for outbound in self._outbounds:
            losses.extend(outbound.diagnostics)
        return losses

    def feed(self, choice: int, event: Event) -> list[Chunk]:
        """Return the chunks of one event of one choice."""
        return self._outbounds[choice].feed(event)

    def close(self) -> list[Chunk]:
        """Return completions for choices that have none."""
        return [chunk for outbound in self._outbounds for chunk in outbound.close()]


def encode_lines(chunks: Iterable[CallbackChunk]) -> bytes:
    """Encode chunks as JSON lines, each with its line end."""
    return b"".join([encode_chunk(chunk) + b"\n" for chunk in chunks])


def _is_copilot(value: Mapping[str, Any]) -> bool:
    return (isinstance(value.get("delta"), dict) and "text" in value) or "solution" in value


def _begins(value: Mapping[str, Any], _before: Mapping[str, Any] | None) -> bool:
    """Return True if the whole text so far is that of this delta, in the choice that is read."""
    delta = value.get("delta")
    return isinstance(delta, dict) and value.get("text") == delta.get("text") and not value.get("index")


DIALECT: Final = Dialect(
    name="copilot",
    title="Copilot",
    client=ClientSide(outbound=Outbound, encode=encode_lines),
    capture=CaptureFormat(
        recognises=_is_copilot,
        inbound=lambda machine: Inbound(machine, implied_end=True),
        begins=_begins,
    ),
)

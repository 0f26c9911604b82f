"""The shape every dialect has: frames in through `Inbound`, events out through `Outbound`.

Both are sans-IO. A frame is one payload (the data of an SSE frame, a JSON line); the transport
around it is the caller's.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from bridge.diagnostics import Diagnostics
from bridge.protocol.events import Event

Chunk = TypeVar("Chunk")


class Inbound(Protocol):
    """A foreign stream → machine calls → events.

    `feed` takes one frame's payload and returns the events it caused; it starts the machine by
    itself. `close` says that upstream has ended: a stream cut before its end becomes a failure
    (field case 26). A machine that has ended swallows later frames, with a diagnostic.
    """

    diagnostics: Diagnostics

    def feed(self, data: bytes) -> list[Event]: ...

    def close(self) -> list[Event]: ...


class Outbound(Protocol[Chunk]):
    """Events → a foreign stream's chunks. `close` gives what the dialect says at the very end."""

    diagnostics: Diagnostics

    def feed(self, event: Event) -> list[Chunk]: ...

    def close(self) -> list[Chunk]: ...

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

    `feed` takes one frame's payload and returns the events it caused; it starts the machine by itself.
    `event` is the name of the frame's SSE event, for servers that leave the type out of the data. `close`
    says that upstream has ended: a stream cut before its end becomes a failure (field case 26). A machine
    that has ended ignores later frames, with a diagnostic.
    """

    @property
    def diagnostics(self) -> Diagnostics: ...

    def feed(self, data: bytes, event: str = "") -> list[Event]: ...

    def close(self) -> list[Event]: ...


class Outbound(Protocol[Chunk]):
    """Events → a foreign stream's chunks. `close` gives what the dialect says at the very end."""

    @property
    def diagnostics(self) -> Diagnostics: ...

    def feed(self, event: Event) -> list[Chunk]: ...

    def close(self) -> list[Chunk]: ...

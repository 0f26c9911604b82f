"""The shape every dialect has: frames in through `Inbound`, events out through `Outbound`.

Both are sans-IO. A frame is one payload (the data of an SSE frame, a JSON line); the transport
around it is the caller's.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.protocol.events import Event

Chunk = TypeVar("Chunk")


class Inbound(Protocol):
    """A foreign stream → machine calls → events.

    `feed` takes one frame's payload and returns the events it caused; it starts the machine by itself.
    `event` is the name of the frame's SSE event, for servers that leave the type out of the data. `close`
    says that upstream has ended: a stream cut before its end becomes a failure (field case 26). A machine
    that has ended ignores later frames, with a diagnostic.

    An inbound may have one of these as well, which are looked for by name:

    - `feed_read(data) -> list[Event] | None`: the events of a read that is one frame much like the last;
      None where it is anything else, and nothing has changed then.
    - `read_done() -> list[Event]`: called when all frames of a read were fed; what may end the response.
    - `kept_id: str | None`: the id under which the upstream keeps the response.
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

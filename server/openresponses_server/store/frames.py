"""The bytes of server-sent events, with the numbers of the first and the last event."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from openresponses_bridge.protocol.events import TERMINAL_EVENTS

_BLANK_LINE: Final = b"\n\n"
_ENDS: Final = tuple(f"event: {kind.__struct_config__.tag}\n".encode() for kind in TERMINAL_EVENTS)  # type: ignore[attr-defined]
PIECE_BYTES: Final = 256 * 1024
"""The bytes of stored frames, about, that a reader holds at once, however long the record is."""


class Frames(Struct, frozen=True, gc=False):
    """The frames of the events `first` to `last`, as `encode_sse` makes them: one for each number (law E2
    leaves no gaps), each ended by a blank line."""

    first: int
    last: int
    data: bytes

    def after(self, sequence: int) -> Frames | None:
        """Return the frames with a number above `sequence`, byte for byte; None if there are none."""
        if sequence < self.first:
            return self
        if sequence >= self.last:
            return None
        start = 0
        for _ in range(sequence - self.first + 1):
            start = self.data.index(_BLANK_LINE, start) + len(_BLANK_LINE)
        return Frames(sequence + 1, self.last, self.data[start:])

    @property
    def ended(self) -> bool:
        """True if the last event is a terminal one. Only that event is searched."""
        before = self.data.rfind(_BLANK_LINE, 0, len(self.data) - len(_BLANK_LINE))
        return self.data.startswith(_ENDS, 0 if before < 0 else before + len(_BLANK_LINE))


def joined(run: Sequence[Frames]) -> Frames | None:
    """Return consecutive frames as one object; None if there are none."""
    if len(run) < 2:
        return run[0] if run else None
    return Frames(run[0].first, run[-1].last, b"".join([frames.data for frames in run]))


class Piece(Struct, frozen=True, gc=False):
    """A part of stored frames, in the order of sending. `last` is the number of the event at whose end the
    part ends; None if that is not known."""

    data: bytes
    last: int | None


class FrameSkipper:
    """Removes the first `count` frames from bytes that come in pieces."""

    def __init__(self, count: int) -> None:
        self._left = max(count, 0)
        self._held = b""

    def rest(self, data: bytes) -> bytes:
        """Return the part of the next piece that remains."""
        if not self._left:
            return data
        data = self._held + data
        start = 0
        while self._left:
            end = data.find(_BLANK_LINE, start)
            if end < 0:
                # a blank line may be cut between its two line ends
                self._held = b"\n" if data.endswith(b"\n") and len(data) > start else b""
                return b""
            start = end + len(_BLANK_LINE)
            self._left -= 1
        return data[start:]


def pieces(frames: Frames, after: int) -> Iterator[Piece]:
    """Yield the frames with a number above `after`, in pieces."""
    if after >= frames.last:
        return
    skipping = FrameSkipper(after - frames.first + 1)
    for data, ends in sliced(frames.data):
        yield Piece(skipping.rest(data), frames.last if ends else None)


def sliced(data: bytes) -> Iterator[tuple[bytes, bool]]:
    """Yield the data in pieces of `PIECE_BYTES`, each with True if it is the last."""
    for start in range(0, max(len(data), 1), PIECE_BYTES):
        end = start + PIECE_BYTES
        yield data[start:end], end >= len(data)

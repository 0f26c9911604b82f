"""Server-sent events as they were sent, with the numbers of the first and the last of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

_BLANK_LINE: Final = b"\n\n"


class Frames(Struct, frozen=True, gc=False):
    """The bytes of the events `first` to `last`: one frame each, none left out, each ended by a blank
    line (as `encode_sse` makes them; law E2 numbers them without gaps)."""

    first: int
    last: int
    data: bytes

    def after(self, sequence: int) -> Frames | None:
        """Those with a number above `sequence`, to the byte as they were; None when there are none."""
        if sequence < self.first:
            return self
        if sequence >= self.last:
            return None
        start = 0
        for _ in range(sequence - self.first + 1):
            start = self.data.index(_BLANK_LINE, start) + len(_BLANK_LINE)
        return Frames(sequence + 1, self.last, self.data[start:])


def joined(run: Sequence[Frames]) -> Frames | None:
    """Frames that follow one another as one; None for none."""
    if len(run) < 2:
        return run[0] if run else None
    return Frames(run[0].first, run[-1].last, b"".join([frames.data for frames in run]))

"""Text that a stream repeats from its beginning each time it grows.

Copilot's callback gets the whole text so far, and the whole arguments so far, with every delta. Made
anew each time that costs the square of the length, so a chunk holds a view and whoever writes it out
pays for it (law E12).
"""

from __future__ import annotations


class GrowingText:
    """The pieces, in order. `pieces` is what Copilot keeps as the solution's text."""

    __slots__ = ("pieces",)

    def __init__(self) -> None:
        self.pieces: list[str] = []

    def add(self, piece: str) -> TextSoFar:
        self.pieces.append(piece)
        return TextSoFar(self.pieces, len(self.pieces))

    def now(self) -> TextSoFar:
        return TextSoFar(self.pieces, len(self.pieces))


class TextSoFar:
    """The text as it stood at one moment; equal to the string it stands for."""

    __slots__ = ("_count", "_pieces")

    def __init__(self, pieces: list[str], count: int) -> None:
        self._pieces = pieces
        self._count = count

    def __str__(self) -> str:
        return "".join(self._pieces[: self._count])

    def __repr__(self) -> str:
        return repr(str(self))

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, str | TextSoFar) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))

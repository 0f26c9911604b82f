"""Text that grows by deltas: kept once, appended in constant time, whole code points only."""

from __future__ import annotations

from io import StringIO

from openresponses_bridge.surrogates import SurrogateJoiner


class TextBuffer(SurrogateJoiner):
    """The text of one open part or call: `admit` a delta, then `write` what it gave.

    A string with a reference elsewhere is copied whole at each `+=`, so the text sits in a StringIO
    (law E12).
    """

    __slots__ = ("_io", "write")

    def __init__(self) -> None:
        super().__init__()
        self._io = StringIO()
        self.write = self._io.write

    @property
    def text(self) -> str:
        return self._io.getvalue()

    def __len__(self) -> int:
        return self._io.tell()

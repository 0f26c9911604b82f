"""Text that grows by deltas: kept once, appended in constant time, whole code points only."""

from __future__ import annotations

import re
from io import StringIO

_SURROGATE = re.compile("[\ud800-\udfff]")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
REPLACEMENT = "\ufffd"


def is_whole(text: str) -> bool:
    """Whether the text holds no half of a surrogate pair."""
    return _SURROGATE.search(text) is None


class TextBuffer:
    """The text of one open part or call.

    A string with a reference elsewhere is copied whole at each `+=`, so the text sits in a StringIO
    (law E12). An upstream may split an emoji between two deltas: half a surrogate pair can't be
    encoded, so it is held back until its other half comes, and becomes U+FFFD when it never does.
    """

    __slots__ = ("_io", "held", "write")

    def __init__(self) -> None:
        self._io = StringIO()
        self.write = self._io.write
        self.held = ""

    def admit(self, delta: str) -> str:
        """What of `delta` can be sent now, with what was held before it."""
        if not self.held and is_whole(delta):
            return delta
        delta = _PAIR.sub(_join, self.held + delta)
        self.held = ""
        if "\ud800" <= delta[-1] <= "\udbff":
            self.held = delta[-1]
            delta = delta[:-1]
        return _SURROGATE.sub(REPLACEMENT, delta)

    def settle(self) -> str:
        """What a half still held becomes when nothing more can come."""
        rest = REPLACEMENT if self.held else ""
        self.held = ""
        return rest

    @property
    def text(self) -> str:
        return self._io.getvalue()

    def __len__(self) -> int:
        return self._io.tell()


def _join(pair: re.Match[str]) -> str:
    return pair.group().encode("utf-16", "surrogatepass").decode("utf-16")

"""Halves of surrogate pairs: an upstream may split an emoji between two deltas.

Half a pair can't be encoded. Whole texts are mended at once, streams through a joiner.
"""

from __future__ import annotations

import re

REPLACEMENT = "\ufffd"
_SURROGATE = re.compile("[\ud800-\udfff]")
_search = _SURROGATE.search
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def is_whole(text: str) -> bool:
    """Whether the text holds no half of a pair."""
    return _search(text) is None


def mended(text: str) -> str:
    """The text with its pairs joined; a half alone becomes U+FFFD."""
    if text.isascii() or _search(text) is None:
        return text
    return _SURROGATE.sub(REPLACEMENT, _PAIR.sub(_join, text))


class SurrogateJoiner:
    """Holds back the first half of a pair that ends a delta."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held = ""

    def admit(self, delta: str) -> str:
        """What can go out now, with what was held before it."""
        if not self.held and (delta.isascii() or _search(delta) is None):
            return delta
        delta = self.held + delta
        self.held = delta[-1] if "\ud800" <= delta[-1:] <= "\udbff" else ""
        return mended(delta[:-1] if self.held else delta)

    def settle(self) -> str:
        """What a half still held becomes when nothing more can come."""
        rest = REPLACEMENT if self.held else ""
        self.held = ""
        return rest


def _join(pair: re.Match[str]) -> str:
    return pair.group().encode("utf-16", "surrogatepass").decode("utf-16")

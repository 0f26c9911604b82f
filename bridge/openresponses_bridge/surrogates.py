"""Halves of surrogate pairs: an upstream may split an emoji between two deltas.

Half a pair can't be encoded as UTF-8. Whole texts are mended at once, streams by a joiner.
"""

from __future__ import annotations

import re
from typing import Any, Final

REPLACEMENT: Final = "\ufffd"
_HALF: Final = re.compile("[\ud800-\udfff]")
_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_search = _HALF.search


def is_whole(text: str) -> bool:
    """Whether the text is free of half pairs."""
    return _search(text) is None


def mended(text: str) -> str:
    """The text with its pairs joined; a half by itself becomes U+FFFD."""
    if text.isascii() or _search(text) is None:
        return text
    return _HALF.sub(REPLACEMENT, joined(text))


def joined(text: str) -> str:
    """The text with its pairs joined; a half by itself stays as it is."""
    return _PAIR.sub(_join, text)


def mended_json(value: Any) -> Any:
    """A JSON value with all of its texts and names mended."""
    if isinstance(value, str):
        return mended(value)
    if isinstance(value, list):
        return [mended_json(element) for element in value]
    if isinstance(value, dict):
        return {mended(name): mended_json(element) for name, element in value.items()}
    return value


class SurrogateJoiner:
    """Makes the deltas of one text whole: a first half at the end of a delta is `held` until the next one.
    `repaired` says that a half by itself was replaced."""

    __slots__ = ("held", "repaired")

    def __init__(self) -> None:
        self.held = ""
        self.repaired = False

    def admit(self, delta: str) -> str:
        """What can be sent now, with what was held before it."""
        if not self.held and (delta.isascii() or _search(delta) is None):
            return delta
        delta = joined(self.held + delta)
        self.held = delta[-1] if "\ud800" <= delta[-1:] <= "\udbff" else ""
        whole, replaced = _HALF.subn(REPLACEMENT, delta[:-1] if self.held else delta)
        self.repaired = self.repaired or bool(replaced)
        return whole

    def settle(self) -> str:
        """What a half that is still held becomes when nothing more can come."""
        rest, self.held = (REPLACEMENT if self.held else ""), ""
        self.repaired = self.repaired or bool(rest)
        return rest


def _join(pair: re.Match[str]) -> str:
    return pair.group().encode("utf-16", "surrogatepass").decode("utf-16")

"""Separates reasoning between think tags from the text of an answer, however the text is divided into
fragments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from functools import lru_cache
from operator import itemgetter
from typing import Final

from openresponses_bridge.text import overlap

THINK_TAGS: Final = (("<think>", "</think>"),)
NO_TAGS: Final = "think_tags: pairs of an opening and a closing tag are expected"
"""The message for an option without a pair, or with an empty tag."""

# Models without a reasoning parser before them open their answer with a tag. Only there does it mean
# reasoning, unless the options say otherwise; later it is text. White space beside the tags belongs to them,
# not to the answer, so an empty `<think></think>` leaves nothing (field case 16).

Piece = tuple[bool, str]
"""True if it is reasoning, and its text."""

_SPACE: Final = re.compile(r"\s*")


class _At(Enum):
    HEAD = auto()  # nothing but white space and perhaps the beginning of the tag so far
    OPENED = auto()  # after the tag, before the first letter of the reasoning
    THINKING = auto()
    CLOSED = auto()  # after the closing tag, before the first letter of the answer
    TEXT = auto()


_first_of: Final = itemgetter(0)
_WITHIN: Final = (_At.OPENED, _At.THINKING)


@lru_cache(maxsize=64)
def _known(tags: tuple[tuple[str, str], ...]) -> tuple[dict[str, str], re.Pattern[str], int, str, str]:
    """Return (opening → closing, the pattern of opening tags, the length of the longest, the characters with
    which they begin, the first closing tag)."""
    closing = dict(tags)
    openings = re.compile("|".join(map(re.escape, closing)))
    return (
        closing,
        openings,
        max(map(len, closing)),
        "".join(map(_first_of, closing)),
        next(iter(closing.values())),
    )


class ThinkTags:
    """Splits fragments into pieces of reasoning and of text. `tags` are pairs of an opening and a closing
    tag. `opened` is True if the model's template has opened the first, so that the text begins within it;
    `later` if tags after the first letter of the answer count too.

    `is_flushed` is True while nothing is held back and no tag is open.
    """

    __slots__ = (
        "_at",
        "_begins",
        "_blank",
        "_close",
        "_held",
        "_later",
        "_longest",
        "_opened",
        "_openings",
        "_tags",
        "is_flushed",
    )

    def __init__(
        self, tags: Sequence[tuple[str, str]] = THINK_TAGS, *, opened: bool = False, later: bool = False
    ) -> None:
        self._tags, self._openings, self._longest, begins, self._close = _known(tuple(tags))
        self._opened = opened
        self._later = later
        # the first characters of tags, until the text has begun, if only a tag at its beginning counts
        self._begins = "" if opened or later else begins
        self._at = _At.HEAD
        self._held = ""
        self._blank: list[str] = []  # white space at the beginning, before the held text
        self.is_flushed = True

    @property
    def decided(self) -> bool:
        """True if no tag can come any more: the caller need not feed text."""
        return self._at is _At.TEXT and not self._later

    def feed(self, text: str) -> list[Piece]:
        """Feed the next fragment. Returns what is known by now, in order."""
        first = text[:1]
        if self._begins and first > " " and first not in self._begins and first.isascii():
            self._begins, self._at = "", _At.TEXT  # as most answers begin
            return [(False, text)]
        text, self._held = self._held + text, ""
        self._begins = self._begins if not text else ""
        pieces: list[Piece] = []
        position, end = 0, len(text)
        while position < end:
            position = self._step(text, position, pieces)
        self.is_flushed = not (self._held or self._blank) and self._at not in _WITHIN
        return _joined(pieces)

    def close(self) -> list[Piece]:
        """Return what was held back, since something else follows. What comes then is text."""
        text, self._held = "".join(self._blank) + self._held, ""
        self._blank.clear()
        thinking, self._at = self._at in _WITHIN, _At.TEXT
        self.is_flushed = True
        return [(thinking, text)] if text else []

    def _step(self, text: str, position: int, pieces: list[Piece]) -> int:
        """Read from this position on. Returns the next position."""
        if self._at is _At.THINKING:
            return self._think(text, position, pieces)
        if self._at is _At.TEXT:
            return self._text(text, position, pieces)
        start = _end_of_space(text, position)
        if self._at is _At.HEAD:
            return self._head(text, position, start, pieces)
        if start < len(text):  # white space beside a tag belongs to the tag
            self._at = _At.THINKING if self._at is _At.OPENED else _At.TEXT
        return start

    def _head(self, text: str, position: int, start: int, pieces: list[Piece]) -> int:
        if start > position:
            self._blank.append(text[position:start])
        tag = self._openings.match(text, start)
        begun = text[start : start + self._longest]
        if tag is None and any(opening.startswith(begun) for opening in self._tags):
            self._held = text[start:]
            return len(text)
        blank = "".join(self._blank)
        self._blank.clear()
        if tag is not None:
            return self._open(tag)
        if self._opened:
            self._at = _At.THINKING
        else:
            self._at = _At.TEXT
            pieces.append((False, blank))
        return start

    def _open(self, tag: re.Match[str]) -> int:
        self._at, self._close = _At.OPENED, self._tags[tag[0]]
        return tag.end()

    def _think(self, text: str, position: int, pieces: list[Piece]) -> int:
        at = text.find(self._close, position)
        if at >= 0:
            pieces.append((True, text[position:at]))
            self._at = _At.CLOSED
            return at + len(self._close)
        return self._buffer(text, position, (self._close,), True, pieces)

    def _text(self, text: str, position: int, pieces: list[Piece]) -> int:
        tag = self._openings.search(text, position) if self._later else None
        if tag is not None:
            pieces.append((False, text[position : tag.start()]))
            return self._open(tag)
        return self._buffer(text, position, self._tags if self._later else (), False, pieces)

    def _buffer(
        self, text: str, position: int, tags: Iterable[str], thinking: bool, pieces: list[Piece]
    ) -> int:
        """Hold back the end of the text that may be the beginning of a tag."""
        size = max((overlap(text, position, tag) for tag in tags), default=0)
        at = len(text) - size
        pieces.append((thinking, text[position:at]))
        self._held = text[at:]
        return len(text)


def _end_of_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return position if match is None else match.end()


def _joined(pieces: list[Piece]) -> list[Piece]:
    """Return the pieces with neighbours of one kind joined, without empty ones."""
    runs: list[tuple[bool, list[str]]] = []
    for thinking, text in pieces:
        if text and runs and runs[-1][0] == thinking:
            runs[-1][1].append(text)
        elif text:
            runs.append((thinking, [text]))
    return [(thinking, "".join(texts)) for thinking, texts in runs]

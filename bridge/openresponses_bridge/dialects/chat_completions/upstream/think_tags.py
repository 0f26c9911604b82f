"""`<think>…</think>` at the head of a text → reasoning apart from text, however it is cut.

Models without a reasoning parser before them open their answer with the tag. Only there does it
mean reasoning: later it is text. White space beside the tags is theirs, not the answer's, so an empty
`<think></think>` leaves nothing behind (field case 16).
"""

from __future__ import annotations

from enum import Enum, auto

OPEN = "<think>"
CLOSE = "</think>"


class _At(Enum):
    HEAD = auto()  # nothing but white space and perhaps the beginning of the tag so far
    OPENED = auto()  # behind the tag, before the first letter of the reasoning
    THINKING = auto()
    CLOSED = auto()  # behind the closing tag, before the first letter of the answer
    TEXT = auto()


_WITHIN = (_At.OPENED, _At.THINKING)


class ThinkTags:
    """Splits fragments into (reasoning, text). After `decided` everything is text as it stands.

    `settled` while nothing is held back and no tag is open.
    """

    __slots__ = ("_at", "_blank", "_held", "settled")

    def __init__(self) -> None:
        self._at = _At.HEAD
        self._held = ""
        self._blank: list[str] = []  # white space at the head, before what is held
        self.settled = True

    @property
    def decided(self) -> bool:
        """No tag can come any more: the caller may pass text by."""
        return self._at is _At.TEXT

    def feed(self, text: str) -> tuple[str, str]:
        """The next fragment → what of it is known to be reasoning, and what to be text."""
        text, self._held = self._held + text, ""
        reasoning = ""
        if self._at is _At.HEAD:
            if not self._blank and text[:1] != OPEN[0] and text[:1] > " " and text[:1].isascii():
                self._at, self.settled = _At.TEXT, True  # it begins as answers mostly do
                return "", text
            text = self._head(text)
        if self._at in _WITHIN:
            reasoning, text = self._thinking(text)
        if self._at is _At.CLOSED:
            text = text.lstrip()
            self._at = _At.TEXT if text else _At.CLOSED
        self.settled = not (self._held or self._blank) and self._at not in _WITHIN
        return reasoning, text

    def close(self) -> tuple[str, str]:
        """No more text comes: give what was held."""
        held, self._held = "".join(self._blank) + self._held, ""
        self._blank.clear()
        thinking, self._at = self._at in _WITHIN, _At.TEXT
        self.settled = True
        return (held, "") if thinking else ("", held)

    def _head(self, text: str) -> str:
        start = text.lstrip()
        if len(start) < len(text):
            self._blank.append(text[: len(text) - len(start)])
        if OPEN.startswith(start) and start != OPEN:
            self._held = start
            return ""
        blank = "".join(self._blank)
        self._blank.clear()
        if start.startswith(OPEN):
            self._at = _At.OPENED
            return start[len(OPEN) :]
        self._at = _At.TEXT
        return blank + start

    def _thinking(self, text: str) -> tuple[str, str]:
        if self._at is _At.OPENED:
            text = text.lstrip()
            if not text:
                return "", ""
            self._at = _At.THINKING
        reasoning, closed, answer = text.partition(CLOSE)
        if closed:
            self._at = _At.CLOSED
            return reasoning, answer
        size = _overlap(reasoning)
        self._held = reasoning[len(reasoning) - size :]
        return reasoning[: len(reasoning) - size], ""


def _overlap(text: str) -> int:
    """How many characters at the end of `text` may be the beginning of the closing tag."""
    for size in range(min(len(CLOSE) - 1, len(text)), 0, -1):
        if CLOSE.startswith(text[-size:]):
            return size
    return 0

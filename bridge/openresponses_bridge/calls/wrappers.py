"""Lines that models put around a tool's raw input: a Markdown fence, a shell's here-document.

Field case 34. The opening line is dropped as soon as it is whole, the text flows, and only what may
yet be the closing line is held back.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, NamedTuple


class Wrapper(NamedTuple):
    """One kind of wrapper.

    `begins` are the characters it can begin with, `opening` its whole first line (white space before
    it included), `closing` makes the closing line from the match of the opening one.
    """

    name: str
    begins: tuple[str, ...]
    opening: re.Pattern[str]
    closing: Callable[[re.Match[str]], str]


FENCE: Final = Wrapper(
    name="code_fence",
    begins=("```",),
    opening=re.compile(r"\s*(```+)[\w.+-]*[ \t]*\r?\n"),
    closing=lambda match: match[1],
)
HEREDOC: Final = Wrapper(
    name="heredoc",
    begins=("<<", "apply_patch", "applypatch"),
    opening=re.compile(r"\s*(?:apply_?patch[ \t]*)?<<-?[ \t]*(['\"]?)(\w+)\1[ \t]*\r?\n"),
    closing=lambda match: match[2],
)

# An opening line that is longer than this is text.
_LONGEST_OPENING: Final = 96


class _State(Enum):
    UNDECIDED = auto()
    PLAIN = auto()
    OPEN = auto()
    CLOSED = auto()


class WrapperStripper:
    """Removes one kind of wrapper from a text that arrives in fragments; other texts pass unchanged.

    The closing line goes with the line end before it and the white space behind it. Without an
    opening line nothing is removed, and neither is a closing line that more text follows.
    """

    __slots__ = ("_body_begun", "_closing", "_held", "_state", "_wrapper", "name")

    def __init__(self, wrapper: Wrapper) -> None:
        self.name = wrapper.name
        self._wrapper = wrapper
        self._state = _State.UNDECIDED
        self._held: list[str] = []
        self._closing = ""
        self._body_begun = False

    @property
    def opened(self) -> bool:
        """Whether an opening line was found and dropped."""
        return self._state in (_State.OPEN, _State.CLOSED)

    def feed(self, text: str) -> str:
        """Take the next text; return what is now known to be input."""
        if self._state is _State.PLAIN or not text:
            return text
        if self._state is _State.CLOSED and text.isspace():
            self._held.append(text)
            return ""
        self._held.append(text)
        text = "".join(self._held)
        self._held.clear()
        return self._open(text) if self._state is _State.UNDECIDED else self._body(text)

    def close(self) -> str:
        """The text has ended: return what was held and is not a closing line."""
        held = "".join(self._held)
        self._held.clear()
        if self._state is _State.OPEN:
            return self._without_first_line_end(held)
        return "" if self._state is _State.CLOSED else held

    def _open(self, text: str) -> str:
        match = self._wrapper.opening.match(text, 0, _LONGEST_OPENING)
        if match is not None:
            self._state = _State.OPEN
            self._closing = "\n" + self._wrapper.closing(match)
            # Its line end stays: a closing line may follow at once.
            return self._body(text[match.end() - 1 :])
        if self._may_open(text):
            self._held.append(text)
            return ""
        self._state = _State.PLAIN
        return text

    def _may_open(self, text: str) -> bool:
        line = text.lstrip()
        begun = any(line.startswith(begin) or begin.startswith(line) for begin in self._wrapper.begins)
        return begun and "\n" not in line and len(text) < _LONGEST_OPENING

    def _body(self, text: str) -> str:
        at = text.rfind(self._closing)
        if at >= 0 and not text[at + len(self._closing) :].strip():
            self._state = _State.CLOSED
        else:
            self._state = _State.OPEN
            at = text.rfind("\n")
            if at < 0 or not self._closing.startswith(text[at:]):
                at = len(text)
        if at < len(text):
            self._held.append(text[at:])
        return self._without_first_line_end(text[:at])

    def _without_first_line_end(self, text: str) -> str:
        if self._body_begun or not text:
            return text
        self._body_begun = True
        return text[1:]

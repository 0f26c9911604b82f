"""Extracts a custom tool's raw input from a function call's arguments, as they stream (law E11).

A custom tool takes plain text; a model that knows only functions sends it as ``{"input": "…"}``, in arbitrary
fragments. The text is passed on at once. Models also use another key, put members before it, send the bare
text, or wrap the text as for a reader (field cases 33 and 34).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, NamedTuple

import msgspec

from openresponses_bridge.calls.json_input import INPUT_KEY, JsonInputReader
from openresponses_bridge.text import SurrogateJoiner, repair_surrogates

# Models put lines around a tool's raw input: a Markdown fence, a shell's here-document (field case 34). The
# opening line is dropped once it is whole; then the text is passed on, and only a line that may be the
# closing one is held back.


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

# A longer opening line is text.
_LONGEST_OPENING: Final = 96


class _State(Enum):
    UNDECIDED = auto()
    PLAIN = auto()
    OPEN = auto()
    CLOSED = auto()


class WrapperStripper:
    """Removes one kind of wrapper from a text that arrives in fragments; other texts pass unchanged.

    The closing line is removed with the line end before it and the white space after it. Without an opening
    line nothing is removed, and neither is a closing line that more text follows.
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
        """True if an opening line was found and dropped."""
        return self._state in (_State.OPEN, _State.CLOSED)

    def feed(self, text: str) -> str:
        """Feed the next text. Returns what is now known to be input."""
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
        """End the text. Returns what was held and is not a closing line."""
        pending = "".join(self._held)
        self._held.clear()
        if self._state is _State.OPEN:
            return self._without_first_line_end(pending)
        return "" if self._state is _State.CLOSED else pending

    def _open(self, text: str) -> str:
        match = self._wrapper.opening.match(text, 0, _LONGEST_OPENING)
        if match is not None:
            self._state = _State.OPEN
            self._closing = "\n" + self._wrapper.closing(match)
            # Its line end is kept, since a closing line may follow directly.
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


def wrap_input(text: str) -> str:
    """Return the canonical arguments with `text` as a function call's input; a lone surrogate becomes
    U+FFFD."""
    return msgspec.json.encode({INPUT_KEY: repair_surrogates(text)}).decode()


class InputUnwrapper:
    """Reads a call's arguments in fragments and returns the raw input in them, as early as it is known.

    `input`, `patch`, `content` and `code` are streamed at once, also in an object under one of them, and so
    is a patch under any key, alone or as a word of a list. Another key's text is held until the object ends,
    in case a better one comes. An object without any text is not a wrapper and is passed unchanged, like text
    that is not JSON. Never raises. After `close`, `truncated` is True if the JSON around the input was cut
    off.
    """

    __slots__ = ("_arguments", "_joiner", "_wrappers", "truncated")

    def __init__(self) -> None:
        self.truncated = False
        self._arguments = JsonInputReader()
        self._joiner = SurrogateJoiner()
        self._wrappers = (WrapperStripper(FENCE), WrapperStripper(HEREDOC))

    @property
    def repairs(self) -> list[str]:
        """The differences so far from ``{"input": "…"}`` with bare text, from outside to inside.

        ``raw_text``, ``json_string``, ``no_wrapper``, ``malformed_json``, ``trailing_text``,
        ``wrapper_key:NAME``, ``nested_object``, ``list``, ``other_members``, ``invalid_escape``,
        ``lone_surrogate``, ``code_fence``, ``heredoc``.
        """
        repairs = list(self._arguments.notes)
        if self._joiner.repaired:
            repairs.append("lone_surrogate")
        return repairs + [wrapper.name for wrapper in self._wrappers if wrapper.opened]

    def feed(self, fragment: str) -> str:
        """Feed the next fragment of the arguments. Returns the input text that is known by it."""
        text = self._arguments.feed(fragment)
        if text:
            text = self._joiner.feed(text)
            for wrapper in self._wrappers:
                text = wrapper.feed(text)
        return text

    def close(self) -> str:
        """End the arguments. Returns the rest of the input, and sets `truncated`."""
        self.truncated = self._arguments.cut
        text = self._joiner.feed(self._arguments.close()) + self._joiner.flush()
        for wrapper in self._wrappers:
            text = wrapper.feed(text) + wrapper.close()
        return text

"""A custom tool's raw input out of a function call's arguments, as they stream (law E11).

A custom tool takes plain text; a model that knows only functions sends it as ``{"input": "…"}``, cut
into fragments anywhere. The text leaves as it comes. Models also choose another key, put members
before it, send the bare text, or wrap the text as they would for a reader (field cases 33 and 34).
"""

from __future__ import annotations

import msgspec

from openresponses_bridge.calls.json_input import INPUT_KEY, JsonInputReader
from openresponses_bridge.calls.wrappers import FENCE, HEREDOC, WrapperStripper
from openresponses_bridge.surrogates import SurrogateJoiner, mended


def wrap_input(text: str) -> str:
    """The canonical arguments that carry `text` as a function call's input; a lone surrogate is U+FFFD."""
    return msgspec.json.encode({INPUT_KEY: mended(text)}).decode()


class InputUnwrapper:
    """Reads a call's arguments in fragments and returns the raw input in them, as early as it is known.

    `input`, `patch`, `content` and `code` stream on sight, and so does a patch under any key. Another
    key's text is held until the object ends, in case a better one comes. An object that does not hold a
    single text is not a wrapper and passes as it is, like text that is not JSON. Never raises. After `close`,
    `truncated` says whether the JSON around the input was cut.
    """

    __slots__ = ("_arguments", "_joiner", "_wrappers", "truncated")

    def __init__(self) -> None:
        self.truncated = False
        self._arguments = JsonInputReader()
        self._joiner = SurrogateJoiner()
        self._wrappers = (WrapperStripper(FENCE), WrapperStripper(HEREDOC))

    @property
    def repairs(self) -> list[str]:
        """How the arguments differ so far from ``{"input": "…"}`` with bare text, from outside to inside.

        ``raw_text``, ``json_string``, ``no_wrapper``, ``malformed_json``, ``trailing_text``,
        ``wrapper_key:NAME``, ``other_members``, ``invalid_escape``, ``lone_surrogate``, ``code_fence``,
        ``heredoc``.
        """
        repairs = list(self._arguments.notes)
        if self._joiner.repaired:
            repairs.append("lone_surrogate")
        return repairs + [wrapper.name for wrapper in self._wrappers if wrapper.opened]

    def feed(self, fragment: str) -> str:
        """Take the next fragment of the arguments; return the input text that it makes known."""
        text = self._arguments.feed(fragment)
        if text:
            text = self._joiner.admit(text)
            for wrapper in self._wrappers:
                text = wrapper.feed(text)
        return text

    def close(self) -> str:
        """The arguments have ended: return the rest of the input and set `truncated`."""
        self.truncated = self._arguments.cut
        text = self._joiner.admit(self._arguments.close()) + self._joiner.settle()
        for wrapper in self._wrappers:
            text = wrapper.feed(text) + wrapper.close()
        return text

"""Reading JSON strings that arrive in fragments."""

from __future__ import annotations

import re
from typing import Final

_SPECIAL: Final = re.compile(r'["\\]')
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|[^u])", re.DOTALL)
_ESCAPE_BEGUN: Final = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")
_LONGEST_ESCAPE: Final = len("\\uffff")
_MEANING: Final = {
    '\\"': '"', "\\\\": "\\", "\\/": "/", "\\b": "\b", "\\f": "\f", "\\n": "\n", "\\r": "\r", "\\t": "\t",
}  # fmt: skip


class JsonStringReader:
    """Decodes one JSON string, from behind its opening quote to its closing one.

    Surrogate escapes come out as single surrogates: a `openresponses_bridge.surrogates.SurrogateJoiner` makes
    them whole. What JSON does not allow but models write (raw control characters, unknown escapes) is kept as
    it is written; `repaired` says that there were such escapes.
    """

    __slots__ = ("_escape", "closed", "repaired")

    def __init__(self) -> None:
        self.closed = False
        self.repaired = False
        self._escape = ""

    def read(self, text: str, position: int, out: list[str]) -> int:
        """Append to `out` what `text` holds of the string from `position` on; return where it ends."""
        if self._escape:
            position = self._read_escape(text, position, out)
        while position < len(text):
            special = _SPECIAL.search(text, position)
            if special is None:
                out.append(text[position:])
                return len(text)
            at = special.start()
            if at > position:
                out.append(text[position:at])
            if text[at] == '"':
                self.closed = True
                return at + 1
            meaning = _MEANING.get(text[at : at + 2])
            if meaning is None:
                position = self._read_escape(text, at, out)
            else:
                out.append(meaning)
                position = at + 2
        return position

    def _read_escape(self, text: str, position: int, out: list[str]) -> int:
        held = len(self._escape)
        window = self._escape + text[position : position + _LONGEST_ESCAPE - held]
        self._escape = ""
        match = _ESCAPE.match(window)
        if match is None:
            match = _ESCAPE_BEGUN.match(window)
            if match is not None and match.end() == len(window):
                self._escape = window
                return len(text)
        assert match is not None, "a window begins with a backslash"
        written = match[0]
        if match.lastindex:
            out.append(chr(int(match[1], 16)))
        else:
            self.repaired |= written not in _MEANING
            out.append(_MEANING.get(written, written))
        return position + len(written) - held

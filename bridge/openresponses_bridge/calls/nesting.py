"""How deep a JSON text stands in brackets, piece by piece."""

from __future__ import annotations

import re
from typing import Final

_MARK: Final = re.compile(r'[\\"{}\[\]]')


class Nesting:
    """Counts the brackets of a text that need not be valid JSON; those in strings don't count."""

    __slots__ = ("_closings", "_depth", "_in_string", "_skip")

    def __init__(self) -> None:
        self._depth = 0
        self._closings = 0  # how often the outermost bracket closed
        self._in_string = False
        self._skip = 0  # characters of an escape that the next piece begins with

    @property
    def closed_once(self) -> bool:
        """Every bracket is closed, and the outermost was once: a text for which this does not hold is not one
        whole array or object."""
        return self._closings == 1 and self._depth == 0 and not self._in_string

    def feed(self, text: str) -> None:
        """The next piece. Takes time linear in it."""
        position, self._skip = self._skip, 0
        while (match := _MARK.search(text, position)) is not None:
            mark, position = match[0], match.end()
            if mark == '"':
                self._in_string = not self._in_string
            elif mark == "\\":
                position += self._in_string
            elif not self._in_string:
                self._depth += 1 if mark in "{[" else -1
                self._closings += self._depth <= 0
        self._skip = max(0, position - len(text))

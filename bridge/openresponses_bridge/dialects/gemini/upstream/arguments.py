"""Assembles a call's arguments that come in pieces: `partialArgs`, each a value at a path within the
arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from openresponses_bridge.dialects.gemini.types import spelled

DEEPEST: Final = 64
"""The most steps of a path; longer ones are malformed."""
_STEP: Final = re.compile(
    r"\.(?P<name>[^.\[\]]+)|\[(?P<index>\d{1,9})\]|\['(?P<quoted>[^']*)'\]|\[\"(?P<double>[^\"]*)\"\]"
)
_VALUES: Final = ("stringValue", "numberValue", "boolValue", "nullValue")


class PartialArguments:
    """Builds the arguments of one call. A text may come in pieces; a list grows by one element at a time.
    `malformed` becomes True with a piece that has no valid place."""

    def __init__(self) -> None:
        self._root: dict[str, Any] = {}
        self.malformed = False

    def add(self, pieces: Any) -> None:
        """Add the next pieces, of whatever type they are."""
        for piece in pieces if isinstance(pieces, list) else (pieces,):
            if not (isinstance(piece, Mapping) and self._put(spelled(piece))):
                self.malformed = True

    def whole(self) -> dict[str, Any]:
        """The arguments so far."""
        arguments: dict[str, Any] = _joined(self._root)
        return arguments

    def _put(self, piece: Mapping[str, Any]) -> bool:
        path, name = piece.get("jsonPath"), next((each for each in _VALUES if each in piece), None)
        if not isinstance(path, str):
            return False
        steps = list(_steps(path))
        if not steps or len(steps) > DEEPEST or None in steps:
            return False
        if name is None:
            return piece.get("willContinue") is True  # its text follows
        holder: Any = self._root
        for step, following in pairwise(steps):
            holder = _at(holder, step, list if isinstance(following, int) else dict)
            if holder is None:
                return False
        value = None if name == "nullValue" else piece[name]
        if not isinstance(value, str):
            return _set(holder, steps[-1], value)
        text = _at(holder, steps[-1], _Text)
        if not isinstance(text, _Text):
            return False
        text.pieces.append(value)
        return True


class _Text:
    """A text that may continue."""

    __slots__ = ("pieces",)

    def __init__(self) -> None:
        self.pieces: list[str] = []


def _steps(path: str) -> Iterator[str | int | None]:
    """Yield the names and indexes of a path that begins with `$`, and None where it is malformed."""
    if not path.startswith("$"):
        yield None
        return
    position = 1
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            yield None
            return
        position = match.end()
        yield int(match["index"]) if match["index"] is not None else str(match[match.lastgroup or 0])


def _at(holder: Any, step: Any, make: type[Any]) -> Any:
    """Return the value at a step, which is made if it does not exist; None if the step is not valid there."""
    if isinstance(step, int):
        if not isinstance(holder, list) or step > len(holder):
            return None
        if step == len(holder):
            holder.append(make())
    elif not isinstance(holder, dict):
        return None
    else:
        holder.setdefault(step, make())
    value = holder[step]
    return value if isinstance(value, make) else None


def _set(holder: Any, step: Any, value: Any) -> bool:
    if isinstance(step, int) and isinstance(holder, list) and step <= len(holder):
        holder[step : step + 1] = [value]
        return True
    if isinstance(step, str) and isinstance(holder, dict):
        holder[step] = value
        return True
    return False


def _joined(value: Any) -> Any:
    if isinstance(value, _Text):
        return "".join(value.pieces)
    if isinstance(value, list):
        return [_joined(each) for each in value]
    if isinstance(value, dict):
        return {name: _joined(each) for name, each in value.items()}
    return value

"""Unguessable ids from the system's randomness, read in bulk."""

from __future__ import annotations

import os
from typing import Final

LONGEST: Final = 32
"""Digits of an id: 128 bits."""
_AT_ONCE: Final = 64  # ids of one read
_names: Final[list[str]] = []


def random_id(prefix: str, digits: int = LONGEST) -> str:
    """The prefix, an underscore and so many hexadecimal digits, `LONGEST` at most. None is given twice,
    whichever threads ask."""
    try:
        name = _names.pop()
    except IndexError:
        read = os.urandom(_AT_ONCE * LONGEST // 2).hex()
        name, *more = [read[at : at + LONGEST] for at in range(0, len(read), LONGEST)]
        _names.extend(more)
    return f"{prefix}_{name[:digits]}"


if hasattr(os, "register_at_fork"):  # a child would give the same names as its parent
    os.register_at_fork(after_in_child=_names.clear)

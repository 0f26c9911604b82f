"""Unguessable ids from `os.urandom`, which is read for many ids at once."""

from __future__ import annotations

import os
from typing import Final

LONGEST: Final = 32
"""The most hexadecimal digits of an id: 128 bits."""
_AT_ONCE: Final = 64  # ids for each read of os.urandom
_names: Final[list[str]] = []


def random_id(prefix: str, digits: int = LONGEST) -> str:
    """Return the prefix, an underscore and this number of hexadecimal digits, at most `LONGEST`. Thread-safe:
    no two calls use the same random digits."""
    try:
        name = _names.pop()
    except IndexError:
        read = os.urandom(_AT_ONCE * LONGEST // 2).hex()
        name, *more = [read[at : at + LONGEST] for at in range(0, len(read), LONGEST)]
        _names.extend(more)
    return f"{prefix}_{name[:digits]}"


if hasattr(os, "register_at_fork"):  # otherwise a forked child would give the same ids as its parent
    os.register_at_fork(after_in_child=_names.clear)

"""Which known name was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

_LONGEST: Final = 60  # characters that are compared


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """` (did you mean 'port'?)` for what is close to a known name, else nothing: the end of a message."""
    found = get_close_matches(given[:_LONGEST].lower(), list(known), n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""

"""Where something stands in a JSON document, for messages: `$.properties.city`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_LONGEST_KEY: Final = 40  # characters
_LONGEST_PLACE: Final = 200


def place_of(steps: Iterable[str | int]) -> str:
    """The path of these keys and indexes, cut to a length that a message can hold."""
    place = "$"
    for step in steps:
        if isinstance(step, int):
            place += f"[{step}]"
        elif step.isidentifier() or step.removeprefix("$").isidentifier() or step == "*":
            place += f".{step[:_LONGEST_KEY]}"
        else:
            place += f"[{step[:_LONGEST_KEY]!r}]"
        if len(place) > _LONGEST_PLACE:
            return f"{place[:_LONGEST_PLACE]}…"
    return place

"""Paths in a JSON document, for messages: `$.properties.city`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_LONGEST_KEY: Final = 40  # characters
_LONGEST_PATH: Final = 200


def json_path(steps: Iterable[str | int]) -> str:
    """The path of these keys and indexes, cut to a length that a message can hold."""
    path = "$"
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step.isidentifier() or step.removeprefix("$").isidentifier() or step == "*":
            path += f".{step[:_LONGEST_KEY]}"
        else:
            path += f"[{step[:_LONGEST_KEY]!r}]"
        if len(path) > _LONGEST_PATH:
            return f"{path[:_LONGEST_PATH]}…"
    return path

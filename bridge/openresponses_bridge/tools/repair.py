"""JSON that models get wrong, repaired: quotes, commas and brackets left out, Python's words, fences.

json-repair does it, an extra, loaded by the first repair. What is cut is not repaired: half a path or half a
file is not what the model meant.
"""

from __future__ import annotations

from typing import Any, Final

from openresponses_bridge.errors import LocalError

_MOST_CHARACTERS: Final = 50_000  # the repairing looks far ahead: its time is not linear
_DEEPEST: Final = 100


def repaired_json(text: str | bytes) -> dict[str, Any] | None:
    """The object that the text was meant to be; None when nothing useful comes of it, when it is longer than
    50,000 characters, and when it does not end with a bracket. Raises LocalError when json-repair is
    missing."""
    try:
        from json_repair import repair_json
    except ImportError:
        raise LocalError(
            "openresponses_bridge.tools.repair",
            "repairs need json-repair: pip install 'openresponses-bridge[repair]'",
        ) from None
    plain = text.decode(errors="replace") if isinstance(text, bytes) else text
    if len(plain) > _MOST_CHARACTERS or not _closed(plain):
        return None
    try:
        value = repair_json(plain, return_objects=True)
    except (RecursionError, ValueError):
        return None
    return value if isinstance(value, dict) and value else None


def _closed(text: str) -> bool:
    """Whether the text ends as an object does; a fence behind it may follow."""
    brackets = text.count("{") + text.count("[")
    return text.rstrip().rstrip("`").rstrip().endswith("}") and brackets <= _DEEPEST * 10

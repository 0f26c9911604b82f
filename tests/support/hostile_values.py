"""Values of wrong types, and the places in a request where tests put them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

Path = tuple[str | int, ...]
WRONG: Final[tuple[Any, ...]] = (
    *(None, True, 5, 2**70, 1.5, "", "x", "\ud800", "a\r\nb"),
    *([], ["x"], [None], [[]], {}, {"a": 1}, {"type": "x"}, [{"type": "text"}]),
)


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the places of all values within this one."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield (*path, key)
        yield from places(each, (*path, key))


def changed_at(request: dict[str, Any], place: Path) -> Iterator[dict[str, Any]]:
    """Yield the request without the value at this place, then with each of the other values there."""
    *before, last = place
    text = json.dumps(request)
    for wrong in (..., *WRONG):
        variant = json.loads(text)  # faster than a deep copy
        within = variant
        for key in before:
            within = within[key]
        if wrong is ...:
            del within[last]
        else:
            within[last] = wrong
        yield variant

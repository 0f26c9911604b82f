"""Items and tools of a request that came without their types, as most clients send messages."""

from __future__ import annotations

from typing import Any

from openresponses_bridge.protocol import vocabulary


def with_types(struct: type[Any], value: dict[str, Any]) -> dict[str, Any] | None:
    """A parsed request with the types that are plain from what else is there; None when none is missing."""
    typed: dict[str, Any] = {}
    for name, slot in vocabulary.CHILDREN[struct].items():
        given = value.get(name)
        if slot.infer is None or not isinstance(given, list):
            continue
        bare = [isinstance(each, dict) and each.get("type") is None for each in given]
        if any(bare):
            pairs = zip(given, bare, strict=True)
            typed[name] = [{**each, "type": slot.infer(each)} if lacks else each for each, lacks in pairs]
    return value | typed if typed else None

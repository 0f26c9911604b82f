"""Reading a foreign JSON object field by field: what is missing or of another type is named."""

from __future__ import annotations

from typing import Any, TypeVar

from bridge.dialects.base import invalid, typed

T = TypeVar("T")


def need(value: dict[str, Any], name: str, kind: type[T], param: str = "") -> T:
    """A required field."""
    found = maybe(value, name, kind, param)
    if found is None:
        raise invalid(join(param, name), "is required")
    return found


def maybe(value: dict[str, Any], name: str, kind: type[T], param: str = "") -> T | None:
    """An optional field; null counts as absent."""
    return typed(value.get(name), join(param, name), kind)


def objects(values: list[Any], param: str) -> list[tuple[dict[str, Any], str]]:
    """Each element, an object, with its place."""
    found = []
    for index, value in enumerate(values):
        where = f"{param}[{index}]"
        if not isinstance(value, dict):
            raise invalid(where, "expected an object")
        found.append((value, where))
    return found


def join(param: str, name: str) -> str:
    return f"{param}.{name}" if param else name

"""Reading a foreign JSON object field by field: what is missing or of another type is named."""

from __future__ import annotations

from typing import Any, TypeVar

from bridge.errors import InvalidRequestError

T = TypeVar("T")

_NAMES: dict[type, str] = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "a boolean",
    list: "an array",
    dict: "an object",
}


def invalid(param: str, message: str) -> InvalidRequestError:
    """The error for a field of the request."""
    return InvalidRequestError(InvalidRequestError.INVALID_VALUE, f"{param}: {message}", param=param)


def need(value: dict[str, Any], name: str, kind: type[T], param: str = "") -> T:
    """A required field."""
    found = maybe(value, name, kind, param)
    if found is None:
        raise invalid(join(param, name), "is required")
    return found


def maybe(value: dict[str, Any], name: str, kind: type[T], param: str = "") -> T | None:
    """An optional field; null counts as absent."""
    found = value.get(name)
    if kind is float and type(found) is int:
        found = float(found)
    if found is None or (isinstance(found, kind) and not (kind is int and isinstance(found, bool))):
        return found
    raise invalid(join(param, name), f"expected {_NAMES[kind]}")


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

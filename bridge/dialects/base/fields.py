"""Reading a client's JSON: what is missing or of another type is named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from bridge.errors import InvalidRequestError, WireError
from bridge.protocol.codec import decode_json

T = TypeVar("T")

_NAMES: dict[type, str] = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "a boolean",
    list: "an array",
    dict: "an object",
}


def invalid(param: str, message: str, code: str = InvalidRequestError.INVALID_VALUE) -> InvalidRequestError:
    """The error for a field of the request."""
    return InvalidRequestError(code, f"{param}: {message}", param=param)


def typed(found: Any, param: str, *kinds: type[T]) -> T | None:
    """A field's value, which is of one of these types; null counts as absent."""
    if float in kinds and type(found) is int:
        found = float(found)
    if found is None or (isinstance(found, kinds) and (type(found) is not bool or bool in kinds)):
        return found
    raise invalid(param, f"expected {' or '.join(_NAMES[kind] for kind in kinds)}")


def object_of(body: bytes | str | Mapping[str, Any]) -> dict[str, Any]:
    """The body of a request. Raises InvalidRequestError (`invalid_json`, `invalid_value`)."""
    if isinstance(body, Mapping):
        return dict(body)
    try:
        value = decode_json(body)
    except WireError as error:
        raise InvalidRequestError("invalid_json", error.message) from error
    if not isinstance(value, dict):
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, "the body is no JSON object")
    return value

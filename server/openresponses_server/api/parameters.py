"""Parameters in the query of a URL or in a header. One that can't be used raises InvalidRequestError with
its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from starlette.datastructures import QueryParams

from openresponses_bridge.dialects.base import invalid
from openresponses_bridge.errors import InvalidRequestError
from openresponses_server.store.base import Order

BEFORE_FIRST: Final = -1
"""The value of `starting_after` for a whole stream."""
_BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}
_ORDERS: Final = ("asc", "desc")
_MAX_DIGITS: Final = 15  # JSON readers lose precision beyond that


def flag_of(query: QueryParams, name: str) -> bool:
    """Return the parameter's value; False if it is missing."""
    text = query.get(name, "false")
    truth = _BOOLEANS.get(text.lower())
    if truth is None:
        raise _unlike(name, "true or false", text)
    return truth


def limit_of(query: QueryParams, default: int = 20, most: int = 100) -> int:
    """Return `limit`, the number of elements of a page."""
    text = query.get("limit", str(default))
    if not _is_number(text) or not 1 <= int(text) <= most:
        raise _unlike("limit", f"a number from 1 to {most}", text)
    return int(text)


def order_of(query: QueryParams) -> Order:
    """Return `order` of a page; newest first if it is missing."""
    text = query.get("order", "desc")
    if text not in _ORDERS:
        raise _unlike("order", " or ".join(_ORDERS), text)
    return cast(Order, text)


def starting_after_of(query: QueryParams) -> int:
    """Return `starting_after`, the number of an event; `BEFORE_FIRST` if it is missing."""
    text = query.get("starting_after")
    if text is None:
        return BEFORE_FIRST
    if not _is_number(text):
        raise _unlike("starting_after", "the number of an event", text)
    return int(text)


def time_of(query: QueryParams, name: str) -> float | None:
    """Return a time in Unix seconds; None if it is missing."""
    text = query.get(name)
    if text is None:
        return None
    if not _is_number(text):
        raise _unlike(name, "a time in Unix seconds", text)
    return float(text)


_LONGEST_KEY: Final = 255


def idempotency_key_of(headers: Mapping[str, str]) -> str:
    """Return the header `Idempotency-Key`, which must exist."""
    key = headers["idempotency-key"]
    if 0 < len(key) <= _LONGEST_KEY and key.isascii() and key.isprintable():
        return key
    what = f"Idempotency-Key must have 1 to {_LONGEST_KEY} visible ASCII characters."
    raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param="Idempotency-Key")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS


def _unlike(name: str, expected: str, text: str) -> InvalidRequestError:
    return invalid(name, f"it must be {expected}, not {text[:40]!r}")

"""Reads a client's JSON as Google's servers do: names in camelCase or snake_case, one object where a list is
expected, whole numbers as `40`, `40.0` or `"40"` (protobuf's JSON mapping)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from openresponses_bridge.dialects.base import Fields, body_of, invalid
from openresponses_bridge.dialects.gemini.types import spelled

_INTEGER: Final = re.compile(r"-?[0-9]{1,18}")
_MOST: Final = 2**63 - 1


def integer_of(value: Any) -> int | None:
    """Return a whole number in any of its three forms; None for anything else, and for one beyond 64 bits."""
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value)
    if type(value) is float and value.is_integer():
        value = int(value)
    return value if type(value) is int and abs(value) <= _MOST else None


class GoogleFields(Fields):
    """One object and its path, in camelCase whatever spelling the client uses. Fields that were not read are
    in `unread`."""

    def __init__(self, value: Mapping[str, Any], param: str = "") -> None:
        super().__init__(spelled(value), param)

    def each(self, name: str) -> Iterator[GoogleFields]:
        """Yield the objects of an array, or the only one without an array; none if it is absent."""
        raw = self.either(name, list, dict)
        if isinstance(raw, dict):
            yield self._child(raw, self.at(name))
        else:
            for index, value in enumerate(raw or ()):
                where = f"{self.at(name)}[{index}]"
                if not isinstance(value, dict):
                    raise invalid(where, "expected an object")
                yield self._child(value, where)

    def inner(self, name: str) -> GoogleFields:
        """Return an object that must exist."""
        return self._child(self.need(name, dict), self.at(name))

    def maybe_inner(self, name: str) -> GoogleFields | None:
        """Return an object that may be absent."""
        return self.inner(name) if name in self else None

    def integer(self, name: str) -> int | None:
        """Return a whole number that may be absent."""
        raw = self.raw(name)
        number = integer_of(raw)
        if raw is not None and number is None:
            raise invalid(self.at(name), "expected an integer")
        return number

    def texts(self, name: str) -> list[str]:
        """Return an array of texts; empty if it is absent."""
        strings = self.get(name, list) or []
        if not all(isinstance(each, str) for each in strings):
            raise invalid(self.at(name), "expected strings")
        return strings

    def rest(self) -> dict[str, Any]:
        """Return the fields that were not read; they count as read from now on. An empty object has a
        meaning, since it is an existing message of protobuf."""
        left = {name: value for name, value in self._value.items() if name not in self._read}
        self._read.update(left)
        return {name: value for name, value in left.items() if value is not None and value != []}

    def _child(self, value: Mapping[str, Any], where: str) -> GoogleFields:
        child = GoogleFields(value, where)
        self._within.append(child)
        return child


def google_body(body: bytes | str | Mapping[str, Any]) -> GoogleFields:
    """Return the body of a request. Raises InvalidRequestError (`invalid_json`, `invalid_value`)."""
    return GoogleFields(body_of(body).whole())

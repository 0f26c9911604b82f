"""Estimates the work of judging (validating) a value by a schema, without doing that work.

A small schema can take minutes if each reference doubles the work, if alternatives are nested or if patterns
have counted repetitions. The work is the number of times that a schema is applied to a value. It is computed
once for each pair of a schema and a value, so that the estimate takes time linear in the number of pairs. A
unit is at most a microsecond of the engine's time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from openresponses_bridge.errors import RemoteError
from openresponses_bridge.schemas.checking import ANCHORS, IDS, REFERENCES, pattern_fits, within

# keywords that apply schemas to the value itself, to the members of an object or to the items of a list
_SAME: Final = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")
_SAME_IF_PRESENT: Final = ("dependentSchemas", "dependencies")
_MEMBERS: Final = ("additionalProperties", "unevaluatedProperties")
_ITEMS: Final = ("items", "prefixItems", "additionalItems", "contains", "unevaluatedItems")
_WHOLE: Final = ("const", "enum", "maxLength", "minLength", "uniqueItems")  # read the whole value
# keywords that apply the schemas beside them to each member again
_AGAIN: Final = ("unevaluatedProperties", "unevaluatedItems")

# bytes of the compiled pattern → units for each character, measured on the worst patterns
_WEIGHTS: Final = ((10_000, 3), (100_000, 30), (1_000_000, 500), (10_000_000, 5_000))
LARGEST_PATTERN: Final = _WEIGHTS[-1][0]
_SURELY_LINEAR: Final = frozenset("{(|*+?\\p")  # a pattern without any of these is plain text
_BACKTRACKING: Final = 2_000  # units at most for a search with look-around or back-references


_MOST_PAIRS: Final = 300_000  # of a schema and a value; about a second


class TooCostlyError(RemoteError):
    """Judging this value by this schema would take too long."""

    WORK = "bridge.schemas.too_costly"

    def __init__(self, message: str) -> None:
        super().__init__(self.WORK, message)


class Estimator:
    """Estimates the work of judging values by a schema, which must have passed `check_schema`."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._root = schema
        self._anchors: dict[str, Any] = {}
        self._patterns: dict[str, tuple[int, int]] = {}  # pattern → units a character, units a search
        for each in _every(schema):
            self._anchors.update({each[name]: each for name in ANCHORS if isinstance(each.get(name), str)})
            for name in IDS:
                if isinstance(each.get(name), str) and each[name].startswith("#"):
                    self._anchors[each[name][1:]] = each

    def units(self, value: Any, most: int) -> int:
        """Return the work in units. Raises TooCostlyError if it is more than `most`, or would never end."""
        try:
            return _Count(self, most).of(self._root, value)
        except RecursionError:
            raise TooCostlyError("the input or the schema is nested too deeply") from None

    def target(self, reference: str) -> Any:
        """Return the schema to which a reference leads."""
        fragment = unquote(reference[1:])
        if fragment and not fragment.startswith("/"):
            if fragment not in self._anchors:
                raise TooCostlyError(f"the reference {reference!r} refers to a schema that no keyword holds")
            return self._anchors[fragment]
        value: Any = self._root
        for step in fragment.split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            value = value[int(key)] if isinstance(value, list) else value[key]
        return value

    def pattern(self, pattern: str, length: int) -> int:
        """Return the units of searching this many characters for a pattern."""
        known = self._patterns.get(pattern)
        if known is None:
            known = self._patterns[pattern] = _weighed(pattern)
        return 1 + known[1] + known[0] * length


class _Count:
    """One estimate. Texts of one length cost the same, and so do all numbers: of such values one is
    estimated, and the result is multiplied by their number."""

    def __init__(self, estimator: Estimator, most: int) -> None:
        self._estimator = estimator
        self._most = most
        self._known: dict[tuple[int, int | str], int | None] = {}  # None while it is being found
        self._contents: dict[int, _Contents] = {}

    def of(self, schema: Any, value: Any) -> int:
        if not isinstance(schema, dict):
            return 1
        pair = (id(schema), _cost_key(value))
        if pair in self._known:
            units = self._known[pair]
            if units is None:
                raise TooCostlyError("a reference of the schema leads back to itself")
            return units
        if len(self._known) >= _MOST_PAIRS:
            raise self._too_much()
        self._known[pair] = None
        units = 1 + len(schema.get("enum", ())) + self._own(schema, value)
        for sub, part, times in self._applied(schema, value):
            units += times * self.of(sub, part)
            if units > self._most:
                raise self._too_much()
        if isinstance(value, dict | list) and any(isinstance(schema.get(name), dict) for name in _AGAIN):
            units *= 1 + len(value)
        if units > self._most:
            raise self._too_much()
        self._known[pair] = units
        return units

    def _applied(self, schema: dict[str, Any], value: Any) -> Iterator[tuple[Any, Any, int]]:
        """Yield (schema, value, times) for each schema that this one applies to the value or to something in
        it."""
        for name in REFERENCES:
            if name in schema:
                yield self._estimator.target(schema[name]), value, 1
        for name in _SAME:
            yield from ((sub, value, 1) for sub in _listed(schema, name))
        everywhere: list[Any] = []
        if isinstance(value, dict):
            for name in _SAME_IF_PRESENT:
                yield from ((sub, value, 1) for sub in schema.get(name, {}).values())
            named = schema.get("properties", {})
            yield from ((named[key], value[key], 1) for key in named.keys() & value.keys())
            everywhere = [schema[name] for name in _MEMBERS if name in schema]
            everywhere += schema.get("patternProperties", {}).values()
            if "propertyNames" in schema:
                yield from ((schema["propertyNames"], key, times) for key, times in _same_cost(value))
        elif isinstance(value, list):
            everywhere = [sub for name in _ITEMS for sub in _listed(schema, name)]
        if everywhere:
            parts = self._within(value).parts
            yield from ((sub, part, times) for sub in everywhere for part, times in parts)

    def _within(self, value: dict[str, Any] | list[Any]) -> _Contents:
        known = self._contents.get(id(value))
        if known is None:
            inner = value.values() if isinstance(value, dict) else value
            size = sum(1 + self._size(each) for each in inner)
            known = self._contents[id(value)] = _Contents(_same_cost(inner), size)
        return known

    def _size(self, value: Any) -> int:
        """Return the number of values in a list or an object; for a text, 1 for each 1,000 characters."""
        if isinstance(value, str):
            return len(value) // 1_000
        return self._within(value).size if isinstance(value, dict | list) else 0

    def _own(self, schema: dict[str, Any], value: Any) -> int:
        """Return the units of the keywords that do not contain a schema."""
        units = self._size(value) if any(name in schema for name in _WHOLE) else 0
        if isinstance(value, str) and "pattern" in schema:
            return units + self._estimator.pattern(schema["pattern"], len(value))
        if isinstance(value, dict):
            patterns = schema.get("patternProperties", ())
            return units + sum(self._estimator.pattern(each, len(key)) for each in patterns for key in value)
        return units + (len(value) if isinstance(value, list) else 0)

    def _too_much(self) -> TooCostlyError:
        return TooCostlyError(f"judging it by the schema takes more than {self._most} steps")


class _Contents(NamedTuple):
    # of the members of a list or an object that cost the same, one, with their number
    parts: list[tuple[Any, int]]
    size: int


def _cost_key(value: Any) -> int | str:
    """Return a key that is the same for values of the same cost."""
    if isinstance(value, dict | list):
        return id(value)
    return f"text {len(value)}" if isinstance(value, str) else "other"


def _same_cost(values: Iterable[Any]) -> list[tuple[Any, int]]:
    groups: dict[int | str, list[Any]] = {}
    for value in values:
        groups.setdefault(_cost_key(value), [value, 0])[1] += 1
    return [(value, times) for value, times in groups.values()]


def _listed(schema: dict[str, Any], keyword: str) -> list[Any]:
    """Return the schemas of a keyword whose value is one schema or a list of them."""
    value = schema.get(keyword, [])
    return value if isinstance(value, list) else [value]


def _every(schema: Any) -> Iterator[dict[str, Any]]:
    rest = [schema]
    while rest:
        each = rest.pop()
        if isinstance(each, dict):
            yield each
            rest.extend(sub for sub, _ in within(each, ()))


def _weighed(pattern: str) -> tuple[int, int]:
    if _SURELY_LINEAR.isdisjoint(pattern):
        return 0, 0
    for size, weight in _WEIGHTS:
        if pattern_fits(pattern, size):
            return weight, 0 if pattern_fits(pattern, size, backtracks=False) else _BACKTRACKING
    raise TooCostlyError("a pattern of the schema is too large")

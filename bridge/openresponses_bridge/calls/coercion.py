"""Corrects the input of tools by its schema: texts that a model sends where the schema has no text.

A text is read as the required integer, number, boolean or null, as AJV's `coerceTypes` does, and as JSON if
an object or array is required. A value that fits its type is never changed, nor one that could be read in
several ways. Schema and value are walked side by side, without a validator, in limited time whatever they
contain.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json

READ_JSON: Final = "JSON inside of strings was read"
READ_SCALARS: Final = "texts were read as the numbers or booleans that the schema has"
_MOST_VISITS: Final = 50_000  # of a value by a schema
_MOST_PARSED: Final = 2_000_000  # characters of JSON within texts, in sum
_DEEPEST: Final = 100
_MOST_REFERENCES: Final = 16  # from one to the next
_LONGEST_REFERENCE: Final = 1_000  # characters
_MOST_TYPES: Final = 16  # that one schema admits
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,30})(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,3})?")
_LONGEST_SCALAR: Final = 100  # characters of a text that may be a number or a word
_LARGEST: Final = 2**53  # up to which a float is exactly one integer
_NOTHING: Final = object()


class Coerced(NamedTuple):
    """The value, which is the same object if nothing was changed, and the texts that were read as something
    else."""

    value: Any
    notes: tuple[str, ...] = ()


def coerced_input(value: Any, schema: Any) -> Coerced:
    """Return the input of a tool, an object, with its texts read as the schema requires. Neither argument is
    changed."""
    walk = _Walk(schema)
    coerced = walk.value(walk.read(value, ["object"]) if isinstance(value, str) else value, schema, 0)
    return Coerced(value) if coerced is value else Coerced(coerced, tuple(walk.notes))


class _Walk:
    __slots__ = ("_found", "_parsed", "_root", "_visits", "notes")

    def __init__(self, root: Any) -> None:
        self._root = root
        self._visits = 0
        self._parsed = 0
        self._found: dict[str, Any] = {}  # reference → its target
        self.notes: dict[str, None] = {}

    def value(self, value: Any, schema: Any, depth: int) -> Any:
        self._visits += 1
        if not isinstance(schema, dict) or self._visits > _MOST_VISITS or depth > _DEEPEST:
            return value
        depth += 1
        for each in self._resolved(schema):
            value = self._by(value, each, depth)
        return value

    def _by(self, value: Any, schema: dict[str, Any], depth: int) -> Any:
        if isinstance(value, str) and (types := _types(schema)) and not _fits(value, types):
            value = self.read(value, types)
        for each in _list(schema, "allOf"):
            value = self.value(value, each, depth)
        for keyword in ("anyOf", "oneOf"):
            value = self._alternative(value, _list(schema, keyword), depth)
        if isinstance(value, dict):
            return self._object(value, schema, depth)
        return self._array(value, schema, depth) if isinstance(value, list) else value

    def read(self, text: str, types: list[str]) -> Any:
        """Return the text as the first of the types as which it can be read."""
        scalar = next((read for each in types if (read := _scalar(text, each)) is not _NOTHING), _NOTHING)
        if scalar is not _NOTHING:
            self.notes[READ_SCALARS] = None
            return scalar
        if _HOLDERS.isdisjoint(types) or self._parsed + len(text) > _MOST_PARSED:
            return text
        self._parsed += len(text)
        if _BEGINNINGS.get(text.lstrip()[:1]) not in types:
            return text
        try:
            value = decode_json(text)
        except WireError:
            return text
        self.notes[READ_JSON] = None
        return value

    def _alternative(self, value: Any, branches: list[Any], depth: int) -> Any:
        admitting = [each for each in branches if self._admits(each, value)]
        if len(admitting) == 1:
            return self.value(value, admitting[0], depth)
        if not admitting and isinstance(value, str):
            for each in branches:
                coerced = self.value(value, each, depth)
                if coerced is not value and self._admits(each, coerced):
                    return coerced
        return value

    def _admits(self, schema: Any, value: Any) -> bool:
        """Return whether the schema's own type, constant and enumeration allow the value."""
        self._visits += 1
        if not isinstance(schema, dict):
            return schema is not False
        for each in self._resolved(schema):
            types, options = _types(each), each.get("enum", [each["const"]] if "const" in each else None)
            if types and not _fits(value, types):
                return False
            if isinstance(options, list) and len(options) <= _MOST_VISITS - self._visits:
                self._visits += len(options)
                if value not in options:
                    return False
        return True

    def _object(self, value: dict[str, Any], schema: dict[str, Any], depth: int) -> dict[str, Any]:
        named = schema.get("properties")
        named = named if isinstance(named, dict) else {}
        others = None if "patternProperties" in schema else schema.get("additionalProperties")
        if (not named and not isinstance(others, dict)) or self._visits + len(value) > _MOST_VISITS:
            return value
        coerced = {name: self.value(each, named.get(name, others), depth) for name, each in value.items()}
        return value if all(coerced[name] is each for name, each in value.items()) else coerced

    def _array(self, value: list[Any], schema: dict[str, Any], depth: int) -> list[Any]:
        items = schema.get("items")
        first = _list(schema, "prefixItems") or (items if isinstance(items, list) else [])
        others = items if not isinstance(items, list) else schema.get("additionalItems")
        if (not first and not isinstance(others, dict)) or self._visits + len(value) > _MOST_VISITS:
            return value
        schemas = [*first[: len(value)], *[others] * (len(value) - len(first))]
        coerced = [self.value(each, schemas[at], depth) for at, each in enumerate(value)]
        return value if all(one is other for one, other in zip(coerced, value, strict=True)) else coerced

    def _resolved(self, schema: dict[str, Any]) -> Iterable[dict[str, Any]]:
        """Yield the schema, and those to which it refers within its document, one after the other."""
        for _ in range(_MOST_REFERENCES):
            yield schema
            target = schema.get("$ref")
            if not isinstance(target, str) or not target.startswith("#"):
                return
            self._visits += 1
            if target not in self._found:
                self._found[target] = self._at(target[1:]) if len(target) <= _LONGEST_REFERENCE else None
            definition = self._found[target]
            if not isinstance(definition, dict):
                return
            schema = definition

    def _at(self, pointer: str) -> Any:
        node = self._root
        for step in unquote(pointer).split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(node, list):
                node = node[int(step)] if step.isdecimal() and int(step) < len(node) else None
            else:
                node = node.get(step) if isinstance(node, dict) else None
        return node


def _list(schema: dict[str, Any], keyword: str) -> list[Any]:
    value = schema.get(keyword)
    return value if isinstance(value, list) else []


def _types(schema: dict[str, Any]) -> list[str]:
    value = schema.get("type")
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or len(value) > _MOST_TYPES:
        return []
    return [each for each in value if isinstance(each, str)]


def _fits(value: Any, types: list[str]) -> bool:
    return any(_TYPES[each](value) for each in types if each in _TYPES)


def _is_integer(value: Any) -> bool:
    return _is_number(value) and (isinstance(value, int) or value.is_integer())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TYPES: Final[dict[str, Callable[[Any], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "integer": _is_integer,
    "number": _is_number,
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
}
_BEGINNINGS: Final = {"{": "object", "[": "array"}
_HOLDERS: Final = frozenset(_BEGINNINGS.values())
_WORDS: Final[dict[str, dict[str, Any]]] = {"boolean": {"true": True, "false": False}, "null": {"": None}}


def _scalar(text: str, type_name: str) -> Any:
    """Return the text as a value of this type; `_NOTHING` if it is not one."""
    plain = text.strip() if len(text) <= _LONGEST_SCALAR else None
    if plain is not None and type_name in _WORDS:
        return _WORDS[type_name].get(plain, _NOTHING)
    if plain is None or type_name not in ("integer", "number") or not _NUMBER.fullmatch(plain):
        return _NOTHING
    if plain.removeprefix("-").isdecimal():
        return int(plain)
    value = float(plain)
    if type_name == "integer":
        return int(value) if value.is_integer() and abs(value) <= _LARGEST else _NOTHING
    return value if abs(value) != float("inf") else _NOTHING

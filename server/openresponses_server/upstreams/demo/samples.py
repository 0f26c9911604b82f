"""A value that fits a JSON schema, chosen by rule and from the user's own words, never at random."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

_MAX_DEPTH: Final = 12
_BUDGET: Final = 100_000
_MOST_WORDS: Final = 10_000  # characters that are looked through
_LARGEST: Final = 10**300
_PATCH: Final = "*** Begin Patch\n*** Add File: demo.txt\n+Hello from the demo model\n*** End Patch\n"

# what strings of these formats look like
_FORMATS: Final = {
    "date": "2026-01-01",
    "date-time": "2026-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "email": "demo@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "192.0.2.1",
}

# property names → the words of the request they take, first match wins
_QUOTED: Final = re.compile('["“`]([^"“”`]++)["”`]')
_PLACE: Final = re.compile(r"\b(?:in|at|for|to|near)\s+([A-Z][\w'’-]*(?:,?\s+[A-Z][\w'’-]*)*)")
_PATCH_TEXT: Final = re.compile(
    r"\*\*\* Begin Patch\n(?:(?!\*\*\* Begin Patch\n).)*?\*\*\* End Patch\n?", re.DOTALL
)
_NAMES: Final[tuple[tuple[re.Pattern[str], re.Pattern[str] | None, str | None], ...]] = (
    (re.compile(r"patch"), _PATCH_TEXT, _PATCH),
    (re.compile(r"location|city|place|town|destination"), _PLACE, "Paris"),
    (re.compile(r"cmd|command|script"), _QUOTED, "echo hello"),
    (re.compile(r"path|file"), _QUOTED, "demo.txt"),
    (re.compile(r"url|uri|link"), re.compile(r"(https?://\S+)"), "https://example.com/"),
    (re.compile(r"query|question|prompt|text|input|message|expression|search"), _QUOTED, None),
)


def sample(schema: Any, words: str, name: str = "value") -> Any:
    """A value of `schema` (JSON Schema, as far as tools use it). `words` is what the user said, `name`
    what the value is called. Only required properties are filled, all when none is said to be.

    A schema may say anything in any place: what has the wrong type counts as not said, and beyond a
    budget everything is null."""
    return _Sampler(schema, words).value(schema, name, 0)


class _Sampler:
    """`_left` is the budget: about the characters of the value and the steps to make it."""

    def __init__(self, root: Any, words: str) -> None:
        self._root = root
        self._words = words[:_MOST_WORDS]
        self._found: dict[re.Pattern[str], str | None] = {}
        self._left = _BUDGET

    def value(self, schema: Any, name: str, depth: int) -> Any:
        self._left -= 1 + len(name)
        if depth > _MAX_DEPTH or self._left < 0:
            return None
        schema = self._resolved(schema)
        for key in ("const", "default"):
            if key in schema:
                return self._paid(schema[key])
        for key in ("enum", "examples"):
            if said := _of(list, schema.get(key)):
                return self._paid(said[0])
        for key in ("anyOf", "oneOf", "allOf"):
            if _of(list, schema.get(key)):
                return self.value(self._merged(schema, key), name, depth + 1)
        return self._maker(schema)(self, schema, name, depth)

    def _paid(self, value: Any) -> Any:
        self._left -= len(json.dumps(value))
        return value

    def _resolved(self, schema: Any) -> dict[str, Any]:
        for _ in range(_MAX_DEPTH):
            reference = schema.get("$ref") if isinstance(schema, dict) else None
            if not isinstance(reference, str):
                break
            self._left -= len(reference)
            schema = self._root
            for step in reference.removeprefix("#").strip("/").split("/"):
                schema = schema.get(step, {}) if isinstance(schema, dict) and step else schema
        return _of(dict, schema)

    def _merged(self, schema: dict[str, Any], key: str) -> dict[str, Any]:
        branches = map(self._resolved, schema[key][: max(0, self._left)])
        if key != "allOf":
            return next((branch for branch in branches if branch.get("type") != "null"), {})
        merged: dict[str, Any] = {name: part for name, part in schema.items() if name != key}
        properties = dict(_of(dict, schema.get("properties")))
        required = list(_of(list, schema.get("required")))
        for branch in branches:
            self._left -= 1 + len(branch)
            for parts, more in ((properties.update, "properties"), (required.extend, "required")):
                said = _of(dict if more == "properties" else list, branch.get(more))
                self._left -= len(said)
                if self._left > 0:
                    parts(said)
            merged.update(branch)
        return {**merged, "properties": properties, "required": required}

    def _maker(self, schema: dict[str, Any]) -> Callable[[_Sampler, dict[str, Any], str, int], Any]:
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = next((each for each in kind if each != "null"), "null")
        if kind is None:
            kind = "object" if "properties" in schema else "array" if "items" in schema else "string"
        return _MAKERS.get(str(kind), _Sampler.text)

    def object(self, schema: dict[str, Any], _name: str, depth: int) -> dict[str, Any]:
        properties = _of(dict, schema.get("properties"))
        required = [name for name in _of(list, schema.get("required")) if isinstance(name, str)]
        wanted = (required or list(properties))[: max(0, self._left)] if properties else []
        return {name: self.value(properties.get(name, {}), name, depth + 1) for name in dict.fromkeys(wanted)}

    def array(self, schema: dict[str, Any], name: str, depth: int) -> list[Any]:
        item = self.value(schema.get("items", {}), name, depth + 1)
        size = len(json.dumps(item))
        times = max(1, min(_count(schema.get("minItems"), 1), self._left // size))
        self._left -= (times - 1) * size
        return [item] * times

    def number(self, schema: dict[str, Any], _name: str, _depth: int) -> int | float:
        least, most = _number(schema.get("minimum")), _number(schema.get("maximum"))
        above = _number(schema.get("exclusiveMinimum"))
        if least is None and above is not None:
            least = above + 1
        chosen = least if least is not None else _number(schema.get("multipleOf")) or 1
        return most if most is not None and chosen > most else chosen

    def boolean(self, _schema: dict[str, Any], _name: str, _depth: int) -> bool:
        return True

    def null(self, _schema: dict[str, Any], _name: str, _depth: int) -> None:
        return None

    def text(self, schema: dict[str, Any], name: str, _depth: int) -> str:
        chosen = _FORMATS.get(str(schema.get("format"))) or self._fitting_words(name)
        chosen = chosen.ljust(min(_count(schema.get("minLength"), 0), max(0, self._left)), "x")
        chosen = chosen[: _count(schema.get("maxLength"), len(chosen))]
        self._left -= len(chosen)
        return chosen

    def _fitting_words(self, name: str) -> str:
        for names, words, otherwise in _NAMES:
            if names.search(name.lower()):
                return (self._search(words) if words else otherwise) or otherwise or self._words or name
        return name

    def _search(self, pattern: re.Pattern[str]) -> str | None:
        if pattern not in self._found:
            found = pattern.search(self._words)
            self._found[pattern] = found[found.lastindex or 0] if found else None
        return self._found[pattern]


T = TypeVar("T")


def _of(kind: type[T], value: Any) -> T:
    """The value if it is of this type, else an empty one."""
    return value if isinstance(value, kind) else kind()


def _count(value: Any, otherwise: int) -> int:
    """What a schema says as a number of things; 3.0 is one too."""
    number = _number(value)
    return otherwise if number is None or number < 0 or number != number // 1 else int(number)


def _number(value: Any) -> int | float | None:
    """A number that is one and that JSON can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < _LARGEST else None


_MAKERS: Final = {
    "object": _Sampler.object,
    "array": _Sampler.array,
    "number": _Sampler.number,
    "integer": _Sampler.number,
    "boolean": _Sampler.boolean,
    "null": _Sampler.null,
    "string": _Sampler.text,
}

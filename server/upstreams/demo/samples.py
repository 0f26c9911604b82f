"""A value that fits a JSON schema, chosen by rule and from the user's own words, never at random."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

_MAX_DEPTH: Final = 12
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
_QUOTED: Final = re.compile('["“`]([^"”`]+)["”`]')
_PLACE: Final = re.compile(r"\b(?:in|at|for|to|near)\s+([A-Z][\w'’-]*(?:,?\s+[A-Z][\w'’-]*)*)")
_PATCH_TEXT: Final = re.compile(r"\*\*\* Begin Patch\n.*?\*\*\* End Patch\n?", re.DOTALL)
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
    what the value is called. Only required properties are filled, all when none is said to be."""
    return _Sampler(schema, words).value(schema, name, 0)


class _Sampler:
    def __init__(self, root: Any, words: str) -> None:
        self._root = root
        self._words = words

    def value(self, schema: Any, name: str, depth: int) -> Any:
        schema = self._resolved(schema)
        if depth > _MAX_DEPTH:
            return None
        for key in ("const", "default"):
            if key in schema:
                return schema[key]
        for key in ("enum", "examples"):
            if isinstance(schema.get(key), list) and schema[key]:
                return schema[key][0]
        for key in ("anyOf", "oneOf", "allOf"):
            if isinstance(schema.get(key), list) and schema[key]:
                return self.value(self._merged(schema, key), name, depth + 1)
        return self._maker(schema)(self, schema, name, depth)

    def _resolved(self, schema: Any) -> dict[str, Any]:
        for _ in range(_MAX_DEPTH):
            reference = schema.get("$ref") if isinstance(schema, dict) else None
            if not isinstance(reference, str):
                break
            schema = self._root
            for step in reference.removeprefix("#").strip("/").split("/"):
                schema = schema.get(step, {}) if isinstance(schema, dict) and step else schema
        return schema if isinstance(schema, dict) else {}

    def _merged(self, schema: dict[str, Any], key: str) -> dict[str, Any]:
        branches = [self._resolved(branch) for branch in schema[key]]
        if key != "allOf":
            return next((branch for branch in branches if branch.get("type") != "null"), {})
        merged: dict[str, Any] = {name: part for name, part in schema.items() if name != key}
        for branch in branches:
            properties = {**merged.get("properties", {}), **branch.get("properties", {})}
            required = [*merged.get("required", []), *branch.get("required", [])]
            merged = {**merged, **branch, "properties": properties, "required": required}
        return merged

    def _maker(self, schema: dict[str, Any]) -> Callable[[_Sampler, dict[str, Any], str, int], Any]:
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = next((each for each in kind if each != "null"), "null")
        if kind is None:
            kind = "object" if "properties" in schema else "array" if "items" in schema else "string"
        return _MAKERS.get(kind, _Sampler.text)

    def object(self, schema: dict[str, Any], _name: str, depth: int) -> dict[str, Any]:
        properties = schema.get("properties")
        if not isinstance(properties, dict):
            return {}
        required = schema.get("required")
        wanted = required if isinstance(required, list) and required else list(properties)
        return {name: self.value(properties.get(name, {}), name, depth + 1) for name in wanted}

    def array(self, schema: dict[str, Any], name: str, depth: int) -> list[Any]:
        item = self.value(schema.get("items", {}), name, depth + 1)
        return [item] * max(1, int(schema.get("minItems", 1)))

    def number(self, schema: dict[str, Any], _name: str, _depth: int) -> int | float:
        least, most = schema.get("minimum"), schema.get("maximum")
        if least is None and isinstance(schema.get("exclusiveMinimum"), int | float):
            least = schema["exclusiveMinimum"] + 1
        step = schema.get("multipleOf") or 1
        chosen: int | float = least if least is not None else step
        return most if most is not None and chosen > most else chosen

    def boolean(self, _schema: dict[str, Any], _name: str, _depth: int) -> bool:
        return True

    def null(self, _schema: dict[str, Any], _name: str, _depth: int) -> None:
        return None

    def text(self, schema: dict[str, Any], name: str, _depth: int) -> str:
        chosen = _FORMATS.get(str(schema.get("format"))) or self._fitting_words(name)
        chosen = chosen.ljust(int(schema.get("minLength", 0)), "x")
        return chosen[: int(schema["maxLength"])] if "maxLength" in schema else chosen

    def _fitting_words(self, name: str) -> str:
        for names, words, otherwise in _NAMES:
            if names.search(name.lower()):
                found = words.search(self._words) if words else None
                return (found[found.lastindex or 0] if found else otherwise) or self._words or name
        return name


_MAKERS: Final = {
    "object": _Sampler.object,
    "array": _Sampler.array,
    "number": _Sampler.number,
    "integer": _Sampler.number,
    "boolean": _Sampler.boolean,
    "null": _Sampler.null,
    "string": _Sampler.text,
}

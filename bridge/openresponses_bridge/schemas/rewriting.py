"""JSON Schemas for servers that know fewer keywords: some are left out, others written in another form.

A property may have a keyword's name, and a value a schema's form, so only what is a schema by its place is
looked into.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Literal

Schema = dict[str, Any]
Form = Literal["const_as_enum", "types_as_nullable", "types_as_any_of", "arrays_with_items", "object_root"]

_NAMED: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_LISTED: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SINGLE: Final = frozenset(
    {
        *("items", "additionalProperties", "contains", "not", "if", "then", "else"),
        *("propertyNames", "unevaluatedItems", "unevaluatedProperties", "additionalItems"),
    }
)


class SchemaRewriter:
    """Rewrites schemas: `omit` are the keywords to leave out, `forms` those to write otherwise. `changes`
    lists what was done, in order and once each."""

    def __init__(self, omit: Collection[str] = (), forms: Collection[Form] = ()) -> None:
        self._omit = omit
        self._forms = [(form, rewrite) for form, rewrite in _FORMS.items() if form in forms]
        self._object_root = "object_root" in forms
        self.changes: dict[str, None] = {}

    def rewrite(self, schema: Schema) -> Schema:
        """The schema of a tool's parameters."""
        found: Schema = self._schema(schema)
        if self._object_root and found.get("type") != "object":
            self.changes["a root that is not of type object, set to it"] = None
            found = {**found, "type": "object"}
        return found

    def _schema(self, schema: Any) -> Any:
        if not isinstance(schema, dict):
            return schema
        found: Schema = {}
        for keyword, value in schema.items():
            if keyword in self._omit:
                self.changes[f"{keyword[:64]} left out"] = None
            else:
                found[keyword] = self._value(keyword, value)
        for form, rewrite in self._forms:
            rewritten = rewrite(found)
            if rewritten is not None:
                self.changes[_SAID[form]] = None
                found = rewritten
        return found

    def _value(self, keyword: str, value: Any) -> Any:
        if keyword in _SINGLE and isinstance(value, dict):
            return self._schema(value)
        if keyword in _NAMED and isinstance(value, dict):
            return {name: self._schema(each) for name, each in value.items()}
        if (keyword in _LISTED or keyword == "items") and isinstance(value, list):
            return [self._schema(each) for each in value]
        return value


def _const_as_enum(schema: Schema) -> Schema | None:
    if "const" not in schema:
        return None
    rest = {keyword: value for keyword, value in schema.items() if keyword != "const"}
    return {**rest, "enum": [schema["const"]]}


def _types_as_nullable(schema: Schema) -> Schema | None:
    types = schema.get("type")
    if not isinstance(types, list):
        return None
    others = [each for each in types if each != "null"]
    found = {**schema, "nullable": True} if len(others) < len(types) else dict(schema)
    if len(others) == 1:
        return {**found, "type": others[0]}
    del found["type"]
    return {**found, "anyOf": [{"type": each} for each in others]} if others else found


def _types_as_any_of(schema: Schema) -> Schema | None:
    types = schema.get("type")
    if not isinstance(types, list):
        return None
    if len(types) == 1:
        return {**schema, "type": types[0]}
    about: Schema = {keyword: schema[keyword] for keyword in _ABOUT if keyword in schema}
    bare = {keyword: value for keyword, value in schema.items() if keyword not in ("type", *about)}
    return {**about, "anyOf": [{"type": each, **(bare if each != "null" else {})} for each in types]}


def _arrays_with_items(schema: Schema) -> Schema | None:
    if schema.get("type") != "array" or "items" in schema or "prefixItems" in schema:
        return None
    return {**schema, "items": {}}


_ABOUT: Final = ("title", "description", "default")
_FORMS: Final[Mapping[Form, Callable[[Schema], Schema | None]]] = {
    "const_as_enum": _const_as_enum,
    "types_as_nullable": _types_as_nullable,
    "types_as_any_of": _types_as_any_of,
    "arrays_with_items": _arrays_with_items,
}
_SAID: Final[Mapping[Form, str]] = {
    "const_as_enum": "const written as enum",
    "types_as_nullable": "a list of types written as nullable",
    "types_as_any_of": "a list of types written as anyOf",
    "arrays_with_items": "an array without items, any given",
}

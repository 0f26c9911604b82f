"""JSON Schemas for servers that know fewer keywords: some are left out, others written in another form.

A property may have a keyword's name, and a value a schema's form, so only what is a schema by its place is
looked into.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Literal

from openresponses_bridge.diagnostics import Diagnostics

Schema = dict[str, Any]
Form = Literal[
    "const_as_enum",
    "types_as_nullable",
    "types_as_any_of",
    "arrays_with_items",
    "closed_objects",
    "object_root",
]

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


def rewritten(
    schema: Schema, omit: Collection[str], forms: Collection[Form], where: str, diagnostics: Diagnostics
) -> Schema:
    """The schema of the field at this path, rewritten; the same one where nothing is changed. Each change is
    a loss."""
    if not omit and not forms:
        return schema
    rewriter = SchemaRewriter(omit, forms)
    found = rewriter.rewrite(schema)
    for change in rewriter.changes:
        diagnostics.loss(where, change)
    return found if rewriter.changes else schema


def _const_as_enum(schema: Schema) -> Schema | None:
    if "const" not in schema:
        return None
    rest = {keyword: value for keyword, value in schema.items() if keyword != "const"}
    return {**rest, "enum": [schema["const"]]}


def _types_of(schema: Schema) -> list[str] | None:
    """The types of a list of them, each once; an integer is a number."""
    types = schema.get("type")
    if not isinstance(types, list):
        return None
    found = dict.fromkeys(each for each in types if isinstance(each, str))
    return [each for each in found if each != "integer" or "number" not in found] or None


def _types_as_nullable(schema: Schema) -> Schema | None:
    types = _types_of(schema)
    if types is None:
        return None
    others = [each for each in types if each != "null"]
    found = {**schema, "nullable": True} if len(others) < len(types) else dict(schema)
    if len(others) == 1:
        return {**found, "type": others[0]}
    del found["type"]
    return {"anyOf": [{"type": each} for each in others], **found} if others else found


def _types_as_any_of(schema: Schema) -> Schema | None:
    """Each keyword goes to the one type that it is about, so that the schema does not grow; what is about
    values of any type stays. Alternatives that the schema has itself say the types."""
    types = _types_of(schema)
    if types is None:
        return None
    if len(types) == 1:
        return {**schema, "type": types[0]}
    found = {keyword: value for keyword, value in schema.items() if keyword != "type"}
    if "anyOf" in found:
        return found
    made: dict[str, Schema] = {each: {"type": each} for each in types}
    for keyword in [each for each in found if each in _ABOUT_TYPE]:
        value = found.pop(keyword)
        for each in _ABOUT_TYPE[keyword]:
            if each in made:
                made[each][keyword] = value
    return {**found, "anyOf": list(made.values())}


def _arrays_with_items(schema: Schema) -> Schema | None:
    if schema.get("type") != "array" or "items" in schema or "prefixItems" in schema:
        return None
    return {**schema, "items": {}}


def _closed_objects(schema: Schema) -> Schema | None:
    if schema.get("type") != "object" or "properties" not in schema or "additionalProperties" in schema:
        return None
    return {**schema, "additionalProperties": False}


_ABOUT_TYPE: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("minLength", "maxLength", "pattern", "format"), ("string",)),
    **dict.fromkeys(("contentEncoding", "contentMediaType"), ("string",)),
    **dict.fromkeys(("minimum", "maximum", "multipleOf"), ("number", "integer")),
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), ("number", "integer")),
    **dict.fromkeys(("items", "prefixItems", "additionalItems", "unevaluatedItems"), ("array",)),
    **dict.fromkeys(("contains", "minContains", "maxContains"), ("array",)),
    **dict.fromkeys(("minItems", "maxItems", "uniqueItems"), ("array",)),
    **dict.fromkeys(("properties", "patternProperties", "additionalProperties"), ("object",)),
    **dict.fromkeys(("required", "propertyNames", "unevaluatedProperties"), ("object",)),
    **dict.fromkeys(("minProperties", "maxProperties"), ("object",)),
    **dict.fromkeys(("dependentRequired", "dependentSchemas", "dependencies"), ("object",)),
}
"""Keyword → the types of values that it is about (JSON Schema Validation, section 6; Core, section 10.3).
At most one of a list has it: an integer beside a number is left out."""
_FORMS: Final[Mapping[Form, Callable[[Schema], Schema | None]]] = {
    "const_as_enum": _const_as_enum,
    "types_as_nullable": _types_as_nullable,
    "types_as_any_of": _types_as_any_of,
    "arrays_with_items": _arrays_with_items,
    "closed_objects": _closed_objects,
}
_SAID: Final[Mapping[Form, str]] = {
    "const_as_enum": "const written as enum",
    "types_as_nullable": "a list of types written as nullable",
    "types_as_any_of": "a list of types written as anyOf",
    "arrays_with_items": "an array without items, any given",
    "closed_objects": "an object's additionalProperties, given as false",
}

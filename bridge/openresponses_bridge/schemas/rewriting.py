"""Rewrites JSON Schemas for servers that support fewer keywords: some are left out, others get another form.

A property may have the name of a keyword, and a value the form of a schema, so only a value in the place of a
schema is rewritten.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

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
    """Rewrites schemas: `omit` are the keywords to leave out, `forms` the other forms to use. `changes` lists
    the changes, in order and each once."""

    def __init__(self, omit: Collection[str] = (), forms: Collection[Form] = ()) -> None:
        self._omit = omit
        self._forms = [(form, rewrite) for form, rewrite in _FORMS.items() if form in forms]
        self._object_root = "object_root" in forms
        self.changes: dict[str, None] = {}

    def rewrite(self, schema: Schema) -> Schema:
        """Return a root schema, rewritten."""
        root = object_root(schema) if self._object_root else schema
        if root is not schema:
            self.changes[ONE_ROOT] = None
        result: Schema = self._schema(root)
        return result

    def _schema(self, schema: Any) -> Any:
        if not isinstance(schema, dict):
            return schema
        result: Schema = {}
        for keyword, value in schema.items():
            if keyword in self._omit:
                self.changes[f"{keyword[:64]} left out"] = None
            else:
                result[keyword] = self._value(keyword, value)
        for form, rewrite in self._forms:
            rewritten = rewrite(result)
            if rewritten is not None:
                self.changes[_SAID[form]] = None
                result = rewritten
        return result

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
    """Return the schema of the field `where`, rewritten; the same object if nothing changes. Each change is a
    loss."""
    if not omit and not forms:
        return schema
    rewriter = SchemaRewriter(omit, forms)
    result = rewriter.rewrite(schema)
    for change in rewriter.changes:
        diagnostics.loss(where, change)
    return result if rewriter.changes else schema


def _const_as_enum(schema: Schema) -> Schema | None:
    if "const" not in schema:
        return None
    rest = {keyword: value for keyword, value in schema.items() if keyword != "const"}
    return {**rest, "enum": [schema["const"]]}


def _types_of(schema: Schema) -> list[str] | None:
    """Return the types in a list, each once and `integer` not beside `number`; None if `type` is not a
    list."""
    types = schema.get("type")
    if not isinstance(types, list):
        return None
    names = dict.fromkeys(each for each in types if isinstance(each, str))
    return [each for each in names if each != "integer" or "number" not in names] or None


def _types_as_nullable(schema: Schema) -> Schema | None:
    types = _types_of(schema)
    if types is None:
        return None
    others = [each for each in types if each != "null"]
    base = {**schema, "nullable": True} if len(others) < len(types) else dict(schema)
    if len(others) == 1:
        return {**base, "type": others[0]}
    del base["type"]
    return {"anyOf": [{"type": each} for each in others], **base} if others else base


def _types_as_any_of(schema: Schema) -> Schema | None:
    """Move each keyword to the one type to which it applies, so that the schema does not grow; keywords for
    values of any type stay. If the schema has an `anyOf` of its own, the list of types is only left out."""
    types = _types_of(schema)
    if types is None:
        return None
    if len(types) == 1:
        return {**schema, "type": types[0]}
    rest = {keyword: value for keyword, value in schema.items() if keyword != "type"}
    if "anyOf" in rest:
        return rest
    alternatives: dict[str, Schema] = {each: {"type": each} for each in types}
    for keyword in [each for each in rest if each in _ABOUT_TYPE]:
        value = rest.pop(keyword)
        for each in _ABOUT_TYPE[keyword]:
            if each in alternatives:
                alternatives[each][keyword] = value
    return {**rest, "anyOf": list(alternatives.values())}


def _arrays_with_items(schema: Schema) -> Schema | None:
    if schema.get("type") != "array" or "items" in schema or "prefixItems" in schema:
        return None
    return {**schema, "items": {}}


def _closed_objects(schema: Schema) -> Schema | None:
    if schema.get("type") != "object" or "properties" not in schema or "additionalProperties" in schema:
        return None
    return {**schema, "additionalProperties": False}


ONE_ROOT: Final = "alternatives at the root written as one object"
"""What `object_root` does, for diagnostics."""
_CHOICES: Final = ("anyOf", "oneOf")
_NOT_AT_ROOT: Final = frozenset({*_CHOICES, "allOf", "$ref", "not", "enum", "const"})
_MOST_LEVELS: Final = 16  # of nested alternatives
_MOST_MEMBERS: Final = 20_000  # properties, names and alternatives that are read


def object_root(schema: Schema) -> Schema:
    """Return a schema of an object whose root has no alternatives, as some servers require it for a tool's
    parameters; the same schema if its root has none. It has the properties of all alternatives, and requires
    those that all of them require. It accepts what the schema accepts, and more, with one exception: a member
    that only some alternatives name must fit one of these, whereas the others would accept any value."""
    if _NOT_AT_ROOT.isdisjoint(schema):
        return schema
    merged = _RootReader(schema).members(schema)
    root = {keyword: value for keyword, value in schema.items() if keyword not in _NOT_AT_ROOT}
    root |= {"type": "object", "properties": {name: each.schema for name, each in merged.properties.items()}}
    root.pop("required", None)
    if merged.required:
        root["required"] = list(merged.required)
    return root | ({"additionalProperties": False} if merged.closed else {})


class _Member(NamedTuple):
    """A member's schema. `binds`: it applies to every object with the member, not only to those of some
    alternatives."""

    schema: Any
    binds: bool


class _Members(NamedTuple):
    """The members that a schema describes: by name, the required names, and whether others are allowed."""

    properties: dict[str, _Member]
    required: dict[str, None]
    closed: bool


_ANY_MEMBERS: Final = _Members({}, {}, False)


class _RootReader:
    """Reads the members of the object that a schema describes. References are resolved in `root`; a reference
    that leads back into itself, and anything beyond the limits, is ignored."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._left = _MOST_MEMBERS
        self._open: set[str] = set()

    def members(self, schema: Schema, level: int = 0) -> _Members:
        """Return the members of a schema, its own and those of its alternatives."""
        raw_properties = schema.get("properties")
        listed = islice(raw_properties.items(), self._most()) if isinstance(raw_properties, dict) else ()
        properties = {name: _Member(each, binds=True) for name, each in listed}
        self._left -= len(properties)
        names = [each for each in self._listed(schema, "required") if isinstance(each, str)]
        own = _Members(properties, dict.fromkeys(names), schema.get("additionalProperties") is False)
        if level == _MOST_LEVELS:
            return own
        parts = [own, *self._each(schema, "allOf", level)]
        parts += [_any_of(self._each(schema, keyword, level)) for keyword in _CHOICES]
        parts.append(self._referred(schema.get("$ref"), level))
        return _all_of(parts)

    def _each(self, schema: Schema, keyword: str, level: int) -> list[_Members]:
        listed = self._listed(schema, keyword)
        return [
            self.members(each, level + 1)
            for each in listed
            if isinstance(each, dict) and _may_be_object(each)
        ]

    def _listed(self, schema: Schema, keyword: str) -> list[Any]:
        entries = schema.get(keyword)
        listed = entries[: self._most()] if isinstance(entries, list) else []
        self._left -= len(listed)
        return listed

    def _referred(self, reference: Any, level: int) -> _Members:
        node: Any = self._root
        if not isinstance(reference, str) or not reference.startswith("#/") or reference in self._open:
            return _ANY_MEMBERS
        for name in reference[2:].split("/"):
            node = node.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(node, dict) else None
        if not isinstance(node, dict) or not self._most():
            return _ANY_MEMBERS
        self._left -= 1
        self._open.add(reference)
        members = self.members(node, level + 1)
        self._open.remove(reference)
        return members

    def _most(self) -> int:
        return max(self._left, 0)


def _may_be_object(schema: Schema) -> bool:
    kind = schema.get("type", "object")
    return kind == "object" or (isinstance(kind, list) and "object" in kind)


def _all_of(parts: list[_Members]) -> _Members:
    """Return the members that an object has if all of these parts apply to it."""
    properties = {}
    for name, members in _by_name(parts).items():
        binding = [each.schema for each in members if each.binds]
        schema = _joined("allOf", binding) if binding else _joined("anyOf", [each.schema for each in members])
        properties[name] = _Member(schema, bool(binding))
    required = {name: None for part in parts for name in part.required}
    return _Members(properties, required, any(part.closed for part in parts))


def _any_of(parts: list[_Members]) -> _Members:
    """Return the members that an object has if any one of these parts applies to it."""
    if not parts:
        return _ANY_MEMBERS
    open_parts = [part for part in parts if not part.closed]
    properties = {}
    for name, members in _by_name(parts).items():
        binds = all(name in part.properties and part.properties[name].binds for part in open_parts)
        properties[name] = _Member(_joined("anyOf", [each.schema for each in members]), binds)
    required = {name: None for name in parts[0].required if all(name in each.required for each in parts)}
    return _Members(properties, required, all(part.closed for part in parts))


def _by_name(parts: list[_Members]) -> dict[str, list[_Member]]:
    """Return each member's schemas in the parts, by its name."""
    members: dict[str, list[_Member]] = {}
    for part in parts:
        for name, member in part.properties.items():
            members.setdefault(name, []).append(member)
    return members


def _joined(keyword: str, schemas: list[Any]) -> Any:
    """Return several schemas of the same member as one. Each is compared with only two others, which finds
    the usual repetitions."""
    different = schemas[:1]
    for each in schemas[1:]:
        if each != different[0] and each != different[-1]:
            different.append(each)
    return different[0] if len(different) == 1 else {keyword: different}


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
"""Keyword → the types of values to which it applies (JSON Schema Validation, section 6; Core, section 10.3).
Of a list of types at most one is among them, since `integer` beside `number` is left out."""
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

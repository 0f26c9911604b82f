"""Values of JSON schemas, those of the published OpenAPI document or others: one value for each of their
fields, made as `TypedFields` makes them from an SDK's types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from tests.support.schema import schemas
from tests.support.typed_fields import Sample

Json = dict[str, Any]
_VALUES: Final[dict[str, Any]] = {"string": "text", "integer": 3, "number": 0.5, "boolean": True}
_TYPE: Final = "type"  # these tell apart several kinds of objects, even if they are not required
_NOTHING: Final[Mapping[str, Json]] = MappingProxyType({})
_UNIONS: Final = ("oneOf", "anyOf")


class SchemaFields:
    """Makes a value for each field of a schema, at any depth. `named` has values by the names of fields, for
    use where their schemas allow them; `needed` has the other fields that objects need, by the names of their
    schemas; `ready` has values by the names of schemas whose fields are not tried; `document` has the schemas
    by name, by default those of the published document."""

    def __init__(
        self,
        named: Mapping[str, Any],
        needed: Mapping[str, Json] = _NOTHING,
        ready: Mapping[str, Any] = _NOTHING,
        document: Mapping[str, Json] | None = None,
    ) -> None:
        self._named = named
        self._needed = needed
        self._ready = ready
        self._document = schemas() if document is None else document

    def of(self, name: str) -> Iterator[Sample]:
        """(the path of a field, a JSON value of the schema with this name that has the field and the others
        that its objects require). A schema is not searched again within itself."""
        yield from self._of({"$ref": f"#/components/schemas/{name}"}, ())

    def _of(self, schema: Json, within: tuple[str, ...]) -> Iterator[Sample]:
        reference = schema.get("$ref")
        if reference is not None:
            name = reference.rpartition("/")[2]
            if name in self._ready:
                yield (), self._ready[name]
            elif name not in within:
                yield from self._of(self._document[name], (*within, name))
        elif "allOf" in schema:
            yield from self._of(schema["allOf"][0], within)
        elif any(union in schema for union in _UNIONS):
            yield from self._union(next(schema[union] for union in _UNIONS if union in schema), within)
        elif "enum" in schema:
            yield (), schema["enum"][-1]
        elif schema.get("type") == "array":
            yield from ((path, [value]) for path, value in self._of(schema.get("items", {}), within))
        elif "properties" in schema:
            yield from self._object(schema, within)
        elif "additionalProperties" in schema and schema["additionalProperties"] not in (True, False):
            inner = self._of(schema["additionalProperties"], within)
            yield from ((path, {"a": value}) for path, value in inner)
        elif schema.get("type") == "object" or not schema:
            yield (), {"a": "b"}
        elif schema.get("type") in _VALUES:
            yield (), _VALUES[schema["type"]]

    def _union(self, kinds: list[Json], within: tuple[str, ...]) -> Iterator[Sample]:
        """The objects among the kinds, each with its fields; if there are none, the first kind."""
        samples = [sample for kind in kinds for sample in self._of(kind, within)]
        yield from [sample for sample in samples if sample[0]] or samples[:1]

    def _object(self, schema: Json, within: tuple[str, ...]) -> Iterator[Sample]:
        properties: dict[str, Json] = schema["properties"]
        required = {*schema.get("required", ()), *({_TYPE} if "enum" in properties.get(_TYPE, {}) else ())}
        needed = {name: self._first(name, properties[name], within) for name in sorted(required)}
        needed |= self._needed.get(within[-1], {}) if within else {}
        for name, inner in properties.items():
            if self._is_named(name, inner):
                yield (name,), needed | {name: self._named[name]}
                continue
            for path, value in self._of(inner, within):
                yield (name, *path), needed | {name: value}

    def _first(self, name: str, schema: Json, within: tuple[str, ...]) -> Any:
        if self._is_named(name, schema):
            return self._named[name]
        return next((value for _, value in self._of(schema, within)), None)

    def _is_named(self, name: str, schema: Json) -> bool:
        return name in self._named and self._named[name] in schema.get("enum", (self._named[name],))

"""Converts Google's schemas, a subset of OpenAPI's, to JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from openresponses_bridge.dialects.base import invalid
from openresponses_bridge.dialects.gemini.client.fields import integer_of
from openresponses_bridge.dialects.gemini.types import enum_name, spelled

_TYPES: Final = ("TYPE_UNSPECIFIED", "STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL")
_NO_TYPE: Final = ("TYPE_UNSPECIFIED", 0, "")
_COUNTS: Final = frozenset(
    {"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"}
)  # written as texts, as protobuf writes 64 bits
_MAPS: Final = {"properties": "properties", "defs": "$defs", "$defs": "$defs"}
_LISTS: Final = frozenset({"anyOf", "prefixItems"})
_ONES: Final = frozenset({"items", "additionalProperties"})
_OTHER_NAMES: Final = {"ref": "$ref"}
_DROPPED: Final = frozenset({"nullable", "propertyOrdering"})


class _Place(NamedTuple):
    """The place of a schema. It is written out only for an error, since paths of deep schemas are long."""

    within: _Place | None
    name: str

    def path(self) -> str:
        names = []
        place: _Place | None = self
        while place is not None:
            names.append(place.name[:64])
            place = place.within
        return ".".join(reversed(names))


def json_schema(schema: Mapping[str, Any], param: str) -> dict[str, Any]:
    """Return one of Google's schemas as JSON Schema. Types are in lower case, `nullable` becomes one of them,
    and properties are in the order of `propertyOrdering`. Unknown keywords are kept. Takes linear time, at
    any depth. Raises InvalidRequestError if the value is not a schema."""
    root: dict[str, Any] = {}
    waiting: list[tuple[Mapping[str, Any], _Place, dict[str, Any]]] = [(schema, _Place(None, param), root)]

    def later(value: Any, where: _Place) -> Any:
        if isinstance(value, bool):
            return value
        if not isinstance(value, dict):
            raise invalid(where.path(), "expected a schema")
        result: dict[str, Any] = {}
        waiting.append((value, where, result))
        return result

    while waiting:
        node, where, result = waiting.pop()
        named = spelled(node)
        for name, value in named.items():
            if name in _DROPPED or value is None:
                continue
            at = _Place(where, name)
            if name in _MAPS and isinstance(value, dict):
                result[_MAPS[name]] = {
                    key: later(value[key], _Place(at, key)) for key in _ordered(value, named)
                }
            elif name in _LISTS and isinstance(value, list):
                result[name] = [later(each, _Place(at, str(index))) for index, each in enumerate(value)]
            elif name in _ONES and isinstance(value, dict):
                result[name] = later(value, at)
            elif name != "type" or value not in _NO_TYPE:
                result[_OTHER_NAMES.get(name, name)] = _value(name, value)
        if named.get("nullable") is True:
            _make_nullable(result)
    return root


def _ordered(properties: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    ordering = schema.get("propertyOrdering")
    first = [name for name in ordering if isinstance(name, str)] if isinstance(ordering, list) else []
    return [name for name in dict.fromkeys([*first, *properties]) if name in properties]


def _value(name: str, value: Any) -> Any:
    if name == "type":
        kind = enum_name(value, _TYPES)
        return value if kind is None else kind.lower()
    if name in _COUNTS:
        count = integer_of(value)
        return value if count is None else count
    return value


def _make_nullable(schema: dict[str, Any]) -> None:
    kind = schema.get("type")
    if isinstance(kind, str) and kind != "null":
        schema["type"] = [kind, "null"]
    elif isinstance(schema.get("anyOf"), list):
        schema["anyOf"] = [*schema["anyOf"], {"type": "null"}]
    if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
        schema["enum"] = [*schema["enum"], None]

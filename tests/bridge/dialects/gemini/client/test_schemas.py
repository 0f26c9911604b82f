"""Google's schemas as JSON Schema."""

from typing import Any

import pytest

from openresponses_bridge.dialects.gemini.client.schemas import json_schema
from openresponses_bridge.errors import InvalidRequestError

TEXT = {"type": "STRING"}


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({"type": "STRING"}, {"type": "string"}),
        ({"type": 1}, {"type": "string"}),
        ({"type": "TYPE_UNSPECIFIED", "description": "d"}, {"description": "d"}),
        ({"type": "STRING", "nullable": True}, {"type": ["string", "null"]}),
        ({"any_of": [TEXT], "nullable": True}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        (
            {"type": "STRING", "enum": ["a"], "nullable": True},
            {"type": ["string", "null"], "enum": ["a", None]},
        ),
        (
            {"type": "ARRAY", "items": TEXT, "minItems": "2"},
            {"type": "array", "items": {"type": "string"}, "minItems": 2},
        ),
        ({"minItems": "many"}, {"minItems": "many"}),
        ({"additionalProperties": False}, {"additionalProperties": False}),
        ({"items": {"anyOf": [True]}}, {"items": {"anyOf": [True]}}),
        ({"ref": "#/defs/a", "defs": {"a": TEXT}}, {"$ref": "#/defs/a", "$defs": {"a": {"type": "string"}}}),
        ({"type": ["string"]}, {"type": ["string"]}),
        ({"type": "NULL", "nullable": True}, {"type": "null"}),
    ],
)
def test_a_schema(given: dict[str, Any], made: dict[str, Any]) -> None:
    assert json_schema(given, "schema") == made


def test_properties_come_in_the_order_that_is_asked_for() -> None:
    schema = {"properties": {"a": TEXT, "b": TEXT, "c": TEXT}, "propertyOrdering": ["c", "x", 5, "a", "c"]}
    assert list(json_schema(schema, "schema")["properties"]) == ["c", "a", "b"]


def test_what_is_no_schema_is_named() -> None:
    with pytest.raises(InvalidRequestError) as raised:
        json_schema({"properties": {"a": {"anyOf": [TEXT, 5]}}}, "tools[0]")
    assert raised.value.param == "tools[0].properties.a.anyOf.1"


def test_s10_any_depth_is_read() -> None:
    deep: Any = TEXT
    for _ in range(20_000):
        deep = {"type": "ARRAY", "items": deep}
    schema, depth = json_schema(deep, "schema"), 0
    while "items" in schema:
        schema, depth = schema["items"], depth + 1
    assert (schema, depth) == ({"type": "string"}, 20_000)

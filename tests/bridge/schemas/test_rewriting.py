"""Schemas rewritten so that their root has no alternatives."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from referencing import Registry

from openresponses_bridge.schemas.rewriting import object_root

TEXT = {"type": "string"}
NUMBER = {"type": "integer"}


def made(mode: str, **properties: Any) -> dict[str, Any]:
    """One of several forms of a call, which `mode` tells apart."""
    return {
        "type": "object",
        "properties": {"mode": {"const": mode}, **properties},
        "required": ["mode", *properties],
        "additionalProperties": False,
    }


ROOTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "one of several": (
        {"oneOf": [made("create", name=TEXT), made("delete", id=NUMBER)], "description": "d"},
        {
            "description": "d",
            "type": "object",
            "properties": {
                "mode": {"anyOf": [{"const": "create"}, {"const": "delete"}]},
                "name": TEXT,
                "id": NUMBER,
            },
            "required": ["mode"],
            "additionalProperties": False,
        },
    ),
    "what is beside them holds too": (
        {
            "type": "object",
            "properties": {"a": TEXT, "b": TEXT},
            "required": ["a"],
            "anyOf": [{"required": ["b"]}, {"properties": {"b": {"minLength": 2}, "c": NUMBER}}],
        },
        {
            "type": "object",
            "properties": {"a": TEXT, "b": TEXT, "c": NUMBER},
            "required": ["a"],
        },
    ),
    "what all alternatives say beside it": (
        {
            "properties": {"a": TEXT},
            "anyOf": [{"properties": {"a": {"minLength": 2}}}, {"additionalProperties": False}],
        },
        {"type": "object", "properties": {"a": {"allOf": [TEXT, {"minLength": 2}]}}},
    ),
    "two that may be": (
        {"allOf": [{"anyOf": [{}, {"properties": {"a": each}}]} for each in (TEXT, NUMBER)]},
        {"type": "object", "properties": {"a": {"anyOf": [TEXT, NUMBER]}}},
    ),
    "all of several": (
        {"allOf": [{"properties": {"a": TEXT}, "required": ["a"]}, {"properties": {"b": TEXT}}]},
        {"type": "object", "properties": {"a": TEXT, "b": TEXT}, "required": ["a"]},
    ),
    "an object or null": (
        {"anyOf": [{"type": "null"}, {"type": ["object", "null"], "properties": {"a": TEXT}}]},
        {"type": "object", "properties": {"a": TEXT}},
    ),
    "definitions": (
        {
            "$defs": {"a/b": {"properties": {"a": TEXT}, "required": ["a"]}, "c": {"$ref": "#/$defs/a~1b"}},
            "$ref": "#/$defs/c",
        },
        {
            "$defs": {"a/b": {"properties": {"a": TEXT}, "required": ["a"]}, "c": {"$ref": "#/$defs/a~1b"}},
            "type": "object",
            "properties": {"a": TEXT},
            "required": ["a"],
        },
    ),
    "a definition of itself": (
        {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"},
        {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}, "type": "object", "properties": {}},
    ),
    "what is no schema": (
        {"anyOf": [1, {"properties": 1, "required": 1, "allOf": {}}], "$ref": "#/a/b", "not": {}},
        {"type": "object", "properties": {}},
    ),
}


@pytest.mark.parametrize("kind", ROOTS)
def test_a_root_of_alternatives_is_one_object(kind: str) -> None:
    schema, expected = ROOTS[kind]
    assert object_root(schema) == expected


def test_another_root_stays_as_it_is() -> None:
    schema = {"type": "object", "properties": {"a": {"anyOf": [TEXT, NUMBER]}}}
    assert object_root(schema) is schema


SCHEMAS = st.recursive(
    st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(
                st.sampled_from("abc"), st.sampled_from([TEXT, NUMBER, {}]), max_size=2
            ),
            "required": st.lists(st.sampled_from("abc"), max_size=2, unique=True),
        },
    ),
    lambda each: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(
                st.sampled_from("abc"), st.sampled_from([TEXT, NUMBER, {}]), max_size=2
            ),
            **{name: st.lists(each, min_size=1, max_size=3) for name in ("anyOf", "oneOf", "allOf")},
        },
    ),
    max_leaves=8,
)
VALUES = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["x", 1, None]))


def takes(schema: dict[str, Any], value: object) -> bool:
    return Draft202012Validator(schema, registry=Registry()).is_valid(value)


def named_in(schema: dict[str, Any]) -> set[str]:
    """The members that a schema or any of its alternatives names."""
    lists = [schema.get(keyword, ()) for keyword in ("anyOf", "oneOf", "allOf")]
    return {
        *schema.get("properties", ()),
        *(name for each in lists for part in each for name in named_in(part)),
    }


def without_unnamed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema, no alternative of which takes a member that only others name."""
    result = dict(schema)
    for keyword in {"anyOf", "oneOf", "allOf"} & schema.keys():
        parts = schema[keyword]
        names = set() if keyword == "allOf" else {name for part in parts for name in named_in(part)}
        result[keyword] = [
            {"allOf": [without_unnamed(part), {"properties": dict.fromkeys(names - named_in(part), False)}]}
            for part in parts
        ]
    return result


@given(SCHEMAS, VALUES)
def test_what_the_schema_takes_its_one_object_takes(schema: dict[str, Any], value: dict[str, Any]) -> None:
    if takes(schema, value) and takes(without_unnamed(schema), value):
        assert takes(object_root(schema), value)

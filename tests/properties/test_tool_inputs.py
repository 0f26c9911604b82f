"""Random inputs of tools validated by random schemas: the results equal those of Python's jsonschema, and
take little time."""

import json
from contextlib import suppress
from typing import Any

import jsonschema
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from referencing import Registry

from openresponses_agent.tools import ToolValidationError, validate_tool_input
from openresponses_agent.tools.validation import ToolSchema
from openresponses_bridge.errors import ToolError
from tests.support.scale import FACTOR

NAMES = st.sampled_from(["a", "b", "ab", "c1", "x-y", ""])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from([0.5, 1.0, 2.5, "", "a", "ab", "b1", "[1]", '{"a":1}']),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
PATTERNS = st.sampled_from(["^a", "b$", "^[ab]{1,2}$", "(a+)+$", "[0-9]", "^(?!a)", "(a|ab)*1"])
SMALL = st.integers(0, 3)
ROOTS = ("#/$defs/one", "#/$defs/two", "#", "#anchor")
DIALECTS = {
    "https://json-schema.org/draft/2020-12/schema": jsonschema.Draft202012Validator,
    "http://json-schema.org/draft-07/schema#": jsonschema.Draft7Validator,
}


def keywords(inner: st.SearchStrategy[Any], new: bool) -> st.SearchStrategy[dict[str, Any]]:
    some = st.lists(inner, min_size=1, max_size=3)
    named = st.dictionaries(NAMES, inner, max_size=3)
    table: dict[str, st.SearchStrategy[Any]] = {
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
        "enum": st.lists(VALUES, min_size=1, max_size=3),
        "const": VALUES,
        "multipleOf": st.sampled_from([1, 2, 0.5]),
        "minimum": st.integers(-3, 3),
        "exclusiveMaximum": st.integers(-3, 3),
        "minLength": SMALL,
        "maxLength": SMALL,
        "pattern": PATTERNS,
        "minItems": SMALL,
        "maxItems": SMALL,
        "uniqueItems": st.booleans(),
        "contains": inner,
        "minProperties": SMALL,
        "required": st.lists(NAMES, max_size=2, unique=True),
        "properties": named,
        "patternProperties": st.dictionaries(PATTERNS, inner, max_size=2),
        "additionalProperties": inner,
        "propertyNames": inner,
        "allOf": some,
        "anyOf": some,
        "oneOf": some,
        "not": inner,
        "if": inner,
        "then": inner,
        "else": inner,
        "items": inner if new else inner | some,
    }
    table |= (
        {
            "prefixItems": some,
            "dependentSchemas": named,
            "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, max_size=2, unique=True), max_size=2),
            "unevaluatedProperties": inner,
            "unevaluatedItems": inner,
            "maxContains": SMALL,
        }
        if new
        else {"additionalItems": inner, "dependencies": named}
    )
    return st.lists(st.sampled_from(sorted(table)), min_size=1, max_size=4, unique=True).flatmap(
        lambda chosen: st.fixed_dictionaries({name: table[name] for name in chosen})
    )


def schemas(dialect: str) -> st.SearchStrategy[dict[str, Any]]:
    new = "2020" in dialect
    references = st.sampled_from(ROOTS[: 4 if new else 3]).map(lambda target: {"$ref": target})
    inner = st.recursive(
        st.booleans() | references | keywords(st.booleans(), new),
        lambda deeper: keywords(deeper, new),
        max_leaves=6,
    )
    defined = st.fixed_dictionaries({"one": inner, "two": inner})

    def whole(parts: tuple[dict[str, Any], dict[str, Any]]) -> dict[str, Any]:
        schema, defs = parts
        two = defs["two"] if isinstance(defs["two"], dict) else {"not": {}}
        return {
            "$schema": dialect,
            **schema,
            "$defs": defs | {"two": two | ({"$anchor": "anchor"} if new else {})},
        }

    return st.tuples(keywords(inner, new), defined).map(whole)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_validation_agrees_with_jsonschema(dialect: str) -> None:
    @example({"$schema": dialect, "required": ["a"]}, {"b": 1})
    @settings(max_examples=120 * FACTOR)
    @given(schemas(dialect), st.dictionaries(NAMES, VALUES, max_size=4))
    def agrees(schema: dict[str, Any], value: dict[str, Any]) -> None:
        errors = ToolSchema("t", schema).errors(value)
        if "cost" in {each.keyword for each in errors}:
            assert '"$ref"' in json.dumps(schema)  # it refers back to itself: the other engine recurses
            return
        other = DIALECTS[dialect](schema, registry=Registry())
        assert (not errors) == other.is_valid(value), errors

    agrees()


@settings(max_examples=80 * FACTOR)
@given(
    schemas("https://json-schema.org/draft/2020-12/schema"),
    st.dictionaries(NAMES, VALUES, max_size=4),
    st.integers(0, 200),
)
def test_whatever_a_model_sends_is_valid_input_or_a_validation_error(
    schema: dict[str, Any], value: dict[str, Any], cut: int
) -> None:
    text = json.dumps(value)
    text = text[: max(0, len(text) - cut)] if cut < 100 else text
    judge = ToolSchema("t", schema)
    refused: ToolValidationError | None = None
    try:
        valid: Any = validate_tool_input("t", text, judge, repair=cut % 2 == 0)
    except ToolValidationError as error:
        refused = error
    if refused is None:
        assert isinstance(valid, dict)
        assert judge.errors(valid) == []
    else:
        assert refused.errors
        assert all(each.message and isinstance(each.params, dict) for each in refused.errors)
        assert json.loads(json.dumps(refused.as_json()))["toolName"] == "t"


@settings(max_examples=100 * FACTOR)
@given(
    st.recursive(
        VALUES,
        lambda inner: st.dictionaries(
            st.sampled_from(["$ref", "type", "items", "allOf", "pattern", "$id", "properties"]),
            inner,
            max_size=3,
        ),
        max_leaves=8,
    )
)
def test_whatever_is_given_as_a_schema_is_one_or_a_tool_error(schema: Any) -> None:
    given_schema = schema if isinstance(schema, dict) else {"properties": schema}
    with suppress(ToolError):
        ToolSchema("t", given_schema).errors({"a": [1], "b": "x"})

"""Texts in a tool's input that its schema reads as values: those left unread, and the cost. Those read are in
`tests/agent/tools/test_validation.py`."""

from collections.abc import Callable
from cProfile import Profile
from typing import Any

import pytest

from openresponses_bridge.calls.coercion import coerced_input

TWICE = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n - 1}"}] * 2} for n in range(1, 61)}
DOUBLING: dict[str, Any] = {"$defs": {"a0": {"type": "object"}, **TWICE}, "$ref": "#/$defs/a60"}


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"a": {"type": "string"}}}]},
        {"properties": {"a": {"type": ["string", "integer"]}}},
        {"properties": {"a": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}},
        {"properties": {"a": {"minimum": 1}}},
        {"patternProperties": {"a": {}}, "additionalProperties": {"type": "integer"}},
        {"properties": {"a": True}, "items": 3, "allOf": {}, "$ref": "#/x"},
    ],
)
def test_a_value_that_fits_is_not_changed(schema: dict[str, Any]) -> None:
    value = {"a": "1"}
    assert coerced_input(value, schema).value is value


@pytest.mark.untraced
def test_reading_texts_is_bounded() -> None:
    """References that double or are long, many branches over many fields, texts that are parsed often, lists
    of types that are long."""
    fields = {f"f{number}": "1" for number in range(20_000)}
    branch = {"properties": {name: {"type": "integer"} for name in [*fields][:100]}}
    often = {
        "properties": {"v": {"allOf": [{"anyOf": [{"type": "array"}, {"const": n}]} for n in range(3_000)]}}
    }
    loop = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
    far: dict[str, Any] = {"items": {"$ref": "#/" + "a/" * 5_000}}
    cases: list[tuple[Any, Any]] = [
        ({"properties": {"v": far}}, {"v": ["1"] * 5_000}),
        ({"$ref": "#/anyOf/" + "9" * 5_000, "anyOf": [{}]}, {"v": "1"}),
        ({"properties": {"v": {"items": {"type": ["integer"] * 5_000}}}}, {"v": ["x"] * 5_000}),
        (DOUBLING, {}),
        ({"$ref": "#"}, {"a": "1"}),
        (loop, {"a": "1"}),
        ({"allOf": [branch] * 5_000}, fields),
        (often, {"v": "[" + "1," * 100_000 + "x]"}),
        ({"properties": {"v": {"anyOf": [{"enum": [*range(10_000)]}] * 1_000}}}, {"v": "1"}),
    ]
    for schema, value in cases:
        assert calls_of(lambda schema=schema, value=value: coerced_input(value, schema)) < 3_000_000


def calls_of(work: Callable[[], object]) -> int:
    """How many calls of functions the work makes."""
    profile = Profile()
    profile.runcall(work)
    return sum(entry.callcount for entry in profile.getstats())

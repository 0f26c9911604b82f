"""A call's input judged by its tool's schema: errors to act on, nested JSON, repair, limits."""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry

from openresponses_agent.tools import ToolValidationError, deep_parse_nested_json, validate_tool_input
from openresponses_agent.tools.errors import ToolInputError
from openresponses_agent.tools.validation import ToolSchema
from openresponses_bridge.errors import LocalError, ToolError
from openresponses_bridge.schemas import cost
from openresponses_bridge.schemas.cost import Estimator, TooCostlyError
from tests.support.costs import assert_at_most

EDIT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "filePath": {"type": "string"},
        "code": {"type": "string"},
        "explanation": {"type": "string"},
    },
    "required": ["filePath", "code"],
}


def refused(arguments: Any, schema: dict[str, Any], **options: Any) -> ToolValidationError:
    with pytest.raises(ToolValidationError) as caught:
        validate_tool_input("edit_file", arguments, schema, **options)
    return caught.value


def test_input_that_fits_is_the_parsed_object() -> None:
    value = {"filePath": "test.js", "code": "{}\n", "explanation": "é😀"}
    notes: list[str] = []
    assert validate_tool_input("edit_file", json.dumps(value), EDIT, notes=notes) == value
    assert validate_tool_input("edit_file", json.dumps(value).encode(), EDIT) == value
    assert validate_tool_input("edit_file", value, EDIT) == value
    assert notes == []


def test_the_error_has_the_fields_of_the_field() -> None:
    error = refused('{"filePath": 123, "code": "function test() {}"}', EDIT)
    assert error.as_json() == {
        "toolName": "edit_file",
        "errors": [
            {
                "instancePath": "/filePath",
                "schemaPath": "#/properties/filePath/type",
                "keyword": "type",
                "params": {"type": "string"},
                "message": "must be string",
            }
        ],
        "receivedInput": {"filePath": 123, "code": "function test() {}"},
    }
    assert error.message == "/filePath must be string"


VIOLATIONS: list[tuple[dict[str, Any], Any, str, dict[str, Any], str]] = [
    ({"type": ["string", "null"]}, 1, "type", {"type": ["null", "string"]}, "must be null or string"),
    ({"enum": [1, "a"]}, 3, "enum", {"allowedValues": [1, "a"]}, 'one of the allowed values: 1, "a"'),
    ({"const": {"a": 1}}, 3, "const", {"allowedValue": {"a": 1}}, 'must be equal to {"a":1}'),
    ({"minLength": 3}, "a", "minLength", {"limit": 3}, "must NOT have fewer than 3 characters"),
    ({"maxLength": 1}, "aa", "maxLength", {"limit": 1}, "must NOT have more than 1 characters"),
    ({"minimum": 3}, 1, "minimum", {"limit": 3}, "must be >= 3"),
    ({"exclusiveMaximum": 1}, 1, "exclusiveMaximum", {"limit": 1}, "must be < 1"),
    ({"multipleOf": 2}, 3, "multipleOf", {"multipleOf": 2}, "must be a multiple of 2"),
    ({"pattern": "^b"}, "a", "pattern", {"pattern": "^b"}, 'must match the pattern "^b"'),
    ({"uniqueItems": True}, [1, 1], "uniqueItems", {}, "must NOT have duplicate items"),
    ({"minItems": 1}, [], "minItems", {"limit": 1}, "must NOT have fewer than 1 items"),
    ({"not": {"type": "null"}}, None, "not", {}, "must NOT be valid"),
    ({"contains": {"type": "null"}}, [1], "contains", {}, "must contain a valid item"),
    (
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        1,
        "anyOf",
        {},
        "must match a schema in anyOf (must be string; or must be null)",
    ),
    ({"required": ["x"]}, {}, "required", {"missingProperty": "x"}, "must have required property 'x'"),
    (
        {"properties": {"a": {}}, "additionalProperties": False},
        {"b": 1},
        "additionalProperties",
        {"additionalProperties": ["b"]},
        'must NOT have additional properties: "b"',
    ),
    ({"additionalProperties": False}, {"b": 1}, "additionalProperties", {}, "must NOT have additional"),
    ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, "dependentRequired", {"missingProperty": "b"}, "'b'"),
    ({"prefixItems": [{}], "items": False}, [1, 2], "items", {}, "must NOT have more items"),
    ({"propertyNames": {"maxLength": 1}}, {"aa": 1}, "maxLength", {}, "must NOT"),
]


@pytest.mark.parametrize(("schema", "value", "keyword", "params", "words"), VIOLATIONS)
def test_each_keyword_in_words(
    schema: dict[str, Any], value: Any, keyword: str, params: dict[str, Any], words: str
) -> None:
    error = refused({"v": value}, {"properties": {"v": schema}})
    (only,) = error.errors
    assert only.keyword == keyword
    assert only.params == params
    assert words in only.message
    assert only.instance_path.startswith("/v")
    assert only.schema_path.startswith("#/properties/v/")


def test_all_errors_are_named_and_paths_are_pointers() -> None:
    schema = {"properties": {"a/b~": {"items": {"type": "integer"}}}, "required": ["c"]}
    error = refused({"a/b~": [1, "x"]}, schema)
    assert {each.instance_path for each in error.errors} == {"", "/a~1b~0/1"}
    assert "the input must have required property 'c'" in error.message


def test_a_thousand_errors_are_twenty_and_a_message_of_ten() -> None:
    error = refused({"v": ["x"] * 1000}, {"properties": {"v": {"items": {"type": "integer"}}}})
    assert len(error.errors) == 20
    assert error.message.count("must be") == 10


@pytest.mark.parametrize("arguments", ["", "  ", b"\n"])
def test_no_arguments_are_an_empty_object(arguments: str | bytes) -> None:
    assert validate_tool_input("now", arguments, {"type": "object"}) == {}


@pytest.mark.parametrize("arguments", ["[]", "3", '"text"', "null"])
def test_a_tool_is_called_with_an_object_whatever_the_schema_says(arguments: str) -> None:
    assert refused(arguments, {}).errors[0].message == "must be object"


@pytest.mark.parametrize("arguments", ["{", '{"a": }', "{'a': 1}", '{"a": NaN}', "nonsense"])
def test_what_is_not_json_says_so(arguments: str) -> None:
    error = refused(arguments, {}, repair=False)
    assert error.errors[0].keyword == "json"
    assert "the input is not JSON: " in error.message
    assert error.received_input == arguments


# --- JSON inside of JSON ---------------------------------------------------------------------------------


def test_nested_json_is_read_when_the_input_does_not_fit_as_it_is() -> None:
    schema = {"properties": {"edit": {"type": "object", "required": ["path"]}}}
    notes: list[str] = []
    value = validate_tool_input("t", {"edit": '{"path": "a"}'}, schema, notes=notes)
    assert value == {"edit": {"path": "a"}}
    assert notes == ["JSON inside of strings was read"]


def test_nested_json_stays_text_where_text_is_wanted() -> None:
    value = {"filePath": "a.json", "code": '{"a": 1}'}
    assert validate_tool_input("edit_file", value, EDIT) == value


def test_nested_json_is_read_only_where_the_error_is() -> None:
    """A text that may be one keeps its JSON though another field has to be read."""
    schema = {
        "properties": {"edits": {"type": "array"}, "content": {"type": ["object", "string"]}, "name": {}}
    }
    value = {"edits": "[1]", "content": '{"a": 1}', "name": "[2]"}
    assert validate_tool_input("t", value, schema) == {**value, "edits": [1]}


# what a model sends for a schema, and what it becomes
READ: list[tuple[dict[str, Any], Any, Any]] = [
    ({"type": "integer"}, "1", 1),
    ({"type": "integer"}, " -12 ", -12),
    ({"type": "integer"}, "2.0", 2),
    ({"type": "integer"}, "9" * 25, int("9" * 25)),
    ({"type": "number"}, "1.5e3", 1500.0),
    ({"type": "boolean"}, "true", True),
    ({"type": "boolean"}, "false", False),
    ({"type": ["integer", "null"]}, "3", 3),
    ({"type": ["null", "boolean"]}, "", None),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "3", 3),
    ({"oneOf": [{"type": "boolean"}, {"type": "integer"}]}, "3", 3),
    ({"anyOf": [{"$ref": "#/$defs/line"}, {"type": "null"}]}, {"at": "3"}, {"at": 3}),
    ({"anyOf": [{"enum": ["all"]}, {"type": "integer"}]}, "3", 3),
    ({"allOf": [{"type": "integer"}, {"minimum": 1}]}, "3", 3),
    ({"$ref": "#/$defs/line"}, '{"at": "3"}', {"at": 3}),
    ({"type": "array", "items": {"type": "integer"}}, ["1", 2], [1, 2]),
    ({"prefixItems": [{"type": "integer"}], "items": {"type": "boolean"}}, ["1", "true"], [1, True]),
    ({"additionalProperties": {"type": "integer"}}, {"a": "1", "b": 2}, {"a": 1, "b": 2}),
    ({"type": "object", "properties": {"a": {"type": "array"}}}, '{"a": "[1]"}', {"a": [1]}),
]


@pytest.mark.parametrize(("schema", "sent", "read"), READ)
def test_texts_are_read_as_the_schema_wants_them(schema: dict[str, Any], sent: Any, read: Any) -> None:
    line = {"type": "object", "properties": {"at": {"type": "integer"}}}
    notes: list[str] = []
    whole = {"properties": {"v": schema}, "$defs": {"line": line}}
    arguments = {"v": sent}
    result = validate_tool_input("t", arguments, whole, notes=notes)
    assert result == {"v": read}
    assert type(result["v"]) is type(read)
    assert arguments == {"v": sent}
    assert notes


@pytest.mark.parametrize(
    ("schema", "sent"),
    [
        ({"type": "string"}, 1),  # only texts are read: a number is not made one
        ({"type": "string"}, True),
        ({"type": "integer"}, "1.5"),
        ({"type": "integer"}, "one"),
        ({"type": "integer"}, "0x10"),
        ({"type": "integer"}, "1e300"),
        ({"type": "number"}, "1e999"),
        ({"type": "number"}, ""),
        ({"type": "number"}, "Infinity"),
        ({"type": "boolean"}, "yes"),
        ({"type": "boolean"}, 1),
        ({"type": "object"}, "[1]"),
        ({"type": "array"}, "{broken"),
        ({"type": "array"}, "[" * 200 + "]" * 200),
        ({"enum": [1]}, "1"),
        ({"$ref": "#/nowhere/~1"}, "1"),
        ({"anyOf": [{"type": "integer", "minimum": 5}, {"type": "null"}]}, "1"),
    ],
)
def test_what_is_not_meant_so_stays_an_error(schema: dict[str, Any], sent: Any) -> None:
    whole = {"properties": {"v": schema}, "nowhere": {"/": {"type": "integer", "minimum": 5}}}
    assert refused({"v": sent}, whole).received_input == {"v": sent}


def test_arguments_that_are_a_json_text_twice() -> None:
    assert validate_tool_input("t", json.dumps(json.dumps({"a": 1})), {"required": ["a"]}) == {"a": 1}


def test_errors_are_about_the_input_as_it_came() -> None:
    error = refused({"filePath": 1, "code": '{"a": 1}'}, EDIT)
    assert error.received_input == {"filePath": 1, "code": '{"a": 1}'}
    assert [each.instance_path for each in error.errors] == ["/filePath"]


@pytest.mark.parametrize(
    ("value", "parsed"),
    [
        ('{"a": "[1, 2]"}', {"a": [1, 2]}),
        (["{}", "x", "3", "true", "null", "{broken"], [{}, "x", "3", "true", "null", "{broken"]),
        (json.dumps({"a": json.dumps({"b": json.dumps([1])})}), {"a": {"b": [1]}}),
        (None, None),
        ("[" * 200 + "]" * 200, "[" * 200 + "]" * 200),
    ],
)
def test_deep_parse_nested_json(value: Any, parsed: Any) -> None:
    assert deep_parse_nested_json(value) == parsed


def test_strings_in_strings_are_read_eight_deep() -> None:
    value: Any = [1]
    for _ in range(12):
        value = json.dumps([value])
    read = deep_parse_nested_json(value)
    depth = 0
    while isinstance(read, list):
        (read,), depth = read, depth + 1
    assert (depth, type(read)) == (8, str)


# --- repair ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "{'filePath': 'a', 'code': 'b'}",
        '{"filePath": "a", "code": "b",}',
        '{filePath: "a", code: "b"}',
        '```json\n{"filePath": "a", "code": "b"}\n```',
        '{"filePath": "a" "code": "b"}',
    ],
)
def test_malformed_arguments_are_repaired_unless_that_is_switched_off(text: str) -> None:
    refused(text, EDIT, repair=False)
    notes: list[str] = []
    assert validate_tool_input("t", text, EDIT, notes=notes) == {"filePath": "a", "code": "b"}
    assert notes == ["the arguments were not JSON and were repaired"]


@pytest.mark.parametrize(
    "text", ['{"filePath": "a", "code": "b', '{"filePath": "a", "code": "b"', "no JSON", "{" * 50_001 + "}"]
)
def test_what_is_cut_or_hopeless_is_not_repaired(text: str) -> None:
    assert refused(text, EDIT, repair=True).errors[0].keyword == "json"


COSTLY = ["'a' ", "k: v, ", "(", 'k:"v" w", ', ":", "\u201d", "'", '"', ","]
CHEAP = ["\\", "/*", "`", "x", "v ", "1.2.3 ", "# c\n"]


@pytest.mark.parametrize("piece", [*COSTLY, *CHEAP, "{", '{"a":', "[", "{a", "{'a':'b'"])
def test_s10_a_repair_that_would_take_long_is_not_tried(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made on the event loop: json-repair takes minutes for 50,000 characters without quotes."""
    tried: list[str] = []

    def repair(text: str, return_objects: bool) -> object:
        tried.append(text)
        return None

    monkeypatch.setattr("json_repair.repair_json", repair)
    for size in (1_000, 10_000, 19_998, 49_998):
        text = "{" + (piece * size)[:size] + "}"
        refused(text, EDIT, repair=True)
    for text in tried:
        assert len(text) <= 20_000
        assert len(text) * sum(text.count(mark) for mark in ",:('\"") <= 5_000_000
    longest = max(map(len, tried), default=0)
    assert longest == (20_000 if piece in CHEAP else 1_002 if piece in COSTLY else longest)


def test_a_missing_extra_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "json_repair", None)
    with pytest.raises(LocalError, match=r"pip install 'openresponses-bridge\[repair\]'"):
        validate_tool_input("t", "{'a': 1}", EDIT, repair=True)
    assert refused("{'a': 1}", EDIT).errors[0].keyword == "json"  # by default it is not needed


# --- schemas that can't be used, and hostile ones ----------------------------------------------------------


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "https://example.com/schema.json"},
        {"properties": {"a": {"$ref": "file:///etc/passwd"}}},
        {"properties": {"a": {"$ref": "other.json#/a"}}},
        {"$ref": "#/$defs/missing"},
        {"x": {"y": {"$anchor": "a"}}, "allOf": [{"$ref": "#/x/y"}, {"$ref": "#a"}]},
        {"properties": {"a": {"$id": "https://example.com/", "$ref": "x"}}},
        {"$schema": "https://example.com/dialect"},
        {"type": "objekt"},
        {"properties": {"a": {"pattern": "("}}},
        {"properties": {"a": {"pattern": "(" * 50 + "a{1,1000}" + "){1,1000}" * 50}}},
        {"enum": ["x" * 200_001]},
    ],
    ids=str,
)
def test_schemas_that_cannot_be_used_are_the_callers_mistake(schema: dict[str, Any]) -> None:
    with pytest.raises(ToolError, match="the input schema of the tool 't'") as caught:
        validate_tool_input("t", "{}", schema)
    assert caught.value.code == "bridge.tools.invalid_schema"


def test_draft_07_is_used_where_it_is_declared() -> None:
    pair = {"properties": {"v": {"items": [{"type": "integer"}], "additionalItems": False}}}
    old = {"$schema": "http://json-schema.org/draft-07/schema#"} | pair
    assert refused({"v": [1, 2]}, old).errors[0].keyword == "additionalItems"
    new = {"properties": {"v": {"prefixItems": [{"type": "integer"}], "items": False}}}
    assert refused({"v": [1, 2]}, new).errors[0].keyword == "items"
    with pytest.raises(ToolError):
        validate_tool_input("t", "{}", pair)  # a list of items is not of 2020-12


def doubling(levels: int) -> dict[str, Any]:
    names = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n - 1}"}] * 2} for n in range(1, levels + 1)}
    return {"$defs": {"a0": {"type": "object"}, **names}, "$ref": f"#/$defs/a{levels}"}


def nested_unevaluated(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for number in range(levels):
        schema = {"allOf": [schema], "unevaluatedProperties": {"$ref": "#/$defs/x"}, "minProperties": number}
    return schema | {"$defs": {"x": {"type": ["integer", "object"]}}}


ANYTHING: dict[str, Any] = {f"k{n}": n for n in range(10)}
BOMBS: dict[str, tuple[dict[str, Any], Any]] = {
    "references that double": (doubling(60), {}),
    "a reference to itself": ({"$ref": "#"}, {}),
    "a dynamic reference to itself": ({"$dynamicAnchor": "a", "$dynamicRef": "#a"}, {}),
    "two that refer to each other": (
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {},
    ),
    "unevaluated in unevaluated": (nested_unevaluated(30), ANYTHING),
    "a pattern of counted repetitions": (
        {"patternProperties": {"(a{1,100}){1,20}b": {}}},
        {"a" * 100_000: 1},
    ),
    "a pattern that backtracks, often": (
        {"propertyNames": {"pattern": "^(a|aa)+(?!c)b"}},
        {"a" * 100 + str(n): n for n in range(5_000)},
    ),
    "a long enumeration, often": (
        {"additionalProperties": {"items": {"enum": [[n] for n in range(5_000)]}}},
        {"a": [[-n] for n in range(1, 5_000)]},
    ),
    "unique items, often": (
        {"additionalProperties": {"allOf": [{"uniqueItems": True, "minItems": n % 2} for n in range(4_000)]}},
        {"a": [[number, *range(2_000)] for number in range(4)]},
    ),
    "long texts measured, often": (
        {"additionalProperties": {"allOf": [{"maxLength": 10**9 + n} for n in range(6_000)]}},
        {"a": "x" * 900_000},
    ),
    "alternatives that nest": (doubling(25)["$defs"]["a1"] | doubling(40), {}),
}


@pytest.mark.untraced
@pytest.mark.parametrize("name", BOMBS)
def test_what_would_take_for_ever_is_refused_at_once(name: str) -> None:
    schema, value = BOMBS[name]
    error = refused(value, schema)
    assert [each.keyword for each in error.errors] == ["cost"], error.message
    assert "can't be checked" in error.message


@pytest.mark.untraced
def test_pairs_of_schemas_and_objects_are_counted_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is far beyond the limit, which is lowered here, costs what reaches it does."""
    monkeypatch.setattr(cost, "_MOST_PAIRS", 30_000)
    schema = {"additionalProperties": {"items": {"allOf": [{"minProperties": 0} for _ in range(50)]}}}

    def seconds(objects: int) -> float:
        value: dict[str, Any] = {"a": [{} for _ in range(objects)]}
        began = time.process_time()
        error = refused(value, schema)
        assert [each.keyword for each in error.errors] == ["cost"], error.message
        return time.process_time() - began

    assert_at_most(10, lambda: seconds(50_000), lambda: seconds(1_000))


@pytest.mark.parametrize(
    ("schema", "value", "fits"),
    [
        ({"properties": {"p": {"pattern": "^(a+)+$"}}}, {"p": "a" * 100_000 + "b"}, False),
        ({"properties": {"p": {"pattern": "plain"}}}, {"p": "x" * 900_000 + "plain"}, True),
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "definitions": {"o": {"$id": "#o"}},
                "$ref": "#o",
            },
            {},
            True,
        ),
        ({"properties": {"p": {"pattern": "^(?!.*\\.\\.)[a-z/.]+$"}}}, {"p": "src/a.py"}, True),
        ({"properties": {"p": {"pattern": "^(?!.*\\.\\.)[a-z/.]+$"}}}, {"p": "src/../a.py"}, False),
        ({"properties": {"p": {"pattern": "^\\p{L}{1,64}$"}}}, {"p": "Straße"}, True),
        ({"properties": {"p": {"uniqueItems": True}}}, {"p": [{"a": n} for n in range(50_000)]}, True),
        ({"properties": {"p": {"items": {"type": "integer"}}}}, {"p": [*range(100_000), "x"]}, False),
        (doubling(10), {}, True),
        (
            {"$defs": {"t": {"properties": {"next": {"$ref": "#/$defs/t"}}}}, "$ref": "#/$defs/t"},
            {"next": {}},
            True,
        ),
    ],
)
@pytest.mark.untraced
def test_what_is_large_and_cheap_is_judged(schema: dict[str, Any], value: Any, fits: bool) -> None:
    errors = ToolSchema("t", schema).errors(value)
    assert (not errors) == fits
    assert "cost" not in {each.keyword for each in errors}


def test_a_reference_that_the_count_cannot_follow_is_too_costly() -> None:
    with pytest.raises(TooCostlyError, match="'#a'"):
        Estimator({"$dynamicRef": "#a", "x": {"$dynamicAnchor": "a"}}).units({}, 100)


@pytest.mark.untraced
def test_counting_and_checking_take_less_than_checking_in_python() -> None:
    schema = {"properties": {"a": {"items": {"allOf": [{"minimum": n} for n in range(20)]}}}}
    judge, value = ToolSchema("t", schema), {"a": [10_000 + n for n in range(5_000)]}

    def spent(work: Callable[[], object]) -> float:
        began = time.process_time()
        assert work() in ([], True)
        return time.process_time() - began

    assert_at_most(
        1,
        lambda: spent(lambda: judge.errors(value)),
        lambda: spent(lambda: Draft202012Validator(schema, registry=Registry()).is_valid(value)),
    )


def test_an_input_that_is_nested_too_deeply() -> None:
    text = '{"a":' * 101 + "1" + "}" * 101
    error = refused(text, {})
    assert error.errors == [
        ToolInputError("", "#", "depth", {"limit": 100}, "is nested deeper than 100 levels")
    ]
    value: Any = {}
    for _ in range(5_000):
        value = {"a": value}
    assert refused(value, {}).errors == error.errors
    assert validate_tool_input("t", '{"a":' * 99 + "1" + "}" * 99, {})


def test_arguments_that_are_too_long() -> None:
    assert refused('{"a":"' + "x" * 1_000_000 + '"}', {}).errors[0].params == {"limit": 1_000_000}


def test_half_a_surrogate_pair_is_the_models_mistake() -> None:
    nested = json.dumps({"a": '{"b": "\\ud800"}'})
    refused(nested, {"properties": {"a": {"type": "object"}}})
    assert "surrogate" in refused('{"a": "\\ud800"}', {}).errors[0].message


@pytest.mark.parametrize("value", [{1}, b"x", "\ud800", float("inf"), object()], ids=range(5))
def test_objects_that_json_cannot_hold(value: Any) -> None:
    refused({"a": value}, {"properties": {"a": {"type": ["string", "number"]}}})


@pytest.mark.parametrize("digits", [5_000, 100_000])
def test_numbers_out_of_range(digits: int) -> None:
    assert "out of range" in refused('{"a": ' + "9" * digits + "}", {}).message


def test_a_schema_that_is_nested_too_deeply() -> None:
    schema: dict[str, Any] = {}
    for _ in range(400):
        schema = {"items": schema}
    with pytest.raises(ToolError, match="nested too deeply"):
        validate_tool_input("t", "{}", schema)


def test_formats_are_annotations() -> None:
    for dialect in (
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2020-12/schema",
    ):
        schema = {"$schema": dialect, "properties": {"u": {"type": "string", "format": "uri"}}}
        assert validate_tool_input("t", {"u": "not a uri"}, schema)


def test_without_the_engine_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from openresponses_bridge.schemas import checking

    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    checking.engine.cache_clear()
    try:
        with pytest.raises(LocalError, match=r"pip install 'openresponses-bridge\[tools\]'"):
            validate_tool_input("t", "{}", {})
    finally:
        checking.engine.cache_clear()

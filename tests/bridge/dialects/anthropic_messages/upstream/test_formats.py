"""The schema of an answer, as the Messages API enforces it or not."""

from typing import Any

import pytest

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.anthropic_messages import MessagesOptions
from openresponses_bridge.dialects.anthropic_messages.upstream.formats import answer_way, enforceable
from openresponses_bridge.dialects.base import AnswerWay
from openresponses_bridge.protocol.request import JsonSchemaFormatParam
from openresponses_bridge.protocol.response import JsonObjectFormat

TEXT = {"type": "string"}


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def test_what_the_api_refuses_is_left_out_and_named() -> None:
    schema = of(a=TEXT | {"minLength": 1}, minimum={"type": "integer", "minimum": 0})
    diagnostics = Diagnostics()
    del schema["additionalProperties"]
    assert enforceable(schema, diagnostics) == of(a=TEXT, minimum={"type": "integer"})
    assert [loss.what for loss in diagnostics.of("loss")] == [
        "minLength left out",
        "minimum left out",
        "an object's additionalProperties, given as false",
    ]
    assert {loss.where for loss in diagnostics.of("loss")} == {"text.format.schema"}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},  # of any properties
        of(a={"type": "object", "additionalProperties": TEXT}),
        of(a={"$ref": "#"}),
        of(a={"$ref": "#/$defs/n"}) | {"$defs": {"n": of(b={"anyOf": [TEXT, {"$ref": "#/$defs/n"}]})}},
        of(a={"$ref": "#/$defs/n"})
        | {
            "$defs": {
                "n": of(b={"$ref": "#/$defs/o"}),
                "o": {"type": "array", "items": {"$ref": "#/$defs/n"}},
            }
        },
        of(a={"$ref": "#/properties/a"}),
        of(a={"$ref": "#named"}) | {"$defs": {"n": {"$anchor": "named"}}},
    ],
)
def test_what_it_cant_enforce(schema: dict[str, Any]) -> None:
    diagnostics = Diagnostics()
    assert enforceable(schema, diagnostics) is None
    assert diagnostics.of("loss") == []


def test_definitions_may_be_used_often() -> None:
    names = {f"d{n}": of(a={"$ref": f"#/$defs/d{n + 1}"}, b={"$ref": f"#/$defs/d{n + 1}"}) for n in range(30)}
    schema = of(a={"$ref": "#/$defs/d0"}) | {"$defs": names | {"d30": TEXT}}
    assert enforceable(schema, Diagnostics()) == schema


@pytest.mark.parametrize(
    ("model", "schema", "way"),
    [
        ("claude-sonnet-4-5", of(a=TEXT), AnswerWay.NATIVE),
        ("claude-sonnet-4-5", {"type": "object"}, AnswerWay.FUNCTION),
        ("claude-sonnet-4", of(a=TEXT), AnswerWay.FUNCTION),
        ("claude-fable-5-1", {"type": "object"}, AnswerWay.INSTRUCTED),  # can't be made to call
        ("glm-5", of(a=TEXT), AnswerWay.INSTRUCTED),
        ("claude-sonnet-4-5", None, AnswerWay.INSTRUCTED),
    ],
)
def test_the_way_of_a_model(model: str, schema: dict[str, Any] | None, way: AnswerWay) -> None:
    format = JsonObjectFormat() if schema is None else JsonSchemaFormatParam("n", schema=schema)
    assert answer_way(format, model, MessagesOptions()) is way

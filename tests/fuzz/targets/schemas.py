"""Invariant: a client's schema is accepted, or refused with a 400, in linear time; an accepted schema refers
to nothing outside itself; and a fence around an answer is removed in the same way however the answer is
split."""

from __future__ import annotations

import json
from typing import Any

from openresponses_bridge.errors import BridgeError, InvalidRequestError
from openresponses_bridge.protocol.codec import decode_json
from openresponses_bridge.protocol.request import CreateResponse, JsonSchemaFormatParam, TextParam
from openresponses_server.requests.answer_format import FenceFilter, check_format, with_schema_instructions
from openresponses_server.settings import Limits
from openresponses_server.upstreams.demo.behaviours import sample
from tests.fuzz.core import Target

LIMITS = Limits()
# keywords with schemas, alone or in a list, and keywords with schemas by name
_SCHEMAS = ("items", "prefixItems", "contains", "not", "allOf", "anyOf", "oneOf", "if", "then", "else")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


def any_schema(data: bytes) -> None:
    try:
        schema = decode_json(data)
    except BridgeError:
        return
    if not isinstance(schema, dict):
        return
    request = CreateResponse(input="Hi", text=TextParam(format=JsonSchemaFormatParam("n", schema=schema)))
    try:
        check_format(request, LIMITS, "text.format.schema")
    except InvalidRequestError as error:
        _is_short(error)
        return
    assert with_schema_instructions(request).instructions
    assert all(reference.startswith("#") for reference in _references(schema))
    json.dumps(sample(schema, "some words"))


def _is_short(error: InvalidRequestError) -> None:
    assert (error.http_status, error.param) == (400, "text.format.schema")
    assert len(error.message) < 1_000


def _references(value: Any) -> list[str]:
    references, rest = [], [value]
    while rest:
        value = rest.pop()
        if isinstance(value, list):
            rest += value
        elif isinstance(value, dict):
            references += [
                each for each in (value.get("$ref"), value.get("$dynamicRef")) if isinstance(each, str)
            ]
            rest += [value[name] for name in _SCHEMAS if name in value]
            rest += [
                each for name in _NAMED if isinstance(value.get(name), dict) for each in value[name].values()
            ]
    return references


def any_answer(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    whole = _unfenced(text, len(text) or 1)
    for size in (1, 3):
        assert _unfenced(text, size) == whole
    assert len(whole) <= len(text)


def _unfenced(text: str, size: int) -> str:
    format = FenceFilter()
    return "".join(format.feed(text[at : at + size]) for at in range(0, len(text), size)) + format.close()


def _schema(**fields: Any) -> bytes:
    return json.dumps({"type": "object", **fields}).encode()


SEEDS = (
    _schema(
        properties={"a": {"type": "string", "pattern": "^(a+)+$"}, "b": {"$ref": "#/$defs/x"}},
        **{"$defs": {"x": {"type": "array", "uniqueItems": True, "items": {"minimum": 1}}}},
    ),
    _schema(allOf=[{"$ref": "#/allOf/1"}, {"anyOf": [{"enum": [1, "a", None]}, {"not": {"const": 2}}]}]),
    _schema(
        **{"$schema": "http://json-schema.org/draft-07/schema#", "$id": "x", "additionalProperties": False}
    ),
    _schema(properties={"a": {"$ref": "#"}}, required=["a"]),
    b'{"$ref": "http://127.0.0.1:9/x.json"}',
    b'{"items": {"$ref": "file:///etc/hostname"}, "$anchor": "a", "not": {"$dynamicRef": "#a"}}',
)
WORDS = (
    b'"$ref": "#",',
    b'"$ref": "#/$defs/x"',
    b'"allOf": [',
    b'"$id": "a",',
    b'"pattern": "(a|a)*b",',
    b'"$anchor": "a",',
)
ANSWERS = (
    b'```json\n{"a": 1}\n```\n',
    b"``` \n x",
    b'  {"a": "```"}',
    b"```json",
    b"```\n```\n```",
    b"\n\n``x``",
)
FENCES = (b"```", b"``", b"`", b"\n", b" ", b"json", b"\xe2\x80\x83")
TARGETS = [Target("schemas", any_schema, SEEDS, WORDS), Target("answers", any_answer, ANSWERS, FENCES)]

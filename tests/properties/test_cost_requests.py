"""The cost of translating a request is linear in its length, whatever a client sends."""

from collections.abc import Callable
from time import process_time
from typing import Any

import pytest

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.dialects.anthropic_messages import from_messages
from openresponses_bridge.dialects.base import RequestContext
from openresponses_bridge.dialects.chat_completions import ChatOptions, to_chat
from openresponses_bridge.dialects.gemini import from_gemini
from openresponses_bridge.dialects.table import dialects
from openresponses_bridge.protocol.codec import decode_request, encode
from openresponses_bridge.schemas.rewriting import SchemaRewriter, object_root
from openresponses_bridge.seal import Sealer
from tests.support.costs import FEW, TIMES, assert_proportional

WORDS = "word " * 100
FORMS = ["const_as_enum", "types_as_nullable", "types_as_any_of", "arrays_with_items", "object_root"]


def call(at: int) -> list[dict[str, Any]]:
    named = {"call_id": f"call_{at}"}
    return [
        {"type": "function_call", "name": "f", "arguments": "{}", **named},
        {"type": "function_call_output", "output": "ok", **named},
    ]


def message(role: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": WORDS}


INPUTS: dict[str, Callable[[int], list[dict[str, Any]]]] = {
    "leading messages of the system": lambda times: [message("system") for _ in range(times)],
    "later messages of the system": lambda times: [
        message("user"),
        *(message("developer") for _ in range(times)),
    ],
    "parallel calls": lambda times: sorted(
        (item for at in range(times) for item in call(at)), key=lambda item: len(item["type"])
    ),
    "parallel calls with one id": lambda times: sorted(
        (item | {"call_id": "c"} for at in range(times) for item in call(at)),
        key=lambda item: len(item["type"]),
    ),
    "one call after another": lambda times: [item for at in range(times) for item in call(at)],
}


@pytest.mark.parametrize("kind", INPUTS)
def test_e12_a_request_to_chat(kind: str) -> None:
    options = ChatOptions(system_messages="one")

    def spent(times: int) -> float:
        request = decode_request(encode({"model": "m", "input": INPUTS[kind](times)}))
        before = process_time()
        to_chat(request, options=options)
        return process_time() - before

    assert_proportional(spent, FEW, FEW * TIMES)


@pytest.mark.parametrize("dialect", ["anthropic", "responses"])
@pytest.mark.parametrize("kind", INPUTS)
def test_e12_a_request_to_other_upstreams(kind: str, dialect: str) -> None:
    side = dialects()[dialect].upstream
    assert side is not None

    def spent(times: int) -> float:
        request = decode_request(encode({"model": "m", "input": [message("user"), *INPUTS[kind](times)]}))
        context = RequestContext((), "m", side.options(), Sealer(), ToolIdentityMap())
        before = process_time()
        side.request(request, context)
        return process_time() - before

    assert_proportional(spent, FEW, FEW * TIMES)


GEMINI: dict[str, Callable[[int], dict[str, Any]]] = {
    "parts": lambda times: {"contents": [{"parts": [{"text": WORDS} for _ in range(times)]}]},
    "chunks of a stream": lambda times: {
        "contents": [{"role": "model", "parts": [{"text": WORDS, "thoughtSignature": "c2ln"}]}] * times
    },
    "parallel calls without ids": lambda times: {
        "contents": [
            {"role": "model", "parts": [{"functionCall": {"name": "f"}}] * times},
            {"role": "user", "parts": [{"functionResponse": {"name": "f"}}] * times},
        ]
    },
    "declarations": lambda times: {
        "contents": [{"parts": [{"text": "a"}]}],
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": f"f{at}",
                        "parameters": {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}},
                    }
                    for at in range(times)
                ]
            }
        ],
    },
}


@pytest.mark.parametrize("kind", GEMINI)
def test_e12_a_request_of_a_gemini_client(kind: str) -> None:
    def spent(times: int) -> float:
        body = GEMINI[kind](times)
        before = process_time()
        from_gemini(body)
        return process_time() - before

    assert_proportional(spent, FEW, FEW * TIMES)


def nested(depth: int, types: list[str]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": types, "const": 1}
    for _ in range(depth):
        schema = {"type": types, "properties": {"a": schema}, "items": {"type": types}, "const": 1}
    return schema


@pytest.mark.parametrize("form", FORMS)
def test_e12_no_schema_grows_with_its_depth(form: Any) -> None:
    schema = nested(8, ["object", "array", "string", "null"])
    assert len(encode(SchemaRewriter(forms=[form]).rewrite(schema))) < 3 * len(encode(schema))


@pytest.mark.parametrize("form", FORMS)
def test_e12_no_schema_grows_with_its_types(form: Any) -> None:
    schema = {
        "type": [f"t{at}" for at in range(500)] * 2,
        "description": WORDS,
        "pattern": WORDS,
        "enum": [WORDS],
    }
    assert len(encode(SchemaRewriter(forms=[form]).rewrite(schema))) < 3 * len(encode(schema))


ROOTS: dict[str, Callable[[int], dict[str, Any]]] = {
    "alternatives": lambda times: {"anyOf": [{"properties": {"a": {"const": at}}} for at in range(times)]},
    "alternatives of one definition": lambda times: {
        "$defs": {
            "a": {
                "properties": {f"p{at}": {} for at in range(times)},
                "required": [f"p{at}" for at in range(times)],
            }
        },
        "anyOf": [{"$ref": "#/$defs/a"}] * times,
    },
    "definitions that double": lambda times: {
        "$defs": {f"d{at}": {"anyOf": [{"$ref": f"#/$defs/d{at + 1}"}] * 2} for at in range(times)},
        "$ref": "#/$defs/d0",
    },
    "definitions that follow each other": lambda times: {
        "$defs": {f"d{at}": {"$ref": f"#/$defs/d{at + 1}"} for at in range(times)},
        "$ref": "#/$defs/d0",
    },
    "alternatives within alternatives": lambda times: {
        "oneOf": [{"allOf": [{"anyOf": [{"required": ["a"]}] * 10}] * 10}] * (times // 100)
    },
}


@pytest.mark.parametrize("kind", ROOTS)
def test_e12_alternatives_at_a_root(kind: str) -> None:
    def spent(times: int) -> float:
        schema = ROOTS[kind](times)
        before = process_time()
        object_root(schema)
        return process_time() - before

    assert_proportional(spent, FEW, FEW * TIMES)


def test_e12_tools_that_come_and_go() -> None:
    """Each change of the tools of an Anthropic client costs the same, however many tools there are."""

    def spent(times: int) -> float:
        tools = [{"name": f"t{at}", "input_schema": {"type": "object"}} for at in range(times)]
        gone = [
            {"type": "tool_removal", "tool": {"type": "tool_reference", "name": f"t{at}"}}
            for at in range(times)
        ]
        messages = [{"role": "user", "content": "Hi"}, {"role": "system", "content": gone}]
        body = encode({"model": "m", "max_tokens": 5, "tools": tools, "messages": messages})
        before = process_time()
        request, _ = from_messages(body)
        assert not request.tools
        return process_time() - before

    assert_proportional(spent, FEW, FEW * TIMES)

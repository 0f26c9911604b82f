"""Requests: limits with the field they break, input items without a type, unknown things kept."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol import input_items as ii
from openresponses_bridge.protocol.beyond import names_of
from openresponses_bridge.protocol.codec import (
    decode_compact_request,
    decode_create_message,
    decode_request,
    encode,
)
from openresponses_bridge.protocol.request import RESTART, CreateResponse
from openresponses_bridge.protocol.tools import AllowedToolChoice, FunctionToolChoice, FunctionToolParam
from openresponses_bridge.protocol.unknown import UnknownFormat, UnknownItem, UnknownTool, UnknownToolChoice

FUNCTION = {"type": "function", "name": "f"}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "x"}


def user(*content: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": list(content)}


# body, param, what the message says
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"max_output_tokens": 15}, "max_output_tokens", ">= 16"),
    ({"max_output_tokens": 16.5}, "max_output_tokens", "Expected `int | null`"),
    ({"max_tool_calls": 0}, "max_tool_calls", ">= 1"),
    ({"top_logprobs": 21}, "top_logprobs", "<= 20"),
    ({"top_logprobs": -1}, "top_logprobs", ">= 0"),
    ({"temperature": "hot"}, "temperature", "Expected `float | null`, got `str`"),
    ({"stream": "yes"}, "stream", "Expected `bool | null`, got `str`"),
    ({"model": 5}, "model", "Expected `str | null`"),
    ({"metadata": {str(i): "" for i in range(17)}}, "metadata", "length <= 16"),
    ({"metadata": {"a": "x" * 513}}, "metadata[...]", "length <= 512"),
    ({"metadata": {"k" * 65: "x"}}, "metadata", "length <= 64"),
    ({"metadata": {"a": 1}}, "metadata[...]", "Expected `str`, got `int`"),
    ({"metadata": []}, "metadata", "Expected `object | null`"),
    ({"prompt_cache_key": "x" * 65}, "prompt_cache_key", "length <= 64"),
    ({"safety_identifier": "x" * 129}, "safety_identifier", "length <= 128"),
    ({"truncation": "middle"}, "truncation", "Invalid enum value 'middle', not one of: "),
    ({RESTART: "sometimes"}, RESTART, "Invalid enum value 'sometimes', not one of: unseen, always"),
    ({RESTART: 5}, RESTART, "Expected `str | null`, got `int`"),
    ({"include": ["a", 5]}, "include[1]", "Expected `str`, got `int`"),
    ({"reasoning": {"effort": 5}}, "reasoning.effort", "got `int`"),
    ({"reasoning": "high"}, "reasoning", "got `str`"),
    ({"stream_options": {"include_obfuscation": "no"}}, "stream_options.include_obfuscation", "got `str`"),
    ({"text": {"verbosity": "loud"}}, "text.verbosity", "Invalid enum value"),
    ({"text": {"format": {}}}, "text.format.type", "missing"),
    ({"text": {"format": {"type": "json_schema", "schema": 5}}}, "text.format.schema", "got `int`"),
    ({"tools": {}}, "tools", "Expected `array | null`, got `object`"),
    ({"tools": [FUNCTION, 5]}, "tools[1]", "Expected `object`, got `int`"),
    ({"tools": [{"type": "function"}]}, "tools[0].name", "missing"),
    ({"tools": [{"type": "function", "name": "a.b"}]}, "tools[0].name", "matching regex"),
    ({"tools": [{"type": "function", "name": ""}]}, "tools[0].name", "length >= 1"),
    ({"tools": [{"type": "function", "name": "x" * 129}]}, "tools[0].name", "length <= 128"),
    ({"tools": [{"type": "function", "name": "f", "parameters": []}]}, "tools[0].parameters", "got `array`"),
    ({"tools": [{}]}, "tools[0].type", "missing"),
    ({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}]},
     "tools[0].tools[0].name",
     "missing"),
    ({"tool_choice": "maybe"}, "tool_choice", "Invalid enum value 'maybe'"),
    ({"tool_choice": 5}, "tool_choice", "got `int`"),
    ({"tool_choice": []}, "tool_choice", "got `array`"),
    ({"tool_choice": {}}, "tool_choice.type", "missing"),
    ({"tool_choice": {"type": "function", "name": 5}}, "tool_choice.name", "got `int`"),
    ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice.tools", "missing"),
    ({"tool_choice": {"type": "allowed_tools", "tools": []}}, "tool_choice.tools", "length >= 1"),
    ({"tool_choice": {"type": "allowed_tools", "tools": [FUNCTION] * 129}}, "tool_choice.tools",
     "length <= 128"),
    ({"tool_choice": {"type": "allowed_tools", "tools": [FUNCTION], "mode": "never"}}, "tool_choice.mode",
     "Invalid enum value"),
    ({"input": 5}, "input", "Expected `str | array | null`, got `int`"),
    ({"input": user("a")}, "input", "got `object`"),
    ({"input": [5]}, "input[0]", "Expected `object`, got `int`"),
    ({"input": [{}]}, "input[0].type", "missing"),
    ({"input": [OUTPUT, {"type": "message", "content": "a"}]}, "input[1].role", "missing"),
    ({"input": [{"type": "message", "role": "robot", "content": "a"}]}, "input[0].role",
     "Invalid enum value"),
    ({"input": [{"type": "message", "role": "user"}]}, "input[0].content", "missing"),
    ({"input": [user({"type": "input_text"})]}, "input[0].content[0].text", "missing"),
    ({"input": [user({"type": "input_text", "text": "a"}, {"type": "input_image", "detail": "huge"})]},
     "input[0].content[1].detail", "Invalid enum value 'huge'"),
    ({"input": [user("a")]}, "input[0].content[0]", "Expected `object`, got `str`"),
    ({"input": [CALL | {"call_id": ""}]}, "input[0].call_id", "length >= 1"),
    ({"input": [{name: CALL[name] for name in ("type", "name", "arguments")}]}, "input[0].call_id",
     "missing"),
    ({"input": [OUTPUT | {"output": 5}]}, "input[0].output", "got `int`"),
    ({"input": [OUTPUT | {"output": {}}]}, "input[0].output", "got `object`"),
    ({"input": [OUTPUT | {"output": [{"type": "input_text", "text": 5}]}]}, "input[0].output[0].text",
     "got `int`"),
    ({"input": [{"type": "reasoning", "summary": [{"type": "summary_text"}]}]}, "input[0].summary[0]",
     "missing"),
    ({"input": [{"type": "item_reference"}]}, "input[0].id", "missing"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "param", "says"), REFUSED, ids=[f"{i}_{case[1]}" for i, case in enumerate(REFUSED)]
)
@pytest.mark.parametrize(
    "extra", [{}, {"tools": [{"type": "web_search"}]}], ids=["plain", "beside_an_extension"]
)
def test_a_request_that_breaks_a_limit_names_the_field(
    body: dict[str, Any], param: str, says: str, extra: dict[str, Any]
) -> None:
    """Also when something unknown beside it makes the fast way fail first."""
    with pytest.raises(InvalidRequestError) as caught:
        decode_request(json.dumps(extra | body))
    assert (caught.value.param, caught.value.http_status) == (param, 400)
    assert caught.value.code == "invalid_value"
    assert says in caught.value.message


ACCEPTED: list[dict[str, Any]] = [
    {},
    {"max_output_tokens": 16, "max_tool_calls": 1, "top_logprobs": 20},
    {"top_logprobs": 0, "temperature": 2, "top_p": 0},
    {"metadata": {str(i): "x" * 512 for i in range(16)}},
    {"metadata": {"k" * 64: ""}},
    {"prompt_cache_key": "x" * 64, "safety_identifier": ""},
    {"tools": [{"type": "function", "name": "A-z_9" * 12}]},
    {"tool_choice": {"type": "allowed_tools", "tools": [FUNCTION] * 128}},
    {"input": [CALL | {"call_id": "x" * 64}]},
    {"input": "text"},
    {"input": []},
    {"unheard_of": {"a": 1}},
]


@pytest.mark.parametrize("body", ACCEPTED, ids=[str(i) for i in range(len(ACCEPTED))])
def test_a_request_at_the_limit_is_taken(body: dict[str, Any]) -> None:
    request = decode_request(json.dumps(body))
    again = json.loads(encode(request))
    for name in set(body) & set(CreateResponse.__struct_fields__):
        assert body[name] == again[name] or name == "tool_choice"


def test_a_field_of_ours_is_read_beside_what_is_unknown() -> None:
    """The slow way knows it by the same name, and by no other."""
    strange = {"model": "m", "tools": [{"type": "a:tool"}, {"type": "function", "name": "f"}]}
    assert decode_request(json.dumps({**strange, RESTART: "always"})).restart == "always"
    other = decode_request(json.dumps({**strange, "restart": "always"}))
    assert (other.restart, list(names_of(other.beyond))) == (None, ["restart"])


def test_null_is_not_given() -> None:
    every = dict.fromkeys(CreateResponse.__struct_fields__)
    assert decode_request(json.dumps(every)) == decode_request(b"{}") == CreateResponse()


# ── input items without a type ───────────────────────────────────────────────────────────────────────
UNTYPED: list[tuple[dict[str, Any], type[Any]]] = [
    ({"role": "user", "content": "hi"}, ii.MessageParam),
    (
        {"role": "assistant", "content": [{"type": "output_text", "text": "a", "annotations": []}]},
        ii.MessageParam,
    ),
    ({"call_id": "c", "output": "x"}, ii.FunctionCallOutputParam),
    ({"call_id": "c", "name": "f", "arguments": ""}, ii.FunctionCallParam),
    ({"summary": [], "encrypted_content": "x"}, ii.ReasoningParam),
    ({"id": "msg_1"}, ii.ItemReference),
    ({"id": "msg_1", "type": None}, ii.ItemReference),
]


@pytest.mark.parametrize(
    ("item", "struct"), UNTYPED, ids=[f"{i}_{case[1].type}" for i, case in enumerate(UNTYPED)]
)
def test_the_type_of_an_input_item_is_inferred(item: dict[str, Any], struct: type[Any]) -> None:
    (read,) = decode_request(json.dumps({"input": [item]})).input
    assert type(read) is struct
    assert json.loads(encode(read))["type"] == struct.type


def test_a_tool_without_a_type_is_a_function() -> None:
    request = decode_request(json.dumps({"tools": [{"name": "f"}]}))
    assert request.tools == [FunctionToolParam("f")]


# ── what is unknown is kept ──────────────────────────────────────────────────────────────────────────
def test_unknown_things_in_a_request_are_kept_whole() -> None:
    odd = {"type": "acme:x", "deep": [{"a": None}]}
    body = {
        "input": [odd, user(odd), OUTPUT | {"output": [odd]}, {"type": "additional_tools", "tools": [odd]},
                  {"type": "tool_search_output", "tools": [odd]}, {"type": "custom_tool_call_output",
                   "call_id": "c",
                                                                  "output": [odd]},
                  {"role": "assistant", "content": [{"type": "output_text", "text": "",
                   "annotations": [odd]}]}],
        "tools": [odd, {"type": "namespace", "name": "n", "tools": [odd]}],
        "tool_choice": odd,
        "text": {"format": odd},
    }  # fmt: skip
    request = decode_request(json.dumps(body))
    again = json.loads(encode(request))
    body["input"][-1]["type"] = "message"
    assert {name: again[name] for name in body} == body
    assert isinstance(request.input[0], UnknownItem)
    assert isinstance(request.tools[0], UnknownTool)
    assert isinstance(request.tool_choice, UnknownToolChoice)
    assert isinstance(request.text.format, UnknownFormat)


def test_allowed_tools_may_leave_out_mode_and_name_custom_tools() -> None:
    choice = {"type": "allowed_tools", "tools": [FUNCTION, {"name": "g"}, {"type": "custom", "name": "p"}]}
    request = decode_request(json.dumps({"tool_choice": choice}))
    assert isinstance(request.tool_choice, AllowedToolChoice)
    assert request.tool_choice.mode == "auto"
    assert request.tool_choice.tools == [
        FunctionToolChoice("f"), FunctionToolChoice("g"), UnknownToolChoice({"type": "custom", "name": "p"}),
    ]  # fmt: skip


# ── the other requests ───────────────────────────────────────────────────────────────────────────────
def test_a_compact_request_needs_its_model() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        decode_compact_request('{"input": "x"}')
    assert caught.value.param == "model"
    request = decode_compact_request('{"model": "m", "input": [{"role": "user", "content": "x"}]}')
    assert (request.model, request.input) == ("m", [ii.MessageParam("user", "x")])


def test_a_websocket_frame_is_a_create_message() -> None:
    message = decode_create_message(
        '{"type": "response.create", "model": "m", "stream": true, "generate": false}'
    )
    assert (message.model, message.stream, message.generate) == ("m", True, False)
    assert json.loads(encode(message))["type"] == "response.create"


@pytest.mark.parametrize("decode", [decode_request, decode_create_message])
def test_a_body_with_an_extension_is_read_by_the_slow_way_to_the_same(decode: Callable[[Any], Any]) -> None:
    body: dict[str, Any] = {
        "type": "response.create",
        "model": "m",
        "input": [user({"type": "input_text", "text": "a"})],
    }
    fast = decode(json.dumps(body))
    slow = decode(json.dumps(body | {"tools": [{"type": "acme:x"}]}))
    assert slow.tools == [UnknownTool({"type": "acme:x"})]
    assert (slow.model, slow.input) == (fast.model, fast.input)


def test_a_websocket_frame_of_another_type_is_refused() -> None:
    for frame in ('{"type": "response.cancel"}', '{"model": "m"}'):
        with pytest.raises(InvalidRequestError) as caught:
            decode_create_message(frame)
        assert caught.value.param == "type"


@pytest.mark.parametrize("depth", [200, 450])
@pytest.mark.parametrize("where", ['{"model":"m","input":"a","tools":[%s]}', '{"model":"m","input":[%s]}'])
def test_tools_nested_too_deeply_are_refused_by_name(where: str, depth: int) -> None:
    tools = '{"type":"namespace","name":"n","tools":[' * depth + "]}" * depth
    bearer = tools if '"tools"' in where else f'{{"type":"additional_tools","tools":[{tools}]}}'
    with pytest.raises(InvalidRequestError, match="nested too deeply") as caught:
        decode_request(where % bearer)
    param = caught.value.param
    assert param is not None
    assert param.startswith(("tools[0].tools[0]", "input[0].tools[0]"))


def test_nested_namespaces_are_read() -> None:
    tools = '{"type":"namespace","name":"n","tools":[' * 20 + "]}" * 20
    assert decode_request('{"model":"m","input":"a","tools":[' + tools + "]}").tools


UNTYPED: list[tuple[str, dict[str, Any]]] = [
    ("message", {"role": "user", "content": "Hello"}),
    ("message", {"role": "user", "content": [{"type": "input_text", "text": "é"}], "mine": [1.5, None]}),
    (
        "message",
        {"role": "assistant", "content": [{"type": "output_text", "text": "x"}], "status": "completed"},
    ),
    ("message", {"role": "user", "content": [{"type": "their:part", "x": 1}]}),
    ("function_call", {"call_id": "c", "name": "f", "arguments": "{}"}),
    ("function_call_output", {"call_id": "c", "output": "1"}),
    ("reasoning", {"summary": [], "encrypted_content": "x"}),
    ("item_reference", {"id": "msg_1"}),
]


@pytest.mark.parametrize("null", [{}, {"type": None}])
@pytest.mark.parametrize("more", [{}, {"temperature": 1, "foreign": {"a": 12345678901234567890123}}])
def test_without_types_it_is_the_same_request(null: dict[str, Any], more: dict[str, Any]) -> None:
    for kind, item in UNTYPED:
        for others in ([], [CALL, OUTPUT], [{"type": "their:item", "x": [1]}]):
            bare = {"input": [*others, {**item, **null}], "tools": [{"name": "f"}], **more}
            typed = {"input": [*others, {**item, "type": kind}], "tools": [FUNCTION], **more}
            assert decode_request(json.dumps(bare)) == decode_request(json.dumps(typed))


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"role": "user"}, "input[0].content"),
        ({"role": "judge", "content": "x"}, "input[0].role"),
        ({"content": "x"}, "input[0].type"),
        ({"arguments": 5, "call_id": "c", "name": "f"}, "input[0].arguments"),
        (5, "input[0]"),
    ],
)
def test_what_is_amiss_without_a_type_is_named(item: Any, param: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        decode_request(json.dumps({"input": [item, {"role": "user", "content": "x"}]}))
    assert refused.value.param == param

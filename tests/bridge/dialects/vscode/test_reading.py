"""Chat requests of VS Code as JSON."""

import base64
import json
from typing import Any

import pytest
from msgspec import UNSET

from openresponses_bridge.decoder import (
    LanguageModelDataPart,
    LanguageModelPromptTsxPart,
    LanguageModelTextPart,
    LanguageModelThinkingPart,
    LanguageModelToolCallPart,
    LanguageModelToolResultPart,
    encode_part,
)
from openresponses_bridge.dialects.vscode import ChatTool, Role, ToolMode, decode_chat
from openresponses_bridge.dialects.vscode.request import read_token_request, token_count
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.models.tokens import TokenEstimator


def chat(*content: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": 1, "content": list(content)}], **fields}


def parts(*content: Any) -> list[Any]:
    return decode_chat(json.dumps(chat(*content))).messages[0].content


EVERY_PART = [
    LanguageModelTextPart("a"),
    LanguageModelThinkingPart(["a", "b"], "t", {"x": 1}),
    LanguageModelToolCallPart("c", "find", {"q": 1}),
    LanguageModelToolResultPart("c", [LanguageModelTextPart("r"), {"odd": 1}], True),
    LanguageModelDataPart(b"\x00\xff", "image/png"),
    LanguageModelPromptTsxPart({"node": {}}),
]


def test_parts_of_our_own_spelling_come_back_as_they_were() -> None:
    assert parts(*[json.loads(encode_part(part)) for part in EVERY_PART]) == EVERY_PART


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a", LanguageModelTextPart("a")),
        ({"$mid": 21, "value": "a"}, LanguageModelTextPart("a")),
        ({"$mid": 22, "value": "a"}, LanguageModelThinkingPart("a")),
        ({"$mid": 23, "value": {"n": 1}}, LanguageModelPromptTsxPart({"n": 1})),
        ({"$mid": 24, "mimeType": "x/y", "data": "AP8="}, LanguageModelDataPart(b"\x00\xff", "x/y")),
        ({"value": "a"}, LanguageModelTextPart("a")),
        ({"callId": "c", "name": "n", "input": {}}, LanguageModelToolCallPart("c", "n", {})),
        ({"callId": "c", "name": "n", "input": '{"a":1}'}, LanguageModelToolCallPart("c", "n", {"a": 1})),
        ({"callId": "c", "name": "n", "input": ""}, LanguageModelToolCallPart("c", "n", {})),
        ({"callId": "c", "name": "n"}, LanguageModelToolCallPart("c", "n", {})),
        ({"callId": "c", "content": "r"}, LanguageModelToolResultPart("c", [LanguageModelTextPart("r")])),
        ({"callId": "c"}, LanguageModelToolResultPart("c", [])),
        ({"mimeType": "x/y", "data": [0, 255]}, LanguageModelDataPart(b"\x00\xff", "x/y")),
        ({"mimeType": "x/y", "data": {"0": 0, "1": 255}}, LanguageModelDataPart(b"\x00\xff", "x/y")),
        ({"mimeType": "x/y", "data": {"type": "Buffer", "data": [1]}}, LanguageModelDataPart(b"\x01", "x/y")),
        ({"type": "LanguageModelTextPart2", "value": "a"}, LanguageModelTextPart("a")),
        ({"odd": 1}, {"odd": 1}),
        (7, 7),
    ],
)
def test_parts_are_known_by_class_by_mid_or_by_their_fields(value: Any, expected: Any) -> None:
    assert parts(value) == [expected]


def test_a_whole_request() -> None:
    tool = {"name": "find", "description": "Finds.", "inputSchema": {"type": "object"}}
    read = decode_chat(
        json.dumps(
            {
                "model": "m",
                "messages": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "2", "content": [], "name": "n"},
                    {"role": 3, "content": "x"},
                ],
                "tools": [tool, {"name": "open"}],
                "toolMode": 2,
                "modelOptions": {"temperature": 0},
            }
        )
    )
    assert [message.role for message in read.messages] == [Role.SYSTEM, Role.ASSISTANT, Role.SYSTEM]
    assert read.messages[1].name == "n"
    assert read.tools == [ChatTool("find", "Finds.", {"type": "object"}), ChatTool("open", "", UNSET)]
    assert read.tool_mode is ToolMode.REQUIRED
    assert read.model_options == {"temperature": 0}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "model"),
        ({"model": 1}, "model"),
        ({"model": "m", "messages": {}}, "messages"),
        ({"model": "m", "messages": [1]}, "messages[0]"),
        ({"model": "m", "messages": [{"role": 9, "content": ""}]}, "messages[0].role"),
        ({"model": "m", "messages": [{"role": [], "content": ""}]}, "messages[0].role"),
        ({"model": "m", "messages": [{"role": 1, "content": 1}]}, "messages[0].content"),
        (chat({"$mid": 21, "value": 1}), "messages[0].content[0]"),
        (chat({"$mid": [], "callId": 1}), "messages[0].content[0]"),
        (chat("a", {"callId": 1, "name": "n"}), "messages[0].content[1]"),
        (chat({"callId": "c", "name": "n", "input": "odd"}), "messages[0].content[0]"),
        (chat({"callId": "c", "name": "n", "input": [1]}), "messages[0].content[0]"),
        (chat({"$mid": 22}), "messages[0].content[0]"),
        (chat({"mimeType": "x/y", "data": "?"}), "messages[0].content[0]"),
        (chat({"mimeType": "x/y", "data": [999]}), "messages[0].content[0]"),
        (chat({"mimeType": "x/y", "data": {"data": {"data": [1]}}}), "messages[0].content[0]"),
        (chat({"callId": "c", "content": [{"$mid": 21}]}), "messages[0].content[0].content[0]"),
        (chat(toolMode=5), "toolMode"),
        (chat(modelOptions=[]), "modelOptions"),
        (chat(modelConfiguration="high"), "modelConfiguration"),
        (chat(tools=[{}]), "tools[0]"),
        (chat(tools=["find"]), "tools[0]"),
    ],
)
def test_what_cannot_be_read_is_named_by_its_place(body: Any, param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        decode_chat(json.dumps(body))
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("body", "message"), [(b"{", "not JSON: "), (b"[]", "an array"), (b"7", "a number"), (b"null", "null")]
)
def test_what_is_not_a_json_object_is_named(body: bytes, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message) as caught:
        decode_chat(body)
    assert (caught.value.code, caught.value.param) == ("invalid_json", None)


def test_results_within_results_stay_as_they_came() -> None:
    nested: Any = {"callId": "c", "content": []}
    for _ in range(150):
        nested = {"callId": "c", "content": [nested]}
    (result,) = parts(nested)
    assert result.content == nested["content"]


def test_base64_of_any_bytes_is_read() -> None:
    raw = bytes(range(256))
    encoded = base64.b64encode(raw).decode()
    assert parts({"mimeType": "x/y", "data": encoded}) == [LanguageModelDataPart(raw, "x/y")]


def test_tokens_are_those_of_the_text_and_a_message_has_some_more() -> None:
    counter = TokenEstimator()
    text = read_token_request(b'{"model": "m", "text": "some words"}')
    message = read_token_request(b'{"model": "m", "message": {"role": 1, "content": "some words"}}')
    tokens = token_count(text.content, counter, text.model)
    assert tokens == counter.text("some words", "m") > 0
    assert token_count(message.content, counter, message.model) > tokens

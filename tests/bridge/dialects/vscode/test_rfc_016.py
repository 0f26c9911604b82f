"""RFC 016, row by row: how messages, options and results are translated and the stream is adapted. Where we
differ, the row says how, and docs/decisions.md why."""

import json
from typing import Any

import pytest

from openresponses_bridge.decoder import PartDecoder
from openresponses_bridge.dialects.vscode import chat_of, from_vscode
from openresponses_bridge.protocol.codec import encode

Raw = dict[str, Any]
PNG = "iVBORw0KGgo="
CALL = {"callId": "call_1", "name": "find", "input": {"q": 1}}
ASSISTANT = {"role": 2, "content": [{"value": "Let me see."}, CALL, {"value": "And?"}]}


def request_of(*messages: Raw, **options: Any) -> Raw:
    request, _ = from_vscode(chat_of({"model": "m", "messages": list(messages), **options}))
    body: Raw = json.loads(encode(request))
    return body


def user(*content: Any) -> Raw:
    return {"role": 1, "content": list(content)}


def said(role: str, text: str) -> Raw:
    content: Any = [{"type": "output_text", "text": text}] if role == "assistant" else text
    return {"type": "message", "role": role, "content": content}


def result(*content: Any) -> Raw:
    return {"callId": "call_1", "content": list(content)}


def output(value: Any) -> Raw:
    return {"type": "function_call_output", "call_id": "call_1", "output": value}


FUNCTION = {"type": "function_call", "call_id": "call_1", "name": "find", "arguments": '{"q":1}'}
# the key transformations of the message translator → the items
TRANSLATED: dict[str, tuple[list[Raw], list[Raw]]] = {
    "roles map one to one": (
        [user({"value": "a"}), {"role": 2, "content": "b"}],
        [said("user", "a"), said("assistant", "b")],
    ),
    "messages split at tool calls": (
        [ASSISTANT],
        [said("assistant", "Let me see."), FUNCTION, said("assistant", "And?")],
    ),
    "messages split at tool results": (
        [user({"value": "a"}, result({"value": "1"}), {"value": "b"})],
        [said("user", "a"), output("1"), said("user", "b")],
    ),
    "an image is an input_image (without detail, which is auto)": (
        [user({"mimeType": "image/png", "data": PNG})],
        [
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"}],
            }
        ],
    ),
    "other data is text or a file and not left out": (
        [user({"mimeType": "text/plain", "data": "YQ=="})],
        [said("user", "a")],
    ),
    "a tool's output is all its texts and not the first": (
        [user(result({"value": "a"}, {"value": "b"}))],
        [output("a\n\nb")],
    ),
    "a tool's empty output is empty and not {}": ([user(result())], [output("")]),
}


@pytest.mark.parametrize("row", TRANSLATED)
def test_rfc_016_translation(row: str) -> None:
    messages, items = TRANSLATED[row]
    for item in (input_items := request_of(*messages)["input"]):
        if isinstance(item.get("content"), list) and len(item["content"]) == 1 and item["role"] == "user":
            only = item["content"][0]
            item["content"] = only["text"] if only["type"] == "input_text" else item["content"]
    assert input_items == items


def test_rfc_016_the_system_prompt_is_the_instructions() -> None:
    chat = [{"role": 3, "content": "Second."}, user({"value": "a"})]
    body = request_of(*chat, modelOptions={"systemPrompt": "First."})
    assert (body["instructions"], len(body["input"])) == ("First.\n\nSecond.", 1)


# options of the request → fields
REQUESTED: dict[str, tuple[Raw, Raw]] = {
    "temperature": ({"modelOptions": {"temperature": 0.7}}, {"temperature": 0.7}),
    "maxOutputTokens": ({"modelOptions": {"maxOutputTokens": 4096}}, {"max_output_tokens": 4096}),
    "topP": ({"modelOptions": {"topP": 0.5}}, {"top_p": 0.5}),
    "no default temperature or limit": ({}, {"temperature": None, "max_output_tokens": None}),
    "streamed": ({}, {"stream": True}),
    "tool mode auto": ({"tools": [{"name": "f"}], "toolMode": 1}, {"tool_choice": "auto"}),
    "tool mode required": ({"tools": [{"name": "f"}], "toolMode": 2}, {"tool_choice": "required"}),
    "no tools, no choice": ({"toolMode": 2}, {"tool_choice": None, "tools": None}),
    "reasoning effort": ({"modelOptions": {"reasoningEffort": "low"}}, {"reasoning": {"effort": "low"}}),
    "chosen effort": ({"modelConfiguration": {"reasoningEffort": "high"}}, {"reasoning": {"effort": "high"}}),
    "no effort chosen": ({"modelConfiguration": {"reasoningEffort": "auto"}}, {"reasoning": None}),
    "the caller's effort before the chosen one": (
        {
            "modelConfiguration": {"reasoningEffort": "high"},
            "modelOptions": {"reasoning_effort": "low"},
        },
        {"reasoning": {"effort": "low"}},
    ),
}


@pytest.mark.parametrize("row", REQUESTED)
def test_rfc_016_request(row: str) -> None:
    options, fields = REQUESTED[row]
    body = request_of(user({"value": "a"}), **options)
    assert {name: body.get(name) for name in fields} == fields


def test_rfc_016_tools_are_functions() -> None:
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    tool = {"name": "find", "description": "Finds.", "inputSchema": schema}
    assert request_of(user({"value": "a"}), tools=[tool])["tools"] == [
        {"type": "function", "name": "find", "description": "Finds.", "parameters": schema, "strict": False}
    ]


INDEXES = {"item_id": "x", "output_index": 0, "content_index": 0}
USAGE = {
    "input_tokens": 1234,
    "output_tokens": 567,
    "total_tokens": 1801,
    "input_tokens_details": {"cached_tokens": 800},
    "output_tokens_details": {"reasoning_tokens": 123},
}
ENDED = {"id": "resp_1", "model": "m", "status": "completed", "usage": USAGE}
DONE = {"type": "response.completed", "response": ENDED}
# the stream adapter's event mapping → the last event's parts
ADAPTED: dict[str, tuple[list[Raw], list[str]]] = {
    "output_text.delta is text": (
        [{"type": "response.output_text.delta", **INDEXES, "delta": "a"}],
        ["LanguageModelTextPart"],
    ),
    "function_call_arguments.delta waits": (
        [
            {
                "type": "response.function_call_arguments.delta",
                "item_id": "fc",
                "output_index": 0,
                "delta": "{",
            }
        ],
        [],
    ),
    "output_item.done of a call is a call": (
        [{"type": "response.output_item.done", "output_index": 0, "item": {**FUNCTION, "id": "fc"}}],
        ["LanguageModelToolCallPart"],
    ),
    "reasoning.delta is thinking": (
        [{"type": "response.reasoning.delta", **INDEXES, "delta": "a"}],
        ["LanguageModelThinkingPart"],
    ),
    "completed is usage and response id": ([DONE], ["LanguageModelDataPart", "LanguageModelDataPart"]),
    "error is text": ([{"type": "error", "error": {"message": "No."}}], ["LanguageModelTextPart"]),
    "another event is nothing": ([{"type": "response.unheard.of"}], []),
}


@pytest.mark.parametrize("row", ADAPTED)
def test_rfc_016_stream(row: str) -> None:
    events, kinds = ADAPTED[row]
    decoder = PartDecoder()
    *_, last = [decoder.feed(event) for event in events]
    assert [part.type for part in last] == kinds


def test_rfc_016_usage_is_whole() -> None:
    decoder = PartDecoder()
    decoder.feed(DONE)
    assert decoder.result.response_id == "resp_1"
    assert json.loads(encode(decoder.result.usage)) == USAGE

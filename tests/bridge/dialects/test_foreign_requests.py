"""Each field of one API's requests, at the upstreams of all: what can't be sent is refused or reported, and
nothing else is raised."""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import pytest

from openresponses_bridge.dialects.bedrock_converse import from_converse
from openresponses_bridge.dialects.gemini.client.request import from_gemini
from openresponses_bridge.dialects.interactions.client.request import from_interactions
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import decode_request, encode
from openresponses_bridge.protocol.request import CreateResponse
from tests.support import converse_fields, gemini_fields, interactions_fields
from tests.support.upstream_requests import COLUMNS, drive

Json = dict[str, Any]
APIS: dict[str, tuple[Json, Callable[[bytes], CreateResponse]]] = {
    "gemini": (
        gemini_fields.fields_in_list()["requests"],
        lambda body: from_gemini(body, gemini_fields.SEALER)[0],
    ),
    "bedrock": (
        converse_fields.fields_in_list()["requests"],
        lambda body: from_converse(body, converse_fields.SEALER)[0],
    ),
    "interactions": (
        interactions_fields.fields_in_list()["requests"],
        lambda body: from_interactions(body, interactions_fields.SEALER)[0],
    ),
}


@cache
def requests_of(api: str) -> dict[str, CreateResponse]:
    """The requests that are read, by the names of their fields, once for all dialects: none changes one."""
    samples, read = APIS[api]
    assert len(samples) > 190
    requests = {}
    for name, body in samples.items():
        with suppress(InvalidRequestError):
            requests[name] = read(encode(body))
    return requests


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("api", APIS)
def test_each_field_is_sent_refused_or_reported(api: str, column: str) -> None:
    sent = 0
    for name, request in requests_of(api).items():
        try:
            payload, losses = drive(column, request)
        except InvalidRequestError:
            continue
        assert payload, name
        assert all(losses), name
        sent += 1
    assert sent > len(APIS[api][0]) // 2


HELLO: Json = {"type": "message", "role": "user", "content": "Hello"}
FUNCTION: Json = {
    "type": "function",
    "name": "look",
    "description": "Looks",
    "parameters": {"type": "object"},
}
PIXEL = "data:image/png;base64,iVBORw0KGgo="
TOOLS: list[Json] = [
    FUNCTION,
    FUNCTION | {"strict": True},
    {"type": "custom", "name": "raw", "format": {"type": "text"}},
    {"type": "custom", "name": "raw", "format": {"type": "grammar", "syntax": "lark", "definition": "a: b"}},
    {"type": "namespace", "name": "ns", "description": "d", "tools": [FUNCTION]},
    {"type": "web_search", "filters": {"allowed_domains": ["a.example"]}, "search_context_size": "low"},
    {"type": "web_search", "user_location": {"type": "approximate", "country": "DE", "city": "Ulm"}},
    {"type": "file_search", "vector_store_ids": ["vs"], "max_num_results": 3},
    {"type": "code_interpreter", "container": {"type": "auto"}},
    {"type": "image_generation", "size": "auto"},
    {"type": "computer_use_preview", "display_width": 9, "display_height": 9, "environment": "linux"},
    {"type": "mcp", "server_label": "a", "server_url": "https://a.example", "allowed_tools": ["b"]},
    {"type": "mcp", "server_label": "a", "server_url": "https://a.example", "headers": {"x": "y"}},
    {"type": "shell"},
    {"type": "local_shell"},
    {"type": "apply_patch"},
    {"type": "acme:tool", "any": 1},
]
CHOICES: list[Any] = [
    "auto",
    "none",
    "required",
    {"type": "function", "name": "look"},
    {"type": "custom", "name": "raw"},
    {"type": "web_search"},
    {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "look"}]},
    {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "look"}]},
]


def _said(*parts: Json, role: str = "user") -> list[Json]:
    return [{"type": "message", "role": role, "content": list(parts)}]


def _output(output: Any) -> list[Json]:
    call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"a": 1}'}
    return [HELLO, call, {"type": "function_call_output", "call_id": "c", "output": output}]


TEXT: Json = {"type": "input_text", "text": "Look"}
CITED: Json = {
    "type": "output_text",
    "text": "Seen",
    "annotations": [
        {"type": "url_citation", "url": "https://a.example", "start_index": 0, "end_index": 4, "title": "A"}
    ],
}
CONVERSATIONS: list[list[Json]] = [
    _said(TEXT, {"type": "input_image", "image_url": PIXEL, "detail": "low"}),
    _said(TEXT, {"type": "input_image", "image_url": "https://a.example/a.png", "detail": "auto"}),
    _said(TEXT, {"type": "input_image", "file_id": "file-1", "detail": "auto"}),
    _said(TEXT, {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,QQ=="}),
    _said(TEXT, {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,QQ=="}),
    _said(TEXT, {"type": "input_file", "filename": "a.odd", "file_data": "data:x/y;base64,QQ=="}),
    _said(TEXT, {"type": "input_file", "file_url": "https://a.example/a.pdf"}),
    _said(TEXT, {"type": "input_file", "file_id": "file-1"}),
    _said(TEXT, {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "wav"}}),
    _said(TEXT, {"type": "input_video", "video_url": "https://a.example/a.mp4"}),
    _said(TEXT, {"type": "input_video", "video_url": "data:video/mp4;base64,QQ=="}),
    [HELLO, *_said(CITED, {"type": "refusal", "refusal": "No"}, role="assistant"), HELLO],
    [*_said(TEXT, role="system"), *_said(TEXT, role="developer"), HELLO, *_said(TEXT, role="developer")],
    _output("Rain"),
    _output([TEXT, {"type": "input_image", "image_url": PIXEL, "detail": "low"}]),
    _output([{"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,QQ=="}]),
    _output([{"type": "input_image", "image_url": "https://a.example/a.png", "detail": "low"}]),
    _output('{"a": [1, {"b": null}]}'),
    [*_output(""), {"type": "reasoning", "summary": [], "encrypted_content": "sealed"}, HELLO],
    [HELLO, {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}]}, *_output("x")[1:]],
    [HELLO, {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm"}]}],
    [
        HELLO,
        {"type": "custom_tool_call", "call_id": "c", "name": "raw", "input": "text"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"},
    ],
    [
        HELLO,
        {
            "type": "web_search_call",
            "id": "ws",
            "status": "completed",
            "action": {
                "type": "search",
                "query": "q",
                "sources": [{"type": "url", "url": "https://a.example"}],
            },
        },
    ],
    [
        HELLO,
        {"type": "file_search_call", "id": "fs", "status": "completed", "queries": ["q"], "results": None},
    ],
    [
        HELLO,
        {
            "type": "code_interpreter_call",
            "id": "ci",
            "status": "completed",
            "code": "1",
            "container_id": "c",
            "outputs": [{"type": "logs", "logs": "1"}],
        },
    ],
    [HELLO, {"type": "image_generation_call", "id": "ig", "status": "completed", "result": "QQ=="}],
    [
        HELLO,
        {"type": "mcp_list_tools", "id": "l", "server_label": "a", "tools": []},
        {
            "type": "mcp_call",
            "id": "m",
            "server_label": "a",
            "name": "b",
            "arguments": "{}",
            "output": "ok",
        },
    ],
    [HELLO, {"type": "compaction", "encrypted_content": "sealed"}, HELLO],
    [HELLO, {"type": "item_reference", "id": "msg_1"}],
    [HELLO, {"type": "acme:item", "id": "a", "status": "completed", "any": 1}],
]
REQUESTS: list[Json] = [
    *({"tools": [tool]} for tool in TOOLS),
    *({"tools": [FUNCTION, TOOLS[2], TOOLS[5]], "tool_choice": choice} for choice in CHOICES),
    *({"input": items} for items in CONVERSATIONS),
    *({"input": items, "tools": TOOLS[:7], "instructions": "Be brief."} for items in CONVERSATIONS),
    *({"reasoning": {"effort": each}} for each in ("none", "minimal", "low", "medium", "high", "xhigh")),
    *({"reasoning": {"summary": each}} for each in ("auto", "concise", "detailed")),
    {"text": {"format": {"type": "json_object"}, "verbosity": "low"}},
    {"text": {"format": {"type": "json_schema", "name": "s", "schema": {"type": "object"}, "strict": True}}},
    {"temperature": 0.5, "top_p": 0.5, "max_output_tokens": 99, "top_logprobs": 2, "user": "u"},
    {"parallel_tool_calls": False, "tools": [FUNCTION], "metadata": {"a": "b"}, "service_tier": "flex"},
    {"include": ["reasoning.encrypted_content", "message.output_text.logprobs"], "truncation": "auto"},
]


@pytest.mark.parametrize("column", COLUMNS)
def test_each_part_of_a_request_is_sent_refused_or_reported(column: str) -> None:
    sent = 0
    for fields in REQUESTS:
        request = decode_request(encode({"model": "m", "input": [HELLO], **fields}))
        try:
            payload, losses = drive(column, request)
        except InvalidRequestError:
            continue
        assert payload, fields
        assert all(losses), fields
        sent += 1
    assert sent > len(REQUESTS) // 2

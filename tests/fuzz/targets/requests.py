"""Invariant: any body is decoded and translated for every upstream, or refused with a code that tells the
client what to correct, in linear time; an accepted body can be encoded, and decoding gives the same value
again."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.dialects.anthropic_messages import MessagesOptions, from_messages, to_messages
from openresponses_bridge.dialects.chat_completions import answer_options, from_chat, to_chat
from openresponses_bridge.dialects.responses import to_responses
from openresponses_bridge.dialects.vscode import decode_chat, from_vscode, to_vscode
from openresponses_bridge.errors import BridgeError, WireError
from openresponses_bridge.models.tokens import request_tokens
from openresponses_bridge.protocol.beyond import with_beyond
from openresponses_bridge.protocol.codec import (
    decode_compact_request,
    decode_create_message,
    decode_request,
    encode,
)
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.seal import Sealer
from tests.fuzz.core import Target

Read = Callable[[bytes], CreateResponse]
SEALER = Sealer(bytes(32), nonce=lambda: bytes(12))


def _vscode(data: bytes) -> CreateResponse:
    return from_vscode(decode_chat(data))[0]


def _chat(data: bytes) -> CreateResponse:
    request = from_chat(data)[0]
    answer_options(data)
    return request


def _message(data: bytes) -> CreateResponse:
    message = decode_create_message(data)
    return CreateResponse(**{name: getattr(message, name) for name in CreateResponse.__struct_fields__})


def any_body(data: bytes, read: Read) -> None:
    try:
        request = read(data)
    except WireError as error:
        _is_json_error(error)
        return
    except BridgeError as error:
        _is_the_clients(error)
        return
    if read in _OUR_OWN:
        # the list of what was found beside the known fields is made anew: a client could write it otherwise
        sent = encode(with_beyond(request, []))
        assert encode(with_beyond(decode_request(sent), [])) == sent
    for translate in _ONWARD:
        try:
            body, losses = translate(request)
        except BridgeError as error:
            _is_the_clients(error)
            continue
        json.loads(encode(body))
        assert all(case.where and case.what for case in losses)
    items = request.input if isinstance(request.input, list) else []
    assert request_tokens(request, items) >= 0


def any_compaction(data: bytes) -> None:
    try:
        request = decode_compact_request(data)
    except BridgeError as error:
        _is_the_clients(error)
        return
    sent = encode(with_beyond(request, []))
    assert encode(with_beyond(decode_compact_request(sent), [])) == sent


def _is_json_error(error: WireError) -> None:
    """Assert that the error is one that a route answers with 400, as the surface's own error."""
    assert error.code == WireError.INVALID_JSON


def _is_the_clients(error: BridgeError) -> None:
    assert 400 <= error.http_status < 500, error
    assert error.message
    encode({"code": error.code, "message": error.message, "param": error.param})


_OUR_OWN: tuple[Read, ...] = (decode_request, _message)  # those of the others are never kept
_ONWARD: tuple[Callable[[CreateResponse], tuple[Any, Any]], ...] = (
    partial(to_chat, model="m"),
    partial(to_messages, model="m", sealer=SEALER),
    partial(to_messages, model="m", sealer=SEALER, options=MessagesOptions(stream=True)),
    partial(to_responses, model="m"),
    lambda request: to_vscode(request, model="m", tool_identities=ToolIdentityMap()),
)

# ── seeds ──────────────────────────────────────────────────────────────────────────────────────────────
_FUNCTION = {
    "type": "function",
    "name": "f",
    "parameters": {"type": "object", "properties": {"a": {"enum": [1]}}},
}
_RESPONSE = {
    "model": "m",
    "input": [
        {
            "role": "user",
            "content": [{"type": "input_text", "text": "Hi"}, {"type": "input_image", "image_url": "u"}],
        },
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "a", "annotations": []}],
        },
        {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": SEALER.seal(b"{}", "thinking")},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "1"},
        {"type": "item_reference", "id": "msg_1"},
    ],
    "instructions": "Be brief.",
    "tools": [
        _FUNCTION,
        {"type": "custom", "name": "patch", "format": {"type": "text"}},
        {
            "type": "custom",
            "name": "g",
            "format": {"type": "grammar", "syntax": "lark", "definition": "s: x"},
        },
        {"type": "local_shell"},
        {"type": "namespace", "name": "n", "description": "d", "tools": [_FUNCTION]},
        {
            "type": "web_search",
            "filters": {"allowed_domains": ["a"]},
            "user_location": {"type": "approximate"},
        },
        {"type": "file_search", "vector_store_ids": ["v"], "max_num_results": 2},
        {
            "type": "mcp",
            "server_label": "l",
            "server_url": "u",
            "headers": {"a": "b"},
            "allowed_tools": ["t"],
        },
        {"type": "code_interpreter", "container": {"type": "auto"}},
        {"type": "image_generation"},
    ],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}},
    "reasoning": {"effort": "low", "summary": "auto"},
    "metadata": {"a": "b"},
    "max_output_tokens": 9,
    "temperature": 0.5,
    "top_p": 0.5,
    "top_logprobs": 1,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.1,
    "stream": True,
    "stream_options": {"include_obfuscation": False},
    "store": True,
    "background": False,
    "include": ["reasoning.encrypted_content"],
    "parallel_tool_calls": False,
    "max_tool_calls": 3,
    "truncation": "auto",
    "service_tier": "auto",
    "safety_identifier": "s",
    "prompt_cache_key": "k",
    "user": "u",
    "previous_response_id": "resp_1",
    "context_management": [{"type": "compaction", "compact_threshold": 1000}],
}
_CHAT = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "s"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "u"}}],
        },
        {
            "role": "assistant",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "1"},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
    "stop": ["a"],
    "stream_options": {"include_usage": True},
    "logprobs": True,
    "top_logprobs": 2,
    "max_completion_tokens": 3,
    "max_tokens": 3,
    "n": 1,
    "temperature": 0.5,
    "top_p": 0.5,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.1,
    "logit_bias": {"1": 1},
    "seed": 1,
    "user": "u",
    "store": False,
    "metadata": {"a": "b"},
    "parallel_tool_calls": True,
    "reasoning_effort": "low",
    "functions": [{"name": "f", "parameters": {}}],
    "function_call": {"name": "f"},
    "modalities": ["text"],
    "prediction": {"type": "content", "content": "x"},
    "web_search_options": {"user_location": {"type": "approximate", "approximate": {}}},
    "prompt_cache_key": "k",
    "service_tier": "auto",
}
_MESSAGES = {
    "model": "m",
    "max_tokens": 9,
    "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "1"}]},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "eA=="}},
                {
                    "type": "document",
                    "source": {"type": "text", "media_type": "text/plain", "data": "d"},
                    "title": "t",
                },
            ],
        },
    ],
    "tools": [
        {"name": "f", "input_schema": {"type": "object"}},
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 1, "allowed_domains": ["a"]},
        {"type": "bash_20250124", "name": "bash"},
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 1},
        {
            "type": "custom",
            "name": "c",
            "description": "d",
            "input_schema": {},
            "cache_control": {"type": "x"},
        },
    ],
    "mcp_servers": [{"type": "url", "url": "u", "name": "n", "authorization_token": "t"}],
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {}}},
    "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]},
    "container": "c",
    "service_tier": "auto",
    "stop_sequences": ["a"],
    "stream": True,
    "temperature": 0.5,
    "top_k": 3,
    "top_p": 0.5,
    "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "metadata": {"user_id": "u"},
}
_VSCODE_CHAT = {
    "model": "m",
    "messages": [
        {"role": 1, "content": [{"type": "LanguageModelTextPart", "value": "Hi"}]},
        {
            "role": 2,
            "content": [{"type": "LanguageModelToolCallPart", "callId": "gw-c", "name": "f", "input": {}}],
        },
        {
            "role": "user",
            "content": [
                {"type": "LanguageModelToolResultPart", "callId": "gw-c", "content": [{"value": "1"}]}
            ],
        },
    ],
    "options": {
        "tools": [{"name": "f", "description": "d", "inputSchema": {}}],
        "toolMode": 2,
        "modelOptions": {"temperature": 0.5, "reasoningEffort": "low"},
        "modelConfiguration": {"reasoningEffort": "high"},
        "justification": "j",
    },
    "reasoning": {"effort": "low"},
    "previous_response_id": "resp_1",
}
_COMPACT = {"model": "m", "input": [{"role": "user", "content": "Hi"}], "previous_response_id": "resp_1"}


def _bodies(*values: dict[str, Any]) -> tuple[bytes, ...]:
    return tuple(json.dumps(value).encode() for value in values)


WORDS = (
    b'"type":',
    b'"role":',
    b'"content":',
    b'"id":',
    b'"$ref"',
    b'"item_reference"',
    b'"file_id":"f"',
    b'"system"',
)
TARGETS = [
    Target(
        "request-responses",
        partial(any_body, read=decode_request),
        _bodies(_RESPONSE, {"input": "Hi"}),
        WORDS,
    ),
    Target(
        "request-websocket",
        partial(any_body, read=_message),
        _bodies({"type": "response.create", **_RESPONSE}, {"type": "response.create", "generate": False}),
        WORDS,
    ),
    Target("request-chat", partial(any_body, read=_chat), _bodies(_CHAT), WORDS),
    Target(
        "request-messages",
        partial(any_body, read=lambda data: from_messages(data, SEALER)[0]),
        _bodies(_MESSAGES),
        WORDS,
    ),
    Target("request-vscode", partial(any_body, read=_vscode), _bodies(_VSCODE_CHAT), WORDS),
    Target("request-compact", any_compaction, _bodies(_COMPACT), WORDS),
]
